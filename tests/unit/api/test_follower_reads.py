"""Consumers that read from followers, and how they get there (KIP-392)."""

import asyncio
from typing import Any

import pytest

from headrace.config import InvalidSetting, load_settings
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex, TopicId
from headrace.metadata.ddl import ChangeBroker, ChangePartition
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import assign_offset, read_headers
from headrace.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.messages.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.unit.followers import (
    LATEST,
    NOW_MS,
    Follower,
    a_batch,
    append,
    create_replicated,
    register_broker,
    rows,
)
from tests.unit.harness import Harness

LEADER = 7
FIRST_FROM_FOLLOWERS = 11
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACK_AWARE = {"replica.selector.class": SELECTOR, "broker.rack": "a"}


def fetch(topic_id: bytes, offset: int, **fields: Any) -> FetchRequest:
    asked = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1_000_000,
        current_leader_epoch=fields.pop("epoch", -1),
    )
    topics = [FetchTopic(topic="orders", topic_id=topic_id, partitions=[asked])]
    fields = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1, **fields}
    return FetchRequest(max_bytes=10_000_000, topics=topics, **fields)


class Copy:
    """A replica of `orders` on a node that does not lead it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        register_broker(harness, LEADER)
        self.topic_id = create_replicated(harness, "orders", (LEADER, 1), leader=LEADER)
        self.partition = harness.partition("orders")

    def replicate(self, batch: memoryview) -> None:
        """Append what the leader has."""
        assign_offset(batch, self.partition.log.end_offset, 0)
        self.partition.log.append_replicated(batch)

    def commit(self, high_watermark: int) -> None:
        async def run() -> None:
            self.partition.follow(high_watermark, 0)

        self.harness.run(run())

    def read(self, offset: int, *, version: int = LATEST, **fields: Any) -> Any:
        return rows(self.harness.ask(fetch(self.topic_id, offset, **fields), version))[0]


@pytest.fixture
def copy(harness: Harness) -> Copy:
    copy = Copy(harness)
    for value in (b"a", b"b", b"c"):
        copy.replicate(a_batch(value))
    copy.commit(2)
    return copy


def offsets_of(row: Any) -> list[int]:
    return [header.base_offset for _, header in read_headers(memoryview(row.records))]


@pytest.mark.parametrize("version", range(4, LATEST + 1))
def test_a_follower_serves_consumers_from_version_11_on(copy: Copy, version: int) -> None:
    row = copy.read(0, version=version)
    if version < FIRST_FROM_FOLLOWERS:
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        assert (row.error_code, row.high_watermark, offsets_of(row)) == (0, 2, [0, 1])


@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (2, ErrorCode.NONE),
        (3, ErrorCode.NONE),  # beyond the high watermark: the leader may have told of it
        (4, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_offsets_that_a_follower_cannot_serve(copy: Copy, offset: int, code: ErrorCode) -> None:
    row = copy.read(offset)
    assert (ErrorCode(row.error_code), len(row.records)) == (code, 0)


@pytest.mark.parametrize("version", [FIRST_FROM_FOLLOWERS - 1, LATEST])
def test_a_follower_compares_leader_epochs(copy: Copy, version: int) -> None:
    async def change() -> None:
        await copy.harness.broker.quorum.propose(
            ChangePartition(TopicId(copy.topic_id), PartitionIndex(0), leader=BrokerId(1))
        )
        await copy.harness.broker.quorum.propose(
            ChangePartition(TopicId(copy.topic_id), PartitionIndex(0), leader=BrokerId(LEADER))
        )

    copy.harness.run(change())
    row = copy.read(0, epoch=0, version=version)
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    row = copy.read(0, epoch=99, version=version)
    assert row.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_waiting_consumer_hears_when_the_high_watermark_of_the_follower_moves(
    copy: Copy,
) -> None:
    async def run() -> Any:
        request = fetch(copy.topic_id, 2, max_wait_ms=60_000)
        waiting = asyncio.ensure_future(copy.harness.ask_async(request, LATEST))
        while not copy.partition.fetch_waiters:
            await asyncio.sleep(0)
        copy.partition.follow(3, 0)
        return await waiting

    assert offsets_of(rows(copy.harness.run(run()))[0]) == [2]


def test_committed_readers_of_a_follower_stop_at_an_open_transaction(copy: Copy) -> None:
    identity = {"producer_id": 5, "producer_epoch": 0}
    copy.replicate(a_batch(b"d", base_sequence=0, is_transactional=True, **identity))
    copy.commit(4)
    row = copy.read(2, isolation_level=1)
    assert (row.last_stable_offset, offsets_of(row)) == (3, [2])
    marker = build_end_transaction_marker(NOW_MS, is_commit=False, coordinator_epoch=0, **identity)
    copy.replicate(memoryview(marker))
    row = copy.read(2, isolation_level=1)
    assert row.last_stable_offset == 3  # the follower does not know that the marker is committed
    copy.commit(5)
    row = copy.read(2, isolation_level=1)
    assert (row.last_stable_offset, offsets_of(row)) == (5, [2, 3, 4])
    assert [(a.producer_id, a.first_offset) for a in row.aborted_transactions] == [(5, 3)]


def test_a_follower_whose_log_is_being_truncated_serves_nobody(copy: Copy) -> None:
    copy.partition.log.is_being_cut = True
    assert copy.read(0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    copy.partition.log.is_being_cut = False
    assert offsets_of(copy.read(0)) == [0, 1]


def test_cold_records_of_a_follower_are_read_too(copy: Copy, cold_files: Any) -> None:
    cold_files.drop(copy.harness, "orders", 0)
    assert offsets_of(copy.read(0)) == [0, 1]
    assert cold_files.waits == 1


def test_a_session_at_a_follower_hears_only_what_is_new(copy: Copy) -> None:
    request = fetch(copy.topic_id, 2, session_epoch=0)
    first = copy.harness.ask(request, LATEST)
    again = fetch(copy.topic_id, 2, session_epoch=1, session_id=first.session_id)
    assert rows(copy.harness.ask(again, LATEST)) == {}
    copy.commit(3)
    again = fetch(copy.topic_id, 2, session_epoch=2, session_id=first.session_id)
    assert offsets_of(rows(copy.harness.ask(again, LATEST))[0]) == [2]


def test_a_follower_describes_its_own_replica_and_its_producers(copy: Copy) -> None:
    copy.replicate(a_batch(b"d", producer_id=5, producer_epoch=0, base_sequence=0))
    (directory,) = copy.harness.ask(DescribeLogDirsRequest(topics=None), 5).results
    (row,) = directory.topics[0].partitions
    assert (row.partition_size, row.offset_lag) == (copy.partition.log.size_bytes, 0)
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
    (topic,) = copy.harness.ask(request, 0).topics
    assert topic.partitions[0].error_code == 0
    assert [each.producer_id for each in topic.partitions[0].active_producers] == [5]


# Which replica


class Racks:
    """A leader in rack a, and followers in racks b, b and c."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        nodes = {7: "b", 8: "b", 9: "c"}
        epochs = {node: register_broker(harness, node, rack=rack) for node, rack in nodes.items()}
        self.epochs = epochs
        self.topic_id = create_replicated(harness, "orders", (1, 7, 8, 9))
        self.followers = {
            node: Follower(harness, node, epoch, self.topic_id) for node, epoch in epochs.items()
        }
        for _ in range(3):
            append(harness, "orders", b"a")

    def fetched(self, **offsets: int) -> None:
        for name, offset in offsets.items():
            self.followers[int(name[1:])].fetch({0: offset})

    def preferred(self, rack: str, offset: int = 1, **fields: Any) -> tuple[int, bool]:
        """Return the replica to read from, and whether there are records."""
        version = fields.pop("version", LATEST)
        request = fetch(self.topic_id, offset, rack_id=rack, **fields)
        row = rows(self.harness.ask(request, version))[0]
        assert row.error_code == 0
        return row.preferred_read_replica, bool(row.records)


@pytest.fixture
def racks(harness: Harness) -> Racks:
    racks = Racks(harness)
    racks.fetched(n7=2, n8=3, n9=3)
    return racks


rack_aware = pytest.mark.parametrize("harness", [RACK_AWARE], indirect=True)
with_selector = pytest.mark.parametrize(
    "harness", [{"replica.selector.class": SELECTOR}], indirect=True
)


@rack_aware
def test_a_consumer_reads_from_the_replica_in_its_rack_that_is_furthest(racks: Racks) -> None:
    assert racks.preferred("b") == (8, False)
    assert racks.preferred("c") == (9, False)
    racks.fetched(n7=3)
    in_sync: Any = racks.harness.partition("orders").in_sync
    in_sync.unchanged(7, in_sync.caught_up_ms(8) + 1000)
    assert racks.preferred("b", offset=3) == (7, False)  # both have it all, 7 has caught up later


@rack_aware
@pytest.mark.parametrize("rack", ["", "a", "z"])
def test_other_consumers_read_from_the_leader(racks: Racks, rack: str) -> None:
    assert racks.preferred(rack) == (-1, True)


@rack_aware
def test_a_replica_without_the_offset_or_out_of_sync_or_down_is_not_preferred(
    racks: Racks,
) -> None:
    harness = racks.harness
    racks.followers[9].fetch({0: 3}, start=2)
    assert racks.preferred("c") == (-1, True)
    assert racks.preferred("c", offset=2)[0] == 9
    topic_id = TopicId(racks.topic_id)
    isr = tuple(map(BrokerId, (1, 7, 9)))
    harness.run(
        harness.broker.quorum.propose(ChangePartition(topic_id, PartitionIndex(0), isr=isr))
    )
    assert racks.preferred("b") == (7, False)
    fencing = ChangeBroker(BrokerId(7), racks.epochs[7], is_fenced=True)
    harness.run(harness.broker.quorum.propose(fencing))
    assert racks.preferred("b") == (-1, True)


@rack_aware
def test_old_consumers_and_those_of_another_epoch_are_not_sent_away(racks: Racks) -> None:
    assert racks.preferred("b", version=10) == (-1, True)
    request = fetch(racks.topic_id, 1, rack_id="b", epoch=9)
    row = rows(racks.harness.ask(request, LATEST))[0]
    assert row.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@rack_aware
def test_a_consumer_is_sent_away_at_once_and_in_each_fetch_of_its_session(racks: Racks) -> None:
    request = fetch(racks.topic_id, 2, rack_id="b", session_epoch=0, max_wait_ms=60_000)
    answer = racks.harness.ask(request, LATEST)
    assert rows(answer)[0].preferred_read_replica == 8
    again = fetch(
        racks.topic_id,
        2,
        rack_id="b",
        session_epoch=1,
        session_id=answer.session_id,
        max_wait_ms=60_000,
    )
    assert rows(racks.harness.ask(again, LATEST))[0].preferred_read_replica == 8


@with_selector
def test_a_leader_without_a_rack_sends_consumers_to_theirs(racks: Racks) -> None:
    assert racks.preferred("b") == (8, False)


def test_without_a_selector_everybody_reads_from_the_leader(racks: Racks) -> None:
    assert racks.preferred("b") == (-1, True)


def test_a_selector_that_does_not_exist_here_is_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match=r"replica\.selector\.class"):
        load_settings(overrides={"replica.selector.class": "com.example.Mine"})
