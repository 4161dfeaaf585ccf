"""The topology of a streams application, and its requirements on topics.

A member describes the application as *subtopologies*: what each reads (source topics and
repartition topics of the application itself), writes for others (repartition sinks) and keeps
(changelogs of its state). `configure` finds the number of partitions of everything, and with it
the tasks; or it reports the problem: missing source topics, topics that should have the same number
of partitions and do not, internal topics that are not created yet.

A topology that could never work is refused by `check_topology`, whatever topics there are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.streams.partitions import (
    PartitionCounts,
    WrongCounts,
    enforce_copartitioning,
    repartition_counts,
    sources_of,
)
from headrace.groups.streams.tasks import TaskId
from headrace.ids import TopicName
from headrace.metadata.image import Image
from headrace.wire.messages import streams_group_heartbeat_request as requested
from headrace.wire.messages.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)


class StatusCode(IntEnum):
    """What members are told of their group, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Problem(NamedTuple):
    """Why a group cannot begin."""

    code: StatusCode
    detail: str


class InternalTopic(NamedTuple):
    """A topic of the application itself, as it has to be."""

    name: str
    partitions: int
    replication_factor: int
    """Zero for the broker's own."""
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology and the topics there are, put together."""

    problem: Problem | None = None
    task_counts: Mapping[str, int] = field(default_factory=dict)
    """The task count of each subtopology; empty while there is a problem."""
    stateful: frozenset[str] = frozenset()
    """Subtopologies that have changelogs: their tasks may have copies."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The partition count of each topic that is read or kept; empty while there is a problem."""
    to_create: tuple[InternalTopic, ...] = ()

    def tasks(self) -> list[TaskId]:
        return [
            TaskId(name, partition)
            for name, count in sorted(self.task_counts.items())
            for partition in range(count)
        ]


def read_topology(asked: requested.Topology) -> StreamsGroupTopologyValue:
    """Return a topology as its record holds it."""

    def info(topic: requested.TopicInfo) -> TopicInfo:
        configs = [TopicConfig(each.key, each.value) for each in topic.topic_configs]
        return TopicInfo(topic.name, topic.partitions, topic.replication_factor, configs)

    return StreamsGroupTopologyValue(
        asked.epoch,
        [
            Subtopology(
                each.subtopology_id,
                list(each.source_topics),
                list(each.source_topic_regex),
                [info(topic) for topic in each.state_changelog_topics],
                list(each.repartition_sink_topics),
                [info(topic) for topic in each.repartition_source_topics],
                [
                    CopartitionGroup(
                        list(group.source_topics),
                        list(group.source_topic_regex),
                        list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in asked.subtopologies
        ],
    )


def topics_of(topology: StreamsGroupTopologyValue) -> set[str]:
    """Return all topics that a topology reads or keeps state in, even missing ones."""
    names: set[str] = set()
    for each in topology.subtopologies:
        names.update(sources_of(each))
        names.update(topic.name for topic in each.state_changelog_topics)
    return names


def check_topology(topology: StreamsGroupTopologyValue) -> None:
    """STREAMS_INVALID_TOPOLOGY if no topics could ever make this topology work."""
    if topology.epoch < 0:
        raise _invalid(f"the topology has epoch {topology.epoch}: it must be 0 or more")
    names = [each.subtopology_id for each in topology.subtopologies]
    if len(set(names)) < len(names):
        raise _invalid(f"subtopologies {', '.join(sorted(names))}: each needs an id of its own")
    for each in topology.subtopologies:
        _check_subtopology(each)
    # What has no count of its own gets one from what it is written from: where that is must be
    # known, whatever the number is.
    repartition_counts(topology, dict.fromkeys(_external_topics(topology), 1))


def _check_subtopology(each: Subtopology) -> None:
    if not each.source_topics and not each.repartition_source_topics:
        raise _invalid(
            f"subtopology {each.subtopology_id} reads nothing: it needs a source topic or a "
            "repartition topic"
        )
    for topic in each.state_changelog_topics:
        if topic.partitions:
            raise _invalid(
                f"changelog {topic.name} says that it has {topic.partitions} partitions: it gets "
                "one for each task, so it must say 0"
            )
    for topic in each.repartition_source_topics:
        if topic.partitions < 0:
            raise _invalid(
                f"repartition topic {topic.name} says that it has {topic.partitions} partitions: "
                "it must be 1 or more, or 0 for as many as it is written from"
            )
    for group in each.copartition_groups:
        for indexes, topics in (
            (group.source_topics, each.source_topics),
            (group.repartition_source_topics, each.repartition_source_topics),
        ):
            if any(not 0 <= index < len(topics) for index in indexes):
                raise _invalid(
                    f"a copartition group of subtopology {each.subtopology_id} names the topics "
                    f"{indexes} of {len(topics)}"
                )


def _external_topics(topology: StreamsGroupTopologyValue) -> set[str]:
    return {name for each in topology.subtopologies for name in each.source_topics}


def configure(topology: StreamsGroupTopologyValue, image: Image) -> ConfiguredTopology:
    """Put a topology, that was checked, and the topics of the image together."""
    external = _external_topics(topology)
    counts = _existing_counts(external, image)
    if missing := sorted(external - counts.keys()):
        detail = f"source topics that do not exist: {', '.join(missing)}"
        return ConfiguredTopology(Problem(StatusCode.MISSING_SOURCE_TOPICS, detail))
    try:
        counts |= repartition_counts(topology, counts)
        enforce_copartitioning(topology, counts)
        task_counts = {
            each.subtopology_id: max(counts[name] for name in sources_of(each))
            for each in topology.subtopologies
        }
        internal = _internal_topics(topology, counts, task_counts)
        existing = _existing_counts(internal, image)
        _check_existing(internal, existing)
    except WrongCounts as error:
        return ConfiguredTopology(Problem(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, error.args[0]))
    if to_create := tuple(topic for topic in internal.values() if topic.name not in existing):
        names = ", ".join(topic.name for topic in to_create)
        detail = f"internal topics that do not exist yet: {names}"
        return ConfiguredTopology(
            Problem(StatusCode.MISSING_INTERNAL_TOPICS, detail), to_create=to_create
        )
    stateful = (each.subtopology_id for each in topology.subtopologies if _is_stateful(each))
    return ConfiguredTopology(
        None,
        task_counts,
        frozenset(stateful),
        counts | {name: topic.partitions for name, topic in internal.items()},
    )


def _is_stateful(each: Subtopology) -> bool:
    return bool(each.state_changelog_topics)


def _existing_counts(names: Iterable[str], image: Image) -> PartitionCounts:
    found = ((name, image.topic(TopicName(name))) for name in names)
    return {name: len(topic.partitions) for name, topic in found if topic is not None}


def _internal_topics(
    topology: StreamsGroupTopologyValue, counts: PartitionCounts, task_counts: Mapping[str, int]
) -> dict[str, InternalTopic]:
    """Return the internal topics of the application, sorted by name."""
    found: dict[str, InternalTopic] = {}
    for each in topology.subtopologies:
        for topic in each.repartition_source_topics:
            found[topic.name] = _internal_topic(topic, counts[topic.name])
        for topic in each.state_changelog_topics:
            # A source topic that is its own changelog (an optimized table) is not the group's.
            if topic.name not in counts:
                found[topic.name] = _internal_topic(topic, task_counts[each.subtopology_id])
    return dict(sorted(found.items()))


def _internal_topic(topic: TopicInfo, partitions: int) -> InternalTopic:
    configs = tuple((each.key, each.value) for each in topic.topic_configs)
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _check_existing(internal: Mapping[str, InternalTopic], existing: PartitionCounts) -> None:
    for name, found in existing.items():
        if found != internal[name].partitions:
            raise WrongCounts(
                f"internal topic {name} has {found} partitions, and needs "
                f"{internal[name].partitions}"
            )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
