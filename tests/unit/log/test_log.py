"""A partition's log: offsets, rolling, reading, durability."""

import asyncio
import errno

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.log.errors import OffsetOutOfRange, ReadOnlyLog
from headrace.log.settings import LogSettings
from headrace.records.errors import CorruptBatch
from headrace.records.header import TimestampType, read_header, read_headers
from headrace.records.validation import TopicRules
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import (
    FOLDER,
    NOW_MS,
    append,
    batch_of,
    end_transaction,
    open_simulated,
    records_of,
    values_of,
)

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=1)


def test_records_get_consecutive_offsets_and_come_back(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    first, second = append(log, b"a", b"b"), append(log, b"c")
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert (log.start_offset, log.end_offset) == (0, 3)
    assert [(record.offset, record.value) for record in records_of(log)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_the_clients_own_bytes_are_what_is_written(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"before")
    batch = batch_of(b"a", b"b")
    sent = bytes(batch)
    log.append(batch, leader_epoch=5, now_ms=NOW_MS)
    stored = log.read(1, 10_000, up_to=log.end_offset)
    assert stored is not None
    assert bytes(stored)[16:] == sent[16:]
    header = read_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 5)


def test_append_time_replaces_the_producers_time(disk: SimulatedDisk) -> None:
    rules = TopicRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    log = open_simulated(disk, LogSettings(rules=rules))
    appended = append(log, b"a", timestamp=5)
    assert appended.append_time_ms == NOW_MS
    assert [record.timestamp for record in records_of(log)] == [NOW_MS]


def test_a_read_begins_with_the_whole_batch_that_has_the_offset(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    chunk = log.read(1, 10_000, up_to=log.end_offset)
    assert chunk is not None
    assert [header.base_offset for _, header in read_headers(chunk)] == [0, 3]


def test_the_first_batch_is_whole_however_large(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"x" * 5000)
    append(log, b"y")
    chunk = log.read(0, 10, up_to=log.end_offset)
    assert chunk is not None
    assert len(chunk) == read_header(chunk).size_bytes
    partial = log.read(0, 10, up_to=log.end_offset, is_first_whole=False)
    assert partial is not None
    assert len(partial) == 10


def test_a_read_stops_before_the_offset_that_bounds_it(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, SMALL)
    for number in range(20):
        append(log, b"%d" % number, b"second")
    for bound in range(0, log.end_offset + 1, 2):
        offset, seen = 0, 0
        while chunk := log.read(offset, 150, up_to=bound):
            for _, header in read_headers(chunk):
                offset = header.next_offset
                seen = header.last_offset + 1
        assert seen == bound


def test_the_end_is_empty_and_beyond_it_is_out_of_range(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a")
    assert not log.read(1, 100, up_to=1)
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not in 0 to 1"):
            log.read(offset, 100, up_to=1)


def test_cold_data_is_left_to_a_caller_who_may_wait(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a")
    disk.drop_cache()
    assert log.read(0, 100, up_to=1) is None
    assert log.read(0, 100, up_to=1, may_block=True)


def test_a_cold_read_brings_the_bytes_without_blocking_the_loop(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    for number in range(10):
        append(log, b"%d" % number)
    disk.drop_cache()
    chunk = asyncio.run(log.read_cold(3, 200, up_to=log.end_offset))
    assert read_header(chunk).base_offset == 3
    assert log.read(3, 200, up_to=log.end_offset) == chunk


def test_a_log_rolls_by_size_and_reads_on_across_segments(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, SMALL)
    for number in range(30):
        append(log, b"%d" % number)
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 400 for segment in log.segments)
    assert values_of(log) == [b"%d" % number for number in range(30)]


def test_a_log_rolls_by_time(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(segment_ms=1000))
    append(log, b"a", timestamp=NOW_MS - 5000)
    append(log, b"b", timestamp=NOW_MS - 4000)
    append(log, b"c", timestamp=NOW_MS - 3999)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_log_rolls_when_an_index_is_full(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(index_interval_bytes=0, segment_index_bytes=40))
    for number in range(20):
        append(log, b"%d" % number, timestamp=NOW_MS - 100 + number)
    assert len(log.segments) > 3
    assert all(segment.time_index.size_bytes <= 40 for segment in log.segments)


def test_a_repeated_batch_is_answered_with_its_offset(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"other")
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    first = append(log, b"a", b"b", **fields)
    again = append(log, b"a", b"b", **fields)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.end_offset == 3


def test_a_gap_in_sequences_is_refused_and_nothing_is_written(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    with pytest.raises(KafkaError) as refusal:
        append(log, b"c", producer_id=7, producer_epoch=0, base_sequence=2)
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 1


def test_an_open_transaction_holds_the_last_stable_offset(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"plain")
    append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=1)
    append(log, b"behind")
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == 1
    end_transaction(log, 7, is_commit=False)
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset == 4
    (aborted,) = log.aborted_transactions(0, 4)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 1, 3)
    assert log.aborted_transactions(4, 10) == []


def test_a_committed_transaction_is_not_among_the_aborted(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=1)
    end_transaction(log, 7, is_commit=True)
    log.advance_high_watermark(log.end_offset)
    assert log.aborted_transactions(0, 10) == []


def test_each_leader_epoch_is_known_by_its_first_offset(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a", leader_epoch=3)
    append(log, b"b", leader_epoch=3)
    append(log, b"c", leader_epoch=5)
    assert [tuple(entry) for entry in log.epochs.entries()] == [(3, 0), (5, 2)]
    assert tuple(log.epochs.end_offset_for(4, log.end_offset)) == (3, 2)


def test_a_follower_writes_the_leaders_bytes_at_its_offsets(disk: SimulatedDisk) -> None:
    leader = open_simulated(disk, SMALL)
    for number in range(10):
        append(leader, b"%d" % number, leader_epoch=number // 4)
    follower = open_simulated(SimulatedDisk(seed=2), SMALL)
    while follower.end_offset < leader.end_offset:
        chunk = leader.read(follower.end_offset, 300, up_to=leader.end_offset)
        assert chunk
        follower.append_replicated(chunk)
    assert records_of(follower) == records_of(leader)
    assert follower.epochs.entries() == leader.epochs.entries()


def test_a_follower_refuses_damage_and_offsets_that_go_back(disk: SimulatedDisk) -> None:
    leader, follower = open_simulated(disk), open_simulated(SimulatedDisk(seed=2))
    append(leader, b"a")
    chunk = leader.read(0, 1000, up_to=1)
    assert chunk is not None
    damaged = bytearray(chunk)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC32C"):
        follower.append_replicated(memoryview(damaged))
    follower.append_replicated(chunk)
    with pytest.raises(CorruptBatch, match="the leader sent offsets 0 to 0; orders-0 ends at 1"):
        follower.append_replicated(chunk)


def test_flush_makes_durable_what_was_appended_before(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, SMALL)

    async def append_and_flush() -> None:
        for number in range(12):
            append(log, b"%d" % number)
        await log.flush()

    asyncio.run(append_and_flush())
    assert log.recovery_point == 12
    disk.crash()
    again = open_simulated(disk, SMALL, is_clean=False, recovery_point=12)
    assert values_of(again) == [b"%d" % number for number in range(12)]


def test_flushes_at_the_same_time_share_the_work(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)

    async def many_flushes() -> None:
        async def append_and_flush(number: int) -> None:
            append(log, b"%d" % number)
            await log.flush()
            assert log.recovery_point > number

        await asyncio.gather(*(append_and_flush(number) for number in range(50)))

    before = disk.counts["sync"]
    asyncio.run(many_flushes())
    assert log.recovery_point == 50
    assert disk.counts["sync"] - before < 20


@pytest.mark.timeout(20)
def test_a_flush_may_begin_in_the_turn_in_which_another_ends(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_simulated(disk)
    append(log, b"a")

    async def flush_twice() -> None:
        loop = asyncio.get_running_loop()
        synced = loop.create_future()
        monkeypatch.setattr(loop, "run_in_executor", lambda _, work: synced)
        first = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        synced.set_result(None)  # the thread is done, and what follows is not noted yet
        await log.flush()
        await first

    asyncio.run(flush_twice())
    assert log.recovery_point == 1


def test_flush_messages_says_when_a_flush_is_due(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(flush_messages=3))
    append(log, b"a", b"b")
    assert not log.wants_flush
    append(log, b"c", b"d")
    assert log.wants_flush
    asyncio.run(log.flush())
    assert not log.wants_flush


def test_flush_ms_says_when_a_flush_is_due(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(flush_ms=100))
    assert not log.is_flush_due(NOW_MS + 1000)
    append(log, b"a")
    assert not log.is_flush_due(NOW_MS + 99)
    assert log.is_flush_due(NOW_MS + 100)
    asyncio.run(log.flush())
    assert not log.is_flush_due(NOW_MS + 1000)


def test_idle_producers_are_forgotten(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    assert log.expire_producers(NOW_MS + 1000) == 0
    assert log.expire_producers(NOW_MS + log.settings.producer_id_expiration_ms) == 1
    assert log.producers.get(7) is None


def test_a_full_disk_makes_the_log_read_only_until_space_returns(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"kept")
    disk.fill_up(30)
    for _ in range(2):
        with pytest.raises(ReadOnlyLog) as refusal:
            append(log, b"refused")
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-0 is read-only" in str(refusal.value)
    assert values_of(log) == [b"kept"]
    disk.fill_up(2**40)
    assert append(log, b"again").base_offset == 1
    assert values_of(log) == [b"kept", b"again"]


def test_a_failing_disk_makes_the_log_read_only_for_good(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"kept")
    disk.fail("append", error=errno.EIO)
    with pytest.raises(ReadOnlyLog):
        append(log, b"refused")
    with pytest.raises(ReadOnlyLog):
        append(log, b"refused too")
    assert values_of(log) == [b"kept"]


def test_a_failed_sync_is_told_to_all_who_wait_and_promises_nothing(disk: SimulatedDisk) -> None:
    log = open_simulated(disk)
    append(log, b"a")
    disk.fail("sync", error=errno.EIO)

    async def flush_twice() -> list[object]:
        return list(await asyncio.gather(log.flush(), log.flush(), return_exceptions=True))

    assert [type(result) for result in asyncio.run(flush_twice())] == [ReadOnlyLog, ReadOnlyLog]
    assert log.recovery_point == 0
    with pytest.raises(ReadOnlyLog):
        append(log, b"b")


def test_files_have_kafkas_names(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, SMALL)
    for number in range(8):
        append(log, b"%d" % number)
    log.close()
    names = set(disk.list(FOLDER))
    assert {"00000000000000000000.log", "00000000000000000000.index"} <= names
    assert {"00000000000000000000.timeindex", "leader-epoch-checkpoint"} <= names
    assert f"{log.end_offset:020d}.snapshot" in names
