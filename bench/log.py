"""The log against the bare system calls that it is made of."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from crc32c import crc32c

from bench.measure import Figure, report, seconds_side_by_side
from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.log.folder import LogFolder
from headrace.log.opening import open_log
from headrace.log.real_disk import RealDisk
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.header import read_header

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 16 * 1024
READ_BYTES = 1024 * 1024
IDLE_PARTITIONS = 10_000


def main() -> None:
    report([append(), read_cached(), *open_idle_partitions()])


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def build_batch() -> bytearray:
    builder = BatchBuilder()
    while builder.size_bytes < BATCH_BYTES:
        builder.append(NOW_MS, os.urandom(10), os.urandom(100))
    return builder.build()


def append() -> Figure:
    """Check and append a batch; the peer computes the checksum and writes the same bytes."""
    with temporary_folder() as folder:
        disk = RealDisk(folder)
        log = open_log(disk, "ours-0", LogSettings(), is_clean=True)
        batch = memoryview(build_batch())
        bare = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def ours() -> None:
            log.append(batch, leader_epoch=0, now_ms=NOW_MS)

        def peer() -> None:
            crc32c(batch)
            os.write(bare, batch)

        our_seconds, bare_seconds = seconds_side_by_side(ours, peer)
        os.close(bare)
        log.close()
        disk.close()
    detail = f"{our_seconds * 1e6:.1f} us, crc32c and write {bare_seconds * 1e6:.1f} us"
    return Figure("log.append_16_KB", bare_seconds / our_seconds, 0.7, False, detail)


def read_cached() -> Figure:
    """Read a log from end to end as a consumer does; the peer reads its file in as many calls."""
    with temporary_folder() as folder:
        disk = RealDisk(folder)
        log = open_log(disk, "ours-0", LogSettings(), is_clean=True)
        batch = memoryview(build_batch())
        while log.size_bytes < 64 * READ_BYTES:
            log.append(batch, leader_epoch=0, now_ms=NOW_MS)
        log.flusher.prepare().run()
        records = batch_records(batch)
        stride = READ_BYTES // len(batch) * records
        bare = os.open(folder / "ours-0" / f"{0:020d}.log", os.O_RDONLY)
        offsets = cycle(range(0, log.end_offset - stride, stride))
        positions = cycle(range(0, log.size_bytes - READ_BYTES, READ_BYTES))

        def ours() -> None:
            assert log.read(next(offsets), READ_BYTES, up_to=log.end_offset)

        def peer() -> None:
            os.pread(bare, READ_BYTES, next(positions))

        our_seconds, bare_seconds = seconds_side_by_side(ours, peer)
        os.close(bare)
        log.close()
        disk.close()
    detail = f"{our_seconds * 1e6:.0f} us, pread {bare_seconds * 1e6:.0f} us"
    return Figure("log.read_1_MB_cached", bare_seconds / our_seconds, 0.8, False, detail)


def open_idle_partitions() -> list[Figure]:
    """Open a directory of idle partitions that was closed; a process of its own measures it."""
    with temporary_folder() as folder:
        disk = RealDisk(folder)
        logs = LogFolder.open(disk, lambda _: LogSettings(), cluster_id="bench", node_id=1)
        for number in range(IDLE_PARTITIONS):
            topic = TopicName(f"topic-{number // 100}")
            logs.create(topic, PartitionIndex(number % 100), TopicId(os.urandom(16)))
        logs.close(broker_epoch=1)
        disk.close()
        command = [sys.executable, "-m", "bench.log", str(folder)]
        measured = json.loads(subprocess.check_output(command))
    assert measured["partitions"] == IDLE_PARTITIONS
    kib = measured["memory_bytes"] / IDLE_PARTITIONS / 1024
    detail = f"{kib:.1f} KB each, {IDLE_PARTITIONS} partitions, {measured['files']} open files"
    seconds = measured["seconds"]
    return [
        Figure("log.idle_partition_memory", kib / 30, 1, True, detail),
        Figure("log.open_10000_partitions", seconds / 10, 1, True, f"{seconds:.1f} s of 10 s"),
    ]


def measure_opening(folder: Path) -> None:
    """Print what opening a directory takes, as JSON."""
    settings, before = LogSettings(), resident_bytes()
    begin = time.perf_counter()
    logs = LogFolder.open(RealDisk(folder), lambda _: settings, cluster_id="bench", node_id=1)
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - begin,
                "memory_bytes": resident_bytes() - before,
                "partitions": len(logs.logs),
                "files": len(list(Path("/proc/self/fd").iterdir())),
            }
        )
    )


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def batch_records(batch: memoryview) -> int:
    return read_header(batch).record_count


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure_opening(Path(sys.argv[1]))
    else:
        main()
