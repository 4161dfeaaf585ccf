"""What one pass of compaction does to a log, and what may happen to the log meanwhile."""

import asyncio
import dataclasses
import errno
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from headrace.log import compaction
from headrace.log.compaction import CompactionAbandoned, compact
from headrace.log.cutting import delete_records, restart_at, truncate
from headrace.log.errors import CorruptLog, ReadOnlyLog
from headrace.log.log import Log
from headrace.log.lookup import find
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.control import ControlType, build_control_batch
from headrace.records.record import Record
from headrace.testing.disk import Operation, SimulatedDisk
from tests.unit.log.keyed import (
    DELETE_RETENTION_MS,
    SETTINGS,
    headers_of,
    open_compacted,
    put,
    roll,
    run,
    table_of,
)
from tests.unit.log.logs import FOLDER, NOW_MS, end_transaction, open_simulated, records_of

LATER_MS = NOW_MS + DELETE_RETENTION_MS


def test_latest_record_of_each_key_stays_at_its_offset() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    compacted = run(log)
    assert table_of(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert (compacted.records_kept, compacted.records_dropped) == (2, 1)
    assert compacted.first_dirty_offset == log.first_dirty_offset == 3


def test_a_batch_may_become_as_large_as_the_log_takes_them() -> None:
    def allowing(inflated_bytes_max: int) -> LogSettings:
        rules = dataclasses.replace(SETTINGS.rules, inflated_bytes_max=inflated_bytes_max)
        return msgspec.structs.replace(SETTINGS, rules=rules)

    log = open_compacted(settings=allowing(10_000))
    for value in (b"1", b"2"):
        put(log, (b"a", value * 5000), codec=Compression.ZSTD)
    roll(log)
    log.change_settings(allowing(1_000))
    with pytest.raises(CorruptLog, match="1000"):
        run(log)
    log.change_settings(allowing(10_000))
    run(log)
    assert [offset for offset, _, _ in table_of(log)] == [1]
    assert find(log, NOW_MS) is not None


def test_active_segment_is_not_touched() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    put(log, (b"a", b"3"))
    log.advance_high_watermark(log.end_offset)
    run(log)
    assert table_of(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


def test_records_beyond_the_high_watermark_supersede_nothing() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(log.end_offset)
    log.advance_high_watermark(1)
    assert run(log).first_dirty_offset == 1
    assert table_of(log) == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_batch_from_which_nothing_goes_stays_byte_for_byte() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"), (b"b", b"2"), codec=Compression.ZSTD)
    roll(log)
    before = log.segments[0].file.read(0, log.segments[0].size_bytes)
    run(log)
    assert log.segments[0].file.read(0, log.segments[0].size_bytes) == before


@pytest.mark.parametrize("codec", list(Compression))
def test_rewritten_batch_keeps_range_producer_codec_and_times(codec: Compression) -> None:
    log = open_compacted()
    builder = BatchBuilder(codec)
    builder.append(NOW_MS + 7, b"a", b"1" * 100)
    builder.append(NOW_MS + 5, b"b", b"2" * 100, (("h", None), ("h", b"x")))
    builder.append(NOW_MS + 9, b"a", b"3" * 100)
    builder.append(NOW_MS + 11, b"c", b"4" * 100)
    batch = builder.build(producer_id=5, producer_epoch=2, base_sequence=0)
    log.append(memoryview(batch), leader_epoch=3, now_ms=NOW_MS)
    put(log, (b"c", b"5"))
    roll(log)
    run(log)
    header = headers_of(log)[0]
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (0, 3, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 0)
    assert (header.compression, header.max_timestamp) == (codec, NOW_MS + 9)
    assert records_of(log)[:2] == [
        Record(1, NOW_MS + 5, b"b", b"2" * 100, (("h", None), ("h", b"x"))),
        Record(2, NOW_MS + 9, b"a", b"3" * 100, ()),
    ]


def test_record_without_key_goes() -> None:
    log = open_compacted()
    log.settings = LogSettings(delete_retention_ms=DELETE_RETENTION_MS)
    put(log, (None, b"1"), (b"a", b"2"))
    roll(log)
    run(log)
    assert table_of(log) == [(1, b"a", b"2")]


def test_keys_that_differ_in_one_byte_or_in_length_are_different() -> None:
    log = open_compacted()
    keys = [b"", b"\0", b"\0\0", b"x" * 15, b"x" * 16, b"x" * 17, b"x" * 300, b"x" * 299 + b"y"]
    put(log, *((key, b"%d" % number) for number, key in enumerate(keys)))
    put(log, (b"\0", b"new"), (b"x" * 300, b"new"))
    roll(log)
    run(log)
    assert [key for _, key, _ in table_of(log)] == [
        key for key in keys if key not in (b"\0", b"x" * 300)
    ] + [b"\0", b"x" * 300]


# Tombstones


def test_tombstone_stays_until_its_horizon_and_goes_then() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"1"), timestamp=NOW_MS - 5000)
    roll(log)
    run(log, NOW_MS)
    assert table_of(log) == [(1, b"a", None), (2, b"b", b"1")]
    header = headers_of(log)[0]
    assert header.delete_horizon_ms == LATER_MS
    assert [record.timestamp for record in records_of(log)] == [NOW_MS - 5000] * 2
    put(log, (b"c", b"1"))
    roll(log)
    run(log, LATER_MS - 1)
    assert (1, b"a", None) in table_of(log)
    put(log, (b"c", b"2"))
    roll(log)
    run(log, LATER_MS)
    assert table_of(log) == [(2, b"b", b"1"), (4, b"c", b"2")]
    assert headers_of(log)[0].delete_horizon_ms == LATER_MS


def test_horizon_is_set_even_if_it_is_the_batch_s_own_time() -> None:
    log = open_compacted()
    put(log, (b"a", None), timestamp=LATER_MS)
    roll(log)
    run(log, NOW_MS)
    assert headers_of(log)[0].delete_horizon_ms == LATER_MS
    assert records_of(log)[0].timestamp == LATER_MS


# Producers and transactions


def test_last_batch_of_a_producer_stays_without_its_records() -> None:
    disk = SimulatedDisk()
    log = open_compacted(disk)
    put(log, (b"a", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=1)
    put(log, (b"a", b"3"))
    roll(log)
    run(log)
    kept, other = headers_of(log)
    assert (kept.base_offset, kept.base_sequence, kept.record_count) == (1, 1, 0)
    assert other.base_offset == 2
    log.close()
    for name in disk.list(FOLDER):
        if name.endswith(".snapshot"):
            disk.remove(f"{FOLDER}/{name}")
    again = open_compacted(disk)
    repeated = put(again, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=1)
    assert repeated.is_duplicate


def test_aborted_records_go_and_supersede_nothing() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"x"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 1, is_commit=False)
    put(log, (b"b", b"1"), producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True)
    end_transaction(log, 1, is_commit=True)
    roll(log)
    run(log)
    assert table_of(log) == [(0, b"a", b"1"), (3, b"b", b"1")]


def test_undecided_transaction_is_not_touched() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"), (b"b", b"2"), producer_id=1, producer_epoch=0, base_sequence=0,
        is_transactional=True)  # fmt: skip
    put(log, (b"a", b"2"))
    roll(log)
    assert run(log).first_dirty_offset == 1
    assert [offset for offset, _, _ in table_of(log)] == [0, 1, 2, 3]


def test_marker_stays_for_a_horizon_after_the_last_of_its_records() -> None:
    log = open_compacted()
    put(log, (b"a", b"x"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 1, is_commit=False)
    log.producers.expire(2 * NOW_MS, 1)
    offsets_by_pass = []
    horizons = []
    for now_ms in (NOW_MS, NOW_MS + 1, LATER_MS, LATER_MS + 1):
        put(log, (b"b", b"1"))
        roll(log)
        run(log, now_ms)
        markers = [header for header in headers_of(log) if header.is_control]
        offsets_by_pass.append([marker.base_offset for marker in markers])
        horizons += [marker.delete_horizon_ms for marker in markers]
    assert offsets_by_pass == [[1], [1], [1], []]
    assert horizons == [None, LATER_MS + 1, LATER_MS + 1]
    assert log.aborted_transactions(0, log.end_offset) == []


def test_emptied_marker_goes_once_its_producer_has_written_again() -> None:
    log = open_compacted()
    put(log, (b"a", b"x"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 1, is_commit=False, producer_epoch=1)
    kept = []
    for now_ms in (NOW_MS, NOW_MS, LATER_MS, LATER_MS):
        put(log, (b"b", b"1"))
        roll(log)
        run(log, now_ms)
        kept += [header.record_count for header in headers_of(log) if header.is_control]
    assert kept == [1, 1, 0, 0]
    put(log, (b"c", b"1"), producer_id=1, producer_epoch=1, base_sequence=0)
    roll(log)
    run(log, LATER_MS)
    assert not any(header.is_control for header in headers_of(log))


def test_index_of_aborted_transactions_is_carried_over_while_it_is_needed() -> None:
    log = open_compacted()
    put(log, (b"a", b"x"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 1, is_commit=False)
    roll(log)
    before = log.aborted_transactions(0, 2)
    run(log)
    assert log.aborted_transactions(0, 2) == before != []


def test_control_batch_that_ends_no_transaction_stays() -> None:
    log = open_compacted()
    batch = build_control_batch(ControlType.LEADER_CHANGE, b"", NOW_MS)
    log.append_own(memoryview(batch), leader_epoch=0)
    put(log, (b"a", b"1"))
    roll(log)
    run(log)
    assert [header.is_control for header in headers_of(log)] == [True, False]


# Segments


def test_small_segments_become_one() -> None:
    log = open_compacted()
    for number in range(10):
        put(log, (b"key-%d" % number, b"1"))
        roll(log)
    run(log)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert len(table_of(log)) == 10


def test_new_segment_finds_offsets_and_times_by_its_indexes() -> None:
    settings = LogSettings(is_compacted=True, index_interval_bytes=200)
    log = open_compacted(settings=settings)
    for number in range(100):
        put(log, (b"key-%d" % (number % 60), b"v" * 50), timestamp=NOW_MS + number)
    roll(log)
    run(log)
    segment = log.segments[0]
    assert len(segment.offset_index) > 5
    for offset in range(40, 100):
        found = segment.find(offset)
        assert found is not None
        assert found[1].base_offset == offset
    assert segment.largest_timestamp == NOW_MS + 99
    found_time = find(log, NOW_MS + 70)
    assert found_time is not None
    assert found_time.offset == 70


def test_map_that_gets_full_ends_the_pass_and_the_next_one_goes_on() -> None:
    log = open_compacted()
    for value in (b"1", b"2"):
        for key in range(10):
            put(log, (b"key-%d" % key, value), (b"twin-%d" % key, value))
    roll(log)
    ends = []
    while log.first_dirty_offset < log.end_offset:
        ends.append(run(log, map_bytes=24 * 8).first_dirty_offset)
    assert ends == [6, 12, 18, 24, 30, 36, 40]
    assert [offset for offset, _, _ in table_of(log)] == list(range(20, 40))


def test_log_of_which_all_was_seen_is_left_alone() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"))
    roll(log)
    run(log)
    segments = log.segments
    assert run(log).bytes_read == 0
    assert log.segments is segments


def test_files_of_old_segments_can_be_read_on_until_they_are_removed() -> None:
    log = open_compacted()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    roll(log)
    held = log.segments[0]
    before = held.file.read(0, held.size_bytes)
    run(log)
    assert log.segments[0] is not held
    assert held.file.read(0, held.size_bytes) == before
    assert held.file.path.endswith(".deleted")


# Meanwhile


SLICES = 14
"""More than any pass below takes."""


def _changed_after(
    slices: int, change: Callable[[], object], patch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Let the log change when a pass comes back from a thread for the given time."""
    in_thread = compaction._in_thread
    done = 0

    async def in_thread_and_change(work: Callable[[], object]) -> object:
        nonlocal done
        result = await in_thread(work)
        done += 1
        if done == slices:
            change()
        return result

    patch.setattr(compaction, "_in_thread", in_thread_and_change)
    return lambda: patch.setattr(compaction, "_in_thread", in_thread)


def _three_segments() -> Log:
    log = open_compacted(settings=LogSettings(is_compacted=True, segment_bytes=100))
    for number in range(3):
        put(log, (b"a", b"%d" % number), (b"b%d" % number, b"1"))
        roll(log)
    asyncio.run(log.flush())
    return log


def _leftovers(log: Log) -> list[str]:
    return [name for name in log.disk.list(FOLDER) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("slices", range(1, SLICES))
@pytest.mark.parametrize(
    "change",
    [
        lambda log: truncate(log, 3),
        lambda log: restart_at(log, 100),
        lambda log: delete_records(log, 5),
    ],
    ids=["truncated", "emptied", "records deleted"],
)
def test_pass_gives_up_when_the_log_loses_a_part(
    change: Callable[[Log], object], slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _three_segments()
    stop = _changed_after(slices, lambda: change(log), monkeypatch)
    try:
        run(log)
    except CompactionAbandoned:
        assert slices < SLICES - 1
    stop()
    assert _leftovers(log) == []
    assert log.first_dirty_offset <= log.end_offset
    before = table_of(log)
    put(log, (b"a", b"new"))
    roll(log)
    assert table_of(log)[:-1] == before
    run(log)
    after = table_of(log)
    assert after[-1][1:] == (b"a", b"new")
    assert {key: value for _, key, value in before} | {b"a": b"new"} == {
        key: value for _, key, value in after
    }


@pytest.mark.parametrize("slices", range(1, SLICES))
def test_appends_and_rolls_do_not_disturb_a_pass(
    slices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _three_segments()

    def change() -> None:
        put(log, (b"a", b"new"))
        roll(log)

    _changed_after(slices, change, monkeypatch)
    assert run(log).first_dirty_offset == 6
    assert table_of(log)[:4] == [
        (1, b"b0", b"1"),
        (3, b"b1", b"1"),
        (4, b"a", b"2"),
        (5, b"b2", b"1"),
    ]


def test_second_pass_at_the_same_time_is_refused() -> None:
    log = _three_segments()

    async def both() -> None:
        first = asyncio.create_task(compact(log, NOW_MS))
        await asyncio.sleep(0)
        with pytest.raises(CompactionAbandoned, match="already"):
            await compact(log, NOW_MS)
        await first

    asyncio.run(both())


def test_pass_that_is_cancelled_leaves_no_thread_and_no_file() -> None:
    log = _three_segments()
    before = table_of(log)

    async def cancelled() -> None:
        running = asyncio.create_task(compact(log, NOW_MS))
        for _ in range(3):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert _leftovers(log) == []
    assert table_of(log) == before
    assert not log.is_compacting
    assert run(log).records_dropped == 2


@pytest.mark.slow
def test_log_is_written_and_read_while_a_thread_compacts_it(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    settings = LogSettings(is_compacted=True, segment_bytes=500_000)
    log = open_log(disk, FOLDER, settings, is_clean=True)
    expected: dict[bytes | None, bytes | None] = {}
    for number in range(200):
        pairs = [(b"key-%d" % ((number * 7 + index) % 500), b"%d" % number * 40)
                 for index in range(100)]  # fmt: skip
        expected.update(pairs)
        put(log, *pairs)
    roll(log)

    async def use() -> None:
        running = asyncio.create_task(compact(log, NOW_MS))
        turns = 0
        while not running.done():
            turns += 1
            put(log, (b"turn", b"%d" % turns))
            expected[b"turn"] = b"%d" % turns
            seen = {record.key: record.value for record in records_of(log, bytes_max=200_000)}
            assert seen == expected
            await asyncio.sleep(0)
        assert turns > 3
        assert (await running).records_dropped == 19_500

    asyncio.run(use())
    log.close()
    again = open_log(disk, FOLDER, settings, is_clean=True)
    assert {record.key: record.value for record in records_of(again)} == expected
    disk.close()


# A disk that fails


def test_disk_that_fills_up_leaves_the_log_as_it_was() -> None:
    disk = SimulatedDisk()
    log = open_compacted(disk)
    for number in range(20):
        put(log, (b"key-%d" % (number % 15), b"v" * 100))
    roll(log)
    asyncio.run(log.flush())
    before = table_of(log)
    disk.fill_up(500)
    with pytest.raises(OSError, match="No space") as full:
        run(log)
    assert full.value.errno == errno.ENOSPC
    assert (_leftovers(log), table_of(log)) == ([], before)
    assert log.failure is None
    disk.fill_up(100_000)
    assert run(log).records_dropped == 5


@pytest.mark.parametrize("operation", ["create", "append", "sync", "read"])
def test_error_of_the_disk_is_reported_and_the_log_is_as_it_was(operation: Operation) -> None:
    disk = SimulatedDisk()
    log = open_compacted(disk)
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    asyncio.run(log.flush())
    before = table_of(log)
    disk.fail(operation, f"{FOLDER}/*.log*")
    with pytest.raises(OSError, match="Input/output"):
        run(log)
    assert (_leftovers(log), table_of(log), log.failure) == ([], before, None)
    assert run(log).records_dropped == 1


def test_log_whose_swap_breaks_off_is_read_only_and_whole_when_opened_again() -> None:
    disk = SimulatedDisk()
    log = open_compacted(disk)
    for number in range(3):
        put(log, (b"a", b"%d" % number))
        roll(log)
    asyncio.run(log.flush())
    disk.fail("rename", f"{FOLDER}/*.log")
    with pytest.raises(ReadOnlyLog, match="Input/output"):
        run(log)
    with pytest.raises(ReadOnlyLog):
        put(log, (b"a", b"refused"))
    again = open_simulated(disk, SETTINGS, is_clean=False, recovery_point=3)
    assert table_of(again) == [(2, b"a", b"2")]


def test_damaged_batch_stops_a_pass_and_is_not_sealed_anew() -> None:
    disk = SimulatedDisk()
    log = open_compacted(disk)
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    disk.flip_bit(f"{FOLDER}/{0:020d}.log", 70, 3)
    before = disk.read(f"{FOLDER}/{0:020d}.log")
    with pytest.raises(CorruptLog, match=r"000\.log at byte 0.*CRC32C"):
        run(log)
    assert disk.read(f"{FOLDER}/{0:020d}.log") == before
    assert _leftovers(log) == []


def test_superseded_record_goes_only_when_what_supersedes_it_is_durable() -> None:
    disk = SimulatedDisk()
    log = open_compacted(disk, LogSettings(is_compacted=True, segment_bytes=80))
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"a", b"2"))
    roll(log)
    assert log.recovery_point == 0
    run(log)
    assert log.recovery_point == 2
