"""Batch reads: the offsets of the moment when the query is planned, cut into tasks."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from headrace.client.cluster import Cluster
from headrace.spark import loss
from headrace.spark.blocking import cluster_of
from headrace.spark.filters import Bounds, take
from headrace.spark.lookup import (
    Found,
    ends,
    find_topics,
    high_watermarks,
    offsets_at,
    resolve,
)
from headrace.spark.offsets import EARLIEST, AtOffsets, Offsets
from headrace.spark.planning import Range, split
from headrace.spark.read_options import ReadOptions
from headrace.spark.reading import RangePartition, read_range
from headrace.spark.schema import check_schema


class BatchReader(DataSourceReader):
    """One batch read. Pickled to executors: plain data only."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema, options.columns)
        self._options = options
        self._bounds = Bounds()
        if options.pushes_filters is None:
            self.pushFilters = PushesWhenAsked(self._bounds)  # type: ignore[method-assign]
        elif not options.pushes_filters:
            self.pushFilters = PushesNothing()  # type: ignore[method-assign]

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's
        """Accept filters on topics, partitions and offsets; filters on time only set the start."""
        return take(filters, self._bounds)

    def partitions(self) -> Sequence[InputPartition]:
        blocking = cluster_of(self._options.connecting)
        return [RangePartition(each) for each in blocking.run(self._plan(blocking.cluster))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())  # nothing to read: Spark makes a task nevertheless
        options = self._options
        return read_range(options.connecting, partition.range, options.limits, options.columns)

    async def _plan(self, cluster: Cluster) -> list[Range]:
        options, bounds = self._options, self._bounds
        found = await find_topics(cluster, options.subscription)
        start, stop = await _extent(cluster, found, options)
        wanted = [each for each in found.partitions if bounds.admits(*each)]
        if bounds.since_ms is not None and wanted:
            since = await offsets_at(cluster, dict.fromkeys(wanted, bounds.since_ms), options)
            for each, offset in since.items():
                start[each] = stop[each] if offset < 0 else max(start[each], offset)
        ranges = [
            bounds.clip(Range(*each, start[each], stop[each], found.id_of(each.topic)))
            for each in wanted
        ]
        return split(ranges, options.partitions_min, options.partition_records_max)


async def _extent(cluster: Cluster, found: Found, options: ReadOptions) -> tuple[Offsets, Offsets]:
    """Return both ends of every partition, clipped to the existing offsets."""
    partitions = found.partitions
    start = await resolve(cluster, options.start, partitions, options, is_start=True)
    stop = await resolve(cluster, options.end, partitions, options, is_start=False)
    fails = options.limits.fails_on_data_loss
    if isinstance(options.start, AtOffsets):
        earliest = await ends(cluster, partitions, EARLIEST, options)
        for each in partitions:
            if start[each] < min(earliest[each], stop[each]):
                loss.report(loss.expired(each, start[each], earliest[each]), fails=fails)
                start[each] = earliest[each]
    if isinstance(options.start, AtOffsets) or isinstance(options.end, AtOffsets):
        # Up to the high watermark: what a transaction holds is there, and may be waited for.
        latest = await high_watermarks(cluster, partitions)
        for each in partitions:
            furthest = max(start[each], stop[each])
            if furthest > latest[each]:
                loss.report(loss.cut_off(each, furthest, latest[each]), fails=fails)
                stop[each] = min(stop[each], latest[each])
    return start, stop


class PushesWhenAsked:
    """A pushFilters that Spark calls when its switch is on, and does not miss when it is off.

    A reader that has the method is refused by Spark unless spark.sql.python.filterPushdown.enabled
    is true. Spark tells by `__func__`, so this names the method of Spark's own class there.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return take(filters, self._bounds)


class PushesNothing:
    """Leaves every filter to Spark."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return filters
