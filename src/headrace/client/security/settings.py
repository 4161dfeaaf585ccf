"""What protects a client's connections, as frozen values. Nothing here shows a secret.

`ClientSecurity.of` takes Kafka's or librdkafka's names; a `ClientSecurity` is hashable and can be
pickled, unless its token comes from a function that cannot. Files are named, not read: each process
reads its own, when it first connects and again when they changed.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.sasl.secret import Secret

SSL: Final = "SSL"
SASL_SSL: Final = "SASL_SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
PROTOCOLS: Final = ("PLAINTEXT", SSL, SASL_PLAINTEXT, SASL_SSL)
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")

TokenCallback = Callable[[], str | Awaitable[str]]
"""Returns an OAuth token. Called for each connection and each re-authentication; a function that
is not a coroutine runs on a thread of its own."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates or a private key: a file, or PEM text."""

    path: str | None = None
    text: Secret | None = None
    form: str | None = None
    """PEM or PKCS12; by its content if not given."""
    password: Secret | None = None


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a client trusts, and how it identifies itself."""

    trusted: Stored | None = None
    """The CAs; those of the operating system if not given."""
    chain: Stored | None = None
    """The client's certificate and those above it."""
    key: Stored | None = None
    """Its private key; in the same place as the chain if not given."""
    checks_host_name: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS
    ciphers: tuple[str, ...] = ()
    """By Java's names or OpenSSL's; OpenSSL's choice if empty."""
    context: Callable[[], ssl.SSLContext] | None = None
    """Returns what new connections use in place of all of this; of a node, whose certificates
    change. It checks whom it trusts, and whoever connects checks whom it has met."""


class TokenEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where to get OAuth tokens with a client's credentials (RFC 6749, 4.4)."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str = ""
    trusted_path: str | None = None
    """CAs of the endpoint, as PEM; those of the operating system if not given."""
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000


class SaslSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a client says who it is."""

    mechanism: str
    username: str = ""
    password: Secret = Secret("")
    extensions: tuple[tuple[str, str], ...] = ()
    token: Secret | None = None
    token_path: str | None = None
    """A file with a token, read for each authentication."""
    token_endpoint: TokenEndpoint | None = None
    token_callback: TokenCallback | None = None


class ClientSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """How a client's connections are protected. `PLAINTEXT` is: not at all."""

    protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    @classmethod
    def of(
        cls, settings: Mapping[str, str], *, token: TokenCallback | None = None
    ) -> "ClientSecurity":
        """Return the security that Kafka's or librdkafka's names ask for.

        Raise InvalidSecurity for a name or value that has no effect here. `token` returns OAuth
        tokens, for OAUTHBEARER.
        """
        from headrace.client.security.parsing import parse_security  # noqa: PLC0415  not for all

        return parse_security(settings, token)

    @classmethod
    def from_file(cls, path: str | Path, *, token: TokenCallback | None = None) -> "ClientSecurity":
        """Return the security in a properties or TOML file, which holds nothing else."""
        from headrace.config.properties import read_file  # noqa: PLC0415  not for all

        return cls.of(read_file(Path(path)), token=token)


PLAINTEXT: Final = ClientSecurity()

SecurityLike = ClientSecurity | Mapping[str, str]
"""What every client takes as `security`."""
