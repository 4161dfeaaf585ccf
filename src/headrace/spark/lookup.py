"""What a cluster says of topics and offsets: the questions that planning asks."""

import re
from collections.abc import Iterable, Mapping

from headrace.client.cluster import Cluster
from headrace.client.metadata import Topic
from headrace.client.offsets import list_offsets
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import topic_id_text
from headrace.spark.offsets import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    Bound,
    Offsets,
    describe,
)
from headrace.spark.options import InvalidOption
from headrace.spark.read_options import ReadOptions, Subscription


class Found:
    """The topics of a subscription as they are now."""

    def __init__(self, topics: Iterable[Topic], partitions: Iterable[TopicPartition]) -> None:
        self.topics = {topic.name: topic for topic in topics}
        self.partitions = sorted(partitions)
        self.known = frozenset(self.partitions)

    def id_of(self, topic: str) -> bytes:
        return self.topics[topic].topic_id

    @property
    def id_texts(self) -> dict[str, str]:
        """The ids as Kafka's tools write them; none of brokers from before topics had ids."""
        return {
            name: topic_id_text(topic.topic_id)
            for name, topic in self.topics.items()
            if any(topic.topic_id)
        }


async def find_topics(
    cluster: Cluster, subscription: Subscription, *, may_be_missing: frozenset[str] = frozenset()
) -> Found:
    """Return the current topics and partitions of a subscription.

    Raise KafkaError if a named topic does not exist, unless that is allowed.
    """
    if subscription.pattern:
        matches = re.compile(subscription.pattern).fullmatch
        listed = await cluster.list_topics()
        topics = [each for each in listed if matches(each.name) and not each.is_internal]
        return Found(topics, _all_partitions(topics))
    found: list[Topic] = []
    for name in subscription.names:
        cluster.forget(name)
        try:
            found.append(await cluster.topic(name))
        except KafkaError as error:
            is_missing = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not is_missing or name not in may_be_missing:
                raise
    if not subscription.assigned:
        return Found(found, _all_partitions(found))
    known = set(_all_partitions(found))
    missing = [
        each
        for each in subscription.assigned
        if each not in known and each.topic not in may_be_missing
    ]
    if missing:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"option 'assign' names {describe(missing)}, which there is not",
        )
    return Found(found, known.intersection(subscription.assigned))


async def ends(
    cluster: Cluster, partitions: Iterable[TopicPartition], end: int, options: ReadOptions
) -> Offsets:
    """Return the first (EARLIEST) or end (LATEST) offsets of partitions at this isolation level."""
    found = await list_offsets(
        cluster, dict.fromkeys(partitions, end), is_committed=options.limits.is_committed
    )
    return {partition: each.offset for partition, each in values_of(found).items()}


async def high_watermarks(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the ends of partitions, records of open transactions included."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {partition: each.offset for partition, each in values_of(found).items()}


async def resolve(
    cluster: Cluster,
    bound: Bound,
    partitions: list[TopicPartition],
    options: ReadOptions,
    *,
    is_start: bool,
) -> Offsets:
    """Return the offset of every partition for a bound."""
    name = "starting" if is_start else "ending"
    if isinstance(bound, AtEnd):
        return await ends(cluster, partitions, bound.end, options)
    if isinstance(bound, AtOffsets):
        check_covered(bound.offsets, partitions, f"{name}Offsets")
        offsets = dict(bound.offsets)
        for end in (EARLIEST, LATEST):
            open_ones = [each for each in partitions if offsets[each] == end]
            offsets |= await ends(cluster, open_ones, end, options)
        return offsets
    times = bound.times
    if bound.everywhere is not None:
        times = dict.fromkeys(partitions, bound.everywhere)
    check_covered(times, partitions, f"{name}OffsetsByTimestamp")
    found = await offsets_at(cluster, times, options)
    late = [each for each, offset in found.items() if offset < 0]
    if late and is_start and not options.late_start_is_end:
        raise InvalidOption(
            f"no record of {describe(late)} is as late as the starting timestamp; set "
            "startingOffsetsByTimestampStrategy=latest to start at the end there"
        )
    return found | await ends(cluster, late, LATEST, options)


async def offsets_at(
    cluster: Cluster, times: Mapping[TopicPartition, int], options: ReadOptions
) -> Offsets:
    """Return the first offsets at these times or later; -1 if there is no record."""
    found = await list_offsets(cluster, times, is_committed=options.limits.is_committed)
    return {partition: each.offset for partition, each in values_of(found).items()}


def check_covered(
    given: Mapping[TopicPartition, int], partitions: list[TopicPartition], name: str
) -> None:
    """Check that exactly all partitions are given: a missing one would have no start."""
    missing, foreign = set(partitions).difference(given), set(given).difference(partitions)
    if missing:
        raise InvalidOption(
            f"option {name!r} does not say where {describe(missing)} is to begin or end; name "
            "every partition (offset -2 is the earliest, -1 the latest)"
        )
    if foreign:
        raise InvalidOption(f"option {name!r} names {describe(foreign)}, which is not read")


def _all_partitions(topics: Iterable[Topic]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions
    ]
