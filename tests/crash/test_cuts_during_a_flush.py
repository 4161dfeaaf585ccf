"""A log whose end is cut off while a thread syncs it: a flush promises only what is still there."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from headrace.log import cutting
from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.testing.disk import SimulatedDisk
from tests.crash.histories import content_of, open_torn
from tests.unit.log.logs import FOLDER, append, values_of

SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=100)


class HeldExecutor(ThreadPoolExecutor):
    """Does work when it is told to, so that anything can come before."""

    def __init__(self) -> None:
        super().__init__(1)
        self.held: list[tuple[Future[Any], Callable[..., Any]]] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        assert not args
        assert not kwargs
        future: Future[Any] = Future()
        self.held.append((future, work))
        return future

    async def release(self) -> None:
        future, work = self.held.pop(0)
        future.set_result(work())
        while future.done() and not self.held and len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=5)


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    log = open_torn(disk, SETTINGS, is_clean=True)
    for number in range(40):
        append(log, b"%d" % number * 60, producer_id=1, producer_epoch=0, base_sequence=number)
    assert len(log.segments) > 3
    return log


def test_what_is_appended_after_a_cut_is_not_promised_by_the_flush_before(
    log: Log, disk: SimulatedDisk
) -> None:
    async def run() -> None:
        executor = HeldExecutor()
        asyncio.get_running_loop().set_default_executor(executor)
        flushing = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        cutting.truncate(log, 4)
        for number in range(40):
            append(log, b"anew %d" % number, leader_epoch=1)
        await executor.release()
        assert log.recovery_point == 4
        assert not flushing.done()
        await executor.release()
        await flushing
        assert log.recovery_point == log.end_offset == 44

    asyncio.run(run())
    whole = content_of(log)
    disk.crash()
    assert content_of(open_torn(disk, SETTINGS, recovery_point=44)) == whole


def test_a_flush_ends_though_what_it_was_to_reach_is_gone(log: Log) -> None:
    async def run() -> None:
        executor = HeldExecutor()
        asyncio.get_running_loop().set_default_executor(executor)
        flushing = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        cutting.truncate(log, 4)
        await executor.release()
        await flushing
        assert not executor.held

    asyncio.run(run())
    assert log.recovery_point == log.end_offset == 4


def test_no_snapshot_is_left_of_offsets_that_were_cut_off(log: Log, disk: SimulatedDisk) -> None:
    """A later log of that length would take its producers from it."""

    async def run() -> None:
        executor = HeldExecutor()
        asyncio.get_running_loop().set_default_executor(executor)
        flushing = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        cutting.truncate(log, 4)
        await executor.release()
        await flushing

    asyncio.run(run())
    assert not [name for name in disk.list(FOLDER) if name.endswith(".snapshot")]
    for number in range(40):
        append(log, b"anew %d" % number * 9, leader_epoch=1)
    log.close()
    opened = open_torn(disk, SETTINGS, is_clean=True)
    state = opened.producers.get(1)
    assert state is not None
    assert state.last_sequence == 3
    assert values_of(opened)[4] == b"anew 0" * 9
