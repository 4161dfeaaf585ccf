"""The number of partitions of a topology's repartition topics.

A topic with a configured number has that number. Any other has as many as the topics that it is
written from: the maximum over the sources of the subtopologies that write it. Topics that are
joined with each other are *copartitioned*: they have the same number of partitions, to which those
without a fixed number adapt.
"""

from collections.abc import Iterator

from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.wire.messages.streams_group_topology_value import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicInfo,
)

PartitionCounts = dict[str, int]
"""Number of partitions by the topic's name."""


class WrongCounts(HeadraceError):
    """Topics have numbers of partitions that do not go together; the message says which."""


def sources_of(subtopology: Subtopology) -> Iterator[str]:
    """Return the names of all topics that a subtopology reads."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def repartition_counts(
    topology: StreamsGroupTopologyValue, sources: PartitionCounts
) -> PartitionCounts:
    """Return the partition count of each repartition topic; `sources` has those of others.

    STREAMS_INVALID_TOPOLOGY if that of one follows from nothing, or only from itself.
    """
    repartition = _repartition_topics(topology)
    counts = {name: topic.partitions for name, topic in repartition.items() if topic.partitions}
    open_names = set(repartition) - set(counts)
    writers = {
        name: [each for each in topology.subtopologies if name in each.repartition_sink_topics]
        for name in open_names
    }
    if not all(writers.values()):
        unwritten = ", ".join(sorted(name for name in open_names if not writers[name]))
        raise _unresolved(f"no subtopology writes {unwritten}")
    while open_names:
        known = sources | counts
        resolved = {
            name: max(known[source] for each in writers[name] for source in sources_of(each))
            for name in open_names
            if all(source in known for each in writers[name] for source in sources_of(each))
        }
        if not resolved:
            raise _unresolved(f"{', '.join(sorted(open_names))} are written from each other only")
        counts |= resolved
        open_names -= resolved.keys()
    return counts


def enforce_copartitioning(topology: StreamsGroupTopologyValue, counts: PartitionCounts) -> None:
    """Match repartition topics to the topics they are joined with; WrongCounts if impossible.

    Changes `counts`, which has those of all topics that are read.
    """
    repartition = _repartition_topics(topology)
    for each in topology.subtopologies:
        for group in each.copartition_groups:
            _enforce(each, group, repartition, counts)


def _enforce(
    subtopology: Subtopology,
    group: CopartitionGroup,
    repartition: dict[str, TopicInfo],
    counts: PartitionCounts,
) -> None:
    read = [subtopology.source_topics[index] for index in group.source_topics]
    own = [
        subtopology.repartition_source_topics[index] for index in group.repartition_source_topics
    ]
    sources = {name: counts[name] for name in read if name not in repartition}
    fixed = {topic.name: topic.partitions for topic in own if topic.partitions}
    names = [topic.name for topic in own]
    if sources:
        count = _same(sources)
        for name, partitions in fixed.items():
            if partitions != count:
                raise WrongCounts(
                    f"repartition topic {name} is to have {partitions} partitions, and is joined "
                    f"with topics that have {count}: {', '.join(sorted(sources))}"
                )
    elif fixed:
        count = _same(fixed)
    else:
        count = max((counts[name] for name in names), default=0)
    counts.update(dict.fromkeys(names, count))


def _same(counts: PartitionCounts) -> int:
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} has {count}" for name, count in sorted(counts.items()))
        raise WrongCounts(f"topics that are joined need the same number of partitions: {shown}")
    return next(iter(counts.values()))


def _repartition_topics(topology: StreamsGroupTopologyValue) -> dict[str, TopicInfo]:
    return {
        topic.name: topic
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
    }


def _unresolved(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
        f"repartition topics without a number of partitions, which follows from nothing: {reason}",
    )
