"""What becomes of a join token: one node joins with it, once, before it expires (seed 004).

    (unknown) -- Register --> ISSUED -- BeginInFlight --> IN_FLIGHT -- MarkConsumed --> CONSUMED
    IN_FLIGHT -- RevertInFlight --> ISSUED         the joiner gave up
    ISSUED, IN_FLIGHT -- MarkExpired --> EXPIRED
    any -- MarkAborted --> ABORTED

A transition that happened already, by the same node, changes nothing: it may be proposed twice. The
time that counts is the entry's: every node comes to the same end, whatever its own clock says.
"""

from enum import Enum
from typing import Final

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.metadata.entries import (
    BeginInFlight,
    JoinTokenTransition,
    MarkAborted,
    MarkConsumed,
    MarkExpired,
    Register,
    RevertInFlight,
)
from headrace.metadata.errors import Refused
from headrace.metadata.events import Event, JoinTokenChanged
from headrace.metadata.image import Image
from headrace.metadata.state import JoinTokenState, TokenStatus

KEPT_AFTER_EXPIRY_MS: Final = 24 * 60 * 60 * 1000
"""How long an operator can still ask what became of a token; its signature says by itself that it
expired. No setting: nodes that disagreed would differ."""


class TokenRefusal(Enum):
    """Why a transition is refused."""

    ALREADY_CONSUMED = "AlreadyConsumed"
    EXPIRED = "Expired"
    ABORTED = "Aborted"
    IN_FLIGHT_CONFLICT = "InFlightConflict"
    NOT_FOUND = "NotFound"
    INVALID_TRANSITION = "InvalidTransition"


class TokenRefused(Refused):
    """A transition that a token's state does not allow."""

    def __init__(self, refusal: TokenRefusal, message: str) -> None:
        super().__init__(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)
        self.refusal = refusal


def change_token(image: Image, entry: JoinTokenTransition) -> list[Event]:
    """Apply a transition of a join token."""
    key = bytes(entry.token_hash)
    token = image.join_token(key)
    if isinstance(entry.transition, Register):
        changed = _register(token, entry.transition)
    elif token is None:
        raise TokenRefused(TokenRefusal.NOT_FOUND, f"join token {_short(entry)} is not registered")
    else:
        changed = _step(token, entry)
    if changed == token:
        return []
    image.state.join_tokens[key] = changed
    return [JoinTokenChanged(key, changed.status)]


def forget_tokens(image: Image, now_ms: int) -> list[Event]:
    """Drop tokens that expired long ago: they are useless anyway."""
    over = [
        key
        for key, token in image.state.join_tokens.items()
        if token.expires_at_ms + KEPT_AFTER_EXPIRY_MS <= now_ms
    ]
    for key in over:
        del image.state.join_tokens[key]
    return [JoinTokenChanged(key, None) for key in over]


def _register(token: JoinTokenState | None, transition: Register) -> JoinTokenState:
    if token is None:
        return JoinTokenState(TokenStatus.ISSUED, transition.expires_at_ms)
    if token.expires_at_ms != transition.expires_at_ms:
        raise TokenRefused(
            TokenRefusal.INVALID_TRANSITION,
            f"the join token is registered with the expiry {token.expires_at_ms}, not "
            f"{transition.expires_at_ms}",
        )
    return token


def _step(token: JoinTokenState, entry: JoinTokenTransition) -> JoinTokenState:
    match entry.transition:
        case BeginInFlight(node_addr):
            return _begin(token, entry, node_addr)
        case MarkConsumed(node_addr):
            return _consume(token, entry, node_addr)
        case RevertInFlight():
            _expect(token, entry, TokenStatus.IN_FLIGHT)
            return replace(token, status=TokenStatus.ISSUED, node_addr=None)
        case MarkExpired():
            if token.status is TokenStatus.EXPIRED:
                return token
            _expect(token, entry, TokenStatus.ISSUED, TokenStatus.IN_FLIGHT)
            if entry.ts_ms <= token.expires_at_ms:
                raise TokenRefused(
                    TokenRefusal.INVALID_TRANSITION,
                    f"join token {_short(entry)} is valid until {token.expires_at_ms}, it cannot "
                    f"expire at {entry.ts_ms}",
                )
            return replace(token, status=TokenStatus.EXPIRED)
        case MarkAborted():
            return replace(token, status=TokenStatus.ABORTED)
        case _:
            raise AssertionError(f"{entry.transition} is handled by the caller")


def _begin(token: JoinTokenState, entry: JoinTokenTransition, node_addr: str) -> JoinTokenState:
    _expect(token, entry, TokenStatus.ISSUED, TokenStatus.IN_FLIGHT)
    _check_is_valid(token, entry)
    if token.status is TokenStatus.IN_FLIGHT:
        _check_is_same_node(token, entry, node_addr)
        return token
    return replace(
        token, status=TokenStatus.IN_FLIGHT, node_addr=node_addr, attempt=token.attempt + 1
    )


def _consume(token: JoinTokenState, entry: JoinTokenTransition, node_addr: str) -> JoinTokenState:
    if token.status is TokenStatus.CONSUMED and token.node_addr == node_addr:
        return token
    _expect(token, entry, TokenStatus.IN_FLIGHT)
    _check_is_same_node(token, entry, node_addr)
    _check_is_valid(token, entry)
    return replace(token, status=TokenStatus.CONSUMED, consumed_at_ms=entry.ts_ms)


def _expect(token: JoinTokenState, entry: JoinTokenTransition, *allowed: TokenStatus) -> None:
    if token.status in allowed:
        return
    raise TokenRefused(
        _REFUSALS.get(token.status, TokenRefusal.INVALID_TRANSITION),
        f"join token {_short(entry)} is {token.status.name}: "
        f"{type(entry.transition).__name__} is not possible; issue another token",
    )


def _check_is_valid(token: JoinTokenState, entry: JoinTokenTransition) -> None:
    if entry.ts_ms > token.expires_at_ms:
        raise TokenRefused(
            TokenRefusal.EXPIRED,
            f"join token {_short(entry)} expired {entry.ts_ms - token.expires_at_ms} ms before: "
            "issue another token",
        )


def _check_is_same_node(token: JoinTokenState, entry: JoinTokenTransition, node_addr: str) -> None:
    if token.node_addr != node_addr:
        raise TokenRefused(
            TokenRefusal.IN_FLIGHT_CONFLICT,
            f"join token {_short(entry)} is in use by {token.node_addr}, not by {node_addr[:256]}",
        )


def _short(entry: JoinTokenTransition) -> str:
    return entry.token_hash[:4].hex()


_REFUSALS: Final = {
    TokenStatus.CONSUMED: TokenRefusal.ALREADY_CONSUMED,
    TokenStatus.EXPIRED: TokenRefusal.EXPIRED,
    TokenStatus.ABORTED: TokenRefusal.ABORTED,
}
