"""Proposals on one node against a bare loop that appends and syncs."""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import uvloop

from bench.measure import Figure, report
from headrace.ids import BrokerId
from headrace.log.real_disk import RealDisk
from headrace.raft.driver import RaftDriver
from headrace.raft.membership import Membership

TURNS = 200
CALLS = 16
PROPOSAL = b"p" * 200
CONCURRENT = 64
NODE = BrokerId(1)


class Nothing:
    """A state machine that costs nothing."""

    def apply(self, index: int, data: bytes) -> None:
        """Ignore the entry."""

    def snapshot(self) -> bytes:
        return b""

    def restore(self, index: int, data: bytes) -> None:
        """Ignore the snapshot."""


def main() -> None:
    loop = asyncio.Runner(loop_factory=uvloop.new_event_loop)  # as the broker's
    with temporary_folder() as folder, loop as runner:
        bare, alone, together = runner.run(measure(folder))
    peer = f"append and fdatasync {median(bare):.0f}/s"
    report(
        [
            Figure(
                "raft.propose_alone",
                ratio(alone, bare),
                0.5,
                False,
                f"{median(alone):.0f} proposals/s, {peer}",
            ),
            Figure(
                f"raft.propose_{CONCURRENT}_at_once",
                ratio(together, bare),
                10,
                False,
                f"{median(together):.0f} proposals/s, {peer}",
            ),
        ]
    )


def ratio(ours: list[float], bare: list[float]) -> float:
    """Return the median over turns: the parts of one turn ran under the same conditions."""
    return median(one / other for one, other in zip(ours, bare, strict=True))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


async def measure(folder: Path) -> tuple[list[float], list[float], list[float]]:
    """Return calls per second, turn by turn: bare, sequential proposals, concurrent ones.

    In turns of a few calls each, as the disk of a shared machine has good and bad moments.
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
    return bare, alone, together


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
