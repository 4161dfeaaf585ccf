"""Topologies: numbers of partitions that follow from each other, and what is in the way."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.streams.topology import (
    ConfiguredTopology,
    StatusCode,
    check_topology,
    configure,
    read_topology,
)
from headrace.wire.messages.streams_group_heartbeat_request import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.unit.groups.streams.streams_world import World


def configured(*subtopologies: Subtopology, **topics: int) -> ConfiguredTopology:
    """Put a topology and topics, with their numbers of partitions, together."""
    world = World()
    for name, count in topics.items():
        world.add_topic(name, count)
    topology = read_topology(Topology(0, list(subtopologies)))
    check_topology(topology)
    return configure(topology, world.image)


def created(found: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in found.to_create}


def code(found: ConfiguredTopology) -> StatusCode | None:
    return found.problem and found.problem.code


WRITES = Subtopology("0", source_topics=["two"], repartition_sink_topics=["r"])


def reads(*topics: TopicInfo, joined: bool = False, sources: tuple[str, ...] = ()) -> Subtopology:
    group = CopartitionGroup(list(range(len(sources))), [], list(range(len(topics))))
    return Subtopology(
        "1",
        source_topics=list(sources),
        repartition_source_topics=list(topics),
        copartition_groups=[group] if joined else [],
    )


def test_subtopology_has_a_task_for_each_partition_of_its_largest_source() -> None:
    found = configured(Subtopology("0", source_topics=["two", "three"]), two=2, three=3)
    assert (found.problem, found.task_counts) == (None, {"0": 3})
    assert [task.partition for task in found.tasks()] == [0, 1, 2]


def test_topology_without_parts_has_no_tasks() -> None:
    assert configured().tasks() == []


def test_missing_source_topics_are_named_in_order() -> None:
    found = configured(Subtopology("0", source_topics=["two", "z", "a"]), two=2)
    assert found.problem is not None
    assert found.problem.code == StatusCode.MISSING_SOURCE_TOPICS
    assert found.problem.detail.endswith("a, z")
    assert found.to_create == ()


def test_repartition_topic_has_as_many_partitions_as_it_is_written_from() -> None:
    assert created(configured(WRITES, reads(TopicInfo("r")), two=2)) == {"r": 2}


def test_number_of_partitions_follows_through_many_steps() -> None:
    found = configured(
        Subtopology(
            "2",
            repartition_source_topics=[TopicInfo("s")],
            state_changelog_topics=[TopicInfo("log")],
        ),
        Subtopology("1", repartition_source_topics=[TopicInfo("r")], repartition_sink_topics=["s"]),
        Subtopology("0", source_topics=["two", "three"], repartition_sink_topics=["r"]),
        two=2,
        three=3,
    )
    assert created(found) == {"log": 3, "r": 3, "s": 3}


def test_repartition_topic_may_say_its_own_number() -> None:
    assert created(configured(WRITES, reads(TopicInfo("r", 5)), two=2)) == {"r": 5}


def test_repartition_topic_adapts_to_the_source_that_it_is_joined_with() -> None:
    found = configured(
        WRITES, reads(TopicInfo("r"), joined=True, sources=("three",)), two=2, three=3
    )
    assert created(found) == {"r": 3}


def test_repartition_topic_with_a_number_cannot_adapt() -> None:
    joined = reads(TopicInfo("r", 5), joined=True, sources=("three",))
    found = configured(WRITES, joined, two=2, three=3)
    assert code(found) == StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert found.to_create == ()


def test_repartition_topics_that_are_joined_adapt_to_the_one_with_a_number() -> None:
    writes = Subtopology("0", source_topics=["two"], repartition_sink_topics=["r", "s"])
    both = reads(TopicInfo("r", 5), TopicInfo("s"), joined=True)
    assert created(configured(writes, both, two=2)) == {"r": 5, "s": 5}


def test_repartition_topics_that_are_joined_get_the_larger_number() -> None:
    found = configured(
        WRITES,
        Subtopology("2", source_topics=["three"], repartition_sink_topics=["s"]),
        reads(TopicInfo("r"), TopicInfo("s"), joined=True),
        two=2,
        three=3,
    )
    assert created(found) == {"r": 3, "s": 3}


def test_repartition_topics_that_are_joined_cannot_have_different_numbers() -> None:
    writes = Subtopology("0", source_topics=["two"], repartition_sink_topics=["r", "s"])
    both = reads(TopicInfo("r", 5), TopicInfo("s", 4), joined=True)
    assert code(configured(writes, both, two=2)) == StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_sources_that_are_joined_need_the_same_number() -> None:
    part = Subtopology(
        "0", source_topics=["two", "three"], copartition_groups=[CopartitionGroup([0, 1])]
    )
    assert code(configured(part, two=2, three=3)) == StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_internal_topic_that_exists_with_another_number_is_in_the_way() -> None:
    part = Subtopology("0", source_topics=["two"], state_changelog_topics=[TopicInfo("log")])
    found = configured(part, two=2, log=7)
    assert code(found) == StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert found.problem is not None
    assert "7" in found.problem.detail


def test_source_topic_that_is_its_own_changelog_is_not_created() -> None:
    part = Subtopology("0", source_topics=["two"], state_changelog_topics=[TopicInfo("two")])
    found = configured(part, two=2)
    assert (found.problem, found.to_create) == (None, ())


def test_configs_of_internal_topics_are_passed_on() -> None:
    log = TopicInfo(
        "log", replication_factor=3, topic_configs=[KeyValue("cleanup.policy", "compact")]
    )
    found = configured(Subtopology("0", source_topics=["two"], state_changelog_topics=[log]), two=2)
    assert found.to_create == (("log", 2, 3, (("cleanup.policy", "compact"),)),)


@pytest.mark.parametrize(
    "topology",
    [
        Topology(-1, [Subtopology("0", source_topics=["two"])]),
        Topology(0, [Subtopology("0")]),
        Topology(0, [WRITES, WRITES]),
        Topology(0, [reads(TopicInfo("r"))]),
        Topology(0, [WRITES, reads(TopicInfo("r", -5))]),
        Topology(
            0,
            [Subtopology("0", source_topics=["two"], state_changelog_topics=[TopicInfo("log", 7)])],
        ),
        Topology(
            0,
            [Subtopology("0", source_topics=["two"], copartition_groups=[CopartitionGroup([1])])],
        ),
        Topology(
            0,
            [
                Subtopology(
                    "0",
                    repartition_source_topics=[TopicInfo("r")],
                    repartition_sink_topics=["s"],
                ),
                Subtopology(
                    "1",
                    repartition_source_topics=[TopicInfo("s")],
                    repartition_sink_topics=["r"],
                ),
            ],
        ),
    ],
    ids=[
        "negative epoch",
        "reads nothing",
        "same id twice",
        "never written",
        "negative number",
        "changelog with a number",
        "copartition index",
        "loop",
    ],
)
def test_topology_that_can_never_work_is_refused(topology: Topology) -> None:
    with pytest.raises(KafkaError) as caught:
        check_topology(read_topology(topology))
    assert caught.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY
