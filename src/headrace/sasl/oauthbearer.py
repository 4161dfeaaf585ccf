"""The client of OAUTHBEARER (RFC 7628, KIP-255): a bearer token, and Kafka's extensions. Pure.

The token crosses the wire as it is: OAUTHBEARER belongs on TLS.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.sasl.errors import CredentialsRefused, SaslError
from headrace.sasl.secret import Secret

MECHANISM: Final = "OAUTHBEARER"
REFUSAL_BYTES_MAX: Final = 16 * 1024
REFUSAL_CHARS_MAX: Final = 500
_SEPARATOR: Final = "\x01"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


class OAuthBearerClient:
    """One exchange of OAUTHBEARER."""

    mechanism: Final = MECHANISM

    def __init__(self, token: Secret, extensions: Mapping[str, str] | None = None) -> None:
        """Take a token; raise SaslError for one that HTTP could not carry."""
        if not _TOKEN.fullmatch(token.reveal()):
            raise SaslError(
                "the OAuth token is empty or has characters that a bearer token cannot have; "
                "check where it comes from (it is not shown)"
            )
        for name, value in (extensions or {}).items():
            check_extension(name, value)
        parts = [f"auth=Bearer {token.reveal()}"]
        parts += [f"{name}={value}" for name, value in (extensions or {}).items()]
        ended = "".join(part + _SEPARATOR for part in parts)
        self._message = Secret(f"n,,{_SEPARATOR}{ended}{_SEPARATOR}")
        self._is_sent = False
        self.refusal: str | None = None
        """Why the server refused the token, in its own words; RFC 7628 lets the client say
        `\\x01` before the server ends the exchange."""

    def step(self, challenge: bytes) -> bytes | None:
        """Take a message of the server; return the next of the client, or None at the end."""
        if not self._is_sent:
            self._is_sent = True
            return self._message.reveal().encode()
        if self.refusal is not None:
            raise CredentialsRefused(f"the token was refused: {self.refusal}")
        if not challenge:
            return None
        self.refusal = _refusal(challenge)
        return _SEPARATOR.encode()


def check_extension(name: str, value: str) -> None:
    """Raise SaslError for an extension that Kafka does not take."""
    if not _KEY.fullmatch(name) or name == "auth":
        raise SaslError(f"the SASL extension {name!r}: a name has letters only and is not 'auth'")
    if not _VALUE.fullmatch(value):
        raise SaslError(f"the SASL extension {name!r}: its value is not printable ASCII")


def _refusal(challenge: bytes) -> str:
    """Return the reason in a server's JSON: its status, scope and the rest, in few words."""
    if len(challenge) > REFUSAL_BYTES_MAX:
        return "the server sent a reason that is too long"
    try:
        said = msgspec.json.decode(challenge, type=dict[str, object])
    except msgspec.DecodeError:
        return "the server sent a reason that cannot be read"
    words = ", ".join(f"{name}: {value}" for name, value in said.items())
    return words[:REFUSAL_CHARS_MAX] or "no reason given"
