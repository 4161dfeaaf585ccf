"""The background work: what it frees, what it leaves, and that no failure ends it."""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest

from headrace.ids import TopicId, TopicName
from headrace.log import checkpoints
from headrace.log.cutting import DELETED_AT_ONCE_MAX
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Log
from headrace.log.real_disk import RealDisk, RealFile
from headrace.metadata.ddl import DeleteTopic
from headrace.records.builder import BatchBuilder
from headrace.records.header import read_headers
from headrace.records.reader import read_records
from tests.unit.followers import Follower, create_replicated, register_broker
from tests.unit.harness import Harness

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
WAIT_SECONDS_MAX = 10
VALUE = bytes(1000)
SMALL_SEGMENTS = {"internal.segment.bytes": "10000"}


def upkeep(harness: Harness) -> Any:
    return harness.node.upkeep


def log_of(harness: Harness, topic: str = "orders", index: int = 0) -> Log:
    log: Log = harness.partition(topic, index).log
    return log


def append(
    harness: Harness,
    *keys: bytes,
    topic: str = "orders",
    now_ms: int | None = None,
    value: bytes = VALUE,
    **header: Any,
) -> None:
    """Append a batch for each key."""
    timestamp = harness.clock.now_ms() if now_ms is None else now_ms

    async def run() -> None:
        for key in keys:
            builder = BatchBuilder()
            builder.append(timestamp, key, value)
            partition = harness.partition(topic, 0)
            partition.append(memoryview(builder.build(**header)), timestamp, needs_replicas=False)

    harness.run(run())


def keys_in(log: Log) -> list[bytes | None]:
    keys: list[bytes | None] = []
    for segment in log.segments:
        data = memoryview(segment.file.read(0, segment.size_bytes))
        for position, header in read_headers(data):
            batch = data[position : position + header.size_bytes]
            keys += [record.key for record in read_records(batch, header)]
    return keys


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.005)


def test_retention_deletes_what_is_too_old(harness: Harness) -> None:
    harness.create_topic("orders", configs={**SMALL_SEGMENTS, "retention.ms": str(HOUR_MS)})
    append(harness, *[b"old"] * 20)
    harness.clock.advance(2 * HOUR_MS)
    append(harness, *[b"new"] * 20)
    log = log_of(harness)
    before_bytes = log.size_bytes
    harness.run(upkeep(harness).run_retention())
    # Nine batches fit into a file: the last two old ones share theirs with new ones.
    assert keys_in(log) == [b"old"] * 2 + [b"new"] * 20
    assert log.start_offset == 18
    counters = upkeep(harness).counters["retention"]
    assert (counters.runs, counters.failures) == (1, 0)
    assert counters.freed == before_bytes - log.size_bytes > 0


def test_followers_hear_where_a_log_begins_after_retention(harness: Harness) -> None:
    epoch = register_broker(harness, 7)
    configs = {**SMALL_SEGMENTS, "retention.bytes": "10000"}
    topic_id = create_replicated(harness, "orders", (1, 7), configs=configs)
    append(harness, *[b"k"] * 50)
    follower = Follower(harness, 7, epoch, topic_id)
    follower.fetch({0: 50})
    assert follower.fetch() == {}
    harness.run(upkeep(harness).run_retention())
    assert follower.fetch()[0].log_start_offset == log_of(harness).start_offset > 0


def test_where_logs_begin_after_retention_is_written_down(harness: Harness) -> None:
    harness.create_topic("orders", configs={**SMALL_SEGMENTS, "retention.bytes": "10000"})
    append(harness, *[b"k"] * 50)
    harness.run(upkeep(harness).run_retention())
    starts = checkpoints.load(
        harness.broker.folder.disk, checkpoints.LOG_STARTS, checkpoints.parse_offsets
    )
    assert starts["orders", 0] == log_of(harness).start_offset > 0


def test_a_log_that_fails_does_not_keep_the_others_from_retention(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("bad", "orders"):
        harness.create_topic(topic, configs={**SMALL_SEGMENTS, "retention.bytes": "10000"})
        append(harness, *[b"k"] * 50, topic=topic)
    disk, rename = harness.broker.folder.disk, harness.broker.folder.disk.rename

    def fail(old: str, new: str) -> None:
        if old.startswith("bad-0"):
            raise OSError("a disk that is tired")
        rename(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "rename", fail)
        with caplog.at_level(logging.ERROR):
            harness.run(upkeep(harness).run_retention())
    assert log_of(harness, "orders").start_offset > 0
    assert upkeep(harness).counters["retention"].failures == 1
    assert "retention of bad-0 failed" in caplog.text
    assert "a disk that is tired" in caplog.text


class Room:
    """Whether files of partitions find any; what is removed does not make more by itself."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_there = True
        append, free_bytes = RealFile.append, RealDisk.free_bytes

        def append_if_there_is_room(file: RealFile, data: Any) -> None:
            if not self.is_there and "-0/" in file.path and not file.path.startswith("__"):
                raise OSError(errno.ENOSPC, "No space left on device", file.path)
            append(file, data)

        patch.setattr(RealFile, "append", append_if_there_is_room)
        patch.setattr(RealDisk, "free_bytes", lambda disk: free_bytes(disk) * self.is_there)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


def test_retention_goes_on_when_the_disk_is_full(harness: Harness, room: Room) -> None:
    harness.create_topic("orders", configs={**SMALL_SEGMENTS, "retention.ms": str(HOUR_MS)})
    append(harness, *[b"old"] * 30)
    log = log_of(harness)
    room.is_there = False
    with pytest.raises(ReadOnlyLog):
        append(harness, b"refused")
    harness.clock.advance(2 * HOUR_MS)
    harness.run(upkeep(harness).run_retention())
    assert (log.start_offset, log.size_bytes) == (30, 0)
    room.is_there = True
    append(harness, b"new")
    assert keys_in(log) == [b"new"]


def test_a_log_without_room_is_synced_once_there_is_some(harness: Harness, room: Room) -> None:
    harness.create_topic("orders", configs={**SMALL_SEGMENTS, "flush.ms": "1000"})
    append(harness, *[b"k"] * 5)
    room.is_there = False
    with pytest.raises(ReadOnlyLog):
        append(harness, b"refused")
    harness.clock.advance(1000)
    harness.run(upkeep(harness).run_flushes())
    assert log_of(harness).recovery_point == 0
    assert upkeep(harness).counters["flush"].failures == 0, "it is not even tried"
    room.is_there = True
    harness.run(upkeep(harness).run_flushes())
    assert log_of(harness).recovery_point == 5


def test_a_log_that_found_no_room_to_be_compacted_is_compacted_later(
    harness: Harness, room: Room
) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    append(harness, *[b"a"] * 40)
    room.is_there = False
    harness.run(upkeep(harness).run_compaction())
    harness.run(upkeep(harness).run_compaction())
    assert upkeep(harness).counters["compaction"].failures == 1, "it is not tried all the time"
    assert len(keys_in(log_of(harness))) == 40
    room.is_there = True
    harness.run(upkeep(harness).run_compaction())
    assert len(keys_in(log_of(harness))) < 20


def test_retention_of_many_segments_gives_others_their_turn(harness: Harness) -> None:
    configs = {"internal.segment.bytes": "1000", "retention.bytes": "1000"}
    harness.create_topic("orders", configs=configs)
    append(harness, *[b"k"] * 200)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        retention = asyncio.create_task(upkeep(harness).run_retention())
        while log_of(harness).start_offset < 198 and not retention.done():
            await asyncio.sleep(0)
            turns += 1
        await retention

    harness.run(count_turns())
    assert log_of(harness).start_offset >= 198
    assert turns > 200 // DELETED_AT_ONCE_MAX - 1


@pytest.mark.slow
def test_a_topic_may_be_deleted_between_two_parts_of_its_retention(harness: Harness) -> None:
    configs = {"internal.segment.bytes": "1000", "retention.bytes": "1000"}
    topic_id = harness.create_topic("orders", configs=configs)
    append(harness, *[b"k"] * 200)

    async def delete_meanwhile() -> None:
        log = log_of(harness)
        retention = asyncio.create_task(upkeep(harness).run_retention())
        while log.start_offset == 0:
            await asyncio.sleep(0)
        now_ms = harness.clock.now_ms()
        await harness.broker.quorum.propose(DeleteTopic(TopicId(topic_id), now_ms=now_ms))
        await harness.broker.replicas.settle()
        await retention

    harness.run(delete_meanwhile())
    assert upkeep(harness).counters["retention"].failures == 0


def test_folders_in_which_nothing_was_deleted_are_not_looked_at(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = {**SMALL_SEGMENTS, "retention.bytes": "10000", "file.delete.delay.ms": "5000"}
    for topic in ("orders", "payments"):
        harness.create_topic(topic, configs=configs)
    append(harness, *[b"k"] * 50)
    harness.run(upkeep(harness).run_retention())
    looked_at: list[str] = []
    real = RealDisk.list

    def look(disk: RealDisk, folder: str) -> dict[str, int]:
        looked_at.append(folder)
        return real(disk, folder)

    monkeypatch.setattr(RealDisk, "list", look)
    harness.run(upkeep(harness).run_removal())
    harness.clock.advance(5000)
    harness.run(upkeep(harness).run_removal())
    harness.run(upkeep(harness).run_removal())
    assert looked_at == ["orders-0", "orders-0"]


COMPACTED = {
    **SMALL_SEGMENTS,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
}


def test_compaction_keeps_the_latest_record_of_each_key(harness: Harness) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    append(harness, *[b"a", b"b"] * 30)
    log = log_of(harness)
    before_bytes = log.size_bytes
    harness.run(upkeep(harness).run_compaction())
    assert log.size_bytes < before_bytes / 2
    assert log.end_offset == 60
    assert {b"a", b"b"} == set(keys_in(log))
    counters = upkeep(harness).counters["compaction"]
    assert counters.failures == 0
    assert counters.freed == before_bytes - log.size_bytes
    cleaned = checkpoints.load(
        harness.broker.folder.disk, checkpoints.CLEANED, checkpoints.parse_offsets
    )
    assert cleaned["orders", 0] == log.first_dirty_offset > 0


def test_every_log_that_is_due_is_compacted_in_one_run(harness: Harness) -> None:
    for topic in ("orders", "payments", "refunds"):
        harness.create_topic(topic, configs=COMPACTED)
        append(harness, *[b"a"] * 40, topic=topic)
    harness.run(upkeep(harness).run_compaction())
    for topic in ("orders", "payments", "refunds"):
        assert len(keys_in(log_of(harness, topic))) < 20


def test_a_topic_that_is_not_compacted_keeps_every_record(harness: Harness) -> None:
    harness.create_topic("orders", configs=SMALL_SEGMENTS)
    append(harness, *[b"a"] * 40)
    harness.run(upkeep(harness).run_compaction())
    assert len(keys_in(log_of(harness))) == 40


def test_a_record_does_not_wait_longer_than_the_largest_lag(harness: Harness) -> None:
    lag = {"max.compaction.lag.ms": str(HOUR_MS), "min.cleanable.dirty.ratio": "1.0"}
    harness.create_topic("orders", configs={"cleanup.policy": "compact", **lag})
    append(harness, *[b"a"] * 10)
    harness.run(upkeep(harness).run_compaction())
    assert len(keys_in(log_of(harness))) == 10
    harness.clock.advance(2 * HOUR_MS)
    harness.run(upkeep(harness).run_compaction())
    assert len(keys_in(log_of(harness))) == 1


def test_a_log_that_cannot_be_compacted_is_left_alone(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("bad", "orders"):
        harness.create_topic(topic, configs=COMPACTED)
        append(harness, *[b"a"] * 40, topic=topic)
    path = harness.broker.data_path + "/bad-0/00000000000000000000.log"
    with open(path, "r+b") as file:  # noqa: PTH123
        file.seek(100)
        file.write(b"\xff" * 500)
    with caplog.at_level(logging.WARNING):
        harness.run(upkeep(harness).run_compaction())
        harness.run(upkeep(harness).run_compaction())
    assert len(keys_in(log_of(harness, "orders"))) < 20
    assert upkeep(harness).counters["compaction"].failures == 1
    assert "bad-0 is not compacted before the next start" in caplog.text


def test_a_topic_may_be_deleted_and_made_again_while_it_is_compacted(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", configs=COMPACTED)
    append(harness, *[b"%d" % (number % 100) for number in range(2000)], value=bytes(100))

    async def delete_meanwhile() -> None:
        log = log_of(harness)
        compaction = asyncio.create_task(upkeep(harness).run_compaction())
        while not log.is_compacting and not compaction.done():
            await asyncio.sleep(0)
        assert log.is_compacting
        await harness.broker.quorum.propose(
            DeleteTopic(TopicId(topic_id), now_ms=harness.clock.now_ms())
        )
        await harness.broker.replicas.settle()
        assert not log.is_compacting
        await compaction

    harness.run(delete_meanwhile())
    assert harness.broker.replicas.find(TopicName("orders"), 0) is None
    harness.create_topic("orders", configs=COMPACTED)
    names = harness.broker.folder.disk.list("orders-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert keys_in(log_of(harness)) == []


def test_a_topic_may_be_deleted_while_it_is_synced(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", configs=SMALL_SEGMENTS)
    append(harness, *[b"k"] * 50)

    async def delete_meanwhile() -> None:
        flushing = asyncio.create_task(log_of(harness).flush())
        await asyncio.sleep(0)
        now_ms = harness.clock.now_ms()
        await harness.broker.quorum.propose(DeleteTopic(TopicId(topic_id), now_ms=now_ms))
        await harness.broker.replicas.settle()
        assert flushing.done()
        await flushing

    harness.run(delete_meanwhile())
    assert harness.broker.replicas.find(TopicName("orders"), 0) is None


@pytest.mark.parametrize("harness", [{"log.cleaner.backoff.ms": "1"}], indirect=True)
def test_a_node_that_stops_calls_compaction_off_and_keeps_every_key(harness: Harness) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    append(harness, *[b"%d" % (number % 100) for number in range(2000)], value=bytes(100))
    log = log_of(harness)
    harness.run(until(lambda: log.is_compacting or log.first_dirty_offset > 0))
    harness.restart()
    assert set(keys_in(log_of(harness))) == {b"%d" % number for number in range(100)}
    assert harness.broker.folder.was_clean


def test_producers_that_are_idle_are_forgotten(harness: Harness) -> None:
    harness.create_topic("orders")
    append(harness, b"k", producer_id=1, producer_epoch=0, base_sequence=0)
    harness.clock.advance(DAY_MS // 2)
    append(harness, b"k", producer_id=2, producer_epoch=0, base_sequence=0)
    harness.clock.advance(DAY_MS // 2 + 1)
    harness.run(upkeep(harness).run_producer_expiry())
    assert [state.producer_id for state in log_of(harness).producers] == [2]
    assert upkeep(harness).counters["producer_expiry"].freed == 1


def test_a_log_is_synced_once_its_time_has_come(harness: Harness) -> None:
    harness.create_topic("orders", configs={"flush.ms": "1000"})
    append(harness, b"k")
    log = log_of(harness)
    harness.run(upkeep(harness).run_flushes())
    assert log.recovery_point == 0
    harness.clock.advance(1000)
    harness.run(upkeep(harness).run_flushes())
    assert log.recovery_point == 1
    assert upkeep(harness).counters["flush"].freed == 1


def test_a_finished_segment_is_synced(harness: Harness) -> None:
    harness.create_topic("orders", configs=SMALL_SEGMENTS)
    append(harness, *[b"k"] * 15)
    harness.run(upkeep(harness).run_flushes())
    assert log_of(harness).recovery_point == 15


def test_recovery_points_are_written_down(harness: Harness) -> None:
    harness.create_topic("orders")
    append(harness, b"k")

    async def flush_and_checkpoint() -> None:
        await log_of(harness).flush()
        await upkeep(harness).run_checkpoint()

    harness.run(flush_and_checkpoint())
    points = checkpoints.load(
        harness.broker.folder.disk, checkpoints.RECOVERY_POINTS, checkpoints.parse_offsets
    )
    assert points["orders", 0] == 1


def test_deleted_segments_free_their_space_after_the_delay(harness: Harness) -> None:
    configs = {**SMALL_SEGMENTS, "retention.bytes": "10000", "file.delete.delay.ms": "5000"}
    harness.create_topic("orders", configs=configs)
    append(harness, *[b"k"] * 50)
    harness.run(upkeep(harness).run_retention())

    def deleted() -> list[str]:
        names = harness.broker.folder.disk.list("orders-0")
        return [name for name in names if name.endswith(".deleted")]

    count = len(deleted())
    assert count > 0
    harness.run(upkeep(harness).run_removal())
    assert len(deleted()) == count
    harness.clock.advance(5000)
    harness.run(upkeep(harness).run_removal())
    assert deleted() == []
    assert upkeep(harness).counters["removal"].freed == count


def test_a_deleted_partition_frees_its_space_after_the_delay(harness: Harness) -> None:
    topic_id = harness.create_topic("orders", 2)

    async def delete() -> None:
        await harness.broker.quorum.propose(
            DeleteTopic(TopicId(topic_id), now_ms=harness.clock.now_ms())
        )
        await harness.broker.replicas.settle()

    harness.run(delete())
    folder = harness.broker.folder
    assert len(folder.deleted_folders()) == 2
    harness.run(upkeep(harness).run_removal())
    assert len(folder.deleted_folders()) == 2
    harness.clock.advance(60_000)
    harness.run(upkeep(harness).run_removal())
    assert folder.deleted_folders() == []


@pytest.mark.parametrize("harness", [{"connections.max.idle.ms": "100"}], indirect=True)
def test_a_connection_that_says_nothing_is_closed(harness: Harness) -> None:
    async def connect_and_wait() -> bytes:
        host, port = harness.node.bootstrap.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    assert harness.run(connect_and_wait()) == b""
    assert harness.broker.counters.connections_idle_closed == 1


FAST = {
    "log.retention.check.interval.ms": "10",
    "log.cleaner.backoff.ms": "10",
    "log.flush.scheduler.interval.ms": "10",
    "log.flush.offset.checkpoint.interval.ms": "10",
    "producer.id.expiration.check.interval.ms": "10",
}


@pytest.mark.parametrize("harness", [FAST], indirect=True)
def test_the_work_is_done_again_and_again_by_itself(harness: Harness) -> None:
    counters = upkeep(harness).counters
    names = ("retention", "compaction", "flush", "checkpoint", "producer_expiry")
    harness.run(until(lambda: all(counters[name].runs >= 2 for name in names)))


@pytest.mark.parametrize("harness", [FAST], indirect=True)
def test_a_failure_that_nobody_foresaw_does_not_end_the_work(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counters = upkeep(harness).counters["checkpoint"]

    async def fail() -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(type(harness.broker.folder), "checkpoint", lambda _: fail())
        harness.run(until(lambda: counters.failures >= 2))
    assert "checkpoint failed: a bug" in caplog.text
    before = counters.freed
    harness.run(until(lambda: counters.freed > before))


def test_a_busy_loop_shows_as_lag(harness: Harness) -> None:
    async def hold_up() -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.5
        while loop.time() < end:
            pass

    harness.run(until(lambda: harness.broker.counters.loop_lag_ns > 0))
    harness.run(hold_up())
    harness.run(until(lambda: harness.broker.counters.loop_lag_ns_max > 100_000_000))
