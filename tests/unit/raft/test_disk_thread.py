"""The thread that waits for the disk: what the loop is told, in which order, and what is left."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import uvloop

from headrace.raft.disk_thread import DiskThread

PATIENCE_SECONDS = 10
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=LOOPS[request.param])


@asynccontextmanager
async def disk_thread() -> AsyncIterator[DiskThread]:
    thread = DiskThread("disk")
    try:
        yield thread
    finally:
        thread.close()


def open_descriptors() -> set[int]:
    found = set[int]()
    for descriptor in range(1024):
        with suppress(OSError):
            os.fstat(descriptor)
            found.add(descriptor)
    return found


async def result(future: "asyncio.Future[BaseException | None]") -> BaseException | None:
    return await asyncio.wait_for(future, PATIENCE_SECONDS)


def test_work_is_done_in_order_in_a_thread_and_answered_on_the_loop(
    runner: asyncio.Runner,
) -> None:
    threads: list[int] = []
    answers: list[tuple[int, int]] = []

    async def main() -> None:
        last: asyncio.Future[BaseException | None] = asyncio.Future()

        def note(number: int, error: BaseException | None) -> None:
            assert error is None
            answers.append((number, threading.get_ident()))

        async with disk_thread() as thread:
            for number in range(100):
                thread.run(lambda: threads.append(threading.get_ident()), partial(note, number))
            thread.run(lambda: None, last.set_result)
            await result(last)

    with runner:
        runner.run(main())
    assert answers == [(number, threading.get_ident()) for number in range(100)]
    assert len(threads) == 100
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_the_loop_goes_on_while_the_thread_waits(runner: asyncio.Runner) -> None:
    async def main() -> None:
        done: asyncio.Future[BaseException | None] = asyncio.Future()
        is_free = threading.Event()

        def wait() -> None:
            assert is_free.wait(PATIENCE_SECONDS)

        async with disk_thread() as thread:
            thread.run(wait, done.set_result)
            asyncio.get_running_loop().call_later(0.001, is_free.set)
            assert await result(done) is None

    with runner:
        runner.run(main())


def test_what_work_raises_is_handed_over_and_the_next_is_done(runner: asyncio.Runner) -> None:
    def fail() -> None:
        raise OSError(28, "no space")

    async def main() -> None:
        first: asyncio.Future[BaseException | None] = asyncio.Future()
        second: asyncio.Future[BaseException | None] = asyncio.Future()
        async with disk_thread() as thread:
            thread.run(fail, first.set_result)
            thread.run(lambda: None, second.set_result)
            error = await result(first)
            assert isinstance(error, OSError)
            assert error.errno == 28
            assert await result(second) is None

    with runner:
        runner.run(main())


def test_closing_ends_behind_what_was_given_and_leaves_no_descriptor(
    runner: asyncio.Runner,
) -> None:
    async def main() -> None:
        before = open_descriptors()
        for count in (0, 1, 3):
            done: list[BaseException | None] = []
            known = set(threading.enumerate())
            thread = DiskThread("disk")
            ours = set(threading.enumerate()) - known
            for _ in range(count):
                thread.run(lambda: None, done.append)
            thread.close()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(done) < count or any(each.is_alive() for each in ours):
                    await asyncio.sleep(0.001)
            assert done == [None] * count
        assert open_descriptors() <= before, "threads of earlier tests may end meanwhile"

    with runner:
        runner.run(main())


def test_a_loop_that_is_gone_does_not_keep_the_thread_from_its_end(
    runner: asyncio.Runner,
) -> None:
    is_free = threading.Event()
    known = set(threading.enumerate())

    def wait() -> None:
        assert is_free.wait(PATIENCE_SECONDS)

    async def main() -> None:
        thread = DiskThread("disk")
        thread.run(wait, lambda error: None)
        thread.close()

    with runner:
        runner.run(main())
    ours = set(threading.enumerate()) - known
    assert len(ours) == 1
    is_free.set()
    for each in ours:
        each.join(PATIENCE_SECONDS)
        assert not each.is_alive()
