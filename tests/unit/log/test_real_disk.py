"""What the real disk adds to the contract: descriptors, a full or failing kernel, the lock."""

import errno
import gc
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headrace.log import real_disk
from headrace.log.real_disk import FolderInUse, RealDisk, RealFile


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    disk = RealDisk(tmp_path, open_files_max=3)
    yield disk
    disk.close()


def open_descriptors(folder: Path) -> int:
    """Count this process' descriptors of files in a folder."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += link.readlink().is_relative_to(folder)
        except FileNotFoundError:  # the one of this very listing
            continue
    return count


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Let the kernel refuse, with EFBIG after a partial write, what goes beyond `size`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_any_number_of_files_shares_a_bounded_number_of_descriptors(
    disk: RealDisk, tmp_path: Path
) -> None:
    files = [disk.open(str(i), create=True) for i in range(20)]
    for _ in range(3):
        for i, file in enumerate(files):
            file.append(str(i).encode())
            assert open_descriptors(tmp_path) <= 3
    assert [file.read(0, 9) for file in files] == [str(i).encode() * 3 for i in range(20)]
    for file in files:
        file.close()
    assert open_descriptors(tmp_path) == 0


def test_file_in_use_keeps_its_descriptor_while_idle_ones_lose_theirs(disk: RealDisk) -> None:
    busy = disk.open("busy", create=True)
    for i in range(20):
        busy.append(b"x")
        disk.open(str(i), create=True)
        assert busy.descriptor >= 0


def test_forgotten_file_leaves_its_descriptor_to_others(disk: RealDisk, tmp_path: Path) -> None:
    for i in range(10):
        disk.open(str(i), create=True).append(b"x")
    assert open_descriptors(tmp_path) == 3
    disk.close()
    assert open_descriptors(tmp_path) == 0


def test_descriptor_is_not_closed_under_a_sync_in_a_thread(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_syncing, may_finish = threading.Event(), threading.Event()
    synced: list[str] = []

    def slow_sync(descriptor: int) -> None:
        is_syncing.set()
        assert may_finish.wait(10)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(real_disk, "_sync_data", slow_sync)
    file = disk.open("synced", create=True)
    thread = threading.Thread(target=file.sync)
    thread.start()
    assert is_syncing.wait(10)
    file.close()
    for i in range(10):  # takes the number of a descriptor that was closed too early
        disk.open(str(i), create=True)
    may_finish.set()
    thread.join()
    assert synced == ["synced"]


def test_descriptor_is_not_closed_under_an_append(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that needs a descriptor finds the only idle files elsewhere."""
    file = disk.open("appended", create=True)
    write = os.write

    def write_while_others_open_files(descriptor: int, data: bytes) -> int:
        def open_many() -> None:
            for i in range(10):
                disk.open(str(i), create=True)

        thread = threading.Thread(target=open_many)
        thread.start()
        thread.join()
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write_while_others_open_files)
        file.append(b"mine")
    assert disk.read("appended") == b"mine"
    assert disk.list("") == {"appended": 4} | {str(i): 0 for i in range(10)}


def test_removed_file_frees_its_descriptor(disk: RealDisk, tmp_path: Path) -> None:
    disk.open("a", create=True).append(b"x")
    disk.remove("a")
    assert open_descriptors(tmp_path) == 0


def test_files_stay_mapped_when_their_descriptors_went_to_others(disk: RealDisk) -> None:
    views = []
    for i in range(10):
        file = disk.open(str(i), create=True)
        file.append(str(i).encode())
        views.append(file.map())
    assert [bytes(view) for view in views] == [str(i).encode() for i in range(10)]


def test_append_that_does_not_fit_leaves_nothing(disk: RealDisk) -> None:
    file = disk.open("a", create=True)
    file.append(bytes(60_000))
    with files_limited_to(100_000):
        with pytest.raises(OSError, match=r"/a'") as caught:
            file.append(bytes(60_000))
        assert caught.value.errno == errno.EFBIG
        assert file.size == 60_000
        file.append(bytes(40_000))
        with pytest.raises(OSError, match="File too large"):
            file.append(b"x")
    file.append(b"fits again")
    assert file.size == disk.list("")["a"] == 100_010


def test_append_that_cannot_be_undone_says_so_and_knows_its_size(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = disk.open("a", create=True)
    file.append(bytes(60_000))
    monkeypatch.setattr(os, "ftruncate", fail)
    with (
        files_limited_to(100_000),
        pytest.raises(OSError, match="40000 of 60000 bytes were written and cannot be") as caught,
    ):
        file.append(bytes(60_000))
    assert caught.value.errno == errno.EFBIG
    assert file.size == disk.list("")["a"] == 100_000


def test_replace_that_does_not_fit_keeps_the_old_file(disk: RealDisk) -> None:
    disk.replace("a", b"old")
    with files_limited_to(100), pytest.raises(OSError, match="File too large"):
        disk.replace("a", bytes(200))
    assert disk.read("a") == b"old"
    assert disk.list("") == {"a": 3}


def test_failed_sync_is_never_followed_by_a_good_one(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports a lost write once; fsync after that says 0 (fsyncgate)."""
    errors = [OSError(errno.EIO, os.strerror(errno.EIO))]

    def sync_data(_: int) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(real_disk, "_sync_data", sync_data)
    file = disk.open("a", create=True)
    file.append(b"x")
    with pytest.raises(OSError, match=r"Input/output error: '.*/a'"):
        file.sync()
    file.close()
    for _ in range(2):
        with pytest.raises(OSError, match="an earlier sync of this file failed") as caught:
            file.sync()
        assert caught.value.errno == errno.EIO
    disk.open("a").sync()


def test_two_syncs_of_a_file_do_not_share_one_report_of_failure(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = [OSError(errno.EIO, os.strerror(errno.EIO))]
    is_syncing, may_finish = threading.Event(), threading.Event()

    def sync_data(_: int) -> None:
        report = reports.pop() if reports else None
        is_syncing.set()
        assert may_finish.wait(10)
        if report:
            raise report

    monkeypatch.setattr(real_disk, "_sync_data", sync_data)
    file = disk.open("a", create=True)
    failures: list[OSError] = []

    def sync() -> None:
        try:
            file.sync()
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=sync) for _ in range(2)]
    threads[0].start()
    assert is_syncing.wait(10)
    threads[1].start()
    may_finish.set()
    for thread in threads:
        thread.join()
    assert [error.errno for error in failures] == [errno.EIO] * 2


class Preadv:
    """The kernel's answer to a read that must not wait."""

    def __init__(self, answer: int | OSError) -> None:
        self.answer = answer
        self.calls = 0

    def __call__(self, *_: object) -> int:
        self.calls += 1
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


@pytest.fixture
def file(disk: RealDisk) -> RealFile:
    file = disk.open("a", create=True)
    file.append(b"12345678")
    return file


@pytest.mark.parametrize("answer", [BlockingIOError(errno.EAGAIN, "not now"), 0, 3])
def test_what_is_not_wholly_cached_is_not_read(
    file: RealFile, monkeypatch: pytest.MonkeyPatch, answer: int | OSError
) -> None:
    monkeypatch.setattr(os, "preadv", Preadv(answer))
    assert file.read_cached(0, 8) is None
    assert file.read(0, 8) == b"12345678"


def test_file_system_that_cannot_tell_what_is_cached_is_asked_once(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = Preadv(OSError(errno.EOPNOTSUPP, "cannot tell"))
    monkeypatch.setattr(os, "preadv", preadv)
    assert file.read_cached(0, 4) == b"1234"
    assert file.read_cached(4, 4) == b"5678"
    assert preadv.calls == 1


def test_platform_that_cannot_tell_what_is_cached_just_reads(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_disk, "NO_WAIT", None)
    assert file.read_cached(2, 4) == b"3456"


def test_cached_read_passes_errors_of_the_disk_on(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "preadv", Preadv(OSError(errno.EIO, "bad sector")))
    with pytest.raises(OSError, match=r"bad sector: '.*/a'"):
        file.read_cached(0, 8)


def test_read_goes_on_where_the_kernel_stopped_early(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, count, at: pread(fd, min(count, 3), at))
    assert file.read(0, 8) == b"12345678"
    assert file.read(4, 99) == b"5678"


def test_locked_folder_names_the_process_that_holds_it(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from headrace.log.real_disk import RealDisk\n"
        "RealDisk(Path(sys.argv[1])).lock(); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        disk = RealDisk(tmp_path)
        with pytest.raises(FolderInUse, match=rf"{tmp_path} is in use by process {holder.pid}, "):
            disk.lock()
        holder.kill()
    disk.lock()
    with pytest.raises(FolderInUse, match=f"process {os.getpid()}, "):
        RealDisk(tmp_path).lock()
    disk.close()
    other = RealDisk(tmp_path)
    other.lock()
    other.close()


def test_a_disk_that_nobody_closed_gives_its_descriptors_back(tmp_path: Path) -> None:
    def use() -> None:
        disk = RealDisk(tmp_path)
        for number in range(20):
            disk.open(str(number), create=True).append(b"some")

    def open_here() -> list[str]:
        gc.collect()
        found = []
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # another thread of the tests may have closed it
                found.append(str(descriptor.readlink()))
        return [each for each in found if each.startswith(str(tmp_path))]

    use()
    assert open_here() == []
