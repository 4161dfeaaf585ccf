"""The protection of a node: its certificates, how clients authenticate, and who may do what.

    protection = Protection(settings, secret, image_of, clock.now_ms)
    protection.of("SASL_SSL")             # how a listener is protected, None if it is not
    protection.client                     # how this node gets into listeners for nodes

With secured listeners or an authorizer, nodes reach each other, and this one itself, on a listener
of their own. Where nodes speak TLS to each other, it is wherever the node port is, and takes the
certificates of the cluster's nodes. Else it is on loopback, and they prove that they have the
cluster's secret. A node without a secret makes one that nobody else has.
"""

import secrets
from collections.abc import Callable
from typing import Final

from headrace import config
from headrace.client.security.settings import (
    SASL_PLAINTEXT,
    SSL,
    ClientSecurity,
    SaslSettings,
    TlsSettings,
)
from headrace.cluster.encryption.node_tls import NodeTls
from headrace.config import Settings
from headrace.config.security_checks import (
    client_listeners,
    has_authorizer,
    is_protected,
    uses_node_tls,
)
from headrace.log.disk import Disk
from headrace.metadata.image import Image
from headrace.node.node_port import listen_address
from headrace.sasl.secret import Secret
from headrace.security.authorizer import Authorizer
from headrace.security.certificates import Certificates
from headrace.security.delegation_tokens import DelegationTokens
from headrace.security.made_up import salt_secret_of
from headrace.security.oauth import TokenKeys
from headrace.security.principals import NODE
from headrace.server.listener_security import (
    NODE_MECHANISM,
    Around,
    make_security,
    node_password,
    of_certified_nodes,
    of_nodes,
)
from headrace.server.listeners import Address
from headrace.server.secured import ListenerSecurity

SECRET_BYTES: Final = 32
SALTS_FILE: Final = "scram-salts"
"""What a node without a secret makes the salts of unknown users with."""


class Protection:
    """What protects a node that is to be protected."""

    def __init__(
        self,
        settings: Settings,
        secret: bytes | None,
        image_of: Callable[[], Image | None],
        now_ms: Callable[[], int],
        tls: Callable[[], NodeTls] | None = None,
    ) -> None:
        """Read certificates and keys; InvalidSetting if they cannot be used.

        `tls` returns the node's own certificate, if nodes speak TLS to each other.
        """
        self._tls = tls
        listeners = client_listeners(settings)
        self._has_given_secret = secret is not None
        secret = secret or secrets.token_bytes(SECRET_BYTES)
        self._salt_secret = salt_secret_of(secret)
        self.secret = secret
        """The cluster's; without one, nobody is let in at the node port."""
        self.certificates = Certificates(
            settings, [each.name for each in listeners if each.uses_tls], now_ms
        )
        self.token_keys = TokenKeys(settings, now_ms)
        key = settings[config.DELEGATION_TOKEN_SECRET_KEY]
        self.delegation_tokens = DelegationTokens(key, image_of, now_ms) if key else None
        """The delegation tokens, if there may be any."""
        around = Around(
            *(image_of, now_ms, self.certificates, secret),
            lambda: self._salt_secret,
            self.token_keys.exchanges,
            self.delegation_tokens,
        )
        named = settings[config.INTER_BROKER_LISTENER_NAME]
        self.node_listener = named.upper() if named else config.NODE_LISTENER
        """The listener that is for nodes only."""
        self.address = None if named else Address(config.NODE_LISTENER, "127.0.0.1", 0)
        """Where to open it, unless it is one of `listeners`."""
        self.client = _client_by_secret(secret)
        """How this node connects to others, and to itself."""
        if tls is None:
            of_node_listener = of_nodes(settings, self.node_listener, around)
        else:
            host, _ = listen_address(settings)
            port = settings[config.NODE_FETCH_PORT]
            self.address = Address(config.NODE_LISTENER, host, port, config.NODE_FETCH_PORT.name)
            self.client = ClientSecurity(
                protocol=SSL, tls=TlsSettings(context=lambda: tls().client_context())
            )
            of_node_listener = of_certified_nodes(
                settings, self.node_listener, around, lambda: tls().listener_context()
            )
        self._of_listeners: dict[str, ListenerSecurity] = {
            **make_security(settings, listeners, around),
            self.node_listener: of_node_listener,
        }
        self.authorizer: Authorizer | None = None
        if has_authorizer(settings):
            self.authorizer = Authorizer(
                lambda: image_of() or Image(),
                (NODE, *config.super_users(settings[config.SUPER_USERS])),
                allows_without_acls=settings[config.ALLOW_EVERYONE_IF_NO_ACL_FOUND],
            )

    @classmethod
    def of_settings(
        cls,
        settings: Settings,
        secret: bytes | None,
        image_of: Callable[[], Image | None],
        now_ms: Callable[[], int],
        tls: Callable[[], NodeTls],
    ) -> "Protection | None":
        """Return the protection of a node, None if its settings ask for none."""
        if uses_node_tls(settings):
            return cls(settings, secret, image_of, now_ms, tls)
        return cls(settings, secret, image_of, now_ms) if is_protected(settings) else None

    @property
    def node_protocol(self) -> str:
        """The security protocol of the listener for nodes."""
        return self._of_listeners[self.node_listener].protocol

    def expiry_seconds(self) -> dict[str, float]:
        """Return for each listener when its certificate expires, in seconds since 1970."""
        expiries = self.certificates.expiry_seconds()
        validity = None if self._tls is None else self._tls().validity
        if validity is not None:
            expiries[self.node_listener] = validity.ends.timestamp()
        return expiries

    def of(self, listener: str) -> ListenerSecurity | None:
        """Return how a listener is protected, None if it is not."""
        return self._of_listeners.get(listener)

    def take_salts(self, disk: Disk) -> None:
        """Make the salts of unknown users as before the last restart, or make a secret for them.

        Salts that change with a restart would tell which users there are. Nodes with the cluster's
        secret make them with that.
        """
        if self._has_given_secret:
            return
        try:
            kept = disk.read(SALTS_FILE)
        except FileNotFoundError:
            kept = b""
        if len(kept) < SECRET_BYTES:
            kept = secrets.token_bytes(SECRET_BYTES)
            disk.replace(SALTS_FILE, kept)
        self._salt_secret = salt_secret_of(kept)

    def start(self) -> None:
        """Look after certificates and keys from now on."""
        self.certificates.start()
        self.token_keys.start()

    def stop(self) -> None:
        self.certificates.stop()
        self.token_keys.stop()


def _client_by_secret(secret: bytes) -> ClientSecurity:
    return ClientSecurity(
        protocol=SASL_PLAINTEXT,
        sasl=SaslSettings(
            mechanism=NODE_MECHANISM.name,
            username=config.NODE_USER,
            password=Secret(node_password(secret)),
        ),
    )
