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
EVERY_PARTITION: Final = -1
ABORTED_AT_ONCE: Final = 1000
"""The most moves that one call undoes; the command asks again until fewer are left."""
UNKNOWN_BYTES: Final = -1
UNKNOWN_MS: Final = -1

_Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
_HashPrefix = Annotated[bytes, Meta(min_length=HASH_PREFIX_BYTES_MIN, max_length=HASH_BYTES)]
_Seconds = Annotated[int, Meta(ge=0, le=2**53)]
_Node = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Word(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The form they share: an array that begins with the name of the class."""


class ViewNode(_Word, frozen=True):
    """Ask a node about itself and its view of the others."""


class RegisterToken(_Word, frozen=True):
    """Put a join token into the metadata log; the token itself stays where it was made."""

    token_hash: _Hash
    expires_at_s: _Seconds


class ListTokens(_Word, frozen=True):
    """Ask which join tokens exist."""


class RevokeToken(_Word, frozen=True):
    """Revoke a join token."""

    token_hash: _HashPrefix
    """The hash of the token, or a prefix of it."""
    expires_at_s: _Seconds = 0
    """Expiry of a token that the log may not know yet, zero if the operator has no such token."""


class ListMoves(_Word, frozen=True):
    """Ask which partitions are moving, and how far the node's own copies are."""


class AbortMoves(_Word, frozen=True):
    """Undo moves: one by its id, or those of a topic or of one partition of it."""

    migration_id: str = ""
    topic: str = ""
    partition: int = EVERY_PARTITION


class TakeBackup(_Word, frozen=True):
    """Write down the metadata of the cluster as it is now."""


class RestoreBackup(_Word, frozen=True):
    """Restore the metadata of a backup, into a cluster without topics."""

    data: bytes
    """A backup, in gzip."""
    is_dry_run: bool
    without_configs: tuple[str, ...] = ()
    """Configs of topics that are left out."""


class StartLeaving(_Word, frozen=True):
    """Mark a node as one that leaves the cluster for good."""

    node: _Node
    is_dead: bool = False
    """Whether it is gone already."""


class KeepNode(_Word, frozen=True):
    """Cancel a decommission."""

    node: _Node


class FinishLeaving(_Word, frozen=True):
    """Take the vote of a node that has no replicas any more, and let it stop."""

    node: _Node


class HoldPlacement(_Word, frozen=True):
    """Begin or renew the lease of a plan that moves partitions."""

    version: Annotated[int, Meta(ge=0, le=2**53)] = 0
    """The plan's version, zero for a new one."""
    takes_over: bool = False


class ReleasePlacement(_Word, frozen=True):
    """End the lease of a plan."""

    version: Annotated[int, Meta(ge=0, le=2**53)]


class ShowCa(_Word, frozen=True):
    """Ask which CAs the cluster has, and which nodes have certificates signed by them."""


class RotateCa(_Word, frozen=True):
    """Make a new CA: it replaces the others once every node has a certificate of it."""


class NodeRow(msgspec.Struct, frozen=True, array_like=True):
    """A node, as the metadata log has it."""

    node: int
    address: str
    """The address of its node port."""
    state: str
    """The state of the node: LEARNER, ACTIVE, DRAINING or DECOMMISSIONED."""
    is_registered: bool
    is_fenced: bool
    is_stopping: bool
    replicas: int = 0
    """How many partitions it keeps."""


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
    """Followers of a leader; empty on other nodes."""
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
    """The address of the node that joins, or joined, with it."""
    node: int
    """The id of that node, NOBODY if it is not known."""


class Tokens(_Word, frozen=True):
    tokens: tuple[TokenRow, ...]


class MoveRow(msgspec.Struct, frozen=True, array_like=True):
    """A partition on the move, as the metadata log has it, and the copy of this node."""

    migration_id: str
    """Empty before it is journaled, and for one that only loses replicas."""
    phase: str
    topic: str
    partition: int
    started_ms: int
    """By the wall clock of the controller; zero if it is not journaled."""
    since_ms: int
    """When it came to its phase."""
    leader: int
    isr: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    unavailable: tuple[int, ...]
    """Nodes with a replica that are fenced, shutting down or not registered."""
    own_bytes: int
    """The size of this node's copy, UNKNOWN_BYTES if it has none."""
    own_end_offset: int


class Moves(_Word, frozen=True):
    node: int
    """Whose copies they are."""
    moves: tuple[MoveRow, ...]
    is_complete: bool
    """Whether these are all."""


class AbortedRow(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    partition: int
    refusal: str
    """Why it is not aborted, empty if it is."""


class Aborted(_Word, frozen=True):
    rows: tuple[AbortedRow, ...]


class Done(_Word, frozen=True):
    """What was asked for is so."""

    token_hash: bytes
    pins: tuple[str, ...] = ()
    """Pins of the cluster's CAs, where nodes speak TLS; they go with a new token."""


class BackupTaken(_Word, frozen=True):
    data: bytes
    """The backup, in gzip."""


class BackupRestored(_Word, frozen=True):
    """What was restored, or would be."""

    topics: int
    partitions: int
    configs: int
    quotas: int
    acls: int
    notes: tuple[str, ...]


class AuthorityRow(msgspec.Struct, frozen=True, array_like=True):
    """A CA that nodes trust."""

    fingerprint: bytes
    pin: str
    begins_s: int
    expires_s: int


class CertificateRow(msgspec.Struct, frozen=True, array_like=True):
    """The certificate of a node."""

    node: int
    signer: bytes
    """The fingerprint of the CA that has signed it; empty if the node cannot be asked."""
    expires_s: int
    has_key: bool
    """Whether the node has the key of the newest CA."""


class Ca(_Word, frozen=True):
    """The CAs of a cluster, the newest last, and what its nodes have."""

    authorities: tuple[AuthorityRow, ...]
    nodes: tuple[CertificateRow, ...]
    waiting: tuple[str, ...]
    """What the replacement of a CA waits for, nothing if none is under way."""


class Accepted(_Word, frozen=True):
    """What was asked for is so."""


class Held(_Word, frozen=True):
    """The lease of a plan."""

    version: int
    lease_ms: int


class Refused(_Word, frozen=True):
    """What was asked for is not possible, or not now."""

    code: int
    """Kafka's error code."""
    message: str


Request = (
    ViewNode
    | RegisterToken
    | ListTokens
    | RevokeToken
    | ListMoves
    | AbortMoves
    | TakeBackup
    | RestoreBackup
    | StartLeaving
    | KeepNode
    | FinishLeaving
    | HoldPlacement
    | ReleasePlacement
    | ShowCa
    | RotateCa
)
Response = (
    NodeView
    | Tokens
    | Moves
    | Aborted
    | Done
    | BackupTaken
    | BackupRestored
    | Accepted
    | Held
    | Ca
    | Refused
)

encode: Final = msgspec.msgpack.Encoder().encode
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_responses: Final[msgspec.msgpack.Decoder[Response]] = msgspec.msgpack.Decoder(Response)


def decode_request(payload: Buffer) -> Request:
    """Read a request; ValueError if it is none."""
    return _requests.decode(payload)


def decode_response(payload: Buffer) -> Response:
    """Read a response; ValueError if it is none."""
    return _responses.decode(payload)
