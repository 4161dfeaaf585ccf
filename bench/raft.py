"""Proposals on one node against a bare loop that appends and syncs."""

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Figure, report
from headrace.ids import BrokerId
from headrace.log.real_disk import RealDisk
from headrace.raft.driver import RaftDriver
from headrace.raft.membership import Membership

TURNS = 100
CALLS = 16
PROPOSAL = b"p" * 200
CONCURRENT = 64
NODE = BrokerId(1)


class Nothing:
    """A state machine that costs nothing."""

    def apply(self, index: int, data: bytes) -> None:
        """Take it."""

    def snapshot(self) -> bytes:
        return b""

    def restore(self, index: int, data: bytes) -> None:
        """Be it."""


def main() -> None:
    with temporary_folder() as folder:
        bare, alone, together = asyncio.run(measure(folder))
    report(
        [
            Figure(
                "raft.propose_alone",
                alone / bare,
                0.5,
                False,
                f"{alone:.0f} proposals/s, append and fdatasync {bare:.0f}/s",
            ),
            Figure(
                f"raft.propose_{CONCURRENT}_at_once",
                together / bare,
                10,
                False,
                f"{together:.0f} proposals/s",
            ),
        ]
    )


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


async def measure(folder: Path) -> tuple[float, float, float]:
    """Give calls a second: bare, one proposal after the other, many at once.

    In turns of a few calls each, as the disk of a shared machine has good and bad moments, and by
    the median of the turns.
    """
    disk = RealDisk(folder / "raft")
    driver = RaftDriver(NODE, disk, "raft", machine=Nothing())
    await driver.start(bootstrap=Membership((NODE,)))
    descriptor = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    bare: list[float] = []
    alone: list[float] = []
    together: list[float] = []
    for _ in range(TURNS):
        # In a thread as the driver's syncs are, or a busy machine's scheduler would prefer those.
        bare.append(await asyncio.to_thread(append_and_sync, descriptor))
        alone.append(await propose(driver, 1, CALLS))
        together.append(await propose(driver, CONCURRENT, CALLS))
    os.close(descriptor)
    await driver.stop()
    disk.close()
    return statistics.median(bare), statistics.median(alone), statistics.median(together)


def append_and_sync(descriptor: int) -> float:
    begin = time.perf_counter()
    for _ in range(CALLS):
        os.write(descriptor, PROPOSAL)
        os.fdatasync(descriptor)
    return CALLS / (time.perf_counter() - begin)


async def propose(driver: RaftDriver, concurrent: int, calls: int) -> float:
    begin = time.perf_counter()

    async def one_after_the_other() -> None:
        for _ in range(calls):
            await driver.propose(PROPOSAL)

    await asyncio.gather(*(one_after_the_other() for _ in range(concurrent)))
    return concurrent * calls / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
