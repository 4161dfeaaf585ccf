"""StreamsGroupHeartbeat and StreamsGroupDescribe, and the topics that groups have created."""

import asyncio
from typing import Any

import pytest

from headrace.api.streams_group_heartbeat import plan_each
from headrace.config import LiveSettings, load_settings
from headrace.errors import ErrorCode
from headrace.groups.streams.topology import InternalTopic, StatusCode
from headrace.ids import TopicName
from headrace.metadata.state import ResourceType
from headrace.server.operations import GROUP_OPERATIONS
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from headrace.wire.messages.streams_group_heartbeat_request import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.growth.slices import assert_slices_are_short
from tests.unit.harness import Harness

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
pytestmark = pytest.mark.parametrize("harness", [SETTINGS], indirect=True)


@pytest.fixture
def node(harness: Harness) -> Any:
    """Have a coordinator, and a topic `in` of three partitions."""
    harness.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    harness.run(_load(harness))
    harness.create_topic("in", 3)
    return harness


async def _load(harness: Harness) -> None:
    for shard in harness.broker.groups:
        await shard.loaded()


def join(
    node: Harness,
    *changelogs: TopicInfo,
    source: str = "in",
    more: tuple[Subtopology, ...] = (),
) -> Any:
    part = Subtopology("0", source_topics=[source], state_changelog_topics=list(changelogs))
    if more:
        part.repartition_sink_topics = [each.name for each in more[0].repartition_source_topics]
    return node.ask(
        StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            topology=Topology(0, [part, *more]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
        ),
        0,
    )


def beat(node: Harness, epoch: int) -> Any:
    return node.ask(
        StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch), 0
    )


async def _creations(node: Harness) -> None:
    if tasks := set(node.broker.topic_creations.values()):
        await asyncio.wait(tasks)


def test_member_gets_tasks_and_the_group_is_described(node: Harness) -> None:
    answer = join(node)
    assert answer.error_code == ErrorCode.NONE
    assert [each.partitions for each in answer.active_tasks] == [[0, 1, 2]]
    described = node.ask(
        StreamsGroupDescribeRequest(group_ids=["g", "x", ""], include_authorized_operations=True), 0
    )
    row, missing, unnamed = described.groups
    assert (row.group_state, len(row.members)) == ("Stable", 1)
    assert row.authorized_operations == GROUP_OPERATIONS
    assert row.members[0].client_id == "test"
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID


def test_internal_topics_are_created_while_members_go_on(node: Harness) -> None:
    log = TopicInfo("log", topic_configs=[KeyValue("cleanup.policy", "compact")])
    answer = join(node, log)
    assert [each.status_code for each in answer.status] == [StatusCode.MISSING_INTERNAL_TOPICS]
    node.run(_creations(node))
    assert len(node.topic(TopicName("log")).partitions) == 3
    assert node.broker.image.configs(ResourceType.TOPIC, "log") == {"cleanup.policy": "compact"}
    answer = beat(node, answer.member_epoch)
    assert (answer.status, [each.partitions for each in answer.active_tasks]) == ([], [[0, 1, 2]])


def test_topic_that_cannot_be_created_is_named_with_the_reason(node: Harness) -> None:
    answer = join(node, TopicInfo("log", replication_factor=9))
    node.run(_creations(node))
    (status,) = beat(node, answer.member_epoch).status
    assert status.status_code == StatusCode.MISSING_INTERNAL_TOPICS
    assert "log (" in status.status_detail
    assert "9" in status.status_detail


@pytest.mark.parametrize("partitions", [10_001, 2**31 - 1])
def test_a_member_cannot_have_any_number_of_partitions_created(
    node: Harness, partitions: int
) -> None:
    """It says how many an internal topic has: the node was busy for ever with two billions."""
    again = TopicInfo("again", partitions=partitions)
    answer = join(node, more=(Subtopology("1", repartition_source_topics=[again]),))
    assert [each.status_code for each in answer.status] == [StatusCode.MISSING_INTERNAL_TOPICS]
    node.run(_creations(node))
    (status,) = beat(node, answer.member_epoch).status
    assert f"again ({partitions} partitions in one request" in status.status_detail
    assert not node.has_topic("again")


def test_no_creation_of_very_many_topics_holds_the_loop(node: Harness) -> None:
    topics = [InternalTopic(f"log-{number}", 9, 1, ()) for number in range(1200)]
    failures: dict[str, str] = {}
    changes = assert_slices_are_short(plan_each(node.broker, topics, failures))
    assert (len(changes), len(failures)) == (1111, 89)


@pytest.mark.parametrize("source", ["no name", "__consumer_offsets"])
def test_names_that_no_application_may_use_are_refused(node: Harness, source: str) -> None:
    assert join(node, source=source).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_group_is_there_after_a_restart(node: Harness) -> None:
    epoch = join(node).member_epoch
    node.restart()
    node.run(_load(node))
    assert beat(node, epoch).error_code == ErrorCode.NONE


def test_protocol_that_is_turned_off_is_unsupported(node: Harness) -> None:
    protocols = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    node.broker.settings = LiveSettings(load_settings(overrides=SETTINGS | protocols))
    assert join(node).error_code == ErrorCode.UNSUPPORTED_VERSION
    described = node.ask(StreamsGroupDescribeRequest(group_ids=["g"]), 0)
    assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
