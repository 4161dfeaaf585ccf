"""Logs and their upkeep: cost follows what is asked for, not what happens to exist."""

from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.log.producers import ProducerState, RecordedBatch
from headrace.log.real_disk import RealDisk
from headrace.testing.disk import SimulatedDisk
from tests.growth.steps import assert_stays_flat, steps
from tests.unit.log.logs import NOW_MS, append, open_simulated


def rename_a_file(folder_count: int, files_beside: int = 1) -> int:
    """Rename one file while many are open, in other folders and beside it."""
    with TemporaryDirectory() as root:
        disk = RealDisk(Path(root), open_files_max=10)
        files = []
        for number in range(folder_count):
            disk.make_folder(f"t-{number}")
            files.append(disk.open(f"t-{number}/log", create=True))
        files += [disk.open(f"t-0/{number}", create=True) for number in range(files_beside)]
        count = steps(lambda: disk.rename("t-0/log", "t-0/log.deleted"))
        assert files[0].path == "t-0/log.deleted"
        disk.close()
        return count


def test_a_rename_costs_the_same_however_many_folders_are_open() -> None:
    assert_stays_flat(rename_a_file, 20)


def test_a_rename_costs_the_same_however_many_files_lie_beside() -> None:
    assert_stays_flat(lambda count: rename_a_file(1, count), 20)


def rename_a_folder(folder_count: int) -> int:
    with TemporaryDirectory() as root:
        disk = RealDisk(Path(root), open_files_max=10)
        files = []
        for number in range(folder_count):
            disk.make_folder(f"t-{number}")
            files.append(disk.open(f"t-{number}/log", create=True))
        count = steps(lambda: disk.rename("t-0", "t-0-delete"))
        assert files[0].path == "t-0-delete/log"
        disk.close()
        return count


def test_a_deletion_costs_the_same_however_many_folders_are_open() -> None:
    assert_stays_flat(rename_a_folder, 20)


def roll_with_producers(producer_count: int) -> int:
    log = open_simulated(SimulatedDisk())
    append(log, b"a")
    batches = [RecordedBatch(0, 0, 0, NOW_MS)]
    log.producers.restore(
        ProducerState(number, 0, 0, NOW_MS, None, list(batches)) for number in range(producer_count)
    )
    return steps(lambda: log.roll(log.end_offset))


def test_a_roll_costs_the_loop_the_same_however_many_producers_there_are() -> None:
    """Their snapshot is made by the thread that syncs."""
    assert_stays_flat(roll_with_producers, 200)


def expire_some(producer_count: int) -> int:
    log = open_simulated(SimulatedDisk())
    log.producers.restore(
        ProducerState(number, last_timestamp=NOW_MS) for number in range(producer_count)
    )
    parts = log.producers.expire_in_parts(NOW_MS + 1, 1)
    return steps(lambda: next(parts))


def test_one_part_of_an_expiry_costs_the_same_however_many_producers_there_are() -> None:
    assert_stays_flat(expire_some, 10_000)
