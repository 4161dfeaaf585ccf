"""The seams of the tier: who keeps the descriptions of segments, and who reads them for clients.

Look-ups are answered from memory, on the loop, and cost what they find. Changes are events: the
call returns when this node has seen its own event take effect, and raises if it did not.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.records.aborted import AbortedTransaction
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import (
    PartitionDelete,
    PartitionKey,
    RemoteSegment,
    SegmentUpdate,
    TierError,
    TopicIdPartition,
)
from headrace.wire.schema import Buffer


class NotReady(KafkaError):
    """Descriptions that this node has not read yet: whoever asks comes again.

    Never OFFSET_OUT_OF_RANGE, at which a client may skip records.
    """

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"the tier is not ready: {what}")


class RemoteMetadata(Protocol):
    """The descriptions of the segments of the partitions that this node has (KIP-405's RLMM).

    Look-ups by epoch and offset see finished copies only, and NotReady is raised while this node
    has not read what it needs to answer for the partition.
    """

    on_changed: list[Callable[[PartitionKey], None]]
    """Called after an event of a followed partition took effect."""

    def follow(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Keep the descriptions of exactly these partitions, from now on and for the time being."""

    def is_ready(self, key: PartitionKey) -> bool: ...

    def find(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the finished segment of an epoch's lineage that has an offset."""

    def find_with_aborted(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the first finished segment from an offset on that may have aborted ones."""

    def highest_offset(self, key: PartitionKey, epoch: int) -> int | None:
        """Return the last offset of an epoch among the finished segments, None without one."""

    def segments(self, key: PartitionKey) -> Sequence[RemoteSegment]:
        """Return the segments in any state but the last, by start offset."""

    def segments_of(self, key: PartitionKey, epoch: int) -> Sequence[RemoteSegment]:
        """Return those that have records of an epoch, by start offset."""

    def size_bytes(self, key: PartitionKey, epoch: int) -> int:
        """Return the bytes of the finished segments that have records of an epoch."""

    async def add(self, segment: RemoteSegment) -> None:
        """Announce that a copy begins; raise TierError if the description is refused."""

    async def update(self, update: SegmentUpdate) -> None:
        """Announce the next state of a segment; raise TierError if it does not follow."""

    async def delete_partition(self, delete: PartitionDelete) -> None:
        """Announce a step of the deletion of a partition."""


class RemoteRecords(NamedTuple):
    """What was read from the tier."""

    records: memoryview
    """Batches from the one with the offset on; if they are empty, a flag below says why."""
    aborted: list[AbortedTransaction]
    """Those whose marker is in the tier, if they were asked for."""
    asks_local: tuple[int, int] | None = None
    """What to ask of `Log.aborted_transactions` for those whose marker is in the local log; None
    if there is none."""
    is_past_tier: bool = False
    """Whether the tier has no record from the offset on and before `up_to`: the local log may."""
    gap_offset: int | None = None
    """An offset before the records that no segment has, though it is before `up_to`: those from
    there on are lost, or were never copied."""
    is_throttled: bool = False
    """Whether the quota is used up or too many reads wait: whoever asks comes again."""


class SegmentSource(Protocol):
    """The objects of segments, as reading needs them (`remote.segment_objects`)."""

    async def fetch(self, segment: RemoteSegment, begin: int, end: int) -> Buffer:
        """Return the bytes of the log from `begin` up to, not including, `end`."""

    async def fetch_index(self, segment: RemoteSegment, kind: ObjectKind) -> Buffer:
        """Return an index whole; that of transactions is empty where none was aborted."""


class Throttled(TierError):
    """More than the quota allows, or too many that wait."""
