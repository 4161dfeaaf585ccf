"""What the client's machine of every SASL mechanism looks like. Pure."""

from typing import Protocol


class SaslClient(Protocol):
    """One exchange of a client.

    `step(b"")` returns the first message. From then on `step` takes each of the server's messages
    and returns the next of the client's, or None: the exchange is done, and the server has shown
    what the mechanism demands of it. A failure raises a `SaslError`, and the machine is of no
    further use.
    """

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, as in `sasl.mechanism`."""

    def step(self, challenge: bytes) -> bytes | None:
        """Take a message of the server; return the next of the client, or None at the end."""
