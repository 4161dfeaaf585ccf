"""What the Disk port promises, asked of the real disk and of the simulated one."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.disk import Disk
from headrace.log.real_disk import RealDisk
from headrace.testing.disk import SimulatedDisk


@pytest.fixture(params=["real", "real with one descriptor", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "simulated":
        yield SimulatedDisk()
        return
    real = RealDisk(tmp_path, open_files_max=1 if "one" in request.param else 100)
    yield real
    real.close()


def test_appended_bytes_are_read_at_their_positions(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(b"hello ")
    file.append(bytearray(b"wide "))
    file.append(memoryview(b"the world")[4:])
    assert file.size == 16
    assert file.read(0, 100) == b"hello wide world"
    assert file.read(6, 4) == b"wide"
    assert file.read(16, 4) == b""
    assert file.read(99, 4) == b""


def test_append_takes_items_wider_than_a_byte(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(memoryview(b"12345678").cast("I"))
    assert file.size == 8
    assert file.read(0, 8) == b"12345678"


def test_what_was_just_written_is_in_the_cache(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(bytes(range(100)))
    assert file.read_cached(10, 5) == bytes(range(10, 15))
    assert file.read_cached(95, 50) == bytes(range(95, 100))
    assert file.read_cached(100, 5) == b""
    assert file.read_cached(500, 5) == b""


def test_open_needs_a_file_and_create_needs_none(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        disk.open("absent")
    with pytest.raises(FileNotFoundError):
        disk.open("no-folder/a", create=True)
    disk.open("a", create=True).append(b"kept")
    with pytest.raises(FileExistsError, match="a"):
        disk.open("a", create=True)
    assert disk.read("a") == b"kept"


def test_opened_file_knows_its_size_and_appends_at_its_end(disk: Disk) -> None:
    disk.replace("a", b"12345")
    file = disk.open("a")
    assert file.size == 5
    file.append(b"6")
    assert disk.read("a") == b"123456"


def test_truncated_file_grows_again_from_its_new_end(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(b"123456")
    file.truncate(2)
    assert file.size == 2
    file.append(b"x")
    assert file.read(0, 100) == b"12x"
    file.truncate(0)
    assert file.read(0, 100) == b""


@pytest.mark.parametrize("size", [-1, 7])
def test_file_cannot_be_cut_to_more_than_it_has(disk: Disk, size: int) -> None:
    file = disk.open("a", create=True)
    file.append(b"123456")
    with pytest.raises(ValueError, match=f"a has 6 bytes, not the {size}"):
        file.truncate(size)
    assert file.size == 6


def test_closed_file_opens_again_on_use(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(b"1")
    file.close()
    file.close()
    file.append(b"2")
    file.close()
    assert file.read(0, 2) == b"12"
    file.close()
    assert file.read_cached(0, 2) == b"12"
    file.close()
    file.sync()
    file.close()
    file.truncate(1)
    assert disk.read("a") == b"1"


def test_map_shows_the_file_as_it_was_and_outlives_it(disk: Disk) -> None:
    file = disk.open("a", create=True)
    assert bytes(file.map()) == b""
    file.append(b"mapped")
    view = file.map()
    file.append(b" not")
    file.close()
    disk.remove("a")
    assert bytes(view) == b"mapped"
    assert view.readonly


def test_replace_writes_a_file_whole_and_leaves_nothing_else(disk: Disk) -> None:
    disk.replace("a", b"first, and longer")
    disk.replace("a", memoryview(b"second"))
    assert disk.read("a") == b"second"
    assert disk.list("") == {"a": 6}


def test_replace_gets_over_what_a_crash_left_behind(disk: Disk) -> None:
    disk.open("a.tmp", create=True).append(b"half of it")
    disk.replace("a", b"whole")
    assert disk.list("") == {"a": 5}


def test_read_of_an_absent_file_says_which(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        disk.read("absent")


def test_open_file_follows_its_rename(disk: Disk) -> None:
    file = disk.open("a", create=True)
    file.append(b"1")
    file.close()
    disk.rename("a", "b")
    assert file.path == "b"
    file.append(b"2")
    file.close()
    assert file.read(0, 2) == b"12"
    assert disk.list("") == {"b": 2}


def test_open_files_follow_the_rename_of_their_folder(disk: Disk) -> None:
    disk.make_folder("t-0/deep")
    disk.make_folder("t-00")
    files = [disk.open(path, create=True) for path in ("t-0/a", "t-0/deep/b", "t-00/c")]
    for file in files:
        file.close()
    disk.rename("t-0", "t-0.uuid-delete")
    assert [file.path for file in files] == [
        "t-0.uuid-delete/a",
        "t-0.uuid-delete/deep/b",
        "t-00/c",
    ]
    for file in files:
        file.append(b"x")
    assert disk.list("t-0.uuid-delete") == {"a": 1}
    disk.rename("t-0.uuid-delete", "t-0")
    assert files[1].path == "t-0/deep/b"


def test_replaced_file_is_gone_and_not_mistaken_for_its_successor(disk: Disk) -> None:
    old = disk.open("a", create=True)
    new = disk.open("a.swap", create=True)
    old.append(b"old")
    new.append(b"new")
    disk.rename("a.swap", "a")
    assert new.read(0, 3) == b"new"
    with pytest.raises(FileNotFoundError, match="replaced"):
        old.read(0, 3)
    with pytest.raises(FileNotFoundError, match="replaced"):
        old.append(b"!")
    disk.replace("a", b"newest")
    with pytest.raises(FileNotFoundError):
        new.read(0, 3)
    assert disk.read("a") == b"newest"


def test_removed_file_is_gone_even_if_another_takes_its_name(disk: Disk) -> None:
    old = disk.open("a", create=True)
    old.append(b"old")
    disk.remove("a")
    assert not disk.exists("a")
    disk.open("a", create=True).append(b"new")
    uses: list[Callable[[], object]] = [
        old.sync,
        old.map,
        lambda: old.read_cached(0, 1),
        lambda: old.truncate(0),
    ]
    for use in uses:
        with pytest.raises(FileNotFoundError, match="removed"):
            use()
    old.close()
    with pytest.raises(FileNotFoundError):
        disk.remove("absent")


def test_folders_list_files_with_sizes_and_folders_in_order(disk: Disk) -> None:
    for folder in ("t-1", "t-0/deep", "t-0"):
        disk.make_folder(folder)
    disk.open("t-0/b", create=True).append(b"123")
    disk.open("t-0/a", create=True)
    assert list(disk.list("t-0").items()) == [("a", 0), ("b", 3)]
    assert disk.list("") == {}
    assert disk.list_folders("") == ["t-0", "t-1"]
    assert disk.list_folders("t-0") == ["deep"]
    assert disk.exists("t-0")
    assert disk.exists("t-0/b")
    assert not disk.exists("t-0/b/c")
    for listing in (disk.list, disk.list_folders):
        with pytest.raises(FileNotFoundError, match="absent"):
            listing("absent")


def test_folder_is_removed_with_what_is_in_it(disk: Disk) -> None:
    disk.make_folder("t-0/deep")
    file = disk.open("t-0/deep/a", create=True)
    disk.remove_folder("t-0")
    assert disk.list_folders("") == []
    with pytest.raises(FileNotFoundError):
        file.append(b"x")
    with pytest.raises(FileNotFoundError):
        disk.remove_folder("t-0")


def test_folder_cannot_take_the_name_of_a_file(disk: Disk) -> None:
    disk.replace("a", b"")
    with pytest.raises(FileExistsError):
        disk.make_folder("a")


def test_folders_can_be_synced_and_have_room(disk: Disk) -> None:
    disk.make_folder("t-0")
    disk.sync_folder("t-0")
    disk.sync_folder("")
    with pytest.raises(FileNotFoundError, match="absent"):
        disk.sync_folder("absent")
    assert disk.free_bytes() > 0


def test_threads_sync_and_read_while_the_owner_appends(disk: Disk) -> None:
    files = [disk.open(f"file-{i}", create=True) for i in range(3)]
    is_done = threading.Event()
    failures: list[BaseException] = []

    def read_and_sync() -> None:
        try:
            while not is_done.is_set():
                for file in files:
                    size = file.size
                    assert file.read(0, size) == file.path[-1:].encode() * size
                    file.sync()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read_and_sync) for _ in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(200):
        for i, file in enumerate(files):
            file.append(str(i).encode() * 10)
            if turn % 7 == i:
                file.close()
    is_done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [file.size for file in files] == [2000] * 3
    assert [disk.read(f"file-{i}") for i in range(3)] == [str(i).encode() * 2000 for i in range(3)]


APPEND = st.binary(max_size=20)
CUT = st.integers(0, 100)


@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(APPEND, CUT, st.none())), max_size=30))
def test_both_disks_give_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bytes | int | None]]
) -> None:
    real = RealDisk(tmp_path_factory.mktemp("disk"), open_files_max=2)
    outcomes = []
    disks: list[Disk] = [real, SimulatedDisk()]
    for disk in disks:
        files = [disk.open(str(i), create=True) for i in range(3)]
        for i, step in steps:
            if isinstance(step, bytes):
                files[i].append(step)
            elif step is None:
                files[i].close()
            else:
                files[i].truncate(min(step, files[i].size))
        outcomes.append([(disk.read(f.path), f.read(0, 999), f.size) for f in files])
    real.close()
    assert outcomes[0] == outcomes[1]
