"""Logs and their upkeep: cost follows what is asked for, not what happens to exist."""

from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.log.real_disk import RealDisk
from tests.growth.steps import assert_stays_flat, steps


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
