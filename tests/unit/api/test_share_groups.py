"""ShareGroupHeartbeat and ShareGroupDescribe, and the states that begin after a heartbeat."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.state import GroupId
from headrace.ids import PartitionIndex, SharePartitionKey
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.records.builder import BatchBuilder
from headrace.server.operations import GROUP_OPERATIONS
from headrace.share.durable import StateSummary, StateWrite
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.unit.harness import FakePeer, Harness
from tests.unit.share.share_client import ACCEPT, Member

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.assignment.interval.ms": "0",
}
EARLIEST = SetConfigs(ResourceType.GROUP, "g", {"share.auto.offset.reset": "earliest"})
RETRY_MS = 30_000
WAIT_MS = 500
POLL_SECONDS = 0.005
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


def beat(node: Harness, epoch: int = 0, topics: list[str] | None = None, member: str = "m") -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=topics
    )
    return node.ask(request, 1)


def group(node: Harness) -> Any:
    return node.broker.groups.shard("g").machine.state.groups[GroupId("g")]


def wait_until(node: Harness, is_so: Callable[[], object]) -> None:
    async def wait() -> None:
        async with asyncio.timeout(10):
            while not is_so():
                await asyncio.sleep(POLL_SECONDS)  # polls, up to the deadline

    node.run(wait())


def settled(node: Harness) -> Any:
    """Have a member whose states have begun; return its answer."""
    return beat(node, 0, ["in"])


def summary(node: Harness, index: int) -> StateSummary:
    """Ask whoever keeps states."""
    key = SharePartitionKey("g", node.topic("in").topic_id, PartitionIndex(index))
    answers: list[Any] = []
    node.run(_call(lambda: node.broker.persister.read_summary(key, -1, answers.append)))
    wait_until(node, lambda: answers)
    found: StateSummary = answers[0]
    return found


async def _call(function: Callable[[], object]) -> None:
    function()


def test_member_gets_partitions_once_their_states_have_begun(node: Harness) -> None:
    answer = settled(node)
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[0, 1, 2]]
    described = node.ask(
        ShareGroupDescribeRequest(group_ids=["g", "x", ""], include_authorized_operations=True), 1
    )
    row, missing, unnamed = described.groups
    assert (row.group_state, row.assignor_name, len(row.members)) == ("Stable", "simple", 1)
    assert row.authorized_operations == GROUP_OPERATIONS
    assert (row.members[0].client_id, row.members[0].client_host) == ("test", "/127.0.0.1")
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID


def test_states_begin_in_the_groups_epoch_without_an_offset(node: Harness) -> None:
    settled(node)
    assert [summary(node, index)[::2] for index in range(3)] == [(2, -1)] * 3


def test_state_that_is_there_is_not_begun_again(node: Harness) -> None:
    settled(node)
    key = SharePartitionKey("g", node.topic("in").topic_id, PartitionIndex(1))
    write = StateWrite(2, -1, 17, 3, ())
    answers: list[Any] = []
    node.run(_call(lambda: node.broker.persister.write_state(key, write, answers.append)))
    wait_until(node, lambda: answers)
    # As if the coordinator had not heard that they began.
    state = group(node).states
    group(node).states = type(state)(state.initialized, {}, {})
    group(node).whole_at = None
    node.run(_call(lambda: node.clock.advance(RETRY_MS)))
    beat(node, 3)
    wait_until(node, lambda: not group(node).states.initializing)
    assert summary(node, 1).start_offset == 17


def test_states_that_do_not_begin_fail_no_heartbeat_and_are_tried_again(
    node: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    broken = BrokenPersister(node.broker.persister)
    node.broker.persister = broken
    with caplog.at_level(logging.WARNING):
        assert beat(node, 0, ["in"]).error_code == ErrorCode.NONE
        wait_until(node, lambda: caplog.text)
    assert "3 of 3 states could not be initialized" in caplog.text
    assert "no such luck" in caplog.text
    broken.is_broken = False
    answer = beat(node, 2)
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[0, 1, 2]]


def test_a_heartbeat_waits_no_longer_for_states_than_it_may(node: Harness) -> None:
    node.broker.persister = SilentPersister(node.broker.persister)
    answer = beat(node, 0, ["in"])
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)
    assert answer.assignment.topic_partitions == []


def test_a_client_that_goes_while_its_heartbeat_waits_keeps_nobody_up(node: Harness) -> None:
    silent = node.broker.persister = SilentPersister(node.broker.persister)
    peer = FakePeer(node.node.dispatcher)
    request = ShareGroupHeartbeatRequest("g", "gone", 0, subscribed_topic_names=["in"])

    async def ask_and_go() -> None:
        asking = asyncio.ensure_future(node.ask_async(request, 1, peer))
        while not silent.asked:
            await asyncio.sleep(0)
        peer.close("it is gone")
        node.clock.advance(WAIT_MS)
        await asking  # a connection drops it

    node.run(ask_and_go())
    state = node.broker.groups.shard("g").machine.state
    wait_until(node, lambda: not state.held_heartbeats)
    assert set(group(node).members) == {"gone"}


def test_a_heartbeat_that_waits_is_answered_by_whoever_gives_up_its_group(node: Harness) -> None:
    silent = node.broker.persister = SilentPersister(node.broker.persister)
    request = ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["in"])

    async def ask_and_resign() -> Any:
        asking = asyncio.ensure_future(node.ask_async(request, 1))
        while not silent.asked:
            await asyncio.sleep(0)
        node.broker.groups.close()
        return await asking

    assert node.run(ask_and_resign()).error_code == ErrorCode.NOT_COORDINATOR


class SilentPersister:
    """Begins no state, and says nothing."""

    def __init__(self, persister: Any) -> None:
        self._persister = persister
        self.asked = 0

    def initialize(self, *arguments: Any) -> None:
        self.asked += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._persister, name)


class BrokenPersister:
    """Begins no state while it is broken."""

    def __init__(self, persister: Any) -> None:
        self._persister = persister
        self.is_broken = True

    def initialize(self, *arguments: Any) -> None:
        if self.is_broken:
            arguments[-1](KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no such luck"))
        else:
            self._persister.initialize(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._persister, name)


def test_group_is_there_after_a_restart(node: Harness) -> None:
    epoch = settled(node).member_epoch
    node.restart()
    node.run(_load(node))
    answer = beat(node, epoch)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, epoch)


def test_a_member_that_has_left_can_still_say_what_became_of_its_records(node: Harness) -> None:
    # librdkafka leaves while it sends its last acknowledgements, over another connection.
    settled(node)
    node.run(node.broker.quorum.propose(EARLIEST))
    partition = node.partition("in", 0)
    builder = BatchBuilder()
    for _ in range(3):
        builder.append(0, None, b"value")
    partition.append(memoryview(builder.build()), 0, needs_replicas=False)
    member = Member(node, node.topic("in").topic_id, "m", "g")
    assert member.fetch(0, max_wait_ms=5000)[0].acquired == [(0, 2, 1)]
    beat(node, -1)
    assert member.acknowledge(0, (0, 1, ACCEPT)) == "NONE"
    member.disconnect()
    other = Member(node, node.topic("in").topic_id, "n", "g")
    assert other.fetch(0, max_wait_ms=5000)[0].acquired == [(2, 2, 2)]


def test_share_groups_that_are_turned_off_are_unsupported(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(node.broker.image), "feature_level", lambda _, name: 0)
    assert beat(node, 0, ["in"]).error_code == ErrorCode.UNSUPPORTED_VERSION
    described = node.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1)
    assert described.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
