"""A batch read of the tier: planned on the driver, read from the store by tasks."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from headrace.client.cluster import Cluster
from headrace.client.topics import TopicPartition
from headrace.ids import PartitionIndex
from headrace.remote.coverage import Coverage
from headrace.remote.leases import Lease, end_lease, partitions_of, write_lease
from headrace.remote.searching import AbortedSearch
from headrace.remote.segment_objects import SegmentObjects
from headrace.spark import loss
from headrace.spark.batch import PushesNothing, PushesWhenAsked
from headrace.spark.filters import Bounds, take
from headrace.spark.planning import Range
from headrace.spark.schema import check_schema
from headrace.spark.tier.bounds import (
    Ends,
    ends_of,
    missing,
    readable_ends,
    resolve,
    stable_ends,
)
from headrace.spark.tier.descriptions import Described, describe_from_store, describe_with_brokers
from headrace.spark.tier.options import TierOptions
from headrace.spark.tier.planning import Slice, clip, gaps_between, into_tasks, prune
from headrace.spark.tier.stores import store_of
from headrace.spark.tier.task import TierTask, read_task


class TierReader(DataSourceReader):
    """One read. Pickled to executors: plain data only."""

    def __init__(self, options: TierOptions, schema: StructType) -> None:
        check_schema(schema, options.columns)
        self._options = options
        self._bounds = Bounds()
        if options.pushes_filters is None:
            self.pushFilters = PushesWhenAsked(self._bounds)  # type: ignore[method-assign]
        elif not options.pushes_filters:
            self.pushFilters = PushesNothing()  # type: ignore[method-assign]

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's
        """Accept filters on topics, partitions and offsets; filters on time skip segments."""
        return take(filters, self._bounds)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        blocking = store_of(options.store, options.store_options)
        described, ends = blocking.run(_describe(blocking.objects, options))
        try:
            return blocking.run(plan(blocking.objects, described, ends, options, self._bounds))
        except BaseException:
            if described.lease is not None:
                blocking.run(end_lease(blocking.store, described.lease.id))
            raise

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TierTask):
            return iter(())  # nothing to read: Spark makes a task nevertheless
        options = self._options
        blocking = store_of(options.store, options.store_options)
        return read_task(blocking, partition, options)


async def _describe(objects: SegmentObjects, options: TierOptions) -> tuple[Described, Ends]:
    is_committed = options.limits.is_committed
    if options.connecting is None:
        described = await describe_from_store(objects.store, options)
        return described, await _ends(objects, described, is_committed=is_committed)
    cluster = Cluster(options.connecting.bootstrap, options.connecting)
    try:
        await cluster.connect()
        described = await describe_with_brokers(cluster, objects.store, options)
        ends = await _ends(objects, described, is_committed=is_committed)
        return described, await readable_ends(cluster, ends, is_committed=is_committed)
    finally:
        await cluster.close()


async def _ends(objects: SegmentObjects, described: Described, *, is_committed: bool) -> Ends:
    if is_committed:
        return await stable_ends(objects, described.partitions)
    return ends_of(described.partitions)


async def plan(
    objects: SegmentObjects, described: Described, ends: Ends, options: TierOptions, bounds: Bounds
) -> list[TierTask]:
    """Return the tasks of a read, and let its lease say what they read."""
    partitions = {
        each: known
        for each, known in described.partitions.items()
        if bounds.admits(each.topic, each.partition)
    }
    wanted = await resolve(objects, described.partitions, ends, options)
    planned: list[list[Slice]] = []
    leased: dict[str, list[tuple[PartitionIndex, int, int | None]]] = {}
    for each, known in partitions.items():
        whole = bounds.clip(Range(*each, *wanted[each]))
        for gap in gaps_between(known.gaps, whole.start, whole.stop):
            loss.report(missing(each, *gap), fails=options.limits.fails_on_data_loss)
        slices = prune(clip(known.extents, whole.start, whole.stop), bounds.since_ms)
        if slices:
            planned.append(slices)
            kept = PartitionIndex(each.partition), slices[0].start, slices[-1].stop
            leased.setdefault(each.topic, []).append(kept)
    tasks = into_tasks(
        planned, options.task_bytes, options.partitions_min, options.partition_records_max
    )
    if options.limits.is_committed:
        await _add_aborted(objects, partitions, tasks)
    lease = await _narrow(objects, described, leased)
    return [TierTask(task, lease, number, len(tasks)) for number, task in enumerate(tasks)]


async def _add_aborted(
    objects: SegmentObjects, partitions: dict[TopicPartition, Coverage], tasks: list[list[Slice]]
) -> None:
    """Add to each slice the aborted transactions that touch it."""
    searches = {each: AbortedSearch(objects, known.extents) for each, known in partitions.items()}
    for task in tasks:
        for number, each in enumerate(task):
            partition = each.segment.partition
            search = searches[TopicPartition(partition.topic, partition.index)]
            found = await search.between(each.start, each.stop)
            aborted = tuple((one.producer_id, one.first_offset, one.last_offset) for one in found)
            task[number] = msgspec.structs.replace(each, aborted=aborted)
        await asyncio.sleep(0)


async def _narrow(
    objects: SegmentObjects,
    described: Described,
    leased: dict[str, list[tuple[PartitionIndex, int, int | None]]],
) -> Lease | None:
    """Release what turned out not to be read."""
    lease = described.lease
    if lease is None:
        return None
    if not leased:
        await end_lease(objects.store, lease.id)
        return None
    topics = tuple(
        partitions_of(described.topic_ids[topic], topic, ranges) for topic, ranges in leased.items()
    )
    narrow = msgspec.structs.replace(lease, topics=topics)
    await write_lease(objects.store, narrow)
    return narrow
