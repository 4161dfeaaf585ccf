"""The segments of many partitions, as the events of the metadata topic describe them. Pure.

Whoever applies the same events in the same order gets the same cache, refusals included: an event
that is refused changes nothing, for nobody. Look-ups cost what they find, with 10,000 segments as
with ten.
"""

from collections.abc import Iterator
from typing import Final

from headrace.ids import ZERO_TOPIC_ID, PartitionIndex, TopicName
from headrace.remote.partition_segments import PartitionSegments
from headrace.remote.segments import (
    DeleteState,
    MetadataEvent,
    PartitionKey,
    RemoteSegment,
    SegmentId,
    SegmentUpdate,
    TopicIdPartition,
)


class SegmentCache:
    """The segments of all partitions of which events were applied."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, PartitionSegments] = {}
        self.segment_count = 0

    def apply(self, event: MetadataEvent) -> None:
        """Apply an event; raise InvalidSegment, SegmentNotFound or InvalidTransition."""
        partition = event.partition
        found = self._partitions.get(partition.key)
        known = PartitionSegments(partition) if found is None else found
        before = len(known)
        if isinstance(event, RemoteSegment):
            known.add(event)
        elif isinstance(event, SegmentUpdate):
            known.update(event)
        else:
            known.delete(event)
        self.segment_count += len(known) - before
        self._keep(known, is_new=found is None)

    def check(self, event: MetadataEvent) -> None:
        """Raise what `apply` would raise."""
        known = self._of(event.partition.key)
        if isinstance(event, RemoteSegment):
            known.check_add(event)
        elif isinstance(event, SegmentUpdate):
            known.check_update(event)
        else:
            known.check_delete(event)

    def restore(self, segment: RemoteSegment) -> None:
        """Take a segment of a snapshot over; raise InvalidSegment if it cannot be."""
        found = self._partitions.get(segment.key)
        known = PartitionSegments(segment.partition) if found is None else found
        known.restore(segment)
        self.segment_count += 1
        self._keep(known, is_new=found is None)

    def _keep(self, known: PartitionSegments, *, is_new: bool) -> None:
        if known.is_empty:
            self._partitions.pop(known.partition.key, None)
        elif is_new:
            self._partitions[known.partition.key] = known

    def _of(self, key: PartitionKey) -> PartitionSegments:
        return self._partitions.get(key, _UNKNOWN)

    # Look-ups: see `PartitionSegments`

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Yield the partitions of which something is known. They must not change meanwhile."""
        return (known.partition for known in self._partitions.values())

    def get(self, key: PartitionKey, id_: SegmentId) -> RemoteSegment | None:
        return self._of(key).get(id_)

    def find(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        return self._of(key).find(epoch, offset)

    def find_with_aborted(self, key: PartitionKey, epoch: int, offset: int) -> RemoteSegment | None:
        return self._of(key).find_with_aborted(epoch, offset)

    def highest_offset(self, key: PartitionKey, epoch: int) -> int | None:
        return self._of(key).highest_offset(epoch)

    def size_bytes(self, key: PartitionKey, epoch: int) -> int:
        return self._of(key).size_bytes(epoch)

    def segments(self, key: PartitionKey) -> list[RemoteSegment]:
        return self._of(key).segments()

    def segments_of(self, key: PartitionKey, epoch: int) -> list[RemoteSegment]:
        return self._of(key).segments_of(epoch)

    def unreferenced(self, key: PartitionKey) -> list[RemoteSegment]:
        return self._of(key).unreferenced()

    def delete_state(self, key: PartitionKey) -> DeleteState | None:
        return self._of(key).delete_state

    # For snapshots

    def restore_delete_state(self, partition: TopicIdPartition, state: DeleteState) -> None:
        """Take the state of a deletion that is not finished over."""
        known = self._partitions.setdefault(partition.key, PartitionSegments(partition))
        known.delete_state = state

    def replay_order(self) -> Iterator[PartitionSegments]:
        """Yield all partitions. They must not change meanwhile."""
        return iter(self._partitions.values())


_UNKNOWN: Final = PartitionSegments(
    TopicIdPartition(ZERO_TOPIC_ID, TopicName(""), PartitionIndex(0))
)
"""What a partition has of which nothing is known; never changed."""
