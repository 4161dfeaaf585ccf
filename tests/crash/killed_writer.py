"""Appends to a log for as long as it lives, and says after each flush how far that was.

python -m tests.crash.killed_writer FOLDER DESCRIPTOR
"""

import asyncio
import os
import sys
from pathlib import Path

from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder

FOLDER = "orders-0"
SETTINGS = LogSettings(segment_bytes=20_000, index_interval_bytes=500)
NOW_MS = 1_700_000_000_000


def value_at(offset: int) -> bytes:
    return b"%d " % offset * (1 + offset % 40)


def open_after_kill(disk: Disk) -> Log:
    return open_log(disk, FOLDER, SETTINGS, is_clean=False)


async def write(folder: Path, descriptor: int) -> None:
    log = open_after_kill(RealDisk(folder))
    while True:
        for _ in range(3):
            _append(log)
        end_offset = log.end_offset
        flushing = asyncio.ensure_future(log.flush())
        await asyncio.sleep(0)
        _append(log)  # while the flush runs
        await flushing
        os.write(descriptor, b"%d\n" % end_offset)


def _append(log: Log) -> None:
    builder = BatchBuilder()
    first = log.end_offset
    for offset in range(first, first + 1 + first % 3):
        builder.append(NOW_MS + offset, None, value_at(offset))
    batch = builder.build(producer_id=1, producer_epoch=0, base_sequence=first)
    log.append(memoryview(batch), leader_epoch=0, now_ms=NOW_MS)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
