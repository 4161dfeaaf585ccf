"""Streams: micro-batches of offsets, and progress that every lag tool sees.

Spark asks `latestOffset(start)` only when the batch that ended at `start` is in its commit log. So
that is where the stream commits `start` as the offsets of a consumer group. `commit` would come a
batch later, and never for the last one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.spark.blocking import BlockingCluster, cluster_of
from headrace.spark.offsets import StreamOffset
from headrace.spark.progress import Progress
from headrace.spark.read_options import ReadOptions
from headrace.spark.reading import RangePartition, read_range
from headrace.spark.schema import check_schema


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream, on the driver; `read` alone runs on executors, where the rest was not used."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options.columns)
        self._options = options
        self._blocking: BlockingCluster | None = None
        self._made: Progress | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's
        blocking, progress = self._connect()
        return blocking.run(progress.begin()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's
        if self._options.trigger_offsets_max is not None:
            return ReadMaxRows(self._options.trigger_offsets_max)
        if self._options.trigger_offsets_min is not None:
            return ReadMinRows(self._options.trigger_offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's
        blocking, progress = self._connect()
        blocking.run(progress.set_target())

    def latestOffset(  # noqa: N802  Spark's
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Commit `start`, whose batch is durable, and say where the next batch ends."""
        blocking, progress = self._connect()
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        is_all = isinstance(limit, ReadAllAvailable)
        rows_min = None if is_all else self._options.trigger_offsets_min
        done = StreamOffset.from_json(start)
        return blocking.run(progress.advance(done, rows_max, rows_min)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's
        """What Spark shows as the newest offsets in its progress."""
        latest = None if self._made is None else self._made.latest
        return None if latest is None else latest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut a micro-batch into tasks: the same records each time that Spark asks."""
        blocking, progress = self._connect()
        plan = progress.plan(StreamOffset.from_json(start), StreamOffset.from_json(end))
        return [RangePartition(each) for each in blocking.run(plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        options = self._options
        return read_range(options.connecting, partition.range, options.limits, options.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is left to do: see `latestOffset`."""

    def _connect(self) -> tuple[BlockingCluster, Progress]:
        if self._blocking is None or self._made is None:
            self._blocking = cluster_of(self._options.connecting)
            self._made = Progress(self._blocking.cluster, self._options)
        return self._blocking, self._made
