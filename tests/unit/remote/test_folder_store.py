"""A folder as a store: the promises, durability in the right order, and what a crash leaves."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.remote import folder_store
from headrace.remote.folder_store import UPLOADS, FolderStore
from headrace.remote.marker import claim
from headrace.remote.object_store import open_store
from headrace.remote.store import StoreError, StoreRefused
from headrace.wire.schema import Buffer
from tests.unit.remote.loops import on_a_loop
from tests.unit.remote.store_promises import MIB, keep_promises, listed, parts


@on_a_loop
async def test_it_keeps_the_promises(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/tier")
    assert isinstance(store, FolderStore)
    assert store.url == f"file://{tmp_path}/tier"
    await keep_promises(store, large_bytes=3 * MIB + 5)
    await store.close()
    assert sorted(tmp_path.rglob("*")) == [
        tmp_path / "tier",
        tmp_path / "tier/.headrace",
        tmp_path / "tier/.headrace/uploads",
    ]


@on_a_loop
async def test_a_folder_that_is_not_there_has_no_objects(tmp_path: Path) -> None:
    store = FolderStore(f"{tmp_path}/nobody")
    assert await listed(store) == {}
    assert await store.list_uploads() == []
    await store.delete(["a/b"])
    await store.close()
    assert not (tmp_path / "nobody").exists()


@on_a_loop
async def test_bytes_are_durable_before_their_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def name(path: object) -> str:
        return str(path).removeprefix(f"{tmp_path}/").partition("/.headrace/uploads/")[0]

    def note_fsync(file: int) -> None:
        path = str(Path(f"/proc/self/fd/{file}").readlink())
        done.append(("sync", "staged" if UPLOADS in path else name(path)))
        fsync(file)

    def note_replace(old: Any, new: Any) -> None:
        done.append(("rename", name(new)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    store = FolderStore(f"{tmp_path}/tier")
    await store.put("topic/1.log", parts(b"in parts"), 8)
    assert done == [
        ("sync", "staged"),
        ("sync", "tier"),  # the folder of the topic is new
        ("rename", "tier/topic/1.log"),
        ("sync", "tier/topic"),
    ]
    done.clear()
    await store.delete(["topic/1.log"])
    assert done == [("sync", "tier/topic")]
    await store.close()


@on_a_loop
async def test_a_crash_leaves_an_upload_that_can_be_dropped(tmp_path: Path) -> None:
    staged = tmp_path / UPLOADS / "0123" / "topic-0-id" / "1.log"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"half")
    store = FolderStore(str(tmp_path))
    assert await listed(store) == {}
    (upload,) = await store.list_uploads()
    assert (upload.key, upload.upload_id) == ("topic-0-id/1.log", "0123")
    assert upload.began_ms == staged.stat().st_mtime_ns // 1_000_000
    await store.abort_upload(upload)
    await store.abort_upload(upload)
    assert await store.list_uploads() == []
    with pytest.raises(StoreRefused):
        await store.abort_upload(upload._replace(upload_id="../../topic"))
    await store.close()


@on_a_loop
async def test_a_cancelled_put_leaves_nothing(tmp_path: Path) -> None:
    reading = asyncio.Event()

    async def stuck() -> AsyncIterator[Buffer]:
        yield b"some"
        reading.set()
        await asyncio.Event().wait()

    store = FolderStore(str(tmp_path))
    put = asyncio.create_task(store.put("a/b", stuck(), 100))
    await reading.wait()
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    await store.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@on_a_loop
async def test_errors_of_the_disk_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(str(tmp_path))
    for key in ("x" * 300, "../outside", "a//b", "/a", "a/./b", "a\0b"):
        with pytest.raises(StoreRefused):
            await store.put(key, b"", 0)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreRefused):
        await store.put("file/below", b"", 0)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left") as failure:
            await store.put("a", b"1", 1)
    assert not isinstance(failure.value, StoreRefused)
    assert store.counts.errors >= 3
    await store.close()


@on_a_loop
async def test_names_that_are_no_text_are_listed_as_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(b"1")
    store = FolderStore(str(tmp_path))
    assert await listed(store) == {r"caf\xe9": 1}
    await store.close()


@on_a_loop
async def test_puts_and_deletions_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    store = FolderStore(str(tmp_path))

    async def come_and_go(number: int) -> None:
        for _ in range(20):
            await store.put(f"topic/{number}", b"x", 1)
            await store.delete([f"topic/{number}"])

    await asyncio.gather(*(come_and_go(number) for number in range(4)))
    assert await listed(store) == {}
    await store.close()


@on_a_loop
async def test_a_folder_that_is_unmounted_is_not_written_to_until_it_is_back(
    tmp_path: Path,
) -> None:
    """Its mount point is an empty folder, or is gone."""
    folder, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    store = FolderStore(str(folder))
    await claim(store, "ours", 0)
    await store.put("orders/1.log", b"1", 1)
    folder.rename(elsewhere)
    for has_mount_point in (False, True):
        if has_mount_point:
            folder.mkdir()
        for call in (
            store.put("orders/2.log", b"2", 1),
            store.create("orders/2.log", b"2"),
            store.get("orders/1.log"),
            store.delete(["orders/1.log"]),
            listed(store),
            store.list_uploads(),
        ):
            with pytest.raises(StoreError, match="mounted") as caught:
                await call
            assert type(caught.value) is StoreError  # it is neither missing nor refused for good
        assert list(tmp_path.rglob("*.log")) == [elsewhere / "orders" / "1.log"]
    folder.rmdir()
    elsewhere.rename(folder)
    await store.put("orders/2.log", b"2", 1)
    assert bytes(await store.get("orders/1.log")) == b"1"
    await store.close()


@on_a_loop
async def test_a_folder_that_is_mounted_over_by_another_clusters_is_not_used(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "store"
    store = FolderStore(str(folder))
    await claim(store, "ours", 0)
    folder.rename(tmp_path / "elsewhere")
    other = FolderStore(str(folder))
    await claim(other, "theirs", 0)
    with pytest.raises(StoreError, match="another one"):
        await store.put("orders/1.log", b"1", 1)
    for each in (store, other):
        await each.close()


@on_a_loop
async def test_a_file_system_that_is_dead_does_not_keep_the_store_from_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_store, "CLOSE_SECONDS_MAX", 0.01)
    os.mkfifo(tmp_path / "stuck")
    store = FolderStore(str(tmp_path))
    read = asyncio.ensure_future(store.get("stuck"))
    await store.put("other", b"1", 1)  # the other threads go on
    await store.close()
    read.cancel()
    os.close(os.open(tmp_path / "stuck", os.O_WRONLY))  # let the thread go


def test_a_process_ends_while_a_file_system_is_dead(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stuck")
    program = f"""
import asyncio
from headrace.remote.folder_store import FolderStore
async def main():
    store = FolderStore({str(tmp_path)!r})
    reading = asyncio.ensure_future(store.get("stuck"))
    await store.put("other", b"1", 1)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
