"""Where the coordinator of a group or a transactional id is, and how its topic comes to be."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.api import find_coordinator
from headrace.coordinator.shard import State
from headrace.errors import ErrorCode
from headrace.ids import TopicName, parse_share_partition
from headrace.metadata.state import ResourceType
from headrace.server.gathering import NAMES_AT_ONCE
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from tests.unit.harness import FakePeer, Harness

GROUP, TRANSACTION, SHARE = range(3)
OFFSETS = TopicName("__consumer_offsets")
TRANSACTIONS = TopicName("__transaction_state")
SHARE_STATES = TopicName("__share_group_state")


def ask(harness: Harness, *keys: str, key_type: int = GROUP, version: int = 4) -> Any:
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        return harness.ask(request, version).coordinators
    return harness.ask(FindCoordinatorRequest(key_type=key_type, key=keys[0]), version)


@pytest.mark.parametrize("version", range(4))
def test_one_coordinator_is_named_with_its_address(harness: Harness, version: int) -> None:
    answer = ask(harness, "g", version=version)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.node_id, answer.host) == (harness.broker.node_id, "127.0.0.1")
    assert answer.port == harness.node.listeners[0].port
    if version >= 1:
        assert answer.error_message == "NONE"


@pytest.mark.parametrize("version", [4, 5, 6])
def test_many_coordinators_are_named_at_once(harness: Harness, version: int) -> None:
    rows = ask(harness, "g", "", "h", "g", version=version)
    assert [row.key for row in rows] == ["g", "", "h", "g"]
    assert {(row.error_code, row.node_id) for row in rows} == {(0, harness.broker.node_id)}


def test_the_topic_of_groups_is_created_when_somebody_asks(harness: Harness) -> None:
    assert harness.broker.image.topic(OFFSETS) is None
    ask(harness, "g")
    topic = harness.topic(OFFSETS)
    assert topic.is_internal
    assert len(topic.partitions) == 50
    assert {tuple(each.replicas) for each in topic.partitions} == {(harness.broker.node_id,)}
    assert harness.broker.image.configs(ResourceType.TOPIC, OFFSETS) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_who_asks_while_the_topic_is_created_finds_a_coordinator_that_serves(
    harness: Harness,
) -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g"])

    async def ask_twice() -> list[State]:
        first = asyncio.ensure_future(harness.ask_async(request, 4))
        while harness.broker.image.topic(OFFSETS) is None:
            await asyncio.sleep(0)
        states = []
        for answer in (harness.ask_async(request, 4, FakePeer(harness.node.dispatcher)), first):
            assert (await answer).coordinators[0].error_code == ErrorCode.NONE
            states.append(harness.broker.groups.shard("g").state)
        return states

    assert harness.run(ask_twice()) == [State.ACTIVE, State.ACTIVE]


def test_a_coordinator_that_loads_for_long_holds_nobody_up(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(harness, "g")
    shard = harness.broker.groups.shard("g")

    async def load_for_ever() -> None:
        await asyncio.Event().wait()

    async def never() -> None:
        raise AssertionError("it was waited for once more")

    async def begin() -> None:
        monkeypatch.setattr(shard, "_load", load_for_ever)
        shard.start()

    monkeypatch.setattr(find_coordinator, "READY_SECONDS_MAX", 0.05)
    harness.run(begin())
    (row,) = ask(harness, "g")  # waits, but not for ever
    assert row.error_code == ErrorCode.NONE
    monkeypatch.setattr(shard, "loaded", never)
    (row,) = ask(harness, "g")
    assert row.error_code == ErrorCode.NONE


def test_the_topic_of_transactions_can_be_written_on_a_node_alone(harness: Harness) -> None:
    (row,) = ask(harness, "t", key_type=TRANSACTION)
    assert row.error_code == ErrorCode.NONE
    configs = harness.broker.image.configs(ResourceType.TOPIC, TRANSACTIONS)
    assert configs["min.insync.replicas"] == "1"
    assert configs["cleanup.policy"] == "compact"


def test_replicas_are_as_many_as_brokers_are_up(
    harness: Harness, register: Callable[..., None]
) -> None:
    register(7)
    register(8, is_fenced=True)
    ask(harness, "g")
    topic = harness.topic(OFFSETS)
    assert {len(each.replicas) for each in topic.partitions} == {2}


def test_asking_for_nobody_creates_nothing(harness: Harness) -> None:
    assert ask(harness) == []
    assert harness.broker.image.topic(OFFSETS) is None


@pytest.mark.parametrize("harness", [{"offsets.topic.num.partitions": "3"}], indirect=True)
def test_a_coordinator_on_a_listener_that_the_client_cannot_reach_is_none(
    harness: Harness, register: Callable[..., None]
) -> None:
    register(7, listener="INTERNAL")
    rows = ask(harness, *(f"group-{number}" for number in range(20)))
    by_node = {row.node_id: row.error_code for row in rows}
    assert by_node == {
        harness.broker.node_id: ErrorCode.NONE,
        -1: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [-1, 3])
def test_other_types_of_keys_are_refused(harness: Harness, key_type: int, version: int) -> None:
    if version == 0:
        assert ask(harness, "g", version=0).error_code == ErrorCode.NONE  # there is no type yet
        return
    found = ask(harness, "g", key_type=key_type, version=version)
    row = found[0] if version >= 4 else found
    assert (row.error_code, row.node_id, row.port) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("group", ["g", "a:b"])
def test_a_share_partition_has_a_coordinator_and_its_topic_is_created(
    harness: Harness, group: str
) -> None:
    key = f"{group}:AAAAAAAAAAAAAAAAAAAAAQ:0"
    (row,) = ask(harness, key, key_type=SHARE, version=6)
    assert (row.key, row.error_code) == (key, ErrorCode.NONE)
    assert row.node_id == harness.broker.node_id
    topic = harness.topic(SHARE_STATES)
    assert topic.is_internal
    assert len(topic.partitions) == 50
    assert harness.broker.image.configs(ResourceType.TOPIC, SHARE_STATES) == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize(
    ("key", "version"),
    [
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 5),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:x", 6),
        ("g:nope:0", 6),
        (":AAAAAAAAAAAAAAAAAAAAAQ:0", 6),
        ("g", 6),
    ],
)
def test_what_is_no_share_partition_has_no_coordinator_and_creates_no_topic(
    harness: Harness, key: str, version: int
) -> None:
    (row,) = ask(harness, key, key_type=SHARE, version=version)
    assert (row.error_code, row.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert harness.broker.image.topic(SHARE_STATES) is None


def test_many_keys_of_no_share_partition_are_looked_at_in_slices(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, parsed, most = parse_share_partition, 0, 0

    def count(key: str) -> Any:
        nonlocal parsed, most
        parsed += 1
        most = max(most, parsed)
        return parse(key)

    async def take_turns() -> None:
        nonlocal parsed
        while True:
            await asyncio.sleep(0)
            parsed = 0

    async def find() -> Any:
        other = asyncio.get_running_loop().create_task(take_turns())
        keys = ["g"] * 5 * NAMES_AT_ONCE
        request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=keys)
        answer = await harness.ask_async(request, 6)
        other.cancel()
        return answer

    monkeypatch.setattr(find_coordinator, "parse_share_partition", count)
    rows = harness.run(find()).coordinators
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST] * 5 * NAMES_AT_ONCE
    assert harness.broker.image.topic(SHARE_STATES) is None
    assert 0 < most <= 2 * NAMES_AT_ONCE
