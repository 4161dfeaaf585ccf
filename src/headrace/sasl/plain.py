"""The client of PLAIN (RFC 4616): user name and password in one message. Pure.

The password crosses the wire as it is: PLAIN belongs on TLS.
"""

from typing import Final

from headrace.sasl.errors import InvalidSaslMessage, SaslError
from headrace.sasl.secret import Secret

MECHANISM: Final = "PLAIN"


class PlainClient:
    """One exchange of PLAIN."""

    mechanism: Final = MECHANISM

    def __init__(self, username: str, password: Secret) -> None:
        """Take credentials; raise SaslError for a NUL in them, which separates them on the wire."""
        if "\0" in username or "\0" in password.reveal():
            raise SaslError("a user name or password for PLAIN cannot hold a NUL character")
        self._message = Secret(f"\0{username}\0{password.reveal()}")
        self._is_sent = False

    def step(self, challenge: bytes) -> bytes | None:
        """Take a message of the server; return the next of the client, or None at the end."""
        if challenge:
            raise InvalidSaslMessage("the server sent a challenge, which PLAIN does not have")
        if self._is_sent:
            return None
        self._is_sent = True
        return self._message.reveal().encode()
