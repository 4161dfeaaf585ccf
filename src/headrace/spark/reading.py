"""Reading one range on an executor: fetched bytes to the rows that Spark takes."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headrace.errors import HeadraceError
from headrace.records.columns import to_arrow
from headrace.records.errors import RecordsError
from headrace.spark.blocking import cluster_of
from headrace.spark.fetching import Chunk, RangeFetch
from headrace.spark.options import Connecting
from headrace.spark.planning import Range
from headrace.spark.read_options import FetchLimits
from headrace.spark.schema import RowShape


class UnreadableRecords(HeadraceError):
    """Bytes of a partition that are no records."""


class RangePartition(InputPartition):
    """One task of Spark's: a range."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.range = wanted


def read_range(
    connecting: Connecting, wanted: Range, limits: FetchLimits, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Give the records of a range as rows, about a fetch's worth at a time."""
    shape = RowShape(columns, wanted.topic, wanted.partition)
    blocking = cluster_of(connecting)
    blocking.connect(is_patient=True)
    fetch = RangeFetch(blocking.cluster, wanted, limits)
    try:
        while True:
            try:
                chunk = blocking.run(fetch.next_chunk())
                if chunk is None:
                    return
                rows = shape.rows(_decode(chunk, wanted, limits))
            except RecordsError as error:
                raise _explained(error, wanted) from error
            if rows.num_rows:
                yield rows
    finally:
        blocking.run(fetch.close())


def _decode(chunk: Chunk, wanted: Range, limits: FetchLimits) -> pa.RecordBatch:
    return to_arrow(
        chunk.records,
        aborted=chunk.aborted,
        start_offset=chunk.start,
        stop_offset=wanted.stop,
        check_crcs=limits.checks_crcs,
    )


def _explained(error: RecordsError, wanted: Range) -> UnreadableRecords:
    return UnreadableRecords(
        f"{wanted.topic}-{wanted.partition}, between offsets {wanted.start} and {wanted.stop}: "
        f"{error.message}; the log is damaged there (`headrace log dump` shows where): restore it, "
        "or read around it with startingOffsets and endingOffsets"
    )
