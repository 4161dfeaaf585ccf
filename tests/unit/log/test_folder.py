"""The logs of a data directory."""

import asyncio
import errno
from itertools import count
from pathlib import Path

import pytest

from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.log import checkpoints
from headrace.log.closing import MANY_LOGS
from headrace.log.cutting import delete_records, find_deleted
from headrace.log.errors import ReadOnlyLog
from headrace.log.folder import LogFolder
from headrace.log.log import Log
from headrace.log.ownership import WrongDirectory
from headrace.log.progress import FILES
from headrace.log.real_disk import FolderInUse, RealDisk
from headrace.log.settings import LogSettings
from headrace.log.truncating import begin_for, begin_restart, begin_truncation
from headrace.records.errors import CorruptBatch
from headrace.testing.disk import PowerLost, SimulatedDisk
from tests.unit.log.logs import NOW_MS, append, open_simulated, values_of

ORDERS, ZERO, ONE = TopicName("orders"), PartitionIndex(0), PartitionIndex(1)
TOPIC_ID = TopicId(bytes(range(16)))


def open_folder(disk: SimulatedDisk, cluster_id: str = "c", node_id: int = 1) -> LogFolder:
    return LogFolder.open(
        disk, lambda _: LogSettings(is_compacted=True), cluster_id=cluster_id, node_id=node_id
    )


def truncate(folder: LogFolder, offset: int) -> bool:
    """Cut the log of orders-0 as a follower does."""
    cut = begin_truncation(folder.logs[ORDERS, ZERO], offset)
    if cut is not None:
        asyncio.run(folder.finish_cut((ORDERS, ZERO), cut))
    return cut is not None


def restart_at(folder: LogFolder, offset: int) -> None:
    cut = begin_restart(folder.logs[ORDERS, ZERO], offset)
    asyncio.run(folder.finish_cut((ORDERS, ZERO), cut))


def replicate(folder: LogFolder, chunk: memoryview) -> int:
    """Append to orders-0 as a follower does; its log may begin within the first batch."""
    log = folder.logs[ORDERS, ZERO]
    cut = begin_for(log, chunk)
    if cut is not None:
        asyncio.run(folder.finish_cut((ORDERS, ZERO), cut))
    return log.append_replicated(chunk)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=7)


def test_logs_come_back_after_a_clean_close(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"a", b"b")
    log.advance_high_watermark(1)
    log.first_dirty_offset = 1
    folder.close(broker_epoch=3)
    assert disk.exists(".kafka_cleanshutdown")
    again = open_folder(disk)
    assert not disk.exists(".kafka_cleanshutdown")
    reopened = again.logs[ORDERS, ZERO]
    assert values_of(reopened) == [b"a", b"b"]
    assert (reopened.high_watermark, reopened.first_dirty_offset) == (1, 1)
    assert again.topic_ids == {(ORDERS, ZERO): TOPIC_ID}


@pytest.mark.slow
def test_power_lost_while_many_logs_close_loses_nothing_that_was_flushed() -> None:
    def close_until(changes: int) -> tuple[SimulatedDisk, bool]:
        disk = SimulatedDisk(seed=changes)
        folder = open_folder(disk)
        for index in range(MANY_LOGS):
            log = folder.create(ORDERS, PartitionIndex(index), TOPIC_ID)
            append(log, b"flushed", leader_epoch=1)
            asyncio.run(log.flush())
            append(log, b"not flushed", leader_epoch=2)
        asyncio.run(folder.checkpoint())
        disk.lose_power_after(changes)
        try:
            folder.close(broker_epoch=3)
        except PowerLost:
            return disk, False
        return disk, True

    is_closed = False
    for changes in count(0, 7):
        disk, is_closed = close_until(changes)
        disk.crash()
        again = open_folder(disk)
        assert again.was_clean >= is_closed
        assert not again.offline
        wanted = [b"flushed", b"not flushed"][: 2 if again.was_clean else 1]
        for log in again.logs.values():
            assert values_of(log)[: len(wanted)] == wanted
        if is_closed:
            break


def test_a_full_disk_while_many_logs_close_is_no_clean_end(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder(disk)
    for index in range(MANY_LOGS):
        append(folder.create(ORDERS, PartitionIndex(index), TOPIC_ID), b"a")
    disk.fail("create", "orders-7/*", error=errno.ENOSPC)
    folder.close(broker_epoch=3)
    assert "orders-7 was not closed cleanly: " in caplog.text
    disk.crash()
    again = open_folder(disk)
    assert not again.was_clean
    assert all(values_of(log) == [b"a"] for (_, at), log in again.logs.items() if at != 7)


def test_a_disk_without_room_for_the_checkpoints_is_no_clean_end(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    append(folder.create(ORDERS, ZERO, TOPIC_ID), b"a")
    disk.fail("create", "*checkpoint*", error=errno.ENOSPC)
    folder.close(broker_epoch=3)
    disk.heal()
    again = open_folder(disk)
    assert not again.was_clean
    assert values_of(again.logs[ORDERS, ZERO]) == [b"a"]


def test_checkpoints_outlive_a_crash(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)

    async def append_and_checkpoint() -> None:
        append(log, b"a", b"b")
        await log.flush()
        log.advance_high_watermark(2)
        await folder.checkpoint()

    asyncio.run(append_and_checkpoint())
    disk.crash()
    again = open_folder(disk).logs[ORDERS, ZERO]
    assert (again.recovery_point, again.high_watermark) == (2, 2)
    assert values_of(again) == [b"a", b"b"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_log_that_was_cut_opens_after_a_crash(disk: SimulatedDisk, is_restarted: bool) -> None:
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"a")
    append(log, b"b")
    asyncio.run(log.flush())
    asyncio.run(folder.checkpoint())
    if is_restarted:
        restart_at(folder, 1)
    else:
        assert truncate(folder, 1)
        assert not truncate(folder, 1)
    append(log, b"c")
    disk.crash()
    again = open_folder(disk).logs[ORDERS, ZERO]
    assert again.end_offset in (1, 2)
    assert values_of(again)[: 1 - is_restarted] == [b"a"][: 1 - is_restarted]
    assert b"b" not in values_of(again)


def test_a_follower_begins_within_a_batch_of_its_leader(disk: SimulatedDisk) -> None:
    chunk = chunk_of_leader()
    folder = open_folder(disk)
    follower = folder.create(ORDERS, ZERO, TOPIC_ID)
    restart_at(folder, 2)
    assert (follower.start_offset, follower.end_offset) == (2, 2)
    damaged = bytearray(chunk)
    damaged[70] ^= 1
    with pytest.raises(CorruptBatch):
        replicate(folder, memoryview(damaged))
    assert (follower.start_offset, follower.end_offset) == (2, 2)
    assert replicate(folder, chunk) == 4
    assert (follower.start_offset, values_of(follower)) == (2, [b"c", b"d"])
    folder.close(broker_epoch=3)
    folder = open_folder(disk)
    again = folder.logs[ORDERS, ZERO]
    assert (again.start_offset, values_of(again)) == (2, [b"c", b"d"])
    with pytest.raises(CorruptBatch, match="ends at 4"):
        replicate(folder, chunk)


@pytest.mark.parametrize("seed", range(20))
def test_a_follower_that_began_within_a_batch_opens_after_a_crash(seed: int) -> None:
    disk = SimulatedDisk(seed)
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"old")
    append(log, b"older")
    asyncio.run(log.flush())
    restart_at(folder, 2)
    asyncio.run(folder.checkpoint())
    replicate(folder, chunk_of_leader())
    disk.crash()
    again = open_folder(disk)
    assert not again.offline
    log = again.logs[ORDERS, ZERO]
    assert log.start_offset == 2
    assert values_of(log) == [b"c", b"d"][: log.end_offset - 2]


def chunk_of_leader() -> memoryview:
    """What a leader sends from offset 2 on, in the middle of its first batch."""
    leader = open_simulated(SimulatedDisk())
    append(leader, b"a", b"b", b"c", leader_epoch=4)
    append(leader, b"d", leader_epoch=4)
    chunk = leader.read(2, 1000, up_to=4)
    assert chunk is not None
    return chunk


def test_a_checkpoint_that_a_cut_overtook_is_not_written(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"a")
    append(log, b"b")

    async def cut_meanwhile() -> None:
        await log.flush()
        saving = asyncio.ensure_future(folder.checkpoint())
        cut = begin_truncation(log, 1)
        assert cut is not None
        await folder.finish_cut((ORDERS, ZERO), cut)
        await saving

    asyncio.run(cut_meanwhile())
    assert disk.read("recovery-point-offset-checkpoint") == b"0\n1\norders 0 1\n"


def test_a_topic_that_was_compacted_may_have_gaps_for_ever(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    folder.create(ORDERS, ZERO, TOPIC_ID)
    asyncio.run(folder.checkpoint())
    for _ in range(2):
        later = LogFolder.open(disk, lambda _: LogSettings(), cluster_id="c", node_id=1)
        assert later.logs[ORDERS, ZERO].was_compacted
        asyncio.run(later.checkpoint())


def test_a_deleted_log_is_gone_at_once_and_its_name_free(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    append(folder.create(ORDERS, ZERO, TOPIC_ID), b"old")
    deleted = folder.delete(ORDERS, ZERO)
    assert deleted.startswith("orders-0.")
    assert deleted.endswith("-delete")
    assert values_of(folder.create(ORDERS, ZERO, TopicId(bytes(16)))) == []
    assert folder.remove_deleted() == 1
    assert disk.list_folders("") == ["orders-0"]


def offsets(disk: SimulatedDisk, name: str) -> checkpoints.Offsets:
    return checkpoints.load(disk, name, checkpoints.parse_offsets)


def test_a_new_log_has_none_of_the_offsets_of_a_deleted_one(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    for partition in (ZERO, ONE):
        log = folder.create(ORDERS, partition, TOPIC_ID)
        for number in range(10):
            append(log, b"old %d" % number)
        log.advance_high_watermark(10)
        delete_records(log, 5)
        asyncio.run(log.flush())
    asyncio.run(folder.checkpoint())
    folder.delete(ORDERS, ZERO)
    log = folder.create(ORDERS, ZERO, TopicId(bytes(16)))
    append(log, b"new")
    asyncio.run(log.flush())
    for name in FILES:
        assert list(offsets(disk, name)) == [(ORDERS, ONE)], name
    disk.crash()
    again = open_folder(disk)
    assert again.logs[ORDERS, ZERO].start_offset == 0
    assert values_of(again.logs[ORDERS, ZERO]) == [b"new"]
    assert again.logs[ORDERS, ONE].start_offset == 5


def test_a_log_begins_only_when_the_offsets_of_the_one_before_are_gone(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    append(folder.create(ORDERS, ZERO, TOPIC_ID), b"old")
    asyncio.run(folder.logs[ORDERS, ZERO].flush())
    asyncio.run(folder.checkpoint())
    disk.fail("append", f"{checkpoints.RECOVERY_POINTS}*", error=errno.ENOSPC)
    folder.delete(ORDERS, ZERO)  # a disk that is full must not keep anybody from making room
    with pytest.raises(OSError, match="No space left"):
        folder.create(ORDERS, ZERO, TOPIC_ID)
    assert not disk.exists("orders-0")
    folder.create(ORDERS, ZERO, TOPIC_ID)
    assert offsets(disk, checkpoints.RECOVERY_POINTS) == {}


def test_a_checkpoint_of_a_log_that_was_deleted_meanwhile_is_not_written(
    disk: SimulatedDisk,
) -> None:
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"old")

    async def recreate_meanwhile() -> None:
        await log.flush()
        saving = asyncio.ensure_future(folder.checkpoint())
        for _ in range(3):
            await asyncio.sleep(0)  # it is looked up, and handed to a thread
        folder.delete(ORDERS, ZERO)
        append(folder.create(ORDERS, ZERO, TopicId(bytes(16))), b"new")
        await saving

    asyncio.run(recreate_meanwhile())
    assert offsets(disk, checkpoints.RECOVERY_POINTS).get((ORDERS, ZERO), 0) == 0


def test_what_is_deleted_is_written_down_when_a_checkpoint_returns(disk: SimulatedDisk) -> None:
    """Also if another is being written, which has the offsets from before."""
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"a")
    append(log, b"b")
    log.advance_high_watermark(2)

    async def delete_meanwhile() -> None:
        saving = asyncio.ensure_future(folder.checkpoint())
        for _ in range(3):
            await asyncio.sleep(0)
        delete_records(log, 1)
        await folder.checkpoint()
        assert offsets(disk, checkpoints.LOG_STARTS) == {(ORDERS, ZERO): 1}
        await saving

    asyncio.run(delete_meanwhile())


def test_checkpoints_that_many_ask_for_at_once_are_written_together(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"a")

    async def ask_often() -> None:
        await asyncio.gather(*(folder.checkpoint() for _ in range(20)))

    before = disk.counts["rename"]
    asyncio.run(ask_often())
    assert disk.counts["rename"] - before <= len(FILES)


def test_a_checkpoint_of_many_logs_gives_others_their_turn(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.folder.ROWS_A_TURN", 10)
    folder = open_folder(disk)
    for number in range(100):
        folder.create(ORDERS, PartitionIndex(number), TOPIC_ID)

    async def count_turns() -> int:
        saving, turns = asyncio.ensure_future(folder.checkpoint()), 0
        while not saving.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(count_turns()) >= 10
    assert len(offsets(disk, checkpoints.RECOVERY_POINTS)) == 100


def test_who_still_has_a_deleted_log_touches_no_file_of_the_next(disk: SimulatedDisk) -> None:
    """A fetch may wait for the disk while the topic is deleted and made again."""
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    for number in range(10):
        append(log, b"old %d" % number)
    log.advance_high_watermark(10)
    delete_records(log, 5)
    asyncio.run(log.flush())
    folder.delete(ORDERS, ZERO)
    append(folder.create(ORDERS, ZERO, TopicId(bytes(16))), b"new")
    before = disk.list("orders-0")
    with pytest.raises(FileNotFoundError, match="deleted"):
        log.read(5, 1000, up_to=10, may_block=True)
    with pytest.raises(ReadOnlyLog, match="deleted"):
        append(log, b"late")
    assert find_deleted_or_none(log) is None
    assert disk.list("orders-0") == before


def find_deleted_or_none(log: Log) -> list[str] | None:
    try:
        return find_deleted(log, NOW_MS)
    except FileNotFoundError:
        return None


def test_a_folder_that_could_not_be_renamed_is_not_opened_as_the_next_log(
    disk: SimulatedDisk,
) -> None:
    folder = open_folder(disk)
    for partition in (ZERO, ONE):
        append(folder.create(ORDERS, partition, TOPIC_ID), b"old")
        folder.release((ORDERS, partition))
    disk.fail("rename", "orders-0")
    with pytest.raises(OSError, match="orders-0"):
        folder.set_aside([(ORDERS, ZERO), (ORDERS, ONE)])
    assert folder.released == {(ORDERS, ZERO)}, "the other one does not wait for it"
    assert disk.list_folders("")[0] == "orders-0"
    assert values_of(folder.create(ORDERS, ZERO, TopicId(bytes(16)))) == []
    assert folder.released == set()


def test_a_folder_that_could_not_be_renamed_is_not_clean(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    append(folder.create(ORDERS, ZERO, TOPIC_ID), b"old")
    folder.release((ORDERS, ZERO))
    folder.close(broker_epoch=1)
    assert not disk.exists(checkpoints.CLEAN_SHUTDOWN)


def test_whose_log_it_is_outlives_a_crash_once_it_was_flushed_or_closed() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        folder = open_folder(disk)
        append(folder.create(ORDERS, ZERO, TOPIC_ID), b"a")
        asyncio.run(folder.logs[ORDERS, ZERO].flush())
        disk.crash()
        again = open_folder(disk)
        assert again.topic_ids == {(ORDERS, ZERO): TOPIC_ID}
        again.create(ORDERS, ONE, TOPIC_ID)
        again.close(broker_epoch=1)
        disk.crash()
        last = open_folder(disk)
        assert last.offline == {}
        assert last.topic_ids == {(ORDERS, ZERO): TOPIC_ID, (ORDERS, ONE): TOPIC_ID}


@pytest.mark.parametrize("seed", range(20))
def test_whose_log_it_is_outlives_a_clean_close_after_a_kill(seed: int) -> None:
    disk = SimulatedDisk(seed)
    append(open_folder(disk).create(ORDERS, ZERO, TOPIC_ID), b"a")
    disk.end_process()
    open_folder(disk).close(broker_epoch=4)
    disk.crash()
    again = open_folder(disk)
    assert not again.offline
    assert again.topic_ids == {(ORDERS, ZERO): TOPIC_ID}
    assert values_of(again.logs[ORDERS, ZERO]) == [b"a"]


def open_flushed(disk: SimulatedDisk) -> LogFolder:
    settings = LogSettings(flush_messages=1)
    return LogFolder.open(disk, lambda _: settings, cluster_id="c", node_id=1)


def test_with_flush_messages_1_what_a_kill_left_is_on_disk_before_it_is_served(
    disk: SimulatedDisk,
) -> None:
    append(open_flushed(disk).create(ORDERS, ZERO, TOPIC_ID), b"a")
    disk.end_process()
    log = open_flushed(disk).logs[ORDERS, ZERO]
    assert log.recovery_point == log.end_offset == 1
    disk.crash()
    assert values_of(open_flushed(disk).logs[ORDERS, ZERO]) == [b"a"]


def test_a_log_that_cannot_be_synced_at_the_start_is_read_only(disk: SimulatedDisk) -> None:
    append(open_flushed(disk).create(ORDERS, ZERO, TOPIC_ID), b"a")
    disk.end_process()
    disk.fail("sync", "orders-0/*.log")
    log = open_flushed(disk).logs[ORDERS, ZERO]
    assert (log.recovery_point, log.end_offset) == (0, 1)
    assert not log.is_writable


def test_a_log_that_nobody_knows_the_topic_of_is_put_aside(
    disk: SimulatedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be of a deleted topic. It was never flushed: the id is synced with the first flush."""
    folder = open_folder(disk)
    append(folder.create(ORDERS, ZERO, TOPIC_ID), b"old")
    disk.truncate_file("orders-0/partition.metadata", 0)
    again = open_folder(disk)
    assert (again.logs, again.offline) == ({}, {})
    (stray,) = disk.list_folders("")
    assert stray.startswith("orders-0.")
    assert stray.endswith("-stray")
    assert stray in caplog.text
    assert values_of(again.create(ORDERS, ZERO, TOPIC_ID)) == []


def flushed_log(folder: LogFolder) -> Log:
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"a")
    append(log, b"b")
    asyncio.run(log.flush())
    asyncio.run(folder.checkpoint())
    return log


def test_a_cut_that_cannot_be_written_down_makes_the_log_read_only(disk: SimulatedDisk) -> None:
    """Else a crash after the next append would find damage in what was synced once."""
    folder = open_folder(disk)
    log = flushed_log(folder)
    disk.fail("append", f"{checkpoints.RECOVERY_POINTS}*", error=errno.EIO)
    with pytest.raises(ReadOnlyLog):
        truncate(folder, 1)
    with pytest.raises(ReadOnlyLog):
        append(log, b"c")


def test_a_cut_waits_for_room_on_a_full_disk(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    log = flushed_log(folder)
    cut = begin_truncation(log, 1)
    assert cut is not None
    disk.fail("append", f"{checkpoints.RECOVERY_POINTS}*", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(folder.finish_cut((ORDERS, ZERO), cut))
    assert values_of(log) == [b"a"]
    with pytest.raises(ReadOnlyLog, match="truncated"):
        append(log, b"c")
    asyncio.run(folder.finish_cut((ORDERS, ZERO), cut))
    append(log, b"c")
    assert values_of(log) == [b"a", b"c"]


def test_a_node_that_stops_during_a_cut_recovers_that_log(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    assert begin_truncation(flushed_log(folder), 1) is not None
    folder.close(broker_epoch=3)
    assert not disk.exists(".kafka_cleanshutdown")
    again = open_folder(disk).logs[ORDERS, ZERO]
    assert values_of(again) == [b"a", b"b"]


def test_a_damaged_log_is_out_of_service_and_the_others_are_not(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    for partition in (ZERO, ONE):
        log = folder.create(ORDERS, partition, TOPIC_ID)
        append(log, b"a")
        asyncio.run(log.flush())
    asyncio.run(folder.checkpoint())
    disk.flip_bit("orders-0/00000000000000000000.log", 70, 1)
    again = open_folder(disk)
    assert list(again.logs) == [(ORDERS, ONE)]
    assert "CRC32C" in again.offline[ORDERS, ZERO].message
    again.close(broker_epoch=1)
    assert not disk.exists(".kafka_cleanshutdown")
    # What was promised of it is still known, so no later start takes the damage for a torn tail.
    later = open_folder(disk)
    assert list(later.offline) == [(ORDERS, ZERO)]
    assert later.topic_ids == {(ORDERS, ZERO): TOPIC_ID, (ORDERS, ONE): TOPIC_ID}
    with pytest.raises(ValueError, match="orders-0 has a log"):
        later.create(ORDERS, ZERO, TOPIC_ID)
    later.delete(ORDERS, ZERO)
    assert values_of(later.create(ORDERS, ZERO, TOPIC_ID)) == []
    asyncio.run(later.checkpoint())
    assert open_folder(disk).offline == {}


def test_the_directory_of_another_node_is_refused(disk: SimulatedDisk) -> None:
    open_folder(disk)
    with pytest.raises(WrongDirectory, match="belongs to node 1 of cluster c, not to node 2"):
        open_folder(disk, node_id=2)


def test_a_log_is_created_once(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    folder.create(ORDERS, ZERO, TOPIC_ID)
    with pytest.raises(ValueError, match="orders-0 has a log"):
        folder.create(ORDERS, ZERO, TOPIC_ID)


def test_a_directory_in_use_says_who_holds_it(tmp_path: Path) -> None:
    first, second = RealDisk(tmp_path), RealDisk(tmp_path)
    first.lock()
    with pytest.raises(FolderInUse, match=r"\d+"):
        second.lock()
    first.close()
    second.lock()
    second.close()
