"""ListOffsets and OffsetForLeaderEpoch: what Kafka answers to the same."""

import asyncio
import threading
from typing import Any

import pytest

from headrace.api.list_offsets import ROWS_A_TURN
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex
from headrace.log import lookup
from headrace.metadata.ddl import ChangePartition
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker
from headrace.records.reader import find_records
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.followers import Follower, create_replicated, register_broker
from tests.unit.harness import Harness

NOW_MS = 1_700_000_000_000
LATEST = 11
NOTHING = (0, -1, -1, -1)


def append(harness: Harness, *timestamps: int, topic: str = "orders", **header: Any) -> None:
    builder = BatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp, b"key", b"value")

    async def run() -> None:
        partition = harness.partition(topic, 0)
        records = memoryview(builder.build(**header))
        partition.append(records, NOW_MS, needs_replicas=False)

    harness.run(run())


def list_offset(
    harness: Harness,
    timestamp: int,
    *,
    version: int = LATEST,
    topic: str = "orders",
    index: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> tuple[int, int, int, int]:
    """Give error, timestamp, offset and leader epoch."""
    asked = ListOffsetsPartition(
        partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level if version > 1 else 0,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    (answer,) = harness.ask(request, version).topics
    (row,) = answer.partitions
    assert (answer.name, row.partition_index) == (topic, index)
    return row.error_code, row.timestamp, row.offset, row.leader_epoch


@pytest.fixture
def orders(harness: Harness) -> Any:
    harness.create_topic("orders", 2)
    append(harness, NOW_MS - 5000, NOW_MS - 3000, NOW_MS - 4000)
    append(harness, NOW_MS - 2000, NOW_MS - 1000)
    return harness


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (-1, (0, -1, 5, 0)),
        (-2, (0, -1, 0, 0)),
        (-3, (0, NOW_MS - 1000, 4, 0)),
        (-4, (0, -1, 0, 0)),
        (-5, NOTHING),
        (-6, NOTHING),
        (-7, (35, -1, -1, -1)),
        (0, (0, NOW_MS - 5000, 0, 0)),
        (NOW_MS - 4500, (0, NOW_MS - 3000, 1, 0)),
        (NOW_MS - 3000, (0, NOW_MS - 3000, 1, 0)),
        (NOW_MS - 1500, (0, NOW_MS - 1000, 4, 0)),
        (NOW_MS, NOTHING),
    ],
)
def test_a_time_or_a_name_for_one_gives_the_offset(
    orders: Any, timestamp: int, answer: tuple[int, int, int, int]
) -> None:
    assert list_offset(orders, timestamp) == answer


@pytest.mark.parametrize("timestamp", [-3, -5, -6, 0])
def test_an_empty_partition_has_no_record_of_any_time(orders: Any, timestamp: int) -> None:
    assert list_offset(orders, timestamp, index=1) == NOTHING


@pytest.mark.parametrize("timestamp", [-1, -2, -4])
def test_an_empty_partition_begins_and_ends_at_zero(orders: Any, timestamp: int) -> None:
    assert list_offset(orders, timestamp, index=1) == (0, -1, 0, 0)


@pytest.mark.parametrize(
    ("timestamp", "first_version"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)]
)
@pytest.mark.parametrize("version", range(1, 12))
def test_a_name_is_known_from_its_version_on(
    orders: Any, version: int, timestamp: int, first_version: int
) -> None:
    code, *_ = list_offset(orders, timestamp, version=version)
    is_known = version >= first_version
    assert code == (ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (-1, (0, -1, 5, -1)),
        (-2, (0, -1, 0, -1)),
        (-3, (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)),
        (0, (0, NOW_MS - 5000, 0, -1)),
        (NOW_MS - 4500, (0, NOW_MS - 3000, 1, -1)),
        (NOW_MS, NOTHING),
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_clients_get_offsets_without_an_epoch(
    orders: Any, version: int, timestamp: int, answer: tuple[int, int, int, int]
) -> None:
    assert list_offset(orders, timestamp, version=version) == answer


@pytest.mark.parametrize(("version", "end"), [(1, 6), (2, 5), (3, 5)])
def test_the_first_version_knows_nothing_of_transactions(
    orders: Any, version: int, end: int
) -> None:
    append(orders, NOW_MS, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert list_offset(orders, -1, version=version, isolation_level=1) == (0, -1, end, -1)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_clients_are_told_what_is_unknown(orders: Any, version: int) -> None:
    for topic, index in (("nothing", 0), ("orders", 9)):
        answer = list_offset(orders, -1, version=version, topic=topic, index=index)
        assert answer == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_the_leader_epoch_must_be_the_present_one(orders: Any, epoch: int, code: int) -> None:
    assert list_offset(orders, -1, epoch=epoch)[0] == code


@pytest.mark.parametrize(("topic", "index"), [("nothing", 0), ("orders", 2), ("orders", -1)])
def test_what_does_not_exist_is_unknown(orders: Any, topic: str, index: int) -> None:
    code, *rest = list_offset(orders, -1, topic=topic, index=index)
    assert (code, *rest) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)


def test_an_isolation_level_that_does_not_exist_is_an_error(orders: Any) -> None:
    assert list_offset(orders, -1, isolation_level=2)[0] == ErrorCode.UNKNOWN_SERVER_ERROR


def test_committed_readers_are_kept_before_an_open_transaction(orders: Any) -> None:
    async def begin() -> None:
        builder = BatchBuilder()
        builder.append(NOW_MS, b"key", b"value")
        batch = builder.build(
            producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        orders.broker.replicas.find("orders", 0).append(
            memoryview(batch), NOW_MS, needs_replicas=False
        )

    async def commit() -> None:
        marker = build_end_transaction_marker(
            is_commit=True,
            timestamp=NOW_MS,
            producer_id=1,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        orders.broker.replicas.find("orders", 0).append_own(memoryview(marker))

    orders.run(begin())
    assert list_offset(orders, -1, isolation_level=0)[2] == 6
    assert list_offset(orders, -1, isolation_level=1)[2] == 5
    assert list_offset(orders, NOW_MS, isolation_level=0)[2] == 5
    assert list_offset(orders, NOW_MS, isolation_level=1) == NOTHING
    assert list_offset(orders, -1, isolation_level=1, replica_id=1)[2] == 6
    orders.run(commit())
    assert list_offset(orders, -1, isolation_level=1)[2] == 7
    assert list_offset(orders, NOW_MS, isolation_level=1)[2] == 5


def test_a_partition_that_is_asked_for_twice_is_refused_once(orders: Any) -> None:
    partitions = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in (0, 1, 0)]
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(name="orders", partitions=partitions),
            ListOffsetsTopic(name="orders", partitions=[]),
        ]
    )
    (topic,) = orders.ask(request, LATEST).topics
    rows = [(row.partition_index, row.error_code) for row in topic.partitions]
    assert rows == [(1, ErrorCode.NONE), (0, ErrorCode.INVALID_REQUEST)]


def lead_again(harness: Harness) -> None:
    """Let the node lead `shared` in a new epoch, without its follower."""

    async def elect() -> None:
        topic_id = harness.topic("shared").topic_id
        for leader in (7, 1):
            change = ChangePartition(topic_id, PartitionIndex(0), leader=BrokerId(leader))
            await harness.broker.quorum.propose(change)

    harness.run(elect())


@pytest.fixture
def shared(harness: Harness) -> Any:
    """A partition with a follower that has three of five records."""
    epoch = register_broker(harness, 7)
    topic_id = create_replicated(harness, "shared", (1, 7))
    append(harness, NOW_MS - 5000, NOW_MS - 3000, NOW_MS - 4000, topic="shared")
    append(harness, NOW_MS - 2000, NOW_MS - 1000, topic="shared")
    follower = Follower(harness, 7, epoch, topic_id)
    follower.fetch({0: 3})
    return follower


def test_a_new_leader_that_does_not_know_what_is_committed_asks_for_patience(shared: Any) -> None:
    harness = shared.harness
    assert list_offset(harness, -1, topic="shared")[:3] == (0, -1, 3)
    lead_again(harness)

    def ask(timestamp: int, **options: int) -> tuple[int, int, int, int]:
        return list_offset(harness, timestamp, topic="shared", **options)

    assert ask(-1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    for version in (1, 2, 3, 4):
        assert ask(-1, version=version)[0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert ask(NOW_MS - 1500)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(NOW_MS - 4500) == (0, NOW_MS - 3000, 1, 0)
    assert ask(-2) == (0, -1, 0, 0)
    assert ask(-1, replica_id=7)[:3] == (0, -1, 5)
    assert ask(-1, replica_id=-2)[:3] == (0, -1, 5)
    leader_epoch = harness.partition("shared").leader_epoch
    shared.fetch({0: 5}, epoch=leader_epoch, session_epoch=-1)
    assert ask(-1) == (0, -1, 5, leader_epoch)


def test_an_open_transaction_of_a_former_leader_does_not_ask_for_patience(shared: Any) -> None:
    harness = shared.harness
    identity = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    append(harness, NOW_MS, topic="shared", is_transactional=True, **identity)
    lead_again(harness)
    leader_epoch = harness.partition("shared").leader_epoch
    shared.fetch({0: 6}, epoch=leader_epoch, session_epoch=-1)
    assert list_offset(harness, -1, topic="shared", isolation_level=1)[:3] == (0, -1, 5)


def test_only_tools_that_debug_may_ask_a_follower(harness: Harness) -> None:
    register_broker(harness, 7)
    create_replicated(harness, "copied", (7, 1), leader=7)
    for replica_id in (-1, 7):
        answer = list_offset(harness, -1, topic="copied", replica_id=replica_id)
        assert answer[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert list_offset(harness, -1, topic="copied", replica_id=-2)[:3] == (0, -1, 0)
    unknown = list_offset(harness, -1, topic="copied", replica_id=-2, epoch=9)
    assert unknown[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert end_of_epoch(harness, 0, topic="copied")[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def end_of_epoch(
    harness: Harness, epoch: int, *, current: int = -1, topic: str = "orders", index: int = 0
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    answers = [harness.ask(request, version) for version in (2, 3, 4)]
    assert answers[0] == answers[1] == answers[2]
    (row,) = answers[0].topics[0].partitions
    assert row.partition == index
    return row.error_code, row.leader_epoch, row.end_offset


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(0, (0, 0, 5)), (5, (0, -1, -1)), (-1, (0, -1, -1)), (-2, (0, -2, 0))],
)
def test_an_epoch_ends_where_the_next_begins(
    orders: Any, epoch: int, answer: tuple[int, int, int]
) -> None:
    assert end_of_epoch(orders, epoch) == answer


def test_the_end_of_an_epoch_is_asked_of_the_present_leader(orders: Any) -> None:
    assert end_of_epoch(orders, 0, current=0) == (0, 0, 5)
    assert end_of_epoch(orders, 0, current=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert end_of_epoch(orders, 0, index=9) == missing
    assert end_of_epoch(orders, 0, topic="nothing") == missing


def test_a_look_up_by_time_reads_and_inflates_off_the_loop(
    orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def read(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return find_records(*arguments)

    monkeypatch.setattr(lookup, "find_records", read)
    assert list_offset(orders, NOW_MS - 4500) == (0, NOW_MS - 3000, 1, 0)
    assert list_offset(orders, -3) == (0, NOW_MS - 1000, 4, 0)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


@pytest.mark.slow
def test_other_clients_have_their_turn_while_many_partitions_are_answered_for(
    harness: Harness,
) -> None:
    harness.create_topic("many", 3 * ROWS_A_TURN)
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=-1)
        for index in range(3 * ROWS_A_TURN)
    ]
    topics = [ListOffsetsTopic(name="many", partitions=partitions)]
    turns = 0

    async def ask() -> Any:
        nonlocal turns
        asked = asyncio.ensure_future(
            harness.ask_async(ListOffsetsRequest(replica_id=-1, topics=topics), LATEST)
        )
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
        return await asked

    (topic,) = harness.run(ask()).topics
    assert [row.error_code for row in topic.partitions] == [0] * 3 * ROWS_A_TURN
    assert turns >= 3


def test_nor_do_those_wait_that_are_asked_for_by_time_and_are_not_here(harness: Harness) -> None:
    topics = [
        ListOffsetsTopic(
            name=f"unknown-{number}",
            partitions=[ListOffsetsPartition(partition_index=0, timestamp=NOW_MS)],
        )
        for number in range(4 * ROWS_A_TURN)
    ]
    together = most = 0

    async def ask() -> Any:
        nonlocal together
        asked = asyncio.ensure_future(
            harness.ask_async(ListOffsetsRequest(replica_id=-1, topics=topics), LATEST)
        )
        while not asked.done():
            await asyncio.sleep(0)
            together = 0
        return await asked

    find = type(harness.broker.replicas).find_replica

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal together, most
        together += 1
        most = max(most, together)
        return find(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(harness.broker.replicas), "find_replica", counting)
        answered = harness.run(ask()).topics
    assert {topic.partitions[0].error_code for topic in answered} == {3}
    assert 0 < most <= 2 * ROWS_A_TURN


def test_a_disk_that_fails_is_said_to(
    orders: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(5, "broken")

    monkeypatch.setattr(lookup, "find_records", fail)
    assert list_offset(orders, NOW_MS - 4500)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert "orders-0: offsets by time: [Errno 5] broken" in caplog.text
