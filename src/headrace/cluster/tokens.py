"""Join tokens at the controller: which ones let a node in, and what goes into the metadata log.

    text = create_token(secret, node_id, expires_at_s)          # anywhere; nothing is proposed
    claim = check_token(text, secret, node_id, now_ms)          # TokenDenied says why not
    entries = begin_join(image, claim, address, now_ms)         # propose, look at the outcome
    entry = finish_join(claim, address, now_ms)                 # propose when the node is in
    entry = revert_join(claim, now_ms)                          # or when it gave up
    entries = revoke(image, claim, now_ms)
    entry = register_token(claim, now_ms)                       # so that it is listed before

A token is made offline, so the log learns of it when it is first shown: `Register` goes before the
first step. What the image says is checked here for a good message; the applier decides, as another
node may show the same token at the same time. Its refusals become the same words with `denied_by`.
`metadata.join_tokens` has the bytes of a token, `metadata.token_states` the states.
"""

import hmac
from enum import Enum
from typing import Final

from headrace.config import INT32_MAX
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.entries import (
    BeginInFlight,
    JoinTokenTransition,
    MarkAborted,
    MarkConsumed,
    Register,
    RevertInFlight,
    TokenTransition,
)
from headrace.metadata.image import Image
from headrace.metadata.join_tokens import (
    SECRET_BYTES,
    InvalidJoinToken,
    JoinClaim,
    TokenFault,
    issue_token,
    verify_token,
)
from headrace.metadata.state import JoinTokenState, TokenStatus
from headrace.metadata.token_states import TokenRefusal, TokenRefused
from headrace.metadata.variants import Octets

EXPIRES_AT_S_MAX: Final = 253_402_300_799
"""The end of the year 9999, so that milliseconds fit wherever they go."""
_ANOTHER: Final = "create another one with `headrace cluster token create`"


class TokenProblem(Enum):
    """Why a token does not let a node in."""

    GARBAGE = "it is no join token"
    WRONG_SECRET = "this cluster did not issue it"
    OTHER_NODE = "it is for another node"
    EXPIRED = "it has expired"
    USED = "a node has joined with it"
    REVOKED = "it was revoked"
    IN_USE = "another node is joining with it"
    INTERRUPTED = "the join was given up meanwhile"


class TokenDenied(KafkaError):
    """A token that does not let a node in. The token itself is never in the message."""

    def __init__(self, problem: TokenProblem, sentence: str, remedy: str) -> None:
        super().__init__(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{sentence}: {remedy}")
        self.problem = problem
        self.sentence = sentence
        self.remedy = remedy


def create_token(secret: bytes, node_id: int, expires_at_s: int) -> str:
    """Return the text with which one node may join, once, through the second of its expiry.

    ValueError for an id or a time that no token can have.
    """
    if not 0 <= node_id < INT32_MAX:
        raise ValueError(f"node id {node_id}: it must be between 0 and {INT32_MAX - 1}")
    if not 0 < expires_at_s <= EXPIRES_AT_S_MAX:
        raise ValueError(f"expiry {expires_at_s}: it must be between 1 and {EXPIRES_AT_S_MAX}")
    return issue_token(token_key(secret), node_id, expires_at_s)


def token_key(secret: bytes) -> bytes:
    """Return the key that signs tokens: a secret of 32 bytes itself, of others one made from it."""
    if len(secret) == SECRET_BYTES:
        return secret
    return hmac.digest(secret, b"headrace join token 1", "sha256")


def read_token(text: str, secret: bytes, now_ms: int) -> JoinClaim:
    """Return what a token says if this cluster issued it and it has not expired, or TokenDenied."""
    try:
        claim = verify_token(text.strip(), token_key(secret), now_ms // 1000)
    except InvalidJoinToken as error:
        raise _invalid(error) from None
    if not 0 <= claim.node_id <= INT32_MAX or claim.expires_at_s > EXPIRES_AT_S_MAX:
        raise TokenDenied(
            TokenProblem.GARBAGE, "the join token has a node id or a time that cannot be", _ANOTHER
        )
    return claim


def check_token(text: str, secret: bytes, node_id: int, now_ms: int) -> JoinClaim:
    """Return what a token says if it is genuine, in time and for this node, or TokenDenied."""
    claim = read_token(text, secret, now_ms)
    if claim.node_id != node_id:
        raise TokenDenied(
            TokenProblem.OTHER_NODE,
            f"the join token is for node {claim.node_id}, not for node {node_id}",
            f"start the node with node.id={claim.node_id}, or create a token for node {node_id} "
            "with `headrace cluster token create`",
        )
    return claim


def begin_join(
    image: Image, claim: JoinClaim, address: str, now_ms: int
) -> list[JoinTokenTransition]:
    """Return what to propose before a node joins from an address, TokenDenied if it must not.

    Nothing for the node that is joining with the token already. `address` is the one that the node
    advertises; the port of its connection would be another one each time.
    """
    state = image.join_token(claim.token_hash)
    if state is None:
        steps: tuple[TokenTransition, ...] = (_register(claim), BeginInFlight(address))
    elif state.status is TokenStatus.ISSUED:
        steps = (BeginInFlight(address),)
    elif state.status is TokenStatus.IN_FLIGHT and state.node_addr == address:
        steps = ()
    else:
        raise _denied(_PROBLEMS[state.status], state)
    return [_entry(claim, step, now_ms) for step in steps]


def finish_join(claim: JoinClaim, address: str, now_ms: int) -> JoinTokenTransition:
    """Return what to propose when the node is in: nobody joins with the token again."""
    return _entry(claim, MarkConsumed(address), now_ms)


def revert_join(claim: JoinClaim, now_ms: int) -> JoinTokenTransition:
    """Return what to propose when the node gave up: it may join from another address."""
    return _entry(claim, RevertInFlight(), now_ms)


def revoke(image: Image, claim: JoinClaim, now_ms: int) -> list[JoinTokenTransition]:
    """Return what to propose so that nobody joins with a token, shown before or not.

    Nothing if that is so; TokenDenied for one that a node has joined with: it is in.
    """
    state = image.join_token(claim.token_hash)
    if state is None:
        steps: tuple[TokenTransition, ...] = (_register(claim), MarkAborted())
    elif state.status in (TokenStatus.ISSUED, TokenStatus.IN_FLIGHT):
        steps = (MarkAborted(),)
    elif state.status is TokenStatus.CONSUMED:
        raise TokenDenied(
            TokenProblem.USED,
            f"the join token cannot be revoked, as {state.node_addr} has joined with it",
            "remove that node from the cluster instead",
        )
    else:
        steps = ()
    return [_entry(claim, step, now_ms) for step in steps]


def register_token(claim: JoinClaim, now_ms: int) -> JoinTokenTransition:
    """Return what to propose so that the log knows a token before it is shown."""
    return _entry(claim, _register(claim), now_ms)


def denied_by(refused: TokenRefused, state: JoinTokenState | None) -> TokenDenied:
    """Return what to tell the node whose proposal the applier refused; `state` as it is now."""
    return _denied(_REFUSALS[refused.refusal], state)


def _register(claim: JoinClaim) -> Register:
    """A token is valid through the second of its expiry: the image has the last millisecond."""
    return Register(claim.expires_at_s * 1000 + 999)


def _entry(claim: JoinClaim, step: TokenTransition, now_ms: int) -> JoinTokenTransition:
    return JoinTokenTransition(Octets(claim.token_hash), step, now_ms)


def _invalid(error: InvalidJoinToken) -> TokenDenied:
    match error.fault:
        case TokenFault.EXPIRED:
            return _denied(TokenProblem.EXPIRED, None)
        case TokenFault.INVALID_MAC:
            return TokenDenied(
                TokenProblem.WRONG_SECRET,
                "the join token was not issued with the secret of this cluster, or is damaged",
                "create one where headrace.cluster.secret.file is that of this cluster",
            )
        case _:
            return TokenDenied(
                TokenProblem.GARBAGE,
                error.message,
                "copy all of what `headrace cluster token create` printed, and nothing else",
            )


def _denied(problem: TokenProblem, state: JoinTokenState | None) -> TokenDenied:
    node = "another node" if state is None or not state.node_addr else state.node_addr
    match problem:
        case TokenProblem.USED:
            sentence = f"the join token was used: {node} has joined with it"
        case TokenProblem.IN_USE:
            sentence = f"{node} is joining with this token"
            remedy = "let it finish, or revoke the token and create another one"
            return TokenDenied(problem, sentence, remedy)
        case TokenProblem.INTERRUPTED:
            sentence = "the join with this token was given up meanwhile"
            return TokenDenied(problem, sentence, "start the node again")
        case TokenProblem.REVOKED:
            sentence = "the join token was revoked"
        case _:
            sentence = "the join token has expired"
    return TokenDenied(problem, sentence, _ANOTHER)


_PROBLEMS: Final = {
    TokenStatus.IN_FLIGHT: TokenProblem.IN_USE,
    TokenStatus.CONSUMED: TokenProblem.USED,
    TokenStatus.EXPIRED: TokenProblem.EXPIRED,
    TokenStatus.ABORTED: TokenProblem.REVOKED,
}
_REFUSALS: Final = {
    TokenRefusal.ALREADY_CONSUMED: TokenProblem.USED,
    TokenRefusal.EXPIRED: TokenProblem.EXPIRED,
    TokenRefusal.ABORTED: TokenProblem.REVOKED,
    TokenRefusal.IN_FLIGHT_CONFLICT: TokenProblem.IN_USE,
    TokenRefusal.NOT_FOUND: TokenProblem.INTERRUPTED,
    TokenRefusal.INVALID_TRANSITION: TokenProblem.INTERRUPTED,
}
