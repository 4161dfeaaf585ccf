"""The SASL exchange of one connection: handshake, tokens, and when it has to be done again. Pure.

    authentication.handshake("SCRAM-SHA-256")         # -> an error code
    progress = authentication.step(token, now_ms)     # or AuthenticationFailed
    progress.principal                                # once it is done

The machine knows three states: nothing was said, an exchange is going on, and authenticated. A
client that is authenticated may begin another exchange (KIP-368); it keeps its principal and its
mechanism, and its former session holds until the new one does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from headrace.errors import ErrorCode
from headrace.sasl.errors import SaslError

NO_LIFETIME: Final = 0
"""How Kafka says that a session does not end."""


class AuthenticationFailed(SaslError):
    """A client is not who it says. The message is for the client, and has no secret."""


class Progress(NamedTuple):
    """What a step brought."""

    reply: bytes
    principal: str | None = None
    """The authenticated principal."""
    expires_ms: int | None = None
    """When what it proved itself with expires, if it does."""
    is_token: bool = False
    """Whether that is a delegation token: its user may not get another one with it."""


class Exchange(Protocol):
    """One exchange of a mechanism."""

    @property
    def claimed(self) -> str:
        """The principal that the client claims, if known; unproved."""

    def step(self, token: bytes, now_ms: int) -> Progress:
        """Take a client's token; AuthenticationFailed or SaslError if it proves nothing."""


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of a listener."""

    begin: Callable[[], Exchange]
    reauthenticate_ms: int = NO_LIFETIME
    """How long a session lasts at most; 0 for no limit."""


class Authenticated(NamedTuple):
    """A step of `Authentication`."""

    reply: bytes
    is_done: bool
    lifetime_ms: int = NO_LIFETIME


class Authentication:
    """The state of one connection."""

    __slots__ = (
        "_exchange",
        "_mechanism",
        "_mechanisms",
        "_pending",
        "claimed",
        "expires_ms",
        "is_token",
        "principal",
    )

    def __init__(self, mechanisms: Mapping[str, Mechanism]) -> None:
        self._mechanisms = mechanisms
        self._exchange: Exchange | None = None
        self._pending = ""
        """The mechanism of the exchange."""
        self._mechanism = ""
        """The mechanism of the last one that succeeded."""
        self.principal: str | None = None
        self.expires_ms: int | None = None
        """When the session ends."""
        self.is_token = False
        """Whether the client proved itself with a delegation token."""
        self.claimed = ""
        """The principal that the client claimed when it last failed."""

    @property
    def names(self) -> list[str]:
        """The mechanisms that a client may choose."""
        return list(self._mechanisms)

    def handshake(self, name: str) -> ErrorCode:
        """Begin an exchange; whatever is not NONE ends the connection."""
        if self._exchange is not None:
            return ErrorCode.ILLEGAL_SASL_STATE
        mechanism = self._mechanisms.get(name)
        if mechanism is None:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self._mechanism and name != self._mechanism:
            return ErrorCode.ILLEGAL_SASL_STATE
        self._pending, self._exchange = name, mechanism.begin()
        return ErrorCode.NONE

    @property
    def mechanism(self) -> str:
        """The mechanism that the client last chose."""
        return self._pending

    @property
    def is_exchanging(self) -> bool:
        return self._exchange is not None

    def step(self, token: bytes, now_ms: int) -> Authenticated:
        """Take a token of the client; AuthenticationFailed ends the connection."""
        exchange, name = self._exchange, self._pending
        if exchange is None:
            raise AuthenticationFailed("there was no handshake for a SASL mechanism before")
        try:
            progress = exchange.step(token, now_ms)
        except AuthenticationFailed:
            self._exchange, self.claimed = None, exchange.claimed
            raise
        except SaslError as error:
            self._exchange, self.claimed = None, exchange.claimed
            raise AuthenticationFailed(
                f"Authentication failed due to an invalid message of SASL mechanism {name}: {error}"
            ) from None
        if progress.principal is None:
            return Authenticated(progress.reply, is_done=False)
        self._exchange = None
        if self.principal is not None and progress.principal != self.principal:
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {self.principal} to "
                f"{progress.principal}"
            )
        self.principal, self._mechanism = progress.principal, name
        self.is_token = progress.is_token
        self.expires_ms = self._end_of_session(progress.expires_ms, now_ms)
        lifetime_ms = NO_LIFETIME if self.expires_ms is None else self.expires_ms - now_ms
        return Authenticated(progress.reply, is_done=True, lifetime_ms=lifetime_ms)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the session has ended."""
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def _end_of_session(self, expires_ms: int | None, now_ms: int) -> int | None:
        limit_ms = self._mechanisms[self._mechanism].reauthenticate_ms
        if limit_ms <= NO_LIFETIME:
            return expires_ms
        ends_ms = now_ms + limit_ms
        return ends_ms if expires_ms is None else min(ends_ms, expires_ms)
