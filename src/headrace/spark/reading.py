"""Reading one range on an executor: fetched bytes to the rows that Spark takes."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.errors import HeadraceError
from headrace.records.columns import to_arrow
from headrace.records.compression import ReadableBuffer
from headrace.records.errors import InflatedTooLarge, RecordsError
from headrace.spark.blocking import cluster_of
from headrace.spark.fetching import Chunk, RangeFetch
from headrace.spark.options import Connecting
from headrace.spark.planning import Range
from headrace.spark.read_options import FetchLimits
from headrace.spark.salvage import Salvage, Unreadable, salvage
from headrace.spark.schema import RowShape


class UnreadableRecords(HeadraceError):
    """Bytes of a partition that are no records."""


class RangePartition(InputPartition):
    """One task of Spark's: a range."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.range = wanted


def fail(found: Unreadable) -> None:
    """Raise an error with the place of the damage, and what to do."""
    raise UnreadableRecords(
        f"{found}; the log is damaged there (`headrace log dump` shows more): restore it, or read "
        f"around it, up to endingOffsets {found.first} and then from startingOffsets "
        f"{found.last + 1} on, a stream with a new checkpointLocation"
    )


def read_range(
    connecting: Connecting,
    wanted: Range,
    limits: FetchLimits,
    columns: Sequence[str],
    on_unreadable: Callable[[Unreadable], None] = fail,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as rows, about one fetch at a time.

    `on_unreadable` is called with unreadable offsets; if it returns, these are skipped. It may
    return only with read_uncommitted: aborted records are known only from a whole chunk.
    """
    shape = RowShape(columns, wanted.topic, wanted.partition)
    blocking = cluster_of(connecting)
    blocking.connect(is_patient=True)
    fetch = RangeFetch(blocking.cluster, wanted, limits)
    try:
        while True:
            try:
                chunk = blocking.run(fetch.next_chunk())
            except RecordsError as error:  # nobody knows where the next batch would begin
                rest = fetch.position, wanted.stop - 1
                on_unreadable(Unreadable(wanted.topic_partition, *rest, error.message))
                return
            if chunk is None:
                return
            for records in decode_chunk(chunk, wanted, limits, on_unreadable):
                if records.num_rows:
                    yield shape.rows(records)
    finally:
        blocking.run(fetch.close())


def decode_chunk(
    chunk: Chunk,
    wanted: Range,
    limits: FetchLimits,
    on_unreadable: Callable[[Unreadable], None] = fail,
) -> list[pa.RecordBatch]:
    """Return the wanted records of a chunk; batches that cannot be read go to `on_unreadable`."""

    def decode(records: ReadableBuffer) -> pa.RecordBatch:
        return to_arrow(
            records,
            aborted=chunk.aborted,
            start_offset=chunk.start,
            stop_offset=wanted.stop,
            check_crcs=limits.checks_crcs,
        )

    partition = wanted.topic_partition
    try:
        return [decode(chunk.records)]
    except RecordsError as error:
        found = salvage(partition, chunk.records, decode)
        is_too_much_at_once = isinstance(error, InflatedTooLarge) and not limits.is_committed
        if not found.lost and not is_too_much_at_once:
            last = chunk.next_offset - 1
            found = Salvage([], [Unreadable(partition, chunk.start, last, error.message)])
    for each in found.lost:
        on_unreadable(each)
    return found.whole
