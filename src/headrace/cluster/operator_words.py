"""What operators ask of a node through its node port, and what it responds: the words of OPERATE.

Kafka's protocol has no request for join tokens, links between nodes, sessions or explanations.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headrace.wire.schema import Buffer

HASH_BYTES: Final = 32
HASH_PREFIX_BYTES_MIN: Final = 4
NOBODY: Final = -1
UNKNOWN_MS: Final = -1

_Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
_HashPrefix = Annotated[bytes, Meta(min_length=HASH_PREFIX_BYTES_MIN, max_length=HASH_BYTES)]
_Seconds = Annotated[int, Meta(ge=0, le=2**53)]


class _Word(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The form they share: an array that begins with the name of the class."""


class ViewNode(_Word, frozen=True):
    """Say how you are, and how you see the others."""


class RegisterToken(_Word, frozen=True):
    """Put a join token into the metadata log; the token itself stays where it was made."""

    token_hash: _Hash
    expires_at_s: _Seconds


class ListTokens(_Word, frozen=True):
    """Say which join tokens there are."""


class RevokeToken(_Word, frozen=True):
    """Let nobody join with a token any more."""

    token_hash: _HashPrefix
    """Of the token, or how it begins."""
    expires_at_s: _Seconds = 0
    """Of a token that the log may not know yet, zero if the operator has no such token."""


class NodeRow(msgspec.Struct, frozen=True, array_like=True):
    """A node, as the metadata log has it."""

    node: int
    address: str
    """Of its node port."""
    state: str
    """The state of the node: LEARNER, ACTIVE, DRAINING or DECOMMISSIONED."""
    is_registered: bool
    is_fenced: bool
    is_stopping: bool


class LinkRow(msgspec.Struct, frozen=True, array_like=True):
    """The connection for control from the node to another one."""

    node: int
    state: str
    """idle, connecting, connected or waiting."""
    problem: str
    """Why it is not connected, empty if it is."""


class ProbeRow(msgspec.Struct, frozen=True, array_like=True):
    """Another node in the eyes of SWIM."""

    node: int
    standing: str
    """ALIVE, SUSPECT, UNREACHABLE or LEFT."""
    is_heard: bool


class SessionView(msgspec.Struct, frozen=True, array_like=True):
    """The session of a node with the controller."""

    node: int
    heard_ms_ago: int
    """UNKNOWN_MS if this controller has not heard of it."""
    ends_in_ms: int | None
    is_suspect: bool


class FollowerRow(msgspec.Struct, frozen=True, array_like=True):
    """A member of the metadata log, as its leader sees it."""

    node: int
    lag: int
    """How many entries it lacks."""
    silent_ms: int
    """How long ago it responded, UNKNOWN_MS if it has not in this term."""


class QuorumView(msgspec.Struct, frozen=True, array_like=True):
    """The metadata log and its members, from one node."""

    role: str
    term: int
    leader: int
    """NOBODY if it knows none."""
    commit: int
    last_index: int
    applied: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    failure: str
    """Why the log has stopped, empty if it has not."""
    full_disk: str
    """The error of a disk without room, empty if there is room."""
    followers: tuple[FollowerRow, ...]
    """Of a leader only."""
    explanation: tuple[str, ...]


class NodeView(_Word, frozen=True):
    """A node, and what it sees."""

    node: int
    address: str
    version: str
    cluster_id: str
    waiting: str
    """What it waits for before it serves, empty if it serves."""
    is_controller: bool
    quorum: QuorumView | None = None
    nodes: tuple[NodeRow, ...] = ()
    links: tuple[LinkRow, ...] = ()
    probes: tuple[ProbeRow, ...] = ()
    sessions: tuple[SessionView, ...] = ()


class TokenRow(msgspec.Struct, frozen=True, array_like=True):
    """A join token, by its hash."""

    token_hash: bytes
    status: str
    """ISSUED, IN_FLIGHT, CONSUMED, EXPIRED or ABORTED."""
    expires_at_ms: int
    address: str
    """Of the node that joins or joined with it."""
    node: int
    """The id of that node, NOBODY if it is not known."""


class Tokens(_Word, frozen=True):
    tokens: tuple[TokenRow, ...]


class Done(_Word, frozen=True):
    """What was asked for is so."""

    token_hash: bytes


class Refused(_Word, frozen=True):
    """What was asked for is not possible, or not now."""

    code: int
    """Kafka's error code."""
    message: str


Request = ViewNode | RegisterToken | ListTokens | RevokeToken
Response = NodeView | Tokens | Done | Refused

encode: Final = msgspec.msgpack.Encoder().encode
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_responses: Final[msgspec.msgpack.Decoder[Response]] = msgspec.msgpack.Decoder(Response)


def decode_request(payload: Buffer) -> Request:
    """Read a request; ValueError if it is none."""
    return _requests.decode(payload)


def decode_response(payload: Buffer) -> Response:
    """Read a response; ValueError if it is none."""
    return _responses.decode(payload)
