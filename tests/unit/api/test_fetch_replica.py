"""Fetches of followers: what they get, what is noted of them, and who is refused."""

import asyncio
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.ddl import ChangePartition, DeleteTopic
from headrace.records.header import read_headers
from headrace.replication.replica_sessions import ReplicaSession
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
from tests.unit.harness import FakePeer, Harness

OTHER = BrokerId(7)


class World:
    """A node that leads `orders`, and a follower of it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.epoch = register_broker(harness, OTHER)
        self.topic_id = create_replicated(harness, "orders", (1, OTHER), partitions=3)
        self.follower = Follower(harness, OTHER, self.epoch, self.topic_id)

    def append(self, *values: bytes, index: int = 0) -> None:
        append(self.harness, "orders", *values, index=index)

    def partition(self, index: int = 0) -> Any:
        return self.harness.partition("orders", index)

    def high_watermark(self, index: int = 0) -> int:
        return self.partition(index).log.high_watermark  # type: ignore[no-any-return]

    def change_leader_epoch(self, leader: int = 1) -> None:
        async def change() -> None:
            propose = self.harness.broker.quorum.propose
            for each in (OTHER, leader):
                await propose(ChangePartition(self.topic_id, PartitionIndex(0), leader=each))

        self.harness.run(change())


@pytest.fixture
def world(harness: Harness) -> World:
    return World(harness)


def session_of(follower: Follower) -> ReplicaSession:
    found = follower.harness.broker.replica_sessions.find(follower.session_id)
    assert found is not None
    return found


def offsets_of(row: Any) -> list[int]:
    return [header.base_offset for _, header in read_headers(memoryview(row.records))]


# What a follower gets


def test_a_follower_reads_to_the_end_and_its_position_commits(world: World) -> None:
    world.append(b"a")
    assert world.high_watermark() == 0
    row = world.follower.fetch({0: 0})[0]
    assert (row.error_code, row.high_watermark, offsets_of(row)) == (0, 0, [0])
    row = world.follower.fetch({0: 1})[0]
    assert (row.high_watermark, len(row.records)) == (1, 0)
    assert world.high_watermark() == 1


def test_a_first_fetch_has_a_row_of_every_partition(world: World) -> None:
    world.append(b"x" * 500, index=1)
    found = world.follower.fetch({0: 0, 1: 0, 2: 0}, max_bytes=1)
    assert {index: bool(row.records) for index, row in found.items()} == {0: 0, 1: 1, 2: 0}


def test_a_session_hears_only_what_is_new(world: World) -> None:
    world.follower.fetch({0: 0, 1: 0, 2: 0})
    assert world.follower.fetch() == {}
    world.append(b"a", index=1)
    assert list(world.follower.fetch()) == [1]
    assert list(world.follower.fetch({1: 1})) == [1]  # the high watermark
    assert world.follower.fetch() == {}


def test_what_was_not_taken_is_sent_again(world: World) -> None:
    world.follower.fetch({0: 0})
    world.append(b"a")
    assert offsets_of(world.follower.fetch()[0]) == [0]
    assert offsets_of(world.follower.fetch()[0]) == [0]


def test_each_partition_gets_its_turn(world: World) -> None:
    for index in range(3):
        for _ in range(3):
            world.append(b"x" * 1000, index=index)
    follower, taken, position = world.follower, [], dict.fromkeys(range(3), 0)
    found = follower.fetch(position, max_bytes=1000)
    for _ in range(9):
        given = [index for index, row in found.items() if row.records]
        taken += given
        for index in given:
            position[index] += 1
        found = follower.fetch({index: position[index] for index in given}, max_bytes=1000)
    assert taken == [0, 1, 2] * 3
    assert [world.high_watermark(index) for index in range(3)] == [3, 3, 3]


def test_positions_count_although_there_is_no_room_for_records(world: World) -> None:
    for index in range(3):
        world.append(b"x" * 1000, index=index)
    world.follower.fetch({0: 0, 1: 1, 2: 1}, max_bytes=1)
    assert [world.high_watermark(index) for index in range(3)] == [0, 1, 1]


def test_a_fetch_waits_until_something_is_appended(world: World) -> None:
    async def run() -> Any:
        waiting = await world.follower.wait({0: 0, 1: 0, 2: 0})
        world.partition(2).append(a_batch(b"a"), NOW_MS, needs_replicas=False)
        return await waiting

    found = rows(world.harness.run(run()))
    assert [index for index, row in found.items() if row.records] == [2]


def test_a_fetch_waits_for_min_bytes(world: World) -> None:
    async def run() -> Any:
        waiting = await world.follower.wait({0: 0, 1: 0}, min_bytes=300)
        for index in range(2):
            assert not waiting.done()
            world.partition(index).append(a_batch(b"x" * 200), NOW_MS, needs_replicas=False)
            for _ in range(5):
                await asyncio.sleep(0)
        return await waiting

    assert [offsets_of(row) for row in rows(world.harness.run(run())).values()] == [[0], [0]]


def test_a_fetch_does_not_end_for_a_high_watermark_but_the_next_response_tells_it(
    harness: Harness,
) -> None:
    epochs = {node: register_broker(harness, node) for node in (7, 8)}
    topic_id = create_replicated(harness, "orders", (1, 7, 8), partitions=2)
    first, second = (Follower(harness, node, epochs[node], topic_id) for node in (7, 8))
    append(harness, "orders", b"a")
    first.fetch({0: 1, 1: 0})

    async def run() -> Any:
        waiting = await first.wait()
        await second.ask({0: 1, 1: 0})
        assert harness.partition("orders").log.high_watermark == 1
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        harness.partition("orders", 1).append(a_batch(b"b"), NOW_MS, needs_replicas=False)
        return await waiting

    found = rows(harness.run(run()))
    assert (found[0].high_watermark, len(found[0].records)) == (1, 0)
    assert offsets_of(found[1]) == [0]


def test_a_moved_start_of_the_log_is_told_at_once(world: World) -> None:
    world.append(b"a")
    world.follower.fetch({0: 1})

    async def run() -> Any:
        waiting = await world.follower.wait()
        partition = world.partition()
        partition.log.start_offset = 1
        partition.on_start_moved()
        return await waiting

    assert rows(world.harness.run(run()))[0].log_start_offset == 1


def test_a_forgotten_partition_is_watched_no_more(world: World) -> None:
    world.follower.fetch({0: 0, 1: 0})
    world.append(b"a")
    assert world.follower.fetch(forgotten=(0,)) == {}
    assert not world.partition().followers
    assert not world.partition().fetch_waiters
    assert world.partition(1).followers


def test_records_that_are_not_in_the_page_cache_are_read_all_the_same(
    world: World, cold_files: Any
) -> None:
    for index in range(3):
        world.append(b"x" * 1000, index=index)
    cold_files.drop(world.harness, "orders", 0, 2)
    found = world.follower.fetch(dict.fromkeys(range(3), 0))
    assert [offsets_of(found[index]) for index in range(3)] == [[0], [0], [0]]
    assert cold_files.waits == 2


def test_a_cold_first_batch_is_whole_and_the_others_keep_to_the_limit(
    world: World, cold_files: Any
) -> None:
    for index in range(2):
        world.append(b"x" * 1000, index=index)
    cold_files.drop(world.harness, "orders", 0, 1)
    found = world.follower.fetch({0: 0, 1: 0}, max_bytes=1)
    assert [len(found[index].records) > 1000 for index in range(2)] == [True, False]


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_without_a_session_each_fetch_is_answered_in_full(world: World, session_epoch: int) -> None:
    world.harness.broker.replica_sessions._slots_max = 0
    world.append(b"a")
    for _ in range(2):
        response = world.harness.run(world.follower.ask({0: 0, 1: 0}, session_epoch=session_epoch))
        assert response.session_id == 0
        assert sorted(rows(response)) == [0, 1]
        assert not world.partition().followers

    async def run() -> Any:
        waiting = await world.follower.wait({1: 0}, session_epoch=session_epoch, session_id=0)
        world.partition(1).append(a_batch(b"a"), NOW_MS, needs_replicas=False)
        return await waiting

    assert offsets_of(rows(world.harness.run(run()))[1]) == [0]
    assert not world.partition(1).followers
    assert not world.partition(1).fetch_waiters
    assert not world.follower.peer.on_close


# Changes of partitions


def test_a_change_of_the_leader_epoch_ends_the_wait_with_an_error(world: World) -> None:
    world.follower.fetch({0: 0, 1: 0})

    async def run() -> Any:
        waiting = await world.follower.wait()
        propose = world.harness.broker.quorum.propose
        await propose(ChangePartition(world.topic_id, PartitionIndex(0), leader=OTHER))
        return await waiting

    found = rows(world.harness.run(run()))
    assert {index: row.error_code for index, row in found.items()} == {
        0: ErrorCode.FENCED_LEADER_EPOCH
    }
    assert not world.partition().followers


def test_a_partition_that_failed_is_back_when_it_is_named_again(world: World) -> None:
    found = world.follower.fetch({0: 0, 1: 0}, epoch=1)
    assert {row.error_code for row in found.values()} == {ErrorCode.UNKNOWN_LEADER_EPOCH}
    assert world.follower.fetch() == {}
    again = world.follower.fetch({0: 0}, epoch=1)
    assert again[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    world.change_leader_epoch()
    world.append(b"a")
    leader_epoch = world.partition().leader_epoch
    assert offsets_of(world.follower.fetch({0: 0}, epoch=leader_epoch)[0]) == [0]


def test_a_partition_that_is_not_here_yet_is_found_when_it_is_named_again(world: World) -> None:
    topic_id = b"later".ljust(16, b".")
    world.follower.fetch({0: 0})
    found = world.follower.fetch({0: 0}, topic_id=topic_id)
    assert found[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    create_replicated(world.harness, "later", (1, OTHER))
    append(world.harness, "later", b"a")
    found = world.follower.fetch({0: 0}, topic_id=topic_id)
    assert (found[0].error_code, offsets_of(found[0])) == (0, [0])


def test_a_topic_that_is_deleted_ends_the_wait(world: World) -> None:
    world.follower.fetch({0: 0, 1: 0, 2: 0})

    async def run() -> Any:
        waiting = await world.follower.wait()
        await world.harness.broker.quorum.propose(DeleteTopic(world.topic_id, 0))
        return await waiting

    partitions = [world.partition(index) for index in range(3)]
    found = rows(world.harness.run(run()))
    assert found
    assert {row.error_code for row in found.values()} == {ErrorCode.UNKNOWN_TOPIC_ID}
    world.follower.fetch()
    assert not any(partition.followers for partition in partitions)
    assert not any(partition.fetch_waiters for partition in partitions)


def test_a_follower_that_could_not_join_joins_later_without_naming_anything(
    harness: Harness,
) -> None:
    epoch = register_broker(harness, OTHER)
    topic_id = create_replicated(harness, "orders", (1, OTHER), isr=(1,))
    follower = Follower(harness, OTHER, epoch, topic_id)
    partition: Any = harness.partition("orders")
    partition.in_sync.pending = (BrokerId(1),)  # another change is under way
    follower.fetch({0: 0})
    partition.in_sync.pending = None
    session_of(follower).revisited_ms -= 1000

    async def run() -> None:
        await follower.ask()
        while OTHER not in partition.isr:
            await asyncio.sleep(0.001)

    harness.run(run())


def test_a_follower_that_caught_up_before_it_left_the_isr_joins_without_naming_anything(
    world: World,
) -> None:
    world.follower.fetch({0: 0})
    partition, quorum = world.partition(), world.harness.broker.quorum

    async def run() -> None:
        shrink = ChangePartition(world.topic_id, PartitionIndex(0), isr=(BrokerId(1),))
        await quorum.propose(shrink)
        assert OTHER not in partition.isr
        session_of(world.follower).revisited_ms -= 1000
        await world.follower.ask()
        async with asyncio.timeout(10):
            while OTHER not in partition.isr:
                await asyncio.sleep(0.001)

    world.harness.run(run())


def test_a_follower_that_had_everything_is_not_late_when_something_is_appended(
    world: World,
) -> None:
    world.follower.fetch({0: 0})
    in_sync = world.partition().in_sync
    session = session_of(world.follower)
    session.used_ms += 3_600_000  # it fetched for an hour without naming the partition
    world.append(b"a")
    assert in_sync.caught_up_ms(OTHER) == session.used_ms


# Divergence


def test_a_diverging_follower_is_told_where_and_nothing_is_noted(world: World) -> None:
    world.append(b"a")
    world.change_leader_epoch()
    world.append(b"b")
    epoch = world.partition().leader_epoch
    before = world.high_watermark()
    row = world.follower.fetch({0: 2}, epoch=epoch, last_epoch=0)[0]
    assert (row.error_code, len(row.records)) == (0, 0)
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 1)
    assert world.partition().in_sync.position_of(OTHER) is None
    assert world.high_watermark() == before
    world.append(b"c")
    assert world.follower.fetch() == {}  # not before it has truncated
    row = world.follower.fetch({0: 1}, epoch=epoch, last_epoch=0)[0]
    assert offsets_of(row) == [1, 2]


# Lies


@pytest.mark.parametrize(
    ("offset", "lie", "code"),
    [
        (3, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, {"last_epoch": 9}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, {"epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, {"node": 8}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, {"node": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, {"broker_epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=["above", "negative", "last", "epoch", "stranger", "itself", "no-life"],
)
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_lie_is_refused_and_changes_nothing(
    world: World, offset: int, lie: dict[str, int], code: ErrorCode, session_epoch: int
) -> None:
    world.append(b"a", b"b")
    row = world.follower.fetch({0: offset}, session_epoch=session_epoch, **lie)[0]
    assert (ErrorCode(row.error_code), len(row.records)) == (code, 0)
    assert world.high_watermark() == 0
    assert world.partition().in_sync.position_of(OTHER) is None
    assert not world.partition().followers


def test_a_former_life_of_a_broker_is_refused_and_its_session_is_over(world: World) -> None:
    world.follower.fetch({0: 0})
    world.append(b"a")

    async def begin() -> Any:
        return await world.follower.wait({0: 0}, min_bytes=10_000)

    async def end() -> Any:
        return await waiting

    waiting = world.harness.run(begin())
    register_broker(world.harness, OTHER, life=2)
    answer = world.harness.run(end())
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not world.partition().followers
    row = world.follower.fetch({0: 1}, session_id=0, session_epoch=0)[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.high_watermark() == 0
    assert len(world.harness.broker.replica_sessions) == 0


def test_a_session_of_another_node_is_not_found(world: World) -> None:
    epoch = register_broker(world.harness, 8)
    world.follower.fetch({0: 0})
    world.append(b"a")
    stranger = Follower(world.harness, 8, epoch, world.topic_id)
    stranger.session_id, stranger.session_epoch = world.follower.session_id, 1
    answer = world.harness.run(stranger.ask({0: 1}))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.high_watermark() == 0
    stranger.fetch({0: 1}, session_epoch=0)  # nor does it end it
    assert offsets_of(world.follower.fetch()[0]) == [0]


def test_a_consumer_cannot_use_the_session_of_a_follower(world: World) -> None:
    world.follower.fetch({0: 0})
    request = world.follower.request({0: 0}, node=-1)
    answer = world.harness.ask(request, LATEST)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_epoch_of_a_session_that_is_not_the_next_is_refused(world: World) -> None:
    world.follower.fetch({0: 0})
    answer = world.harness.run(world.follower.ask({0: 0}, session_epoch=5))
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_old_versions_say_no_broker_epoch_and_are_refused(world: World) -> None:
    request = world.follower.request({0: 0}, session_epoch=-1)
    request.replica_id, request.replica_state.replica_id = OTHER, -1
    request.topics[0].topic = "orders"
    request.replica_state.replica_epoch = -1
    row = rows(world.harness.ask(request, 12))[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# Sessions


def test_a_session_ends_with_its_connection(world: World) -> None:
    world.follower.fetch({0: 0, 1: 0})

    async def run() -> None:
        waiting = await world.follower.wait()
        world.follower.peer.close("gone")
        for index in range(2):
            assert not world.partition(index).followers
            assert not world.partition(index).fetch_waiters
        waiting.cancel()

    world.harness.run(run())
    assert len(world.harness.broker.replica_sessions) == 0


def test_a_follower_whose_connection_ends_was_not_late_before(world: World) -> None:
    """Partitions that it did not name for an hour are as good as those that it did."""
    world.follower.fetch({0: 0})
    session = session_of(world.follower)
    session.used_ms += 3_600_000

    async def hang_up() -> None:
        world.follower.peer.close("gone")

    world.harness.run(hang_up())
    assert world.partition().in_sync.caught_up_ms(OTHER) == session.used_ms


def test_a_connection_has_one_session(world: World) -> None:
    for _ in range(3):
        world.follower.fetch({0: 0}, session_epoch=0, session_id=0)
        assert len(world.harness.broker.replica_sessions) == 1
        assert len(world.partition().followers) == 1
        assert len(world.follower.peer.on_close) == 1


def test_a_session_goes_on_on_another_connection(world: World) -> None:
    world.follower.fetch({0: 0})
    first = world.follower.peer
    world.follower.peer = FakePeer(world.harness.node.dispatcher)
    world.append(b"a")
    assert offsets_of(world.follower.fetch()[0]) == [0]

    async def close() -> None:
        first.close("gone")

    world.harness.run(close())
    assert offsets_of(world.follower.fetch()[0]) == [0]


def test_a_request_on_another_connection_takes_over_from_the_one_that_waits(world: World) -> None:
    world.follower.fetch({0: 0})

    async def run() -> tuple[Any, Any]:
        waiting = await world.follower.wait()
        second = Follower(world.harness, OTHER, world.epoch, world.topic_id)
        second.session_id, second.session_epoch = world.follower.session_id, 2
        answer = await second.ask()
        return await waiting, answer

    first, second = world.harness.run(run())
    assert first.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (second.error_code, rows(second)) == (0, {})


def test_the_number_of_sessions_is_bounded(world: World) -> None:
    sessions = world.harness.broker.replica_sessions
    sessions._slots_max = 2
    followers = [Follower(world.harness, OTHER, world.epoch, world.topic_id) for _ in range(4)]
    for follower in followers:
        follower.fetch({0: 0})
    assert len(sessions) == 2
    assert len(world.partition().followers) == 2
    answer = world.harness.run(followers[0].ask())
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert followers[3].fetch() == {}


def test_naming_and_forgetting_for_ever_takes_no_memory(world: World) -> None:
    world.append(b"x" * 1000, index=1)
    world.follower.fetch({0: 0, 1: 0})
    session = session_of(world.follower)
    for _ in range(300):
        world.follower.fetch({0: 0}, forgotten=(0,), max_bytes=1)
    assert len(session.due) < 100


def test_many_partitions_are_taken_and_answered_in_turns(world: World) -> None:
    """Whether they exist or not."""
    count = 5000

    async def run() -> tuple[Any, int]:
        asked = dict.fromkeys(range(count), 0)
        waiting = asyncio.ensure_future(world.follower.ask(asked))
        turns = 0
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0)
        return await waiting, turns

    answer, turns = world.harness.run(run())
    found = rows(answer)
    assert len(found) == count
    assert [found[index].error_code for index in range(3)] == [0, 0, 0]
    assert found[3].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert turns > 30
    session = session_of(world.follower)
    assert len(session.partitions) == 3
