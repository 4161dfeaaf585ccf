"""What nodes of a quorum say to each other, and the bytes of that.

A message is a MessagePack array with a small number first. Everything is sent again when it is
lost, may come late, twice or in another order, and is judged by its term.
"""

from enum import IntEnum
from typing import Final

import msgspec

from headrace.ids import BrokerId as NodeId
from headrace.raft.entries import Entry
from headrace.raft.errors import InvalidMessage
from headrace.raft.membership import Membership


class Refusal(IntEnum):
    """Why a vote was not given."""

    NONE = 0
    OLD_TERM = 1
    LOG_BEHIND = 2
    HAS_LEADER = 3
    HAS_VOTED = 4


class Header(msgspec.Struct, array_like=True, frozen=True):
    """What every message begins with."""

    sender: NodeId
    to: NodeId
    term: int


class PreVote(Header, tag=0, array_like=True, frozen=True):
    """Would you vote for me in this term? It is the sender's term plus one."""

    last_index: int
    last_term: int


class PreVoteAnswer(Header, tag=1, array_like=True, frozen=True):
    """If granted, `term` is that of the request, else that of the responder."""

    refusal: Refusal

    @property
    def is_granted(self) -> bool:
        return self.refusal is Refusal.NONE


class RequestVote(Header, tag=2, array_like=True, frozen=True):
    last_index: int
    last_term: int
    is_transfer: bool
    """Whether the leader requested this election, so that a live leader is no reason to refuse."""


class VoteAnswer(Header, tag=3, array_like=True, frozen=True):
    refusal: Refusal

    @property
    def is_granted(self) -> bool:
        return self.refusal is Refusal.NONE


class Append(Header, tag=4, array_like=True, frozen=True):
    """Entries that follow the one named; without any it only tells the commit index."""

    previous_index: int
    previous_term: int
    commit: int
    entries: list[Entry]


class AppendAccepted(Header, tag=5, array_like=True, frozen=True):
    """The sender's log is durable and as the leader's up to `match_index`."""

    match_index: int


class AppendRejected(Header, tag=6, array_like=True, frozen=True):
    """The sender lacks the entry at `previous_index`; up to `hint_index` it may agree.

    Its entry at `hint_index` is of `hint_term`.
    """

    previous_index: int
    hint_index: int
    hint_term: int


class Heartbeat(Header, tag=7, array_like=True, frozen=True):
    """I lead. `commit` is no further than what the receiver is known to have."""

    commit: int
    round: int
    """Numbers heartbeats, so that a response shows at which of them the sender led."""


class HeartbeatAnswer(Header, tag=8, array_like=True, frozen=True):
    round: int
    hold_ms: int = 0
    """How long the sender will not help elect another leader, even across a restart."""


class InstallSnapshot(Header, tag=9, array_like=True, frozen=True):
    """A piece of a snapshot, from `offset` of its `size_bytes`."""

    index: int
    snapshot_term: int
    membership: Membership
    size_bytes: int
    checksum: int
    """CRC32C of the whole."""
    offset: int
    data: bytes


class SnapshotProgress(Header, tag=10, array_like=True, frozen=True):
    """How much of the snapshot at `index` the sender has."""

    index: int
    next_offset: int


class TimeoutNow(Header, tag=11, array_like=True, frozen=True):
    """Start an election at once: I hand over to you."""


class NewerTerm(Header, tag=12, array_like=True, frozen=True):
    """You lead in a term that is over."""


class ReadRequest(Header, tag=13, array_like=True, frozen=True):
    """Up to where must I have applied to read what is true now?"""

    read_id: int


class ReadAnswer(Header, tag=14, array_like=True, frozen=True):
    read_id: int
    index: int


Message = (
    PreVote
    | PreVoteAnswer
    | RequestVote
    | VoteAnswer
    | Append
    | AppendAccepted
    | AppendRejected
    | Heartbeat
    | HeartbeatAnswer
    | InstallSnapshot
    | SnapshotProgress
    | TimeoutNow
    | NewerTerm
    | ReadRequest
    | ReadAnswer
)
FromLeader = Append | Heartbeat | InstallSnapshot
"""What only a leader sends, once a term is its own."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_message(data: bytes | bytearray | memoryview) -> Message:
    """Read what `encode_message` wrote; InvalidMessage with the reason if it is something else.

    The caller bounds the size of `data`; what comes out is in proportion to it.
    """
    try:
        message: Message = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"a message that cannot be read: {error}") from None
    if message.term < 0 or message.sender < 0:
        raise InvalidMessage(f"a message of term {message.term} from node {message.sender}")
    return message
