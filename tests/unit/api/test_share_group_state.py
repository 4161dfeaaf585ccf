"""The states of share partitions, from requests to the log and back after a restart."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from headrace.api import share_group_state
from headrace.client.errors import NotReachable
from headrace.cluster.peers import BrokerPeers
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, PartitionIndex, SharePartitionKey, TopicId, TopicName
from headrace.metadata.ddl import DeleteTopic
from headrace.server.gathering import NAMES_AT_ONCE
from headrace.share.durable import DurableState, StateBatch, StateSummary, StateWrite
from headrace.share.state.calls import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    Kind,
    build_request,
)
from headrace.share.state.machine import ShareStatesMachine
from headrace.share.state.operations import Beginning
from headrace.share.state.placement import state_partition
from tests.growth.slices import finish_measured
from tests.unit.harness import Harness

TOPIC = TopicName("__share_group_state")
WAIT_SECONDS_MAX = 10
ACKNOWLEDGED = 2
OK = ErrorCode.NONE
WHERE = SharePartitionKey("g", TopicId(b"orders.........."), PartitionIndex(0))
CHANGE = StateWrite(1, 0, 5, 2, (StateBatch(6, 7, ACKNOWLEDGED, 1),))
SHORT_INTERVALS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1000",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
}


def call(harness: Harness, method: str, *arguments: Any) -> Any:
    """Give what the node's persister answers."""

    async def run() -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        getattr(harness.broker.persister, method)(*arguments, future.set_result)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await future

    return harness.run(run())


def ask(
    harness: Harness, kind: Kind[Any, Any], *asked: tuple[SharePartitionKey, Any], version: int = 0
) -> Any:
    """Send the request; give code and answer of each row."""
    body = build_request(kind, asked[0][0].group_id, asked)
    response = harness.ask(body, version)
    return [
        (row.error_code, kind.answer(row, argument))
        for (_, argument), row in zip(
            asked, [row for topic in response.results for row in topic.partitions], strict=True
        )
    ]


def poll(harness: Harness, is_so: Callable[[], object]) -> None:
    async def wait() -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not is_so():
                await asyncio.sleep(0.01)  # polls, up to the deadline

    harness.run(wait())


def begin(harness: Harness, start: int = 5) -> None:
    """Have the topic of states created, and a share partition begun."""
    assert call(harness, "initialize", WHERE, 1, start) is None


def index_of(harness: Harness, where: SharePartitionKey) -> int:
    return state_partition(where, len(harness.topic(TOPIC).partitions))


def test_the_first_call_creates_the_topic_and_is_answered(harness: Harness) -> None:
    harness.create_topic("orders")
    assert harness.broker.image.topic(TOPIC) is None
    begin(harness)
    assert harness.topic(TOPIC).is_internal
    assert ask(harness, READ, (WHERE, 0)) == [(OK, DurableState(1, 0, 5, 0, ()))]


def test_what_is_written_is_read_after_a_restart(harness: Harness) -> None:
    harness.create_topic("orders")
    begin(harness)
    assert ask(harness, READ, (WHERE, 4))[0][0] == OK
    assert ask(harness, WRITE, (WHERE, CHANGE._replace(leader_epoch=4)), version=1) == [(OK, None)]
    harness.restart()
    assert call(harness, "read_state", WHERE, 4) == DurableState(1, 4, 5, 2, CHANGE.batches)
    fenced = ask(harness, WRITE, (WHERE, CHANGE._replace(leader_epoch=3)), version=1)
    assert fenced == [(ErrorCode.FENCED_LEADER_EPOCH, None)]


def test_a_write_of_version_0_leaves_the_count_unknown(harness: Harness) -> None:
    harness.create_topic("orders")
    begin(harness)
    ask(harness, WRITE, (WHERE, CHANGE), version=0)
    assert ask(harness, READ_SUMMARY, (WHERE, 0), version=1) == [(OK, StateSummary(1, 0, 5, -1))]


def test_every_partition_of_a_request_has_its_own_answer(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    begin(harness)
    other = WHERE._replace(partition=PartitionIndex(1))
    missing = WHERE._replace(partition=PartitionIndex(9))
    negative = WHERE._replace(partition=PartitionIndex(-1))
    beginning = Beginning(1, 8)
    rows = ask(harness, INITIALIZE, *((each, beginning) for each in (other, missing, negative)))
    assert [code for code, _ in rows] == [
        OK,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [code for code, _ in ask(harness, DELETE, (other, None), (WHERE, None))] == [OK, OK]
    assert ask(harness, READ, (WHERE, 0))[0][0] == ErrorCode.INVALID_REQUEST


def test_a_node_that_does_not_keep_the_states_says_so(harness: Harness) -> None:
    rows = ask(harness, READ, (WHERE, 0))
    assert [code for code, _ in rows] == [ErrorCode.NOT_COORDINATOR]


def test_states_that_moved_away_are_not_answered_for(harness: Harness) -> None:
    harness.create_topic("orders")
    begin(harness)

    async def resign() -> None:
        harness.broker.share_states.resign(index_of(harness, WHERE))

    harness.run(resign())
    rows = ask(harness, WRITE, (WHERE, CHANGE), version=1)
    assert [code for code, _ in rows] == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("kind", [INITIALIZE, READ, WRITE, READ_SUMMARY, DELETE])
def test_a_request_without_a_group_is_answered_with_nothing(
    harness: Harness, kind: Kind[Any, Any]
) -> None:
    arguments = {INITIALIZE: Beginning(0, 0), WRITE: CHANGE, DELETE: None}
    where = WHERE._replace(group_id="")
    assert not harness.ask(build_request(kind, "", [(where, arguments.get(kind, 0))]), 0).results


def state_shard(harness: Harness) -> Shard[ShareStatesMachine]:
    """Return the shard that keeps the state of `WHERE`."""
    found = harness.broker.share_states.shard_at(index_of(harness, WHERE))
    assert found is not None
    return found


def test_a_deleted_topic_takes_its_states_along(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    begin(harness)
    states = state_shard(harness).machine.state.states
    assert states
    harness.run(harness.broker.quorum.propose(DeleteTopic(topic_id, harness.clock.now_ms())))
    poll(harness, lambda: not states)
    harness.restart()
    shard = state_shard(harness)
    harness.run(shard.loaded())
    assert not shard.machine.state.states


@pytest.mark.parametrize("harness", [SHORT_INTERVALS], indirect=True)
def test_the_log_of_states_is_pruned_although_a_share_partition_is_quiet(harness: Harness) -> None:
    harness.create_topic("orders", 2)
    begin(harness)
    quiet = WHERE._replace(partition=PartitionIndex(1))
    call(harness, "initialize", quiet, 1, 77)
    log = harness.partition(TOPIC, 0).log
    for offset in range(40):
        batch = StateBatch(offset, offset, ACKNOWLEDGED, 1)
        call(harness, "write_state", WHERE, StateWrite(1, 0, offset, 1, (batch,)))
    assert log.start_offset == 0

    def is_pruned_after_a_second() -> bool:
        harness.clock.advance(1000)
        return bool(log.start_offset > 30)

    poll(harness, is_pruned_after_a_second)
    end_offset = log.end_offset
    harness.restart()
    log = harness.partition(TOPIC, 0).log
    assert log.start_offset > 30
    assert log.end_offset >= end_offset
    assert call(harness, "read_state", quiet, 0) == DurableState(1, 0, 77, 0, ())
    assert call(harness, "read_state", WHERE, 0).start_offset == 39


def test_another_node_is_asked_over_one_connection(harness: Harness) -> None:
    harness.create_topic("orders")
    begin(harness)
    broker = harness.broker
    peers = BrokerPeers(broker.settings, lambda: broker.image)

    async def ask_thrice() -> list[Any]:
        request = build_request(READ_SUMMARY, "g", [(WHERE, 0)])
        before = len(harness.node.traffic.connections)
        answers = await asyncio.gather(
            *(peers.line("states").send(broker.node_id, request) for _ in range(3))
        )
        assert len(harness.node.traffic.connections) == before + 1
        peers.close()
        return answers

    answers = harness.run(ask_thrice())
    assert [each.results[0].partitions[0].start_offset for each in answers] == [5, 5, 5]


def test_a_connection_that_was_closed_is_opened_again(harness: Harness) -> None:
    harness.create_topic("orders")
    begin(harness)
    broker = harness.broker
    peers = BrokerPeers(broker.settings, lambda: broker.image)

    async def ask_hang_up_and_ask() -> Any:
        request = build_request(READ_SUMMARY, "g", [(WHERE, 0)])
        await peers.line("states").send(broker.node_id, request)
        for connection in tuple(harness.node.traffic.connections):
            connection.close("the test hangs up")
        async with asyncio.timeout(30):
            while True:  # after a failure there is a pause
                with contextlib.suppress(NotReachable):
                    answer = await peers.line("states").send(broker.node_id, request)
                    break
                await asyncio.sleep(0.01)
        peers.close()
        return answer

    answer = harness.run(ask_hang_up_and_ask())
    assert answer.results[0].partitions[0].error_code == OK


def test_a_node_that_is_not_up_is_not_reachable(harness: Harness) -> None:
    broker = harness.broker
    peers = BrokerPeers(broker.settings, lambda: broker.image)
    with pytest.raises(NotReachable, match="node 99"):
        harness.run(
            peers.line("states").send(BrokerId(99), build_request(READ_SUMMARY, "g", [(WHERE, 0)]))
        )


def test_states_on_another_node_are_asked_for_and_errors_come_back(
    harness: Harness,
    register: Callable[..., None],
    place: Callable[..., TopicId],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(7)
    place(TOPIC, [harness.broker.node_id, 7], isr=[7], leader=7)
    harness.create_topic("orders")
    asked: list[BrokerId] = []

    class Elsewhere:
        async def send(self, node_id: BrokerId, request: Any) -> Any:
            asked.append(node_id)
            row = WRITE.answered_row(partition=0, error_code=ErrorCode.FENCED_STATE_EPOCH)
            topic = WRITE.answered_topic(topic_id=WHERE.topic_id, partitions=[row])
            return WRITE.response(results=[topic])

    monkeypatch.setattr(harness.broker.persister, "_peers", Elsewhere())
    answer = call(harness, "write_state", WHERE, CHANGE)
    assert isinstance(answer, KafkaError)
    assert answer.code is ErrorCode.FENCED_STATE_EPOCH
    assert asked == [7]


@pytest.mark.parametrize("harness", [SHORT_INTERVALS], indirect=True)
def test_very_many_states_are_asked_for_in_slices(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("orders")
    begin(harness)
    monkeypatch.setattr(share_group_state, "finish", finish_measured)
    count = 40 * NAMES_AT_ONCE
    partitions = [WHERE._replace(partition=PartitionIndex(index)) for index in range(count)]
    body = build_request(READ_SUMMARY, "g", [(each, 0) for each in partitions])

    async def run() -> tuple[Any, int]:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        other = asyncio.get_running_loop().create_task(take_turns())
        response = await harness.ask_async(body, 1)
        other.cancel()
        return response, turns

    response, turns = harness.run(run())
    rows = [row for topic in response.results for row in topic.partitions]
    assert [row.partition for row in rows] == [each.partition for each in partitions]
    assert rows[0].start_offset == 5
    assert {row.error_code for row in rows[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert turns >= count // NAMES_AT_ONCE
