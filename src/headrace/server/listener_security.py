"""How each listener of a node is protected, made from its settings.

made = make_security(settings, listeners, around)
made["SASL_SSL"].mechanisms
"""

import secrets
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from headrace import config
from headrace.config import InvalidSetting, Settings
from headrace.config.security_checks import ClientListener, enabled_mechanisms
from headrace.ids import BrokerId
from headrace.metadata.credential_shapes import Shape
from headrace.metadata.image import Image
from headrace.sasl import scram
from headrace.security.authentication import Exchange, Mechanism
from headrace.security.certificate_names import parse_rules
from headrace.security.certificates import Certificates
from headrace.security.delegation_tokens import DelegationTokens
from headrace.security.jaas import plain_users
from headrace.security.made_up import SALT_BYTES, salt_secret_of
from headrace.security.node_certificates import node_of
from headrace.security.plain import PlainExchange
from headrace.security.principals import NODE
from headrace.security.scram import ScramExchange, TokenLookup, no_tokens
from headrace.server.secured import ListenerSecurity

NONCE_BYTES: Final = 24
NODE_MECHANISM: Final = scram.SCRAM_SHA_256
"""How nodes prove to each other who they are."""


class Around(NamedTuple):
    """What the protection of listeners needs of a node."""

    image: Callable[[], Image | None]
    """The image, once there is one: SCRAM credentials are in it."""
    now_ms: Callable[[], int]
    certificates: Certificates
    node_secret: bytes
    """What nodes of the cluster, or this one alone, share."""
    salt_secret: Callable[[], bytes]
    """What the salts of unknown names are made with."""
    tokens: Callable[[str], Callable[[], Exchange]]
    """Makes the exchanges of OAUTHBEARER for a listener."""
    delegated: DelegationTokens | None = None
    """Delegation tokens, which clients of SCRAM may log in with."""


def make_security(
    settings: Settings, listeners: list[ClientListener], around: Around
) -> Mapping[str, ListenerSecurity]:
    """Return the protection of each listener that has any; InvalidSetting if it cannot be had."""
    return {
        each.name: _of_listener(settings, each, around) for each in listeners if each.is_secured
    }


def of_nodes(settings: Settings, name: str, around: Around) -> ListenerSecurity:
    """Return the protection of the listener for nodes: they prove that they know the secret."""
    salt = salt_secret_of(around.node_secret)[:SALT_BYTES]
    credential = scram.make_credential(
        NODE_MECHANISM, node_password(around.node_secret), salt, scram.ITERATIONS_MIN
    )

    def find(user: str) -> scram.Credential | None:
        return credential if user == config.NODE_USER else None

    shape = Shape(scram.ITERATIONS_MIN, SALT_BYTES)

    def begin() -> Exchange:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        return ScramExchange(
            *(NODE_MECHANISM, find, nonce, around.salt_secret()),
            principal_of=lambda name: NODE,
            shapes=lambda number: shape,
        )

    return ListenerSecurity(
        name,
        "SASL_PLAINTEXT",
        settings[config.AUTHENTICATION_TIMEOUT_MS],
        around.now_ms,
        mechanisms={NODE_MECHANISM.name: Mechanism(begin)},
        receive_bytes_max=settings[config.SASL_SERVER_MAX_RECEIVE_SIZE],
        failure_delay_ms=settings[config.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS],
    )


def of_certified_nodes(
    settings: Settings, name: str, around: Around, context: Callable[[], ssl.SSLContext]
) -> ListenerSecurity:
    """Return the protection of the listener for nodes that have certificates of the cluster."""

    def identify(certificate: bytes) -> str:
        named, image = node_of(certificate), around.image()
        row = None if named is None or image is None else image.broker(BrokerId(named.node))
        if named is None or row is None or named.folder_id not in row.log_dirs:
            raise ValueError("it is not of a node that this one knows")
        return NODE

    return ListenerSecurity(
        name,
        "SSL",
        settings[config.AUTHENTICATION_TIMEOUT_MS],
        around.now_ms,
        context=context,
        identify=identify,
    )


def node_password(secret: bytes) -> str:
    """Return the password of nodes, which their secret does not follow from."""
    return salt_secret_of(b"password" + secret).hex()


def _of_listener(settings: Settings, listener: ClientListener, around: Around) -> ListenerSecurity:
    name = listener.name
    rules = settings.for_listener(name, config.SSL_PRINCIPAL_MAPPING_RULES)
    uses_names = listener.uses_tls and not listener.uses_sasl
    return ListenerSecurity(
        name,
        listener.protocol,
        settings[config.AUTHENTICATION_TIMEOUT_MS],
        around.now_ms,
        mechanisms=_mechanisms(settings, name, around) if listener.uses_sasl else {},
        receive_bytes_max=settings.for_listener(name, config.SASL_SERVER_MAX_RECEIVE_SIZE),
        failure_delay_ms=settings.for_listener(
            name, config.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS
        ),
        rules=parse_rules(rules) if uses_names else (),
        context=(lambda: around.certificates.context(name)) if listener.uses_tls else None,
    )


def _mechanisms(settings: Settings, listener: str, around: Around) -> dict[str, Mechanism]:
    made = {}
    for name in enabled_mechanisms(settings, listener):
        begin: Callable[[], Exchange]
        if name in scram.MECHANISMS:
            mechanism = scram.MECHANISMS[name]
            begin = _scram(mechanism, _stored(mechanism, around.image), around)
        elif name == "PLAIN":
            begin = _plain(settings, listener)
        elif name == "OAUTHBEARER":
            begin = around.tokens(listener)
        else:
            raise InvalidSetting(f"listener {listener}: there is no SASL mechanism {name}")
        lifetime_ms = settings.for_listener(listener, config.CONNECTIONS_MAX_REAUTH_MS, name)
        made[name] = Mechanism(begin, lifetime_ms)
    return made


def _plain(settings: Settings, listener: str) -> Callable[[], Exchange]:
    text = settings.for_listener(listener, config.SASL_JAAS_CONFIG, "PLAIN")
    users = plain_users(text, f"listener.name.{listener.lower()}.plain.sasl.jaas.config")
    return lambda: PlainExchange(users)


def _scram(
    mechanism: scram.Mechanism,
    find: Callable[[str], scram.Credential | None],
    around: Around,
) -> Callable[[], Exchange]:
    delegated = around.delegated
    find_token: TokenLookup = (
        no_tokens if delegated is None else partial(delegated.login, mechanism)
    )

    def pick(number: int) -> Shape | None:
        image = around.image()
        return None if image is None else image.credential_shapes.pick(mechanism.type_id, number)

    def begin() -> Exchange:
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        salt_secret = around.salt_secret()
        return ScramExchange(
            mechanism, find, nonce, salt_secret, shapes=pick, find_token=find_token
        )

    return begin


def _stored(
    mechanism: scram.Mechanism, image_of: Callable[[], Image | None]
) -> Callable[[str], scram.Credential | None]:
    """Return the look-up of credentials in the metadata log."""

    def find(user: str) -> scram.Credential | None:
        image = image_of()
        row = None if image is None else image.scram_credential(user, mechanism.type_id)
        if row is None:
            return None
        return scram.Credential(row.iterations, row.salt, row.stored_key, row.server_key)

    return find
