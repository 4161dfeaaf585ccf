r"""A segment in the tier: its description, and the states that it goes through. Pure.

    CopyStarted -> CopyFinished -> DeleteStarted -> DeleteFinished
         \______________________________/^

Each step is an event that every node sees. A state may follow itself: a step that is repeated, by
the same node or by the next leader, is no error. Whatever else is asked for is refused, and the one
who asked hears of it.
"""

from enum import IntEnum
from typing import Final, NamedTuple, NewType, TypeAlias

import msgspec

from headrace.errors import HeadraceError
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName, topic_id_text

SegmentId = NewType("SegmentId", bytes)
"""Sixteen random bytes: every attempt to copy a segment has its own."""

PartitionKey: TypeAlias = tuple[TopicId, PartitionIndex]
"""A partition as the tier knows it: its topic may be deleted, and another one have its name."""


class SegmentState(IntEnum):
    """How far a segment has come, by Kafka's numbers."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class DeleteState(IntEnum):
    """How far the deletion of a whole partition has come, by Kafka's numbers."""

    MARKED = 0
    STARTED = 1
    FINISHED = 2


class TierError(HeadraceError):
    """Base of the errors of the tier."""


class InvalidSegment(TierError):
    """A description that cannot be true, or an id that is taken."""


class SegmentNotFound(TierError):
    """A change of a segment that is not known."""


class InvalidTransition(TierError):
    """A state that does not follow the current one."""


class TopicIdPartition(msgspec.Struct, frozen=True, gc=False):
    """A partition with the name of its topic, as events carry it."""

    topic_id: TopicId
    topic: TopicName
    index: PartitionIndex

    @property
    def key(self) -> PartitionKey:
        return self.topic_id, self.index

    @property
    def text(self) -> str:
        return f"{self.topic}-{self.index} ({topic_id_text(self.topic_id)})"


class SegmentEpoch(NamedTuple):
    """A leader epoch of a segment, and the first offset of that epoch in it."""

    epoch: int
    start_offset: int


class RemoteSegment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The description of a segment: what every node knows without asking the store."""

    partition: TopicIdPartition
    id: SegmentId
    start_offset: int
    end_offset: int
    """The last offset, inclusive, as in Kafka."""
    max_timestamp_ms: int
    """The largest timestamp; -1 if no record has one, which says nothing about age."""
    broker_id: BrokerId
    """The node that reported the current state."""
    event_timestamp_ms: int
    size_bytes: int
    """The size of the log's file, without indexes."""
    epochs: tuple[SegmentEpoch, ...]
    """The leader epochs of its records, in order; at least one."""
    custom_metadata: bytes | None = None
    state: SegmentState = SegmentState.COPY_STARTED
    is_txn_index_empty: bool = False
    """Whether it is known that no transaction was aborted in it."""

    def __post_init__(self) -> None:
        if not self.epochs:
            raise InvalidSegment(f"segment {self.text} has no leader epoch")
        if not 0 <= self.start_offset <= self.end_offset:
            raise InvalidSegment(
                f"segment {self.text} cannot have offsets {self.start_offset} to {self.end_offset}"
            )
        if self.size_bytes < 0:
            raise InvalidSegment(f"segment {self.text} cannot have {self.size_bytes} bytes")

    @property
    def key(self) -> PartitionKey:
        return self.partition.key

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1

    @property
    def text(self) -> str:
        """How log lines and tools name it."""
        return f"{topic_id_text(TopicId(self.id))} of {self.partition.text}"


class SegmentUpdate(NamedTuple):
    """A step of a segment that is known."""

    partition: TopicIdPartition
    id: SegmentId
    event_timestamp_ms: int
    state: SegmentState
    broker_id: BrokerId
    custom_metadata: bytes | None = None


class PartitionDelete(NamedTuple):
    """A step of the deletion of all that a partition has in the tier."""

    partition: TopicIdPartition
    event_timestamp_ms: int
    state: DeleteState
    broker_id: BrokerId


MetadataEvent: TypeAlias = RemoteSegment | SegmentUpdate | PartitionDelete

_NEXT: Final = {
    None: (SegmentState.COPY_STARTED,),
    SegmentState.COPY_STARTED: (SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED),
    SegmentState.COPY_FINISHED: (SegmentState.DELETE_STARTED,),
    SegmentState.DELETE_STARTED: (SegmentState.DELETE_FINISHED,),
    SegmentState.DELETE_FINISHED: (),
}
_NEXT_OF_DELETION: Final = {
    None: (DeleteState.MARKED,),
    DeleteState.MARKED: (DeleteState.STARTED,),
    DeleteState.STARTED: (DeleteState.FINISHED,),
    DeleteState.FINISHED: (),
}


def may_follow(state: SegmentState | None, target: SegmentState) -> bool:
    """Return whether a segment may go from a state, None if it is new, to another or the same."""
    return state == target or target in _NEXT[state]


def may_follow_deletion(state: DeleteState | None, target: DeleteState) -> bool:
    """Return whether the deletion of a partition may go from a state to another or the same."""
    return state == target or target in _NEXT_OF_DELETION[state]
