"""PLAIN (RFC 4616) of a server: names and passwords from the settings. Pure."""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from headrace.security.authentication import AuthenticationFailed, Progress
from headrace.security.principals import user

WRONG: Final = "Authentication failed: Invalid username or password"
_NOBODY: Final = sha256(b"a password of nobody's").digest()


class PlainExchange:
    """One login: a single message with name and password."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.claimed = ""

    def __repr__(self) -> str:
        return "PlainExchange()"

    def step(self, token: bytes, now_ms: int) -> Progress:
        """Take the message; unknown users take as long as wrong passwords."""
        try:
            authorization_id, name, password = token.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed(
                "Authentication failed: Invalid SASL/PLAIN response: expected 3 tokens"
            ) from None
        self.claimed = name
        if not name or not password:
            raise AuthenticationFailed("Authentication failed: username or password not specified")
        # Hashes have one length, so that comparing tells nothing of a password's.
        given = sha256(password.encode()).digest()
        known = self._users.get(name)
        expected = _NOBODY if known is None else sha256(known.encode()).digest()
        if not hmac.compare_digest(given, expected) or known is None:
            raise AuthenticationFailed(WRONG)
        if authorization_id not in ("", name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return Progress(b"", user(name))
