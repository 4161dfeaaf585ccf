"""The files of the audit log: rotated, bounded, and never in the way."""

import errno
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.security.audit import CHANGE, DONE, AuditEvent
from headrace.server.audit_files import (
    AuditFiles,
    encode_line,
    files_of,
    open_files,
    read_events,
    read_lines,
    rotated,
)
from tests.broker.peers import wait_until

LINE_BYTES = len(encode_line(0, AuditEvent(kind=CHANGE, outcome=DONE, principal="User:0000")))


def event(number: int) -> AuditEvent:
    return AuditEvent(kind=CHANGE, outcome=DONE, principal=f"User:{number:04}")


Open = Callable[..., AuditFiles]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    made: list[AuditFiles] = []

    def make(
        file_bytes_max: int = 10**6,
        files_max: int = 3,
        queued_max: int = 10**6,
        path: Path | None = None,
    ) -> AuditFiles:
        files = AuditFiles(
            path or tmp_path / "audit.log",
            file_bytes_max=file_bytes_max,
            files_max=files_max,
            queued_max=queued_max,
            monotonic=lambda: 0.0,
        )
        made.append(files)
        return files

    yield make
    for each in made:
        each.close()


def written(path: Path) -> list[dict[str, Any]]:
    return [row for file in files_of(path) for row in read_lines(file)]


def test_events_are_lines_with_their_time_and_only_their_owner_reads_them(
    opened: Open, tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    files = opened()
    files.put(1_700_000_000_123, event(1))
    files.close()
    (row,) = written(path)
    assert row["time"] == "2023-11-14T22:13:20.123Z"
    assert (row["principal"], row["outcome"], row["count"]) == ("User:0001", DONE, 1)
    assert path.stat().st_mode & 0o077 == 0
    assert files.written == 1


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_files_are_rotated_and_the_newest_are_kept(opened: Open, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "audit.log"
    files = opened(file_bytes_max=10 * LINE_BYTES, files_max=kept)
    for number in range(95):
        files.put(0, event(number))
    files.close()
    assert len(files_of(path)) == kept
    assert all(each.stat().st_size <= 10 * LINE_BYTES for each in files_of(path))
    found = [row["principal"] for row in written(path)]
    assert found == [f"User:{number:04}" for number in range(95 - len(found), 95)]
    assert len(found) == 10 * (kept - 1) + 5


def test_a_log_goes_on_after_a_restart_and_a_torn_line_is_passed_over(
    opened: Open, tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    first = opened()
    first.put(0, event(1))
    first.close()
    with path.open("ab") as file:
        file.write(b'{"time":"20')
    second = opened()
    second.put(0, event(2))
    second.close()
    assert [row["principal"] for row in written(path)] == ["User:0001", "User:0002"]


def test_a_full_queue_drops_and_counts_and_says_so(
    opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    write = AuditFiles._write

    def wait_and_write(self: AuditFiles, lines: list[bytes]) -> None:
        go_on.wait(60)
        write(self, lines)

    monkeypatch.setattr(AuditFiles, "_write", wait_and_write)
    with caplog.at_level(logging.ERROR):
        files = opened(queued_max=5)
        for number in range(5000):
            files.put(0, event(number))
    assert files.dropped > 3000
    assert caplog.text.count("its queue is full") == 1
    go_on.set()
    files.close()
    assert files.written + files.dropped == 5000


def test_a_disk_that_takes_nothing_loses_events_and_the_log_goes_on_when_it_does(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    files = opened(file_bytes_max=2 * LINE_BYTES)
    blocked = rotated(path, 2)
    blocked.mkdir()  # the oldest file cannot be removed: it is a folder with something in it
    (blocked / "x").write_text("")
    rotated(path, 1).write_text("")
    with caplog.at_level(logging.ERROR):
        for number in range(10):
            files.put(0, event(number))
        files.close()
    assert files.lost > 0
    assert "misses" in caplog.text
    (blocked / "x").unlink()
    blocked.rmdir()
    again = opened()
    again.put(0, event(99))
    again.close()
    assert written(path)[-1]["principal"] == "User:0099"


@pytest.mark.parametrize("how", ["removed", "its folder removed", "moved"])
def test_a_log_that_is_gone_is_begun_anew_and_the_node_says_so(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    path = tmp_path / "folder" / "audit.log"
    files = opened(path=path)
    files.put(0, event(1))
    wait_until(lambda: files.written == 1, "it is written")
    if how == "moved":
        path.rename(tmp_path / "kept")
    elif how == "removed":
        path.unlink()
    else:
        shutil.rmtree(path.parent)
    with caplog.at_level(logging.WARNING):
        for number in range(2, 5):
            files.put(0, event(number))
        files.close()
    assert [row["principal"] for row in written(path)] == ["User:0002", "User:0003", "User:0004"]
    assert (files.written, files.lost) == (4, 0)
    assert "was moved or removed" in caplog.text


class FullDisk:
    """A file on a disk that has no room after so many bytes."""

    def __init__(self, file: Any, bytes_left: int) -> None:
        self.file = file
        self.bytes_left = bytes_left

    def write(self, data: bytes) -> int:
        taken = data[: self.bytes_left]
        self.bytes_left -= len(taken)
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self.file.write(taken))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("rest_bytes", [0, 1, LINE_BYTES - 1])
def test_a_disk_that_fills_up_keeps_whole_lines_and_they_are_counted(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest_bytes: int
) -> None:
    go_on = threading.Event()
    look = AuditFiles._look_for_file

    def wait_and_look(self: AuditFiles) -> None:
        go_on.wait(60)
        look(self)

    monkeypatch.setattr(AuditFiles, "_look_for_file", wait_and_look)
    files = opened()
    files._file = FullDisk(files._file, 7 * LINE_BYTES + rest_bytes)  # type: ignore[assignment]
    for number in range(20):
        files.put(0, event(number))
    go_on.set()
    wait_until(lambda: files.written + files.lost >= 10, "it was tried")
    content = (tmp_path / "audit.log").read_bytes()
    files.put(0, event(99))
    files.close()
    assert content.endswith(b"\n")
    found = [row["principal"] for row in written(tmp_path / "audit.log")]
    assert found[:7] == [f"User:{number:04}" for number in range(7)]
    assert found[-1] == "User:0099"
    assert (files.written, files.written + files.lost) == (len(found), 21)
    assert files.lost > 0


def test_two_nodes_do_not_write_one_file(opened: Open, tmp_path: Path) -> None:
    first = opened(file_bytes_max=2 * LINE_BYTES)
    with pytest.raises(OSError, match="another node writes it"):
        opened()
    for number in range(5):
        first.put(0, event(number))
    wait_until(lambda: first.written == 5, "it was rotated")
    with pytest.raises(OSError, match="another node writes it"):
        opened()
    first.abandon()  # as if killed
    second = opened()
    second.put(0, event(9))
    second.close()
    assert written(tmp_path / "audit.log")[-1]["principal"] == "User:0009"


def test_a_reader_sees_every_event_whatever_is_rotated_meanwhile(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    files = opened(file_bytes_max=2 * LINE_BYTES, files_max=100)
    count = 0

    def put(events: int) -> None:
        nonlocal count
        for _ in range(events):
            files.put(0, event(count))
            count += 1
        wait_until(lambda: files.written == count, "all is written")

    put(6)
    real, rotations = Path.open, 3

    def open_and_rotate(self: Path, mode: str = "r", buffering: int = -1) -> Any:
        nonlocal rotations
        if mode == "rb" and rotations:
            rotations -= 1
            put(2)
        return real(self, mode, buffering)

    monkeypatch.setattr(Path, "open", open_and_rotate)
    opened_files = open_files(path)
    put(6)  # while it reads
    rows = [row["principal"] for file in opened_files for row in read_events(file)]
    for file in opened_files:
        file.close()
    assert rows[:12] == [f"User:{number:04}" for number in range(12)]
    assert len(rows) == len(set(rows))
