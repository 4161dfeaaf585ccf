"""What the tier has of one partition: its segments by id, by offset and by leader epoch. Pure.

Look-ups by epoch and offset see finished copies only; lists have every segment until its deletion
is finished, so that whoever left something half done finds it.
"""

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from headrace.remote.lineage import NO_SEGMENTS, Claims, EpochSegments, claims_of, insert
from headrace.remote.segments import (
    DeleteState,
    InvalidSegment,
    InvalidTransition,
    PartitionDelete,
    RemoteSegment,
    SegmentId,
    SegmentNotFound,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
    may_follow,
    may_follow_deletion,
)


class PartitionSegments:
    """The segments of one partition."""

    __slots__ = ("_by_epoch", "_by_start", "_epochs", "_segments", "delete_state", "partition")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.delete_state: DeleteState | None = None
        self._segments: dict[SegmentId, RemoteSegment] = {}
        """In the order in which copies were finished: among overlapping ones the last counts."""
        self._by_start: list[tuple[int, SegmentId]] = []
        self._epochs: dict[int, EpochSegments] = {}
        self._by_epoch: dict[int, list[tuple[int, SegmentId]]] = {}

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it, as of a partition that never was in the tier."""
        return not self._segments and self.delete_state is None

    # Look-ups

    def get(self, id_: SegmentId) -> RemoteSegment | None:
        return self._segments.get(id_)

    def find(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the finished segment that has a record of an epoch at an offset."""
        return self._known(self._epochs.get(epoch, NO_SEGMENTS).find(offset))

    def find_with_aborted(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the first finished segment from an offset on that may have aborted ones."""
        return self._known(self._epochs.get(epoch, NO_SEGMENTS).find_with_aborted(offset))

    def highest_offset(self, epoch: int) -> int | None:
        """Return the last offset of an epoch in finished segments."""
        return self._epochs.get(epoch, NO_SEGMENTS).highest_offset

    def size_bytes(self, epoch: int) -> int:
        """Return the bytes of the finished segments that have records of an epoch."""
        return self._epochs.get(epoch, NO_SEGMENTS).size_bytes

    def segments(self) -> list[RemoteSegment]:
        """Return all segments by start offset."""
        return [self._segments[id_] for _, id_ in self._by_start]

    def segments_of(self, epoch: int) -> list[RemoteSegment]:
        """Return those with records of an epoch, by start offset."""
        return [self._segments[id_] for _, id_ in self._by_epoch.get(epoch, ())]

    def unreferenced(self) -> list[RemoteSegment]:
        """Return the finished segments that answer for no offset, because newer ones do."""
        overlapped = {id_ for epoch in self._epochs.values() for id_ in epoch.overlapped}
        found = (self._segments[id_] for id_ in overlapped)
        return sorted(
            (segment for segment in found if not self._answers(segment)),
            key=lambda segment: (segment.start_offset, segment.id),
        )

    def replay_order(self) -> Iterable[RemoteSegment]:
        """Return all segments in an order in which `restore` leads to the same answers."""
        return self._segments.values()

    def _known(self, id_: SegmentId | None) -> RemoteSegment | None:
        return None if id_ is None else self._segments[id_]

    def _answers(self, segment: RemoteSegment) -> bool:
        return any(self._epochs[epoch].answers_for(segment.id) for epoch, _ in claims_of(segment))

    # Changes

    def check_add(self, segment: RemoteSegment) -> None:
        """Raise if a segment cannot be announced."""
        if segment.state != SegmentState.COPY_STARTED:
            raise InvalidSegment(
                f"segment {segment.text} is announced as {segment.state.name}, "
                f"not as {SegmentState.COPY_STARTED.name}"
            )
        known = self._segments.get(segment.id)
        if known is not None:
            if known.state != SegmentState.COPY_STARTED:
                raise _not_after(segment, known.state, segment.state)
            if not _is_repeated(known, segment):
                raise InvalidSegment(f"the id of segment {segment.text} is taken by another one")
        elif self.delete_state is not None:
            raise InvalidTransition(
                f"segment {segment.text} is refused: the deletion of its partition has begun"
            )

    def add(self, segment: RemoteSegment) -> None:
        """Apply the beginning of a copy; raise if it is refused."""
        self.check_add(segment)
        if segment.id in self._segments:
            self._segments[segment.id] = segment
        else:
            self._insert(segment, claims_of(segment))

    def check_update(self, update: SegmentUpdate) -> None:
        """Raise if a segment does not go to a state from where it is."""
        known = self._segments.get(update.id)
        if known is not None:
            if not may_follow(known.state, update.state):
                raise _not_after(known, known.state, update.state)
            if (
                update.state == SegmentState.COPY_FINISHED != known.state
                and update.broker_id != known.broker_id
            ):
                raise InvalidTransition(
                    f"segment {known.text} cannot be finished by node {update.broker_id}: node "
                    f"{known.broker_id} has announced it since"
                )
        elif update.state != SegmentState.DELETE_FINISHED:  # that may be repeated
            raise SegmentNotFound(
                f"there is no segment {update.id.hex()} of {update.partition.text}"
            )

    def update(self, update: SegmentUpdate) -> None:
        """Apply a step of a segment; raise if it does not follow."""
        self.check_update(update)
        known = self._segments.get(update.id)
        if known is None:
            return
        was_finished = known.state == SegmentState.COPY_FINISHED
        is_finished = update.state == SegmentState.COPY_FINISHED
        if was_finished and not is_finished:
            for epoch, _ in claims_of(known):
                self._leave_epoch(epoch, known)
        if update.state == SegmentState.DELETE_FINISHED:
            self._drop(known)
            return
        custom = update.custom_metadata
        changed = msgspec.structs.replace(
            known,
            broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms,
            state=update.state,
            custom_metadata=known.custom_metadata if custom is None else custom,
        )
        if is_finished and not was_finished:
            del self._segments[known.id]  # to the end: the last one that is finished counts
            self._answer(changed, claims_of(changed))
        self._segments[known.id] = changed

    def check_delete(self, delete: PartitionDelete) -> None:
        """Raise if the deletion of the partition does not go on like this."""
        # A partition that is gone for good is forgotten, and its end may be repeated.
        if self.is_empty and delete.state == DeleteState.FINISHED:
            return
        if not may_follow_deletion(self.delete_state, delete.state):
            state = "not begun" if self.delete_state is None else self.delete_state.name
            raise InvalidTransition(
                f"the deletion of {delete.partition.text} cannot be {delete.state.name}: "
                f"it is {state}"
            )

    def delete(self, delete: PartitionDelete) -> None:
        """Apply a step of the deletion of the partition; nothing is left after the last one."""
        self.check_delete(delete)
        if delete.state != DeleteState.FINISHED:
            self.delete_state = delete.state
            return
        self.delete_state = None
        for known in (self._segments, self._by_start, self._epochs, self._by_epoch):
            known.clear()

    def restore(self, segment: RemoteSegment) -> None:
        """Take a segment over in any state but the last; raise InvalidSegment if it is known."""
        if segment.id in self._segments or segment.state == SegmentState.DELETE_FINISHED:
            raise InvalidSegment(f"segment {segment.text} cannot be restored")
        claims = claims_of(segment)
        self._insert(segment, claims)
        if segment.state == SegmentState.COPY_FINISHED:
            self._answer(segment, claims)

    def _insert(self, segment: RemoteSegment, claims: Claims) -> None:
        row = segment.start_offset, segment.id
        self._segments[segment.id] = segment
        insert(self._by_start, row)
        for epoch, _ in claims:
            if (rows := self._by_epoch.get(epoch)) is None:
                rows = self._by_epoch[epoch] = []
            insert(rows, row)

    def _answer(self, segment: RemoteSegment, claims: Claims) -> None:
        for epoch, claim in claims:
            if (found := self._epochs.get(epoch)) is None:
                found = self._epochs[epoch] = EpochSegments()
            found.add(segment, claim)

    def _leave_epoch(self, epoch: int, segment: RemoteSegment) -> None:
        found = self._epochs[epoch]
        found.remove(segment.id)
        if not found:
            del self._epochs[epoch]

    def _drop(self, segment: RemoteSegment) -> None:
        row = segment.start_offset, segment.id
        del self._segments[segment.id]
        self._by_start.pop(bisect_left(self._by_start, row))
        for epoch, _ in claims_of(segment):
            rows = self._by_epoch[epoch]
            rows.pop(bisect_left(rows, row))
            if not rows:
                del self._by_epoch[epoch]


def _is_repeated(known: RemoteSegment, segment: RemoteSegment) -> bool:
    """Return whether a segment is announced again, perhaps later and by another node."""
    return known == msgspec.structs.replace(
        segment, broker_id=known.broker_id, event_timestamp_ms=known.event_timestamp_ms
    )


def _not_after(
    segment: RemoteSegment, state: SegmentState, target: SegmentState
) -> InvalidTransition:
    return InvalidTransition(
        f"segment {segment.text} is {state.name} and cannot become {target.name}"
    )
