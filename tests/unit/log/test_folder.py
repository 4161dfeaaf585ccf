"""The logs of a data directory."""

import asyncio
from pathlib import Path

import pytest

from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.log.folder import LogFolder, WrongDirectory
from headrace.log.real_disk import FolderInUse, RealDisk
from headrace.log.settings import LogSettings
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import append, values_of

ORDERS, ZERO, ONE = TopicName("orders"), PartitionIndex(0), PartitionIndex(1)
TOPIC_ID = TopicId(bytes(range(16)))


def open_folder(disk: SimulatedDisk, cluster_id: str = "c", node_id: int = 1) -> LogFolder:
    return LogFolder.open(
        disk, lambda _: LogSettings(is_compacted=True), cluster_id=cluster_id, node_id=node_id
    )


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
        folder.restart_at(ORDERS, ZERO, 1)
    else:
        assert folder.truncate(ORDERS, ZERO, 1)
        assert not folder.truncate(ORDERS, ZERO, 1)
    append(log, b"c")
    disk.crash()
    again = open_folder(disk).logs[ORDERS, ZERO]
    assert again.end_offset in (1, 2)
    assert values_of(again)[: 1 - is_restarted] == [b"a"][: 1 - is_restarted]
    assert b"b" not in values_of(again)


def test_a_checkpoint_that_a_cut_overtook_is_not_written(disk: SimulatedDisk) -> None:
    folder = open_folder(disk)
    log = folder.create(ORDERS, ZERO, TOPIC_ID)
    append(log, b"a")
    append(log, b"b")

    async def cut_meanwhile() -> None:
        await log.flush()
        saving = asyncio.ensure_future(folder.checkpoint())
        folder.truncate(ORDERS, ZERO, 1)
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
