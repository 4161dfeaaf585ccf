"""A log whose first records are in the tier: what is local, what goes, what a reader hears."""

import asyncio

import pytest
from msgspec.structs import replace

from headrace.errors import ErrorCode, KafkaError
from headrace.log.cutting import apply_retention, delete_records
from headrace.log.epochs import EpochStart
from headrace.log.errors import OffsetInTier, OffsetOutOfRange
from headrace.log.log import Log
from headrace.log.lookup import NOT_FOUND, SpecialTimestamp, list_offset
from headrace.log.producers import ProducerState
from headrace.log.settings import LogSettings
from headrace.log.truncating import History, begin_behind, begin_truncation
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import NOW_MS, append, open_simulated, records_of

HOUR_MS = 3_600_000
TIERED = LogSettings(
    segment_bytes=400,
    index_interval_bytes=100,
    is_tiered=True,
    is_copied=True,
    retention_ms=10 * HOUR_MS,
    local_retention_ms=HOUR_MS,
)
LATER_MS = NOW_MS + 2 * HOUR_MS


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=5)


def tiered(disk: SimulatedDisk, settings: LogSettings = TIERED, count: int = 30) -> Log:
    log = open_simulated(disk, settings)
    for number in range(count):
        append(log, b"%d" % number, leader_epoch=number // 10)
    log.advance_high_watermark(log.end_offset)
    asyncio.run(log.flush())
    return log


def expire(log: Log, now_ms: int = LATER_MS) -> None:
    while apply_retention(log, now_ms):
        pass


def test_only_what_is_in_the_tier_leaves_the_disk(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    expire(log)
    assert log.local_start_offset == 0
    third = log.segments[2].base_offset
    log.remote_end_offset = third
    expire(log)
    assert (log.start_offset, log.local_start_offset) == (0, third)
    log.remote_end_offset = third + 1  # the segment that has this is not all there yet
    expire(log)
    assert log.local_start_offset == third


def test_what_is_not_synced_stays_on_the_disk(disk: SimulatedDisk) -> None:
    log = tiered(disk, count=10)
    synced = log.end_offset
    for number in range(20):
        append(log, b"%d" % number, leader_epoch=7)
    log.advance_high_watermark(log.end_offset)
    log.remote_end_offset = log.segments[-1].base_offset
    expire(log)
    assert log.local_start_offset <= synced
    # Else nothing would tell where epoch 7 began.
    disk.end_process()
    opened = open_simulated(disk, TIERED, is_clean=False)
    assert opened.epochs.epoch_for_offset(synced) == 7
    assert opened.epochs.epoch_for_offset(0) == 0


def test_what_is_young_stays_on_the_disk(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    log.remote_end_offset = log.segments[-1].base_offset
    expire(log, NOW_MS + HOUR_MS // 2)
    assert log.local_start_offset == 0


def test_the_size_on_the_disk_is_bounded_by_its_own_limit(disk: SimulatedDisk) -> None:
    settings = LogSettings(
        segment_bytes=400, is_tiered=True, is_copied=True, local_retention_bytes=900
    )
    log = tiered(disk, settings)
    log.remote_end_offset = log.segments[-1].base_offset
    expire(log, NOW_MS)
    assert log.start_offset == 0
    assert 900 <= log.size_bytes < 900 + 2 * 400


def test_a_topic_without_delete_still_leaves_the_disk(disk: SimulatedDisk) -> None:
    settings = LogSettings(
        segment_bytes=400,
        is_tiered=True,
        is_copied=True,
        is_deleted_by_age=False,
        local_retention_ms=HOUR_MS,
    )
    log = tiered(disk, settings)
    log.remote_end_offset = log.segments[-1].base_offset
    expire(log)
    assert log.local_start_offset == log.remote_end_offset


def test_an_old_active_segment_is_finished_so_that_it_can_be_copied(disk: SimulatedDisk) -> None:
    log = tiered(disk, count=3)
    assert len(log.segments) == 1
    expire(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    log.remote_end_offset = 3
    expire(log)
    assert (log.start_offset, log.local_start_offset, log.end_offset) == (0, 3, 3)


def test_a_topic_that_is_copied_no_more_expires_like_any_other(disk: SimulatedDisk) -> None:
    settings = LogSettings(
        segment_bytes=400, is_tiered=True, is_copied=False, local_retention_ms=HOUR_MS
    )
    log = tiered(disk, settings)
    expire(log)
    assert log.local_start_offset == log.end_offset
    assert log.start_offset == log.end_offset  # what is older, in the tier, is to go as well


def test_what_is_not_copied_is_dropped_only_if_that_is_allowed_and_counted(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = tiered(disk, replace(TIERED, may_drop_uncopied=True))
    log.remote_end_offset = log.segments[1].base_offset
    lost = sum(segment.size_bytes for segment in log.segments[1:])
    expire(log)
    assert log.local_start_offset == log.end_offset
    assert log.uncopied_bytes_dropped == lost
    assert "headrace.tier.drop.uncopied" in caplog.text


def test_a_read_below_the_disk_is_an_outcome_of_its_own(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    log.remote_end_offset = log.segments[2].base_offset
    expire(log)
    for offset in (0, log.local_start_offset - 1):
        with pytest.raises(OffsetInTier) as raised:
            log.read(offset, 1000, up_to=log.high_watermark)
        assert raised.value.code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert log.read(log.local_start_offset, 1000, up_to=log.high_watermark)
    delete_records(log, 2)
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 1000, up_to=log.high_watermark)


def test_a_restart_remembers_what_is_in_the_tier(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    local_start = log.remote_end_offset = log.segments[2].base_offset
    expire(log)
    epochs = log.epochs.entries()
    log.close()
    reopened = open_simulated(disk, TIERED)
    assert (reopened.start_offset, reopened.local_start_offset) == (0, local_start)
    assert reopened.epochs.entries() == epochs
    reopened.close()
    plain = open_simulated(disk)
    assert plain.start_offset == local_start


def test_deleted_records_may_be_in_the_tier(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    local_start = log.remote_end_offset = log.segments[2].base_offset
    expire(log)
    assert delete_records(log, 5) == 5
    assert log.local_start_offset == local_start
    assert delete_records(log, local_start + 1) == local_start + 1
    assert log.local_start_offset == local_start + 1


def test_files_of_deleted_records_stay_until_the_start_is_durable(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    third = log.segments[2].base_offset
    delete_records(log, third)
    assert log.segments[0].base_offset == 0
    expire(log, NOW_MS)
    assert log.segments[0].base_offset == 0
    log.durable_start_offset = third
    expire(log, NOW_MS)
    assert log.segments[0].base_offset == third


def test_special_offsets_of_a_tiered_log(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    end = log.end_offset

    def offset_of(special: SpecialTimestamp) -> int:
        return list_offset(log, special, end).offset

    assert list_offset(log, SpecialTimestamp.LATEST_TIERED, end) is NOT_FOUND
    assert offset_of(SpecialTimestamp.EARLIEST_PENDING_UPLOAD) == 0
    local_start = log.remote_end_offset = log.segments[2].base_offset
    expire(log)
    assert offset_of(SpecialTimestamp.EARLIEST) == 0
    assert offset_of(SpecialTimestamp.EARLIEST_LOCAL) == local_start
    assert offset_of(SpecialTimestamp.LATEST_TIERED) == local_start - 1
    assert offset_of(SpecialTimestamp.EARLIEST_PENDING_UPLOAD) == local_start
    log.remote_end_offset = 0  # as after a start, before the tier was asked
    assert list_offset(log, SpecialTimestamp.EARLIEST_PENDING_UPLOAD, end) is NOT_FOUND


def test_special_offsets_without_a_tier(disk: SimulatedDisk) -> None:
    log = tiered(disk, LogSettings())
    for special in (SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD):
        assert list_offset(log, special, log.end_offset) is NOT_FOUND
    assert list_offset(log, SpecialTimestamp.EARLIEST_LOCAL, log.end_offset).offset == 0


def test_a_cut_below_the_disk_is_refused(disk: SimulatedDisk) -> None:
    log = tiered(disk)
    local_start = log.remote_end_offset = log.segments[2].base_offset
    expire(log)
    with pytest.raises(OffsetOutOfRange):
        begin_truncation(log, local_start - 1)
    cut = begin_truncation(log, local_start)
    assert cut is not None
    cut.run()
    cut.finish()
    assert (log.start_offset, log.local_start_offset, log.end_offset) == (
        0,
        local_start,
        local_start,
    )


def test_a_log_goes_on_behind_what_is_in_the_tier(disk: SimulatedDisk) -> None:
    log = tiered(disk, count=3)
    history = History(
        2,
        100,
        [EpochStart(0, 0), EpochStart(4, 60)],
        [ProducerState(producer_id=7, epoch=1)],
    )
    cut = begin_behind(log, history)
    with pytest.raises(KafkaError):
        append(log, b"too early")
    cut.run()
    cut.finish()
    assert (log.start_offset, log.local_start_offset, log.end_offset) == (2, 100, 100)
    assert log.high_watermark == 100
    assert log.producers.get(7) is not None
    assert append(log, b"next", leader_epoch=5).base_offset == 100
    assert log.epochs.epoch_for_offset(99) == 4
    log.close()
    reopened = open_simulated(disk, TIERED, start_offset=2)
    assert (reopened.start_offset, reopened.local_start_offset) == (2, 100)
    assert reopened.epochs.epoch_for_offset(99) == 4
    assert reopened.producers.get(7) is not None
    assert [record.value for record in records_of(reopened, 100)] == [b"next"]


def test_a_crash_while_a_log_is_rebuilt_leaves_the_old_one_or_the_new_one(
    disk: SimulatedDisk,
) -> None:
    log = tiered(disk, count=3)
    log.close()
    for seed in range(30):
        other = SimulatedDisk(seed=seed)
        log = tiered(other, count=3)
        log.flusher.prepare().run()
        cut = begin_behind(log, History(0, 100, [EpochStart(3, 0)], []))
        if seed % 3:
            cut.run()
        other.crash()
        reopened = open_simulated(other, TIERED)
        assert reopened.end_offset in (0, 1, 2, 3, 100)
        if reopened.end_offset == 100:
            assert reopened.local_start_offset == 100
