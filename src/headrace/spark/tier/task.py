"""What a task does: segments of the store to the rows that Spark takes."""

from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.client.topics import TopicPartition
from headrace.records.errors import RecordsError
from headrace.records.header import read_header
from headrace.remote.leases import Lease, check_lease, finish_part, renew_lease
from headrace.remote.segment_reads import SegmentRead
from headrace.remote.store import NoSuchObject, StoreError
from headrace.spark import loss
from headrace.spark.fetching import Chunk
from headrace.spark.planning import Range
from headrace.spark.reading import UnreadableRecords, decode_chunk
from headrace.spark.schema import RowShape
from headrace.spark.tier.options import TierOptions
from headrace.spark.tier.planning import Slice
from headrace.spark.tier.stores import BlockingStore
from headrace.surroundings import clocks


class TierTask(InputPartition):
    """One task of Spark's: neighbouring slices of one partition."""

    def __init__(
        self, slices: Sequence[Slice], lease: Lease | None, number: int = 0, count: int = 1
    ) -> None:
        """Take its slices, the lease of all tasks, and which of how many tasks it is."""
        super().__init__(None)
        self.slices = tuple(slices)
        self.lease = lease
        self.number = number
        self.count = count


def read_task(
    blocking: BlockingStore, task: TierTask, options: TierOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task as rows, about one part of a segment at a time."""
    keeper = LeaseKeeper(blocking, task, options.lease_ms)
    keeper.begin()
    shape: RowShape | None = None
    for each in task.slices:
        partition = each.segment.partition
        shape = shape or RowShape(options.columns, partition.topic, partition.index)
        for chunk in read_chunks(blocking, each, options, keeper):
            wanted = Range(partition.topic, partition.index, each.start, each.stop)
            for records in decode_chunk(chunk, wanted, options.limits):
                if records.num_rows:
                    yield shape.rows(records)
    keeper.finish()


def read_chunks(
    blocking: BlockingStore, wanted: Slice, options: TierOptions, keeper: "LeaseKeeper"
) -> Iterator[Chunk]:
    """Yield the batches of a slice with the aborted transactions that touch them."""
    segment = wanted.segment
    partition = TopicPartition(segment.partition.topic, segment.partition.index)
    reading = SegmentRead(
        blocking.objects, segment, wanted.start, wanted.stop, part_bytes=options.part_bytes
    )
    position = wanted.start
    try:
        while True:
            keeper.renew()
            batches = blocking.run(reading.next_batches())
            if batches is None:
                return
            base = read_header(batches).base_offset
            start, position = max(position, base), reading.next_offset
            aborted = [
                (producer_id, first)
                for producer_id, first, last in wanted.aborted
                if first < position and last >= start
            ]
            yield Chunk(batches, aborted, start, position)
    except NoSuchObject as error:
        what = (
            f"deleted: {error}, which has offsets {position} to {wanted.stop - 1} of {partition} "
            "(it expired, or its topic was deleted, when no lease held it any more)"
        )
        loss.report(what, fails=options.limits.fails_on_data_loss)
    except RecordsError as error:
        raise UnreadableRecords(
            f"segment {segment.text} from offset {position} on: {error.message}; the object is "
            "damaged (`headrace tier fsck --checksums` shows more)"
        ) from None
    finally:
        blocking.run(reading.close())


class LeaseKeeper:
    """Holds the lease while a task reads. A store that does not take it is no reason to stop."""

    def __init__(self, blocking: BlockingStore, task: TierTask, lease_ms: int) -> None:
        self._blocking = blocking
        self._lease = task.lease
        self._task = task
        self._lease_ms = lease_ms

    def begin(self) -> None:
        """Write the lease again if an earlier run of the query has ended it."""
        if self._lease is not None:
            store, now_ms = self._blocking.store, _now_ms()
            self._try(check_lease(store, self._lease, now_ms, self._lease_ms))

    def renew(self) -> None:
        """Renew the lease if it is time."""
        now_ms = _now_ms()
        if self._lease is None or self._lease.expires_ms - now_ms > self._lease_ms * 2 // 3:
            return
        store = self._blocking.store
        if not self._try(renew_lease(store, self._lease, now_ms, self._lease_ms)):
            # Not at once again.
            self._lease = self._lease.renewed(now_ms - self._lease_ms // 4, self._lease_ms)

    def finish(self) -> None:
        """Record that this task is done; the last one ends the lease."""
        if self._lease is None:
            return
        work = finish_part(
            self._blocking.store, self._lease.id, self._task.number, self._task.count
        )
        try:
            self._blocking.run(work)
        except StoreError as error:
            loss.LOG.warning("the lease %s ends later, by itself: %s", self._lease.id, error)

    def _try(self, work: Coroutine[Any, Any, Lease]) -> bool:
        assert self._lease is not None
        try:
            self._lease = self._blocking.run(work)
        except StoreError as error:
            loss.LOG.warning("the lease %s was not renewed: %s", self._lease.id, error)
            return False
        return True


def _now_ms() -> int:
    return clocks().time_ns() // 1_000_000
