"""What threatens a table: retention that is about to pass it, a topic that is another one.

A loss that has happened stops the run (`planning.Gap`). These are the ones to come.
"""

from collections.abc import Mapping
from typing import Final

from headrace.client.offsets import list_offsets
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.spark.blocking import BlockingCluster, cluster_of
from headrace.spark.lookup import ends, find_topics
from headrace.spark.offsets import EARLIEST, LATEST
from headrace.spark.read_options import ReadOptions
from headrace.spark.tables.commits import Head
from headrace.spark.tables.definition import Definition
from headrace.spark.tables.topic_view import topic_configs
from headrace.surroundings import clocks

WARN_AT: Final = 0.8
"""What part of its time a record may wait for the table before that is an alarm."""


def alarms_of(definition: Definition, options: ReadOptions, head: Head) -> list[str]:
    """Return what a person should know about a table now."""
    blocking = cluster_of(options.connecting)
    return blocking.run(_alarms(blocking, definition, options, head))


async def _alarms(
    blocking: BlockingCluster, definition: Definition, options: ReadOptions, head: Head
) -> list[str]:
    cluster = blocking.cluster
    found = await find_topics(cluster, options.subscription)
    configs = await topic_configs(cluster, definition.topic)
    earliest = await ends(cluster, found.partitions, EARLIEST, options)
    latest = await ends(cluster, found.partitions, LATEST, options)
    places = {each: next_offset(definition, head, each, earliest) for each in found.partitions}
    waiting = {each: place for each, place in places.items() if place < latest[each]}
    if "delete" not in configs.get("cleanup.policy", "delete") or not waiting:
        return []
    alarms = []
    retention_ms = int(configs.get("retention.ms") or -1)
    if retention_ms > 0:
        now_ms = clocks().time_ns() // 1_000_000
        old_ms = now_ms - int(retention_ms * WARN_AT)
        try:
            newer = values_of(await list_offsets(cluster, dict.fromkeys(waiting, old_ms)))
        except HeadraceError as error:
            return [f"whether retention is about to pass the table is unknown: {error}"]
        firsts = {each: place.offset for each, place in newer.items()}
        alarms += overtaken(waiting, firsts, latest, retention_ms)
    if int(configs.get("retention.bytes") or -1) > 0:
        alarms += crowded(waiting, earliest, latest)
    return alarms


def next_offset(
    definition: Definition,
    head: Head,
    partition: TopicPartition,
    earliest: Mapping[TopicPartition, int],
) -> int:
    """Return the offset that a table needs next, also of a partition that was not begun."""
    given = definition.start_offsets.get(str(partition.partition), earliest[partition])
    return head.offsets.get(partition.partition, given)


def overtaken(
    waiting: Mapping[TopicPartition, int],
    firsts: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    retention_ms: int,
) -> list[str]:
    """Return partitions whose next records are older than most of the retention time.

    `firsts` are the first offsets that are not; -1 if all are older.
    """
    return [
        f"retention is about to pass the table: records of {each} from offset {place} on are older "
        f"than {WARN_AT:.0%} of retention.ms ({retention_ms}); raise it, or run the table"
        for each, place in sorted(waiting.items())
        if place < (latest[each] if firsts[each] < 0 else firsts[each])
    ]


def crowded(
    waiting: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
) -> list[str]:
    """Return partitions whose next records are among the first that retention.bytes removes."""
    return [
        f"retention is about to pass the table: {each} keeps offsets {earliest[each]} to "
        f"{latest[each] - 1} (retention.bytes), and the table is at {place}; raise it, or run the "
        "table"
        for each, place in sorted(waiting.items())
        if earliest[each] > 0
        and (place - earliest[each]) < (1 - WARN_AT) * (latest[each] - earliest[each])
    ]
