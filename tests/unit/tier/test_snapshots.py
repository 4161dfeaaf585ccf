"""Snapshots in files: resumed from, replaced as a whole, and never trusted when damaged."""

import asyncio
import logging
from pathlib import Path

import pytest

from headrace.log.disk import Disk
from headrace.log.real_disk import RealDisk
from headrace.remote.events import encode_event
from headrace.testing.disk import SimulatedDisk
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.snapshots import MetadataSnapshots, path_of
from tests.unit.remote.segments import ORDERS, partition, segment
from tests.unit.tier.logs import FaultyLog, until

KEY = ORDERS.key


async def run_manager(
    log: FaultyLog, disk: Disk, *, interval_ms: int = 600_000, count: int = 0
) -> TopicMetadata:
    """Start a manager, have it ready, and announce some segments."""
    waits = MetadataWaits(consume_wait_ms=60_000, snapshot_interval_ms=interval_ms)
    metadata = TopicMetadata(log, MetadataSnapshots(disk), waits)
    await metadata.start()
    metadata.follow([ORDERS])
    await until(lambda: metadata.is_ready(KEY))
    known = len(metadata.segments(KEY))
    for number in range(known, known + count):
        await metadata.add(segment(number + 1, number * 10, number * 10 + 9))
    return metadata


def test_a_manager_goes_on_behind_its_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        log, disk = FaultyLog(), RealDisk(tmp_path)
        first = await run_manager(log, disk, count=5)
        place = first.partition_of(KEY)
        before = list(first.segments(KEY))
        await first.stop()
        await log.publish(place, encode_event(segment(6, 50, 59)))
        log.added.clear()
        second = await run_manager(log, disk)
        assert log.added == [(place, 5)]
        assert list(second.segments(KEY)) == [*before, segment(6, 50, 59)]
        await second.stop()

    asyncio.run(main())


def test_a_snapshot_is_written_whenever_any_partition_has_advanced(tmp_path: Path) -> None:
    """Also one whose offsets are smaller than those of another."""

    async def main() -> None:
        log, disk = FaultyLog(), RealDisk(tmp_path)
        metadata = await run_manager(log, disk, interval_ms=10, count=20)
        place = metadata.partition_of(KEY)
        await until((tmp_path / path_of(place)).exists)
        other = next(
            known
            for known in map(partition, range(100))
            if metadata.partition_of(known.key) != place
        )
        metadata.follow([ORDERS, other])
        await until(lambda: metadata.is_ready(other.key))
        await metadata.add(segment(1, 0, 9, of=other))
        await until((tmp_path / path_of(metadata.partition_of(other.key))).exists)
        await metadata.stop()

    asyncio.run(main())


def test_what_has_not_advanced_is_not_written_again(tmp_path: Path) -> None:
    async def main() -> None:
        log, disk = FaultyLog(), RealDisk(tmp_path)
        metadata = await run_manager(log, disk, count=1)
        await metadata.stop()
        file = tmp_path / path_of(metadata.partition_of(KEY))
        written = file.stat()
        metadata = await run_manager(log, disk)
        await metadata.stop()
        assert file.stat().st_ino == written.st_ino

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "more", "foreign"])
def test_any_damage_means_that_everything_is_read_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        log, disk = FaultyLog(), RealDisk(tmp_path)
        first = await run_manager(log, disk, count=5)
        before = list(first.segments(KEY))
        place = first.partition_of(KEY)
        await first.stop()
        file = tmp_path / path_of(place)
        data = file.read_bytes()
        file.write_bytes(
            {
                "flipped": data[:60] + bytes([data[60] ^ 4]) + data[61:],
                "cut": data[:-1],
                "empty": b"",
                "more": data + b"x",
                "foreign": b"garbage" * 100,
            }[damage]
        )
        log.added.clear()
        second = await run_manager(log, disk)
        assert log.added == [(place, 0)]
        assert list(second.segments(KEY)) == before
        await second.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "is not used" in caplog.text


def test_a_snapshot_of_another_log_is_not_used(tmp_path: Path) -> None:
    async def main() -> None:
        disk = RealDisk(tmp_path)
        first = await run_manager(FaultyLog(), disk, count=5)
        await first.stop()
        second = await run_manager(FaultyLog(log_id=b"another"), disk)
        assert list(second.segments(KEY)) == []
        await second.stop()

    asyncio.run(main())


def test_a_disk_that_does_not_take_snapshots_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        broken = _FullDisk(SimulatedDisk(seed=1))
        metadata = await run_manager(FaultyLog(), broken, interval_ms=5, count=3)  # type: ignore[arg-type]
        await until(lambda: broken.attempts > 2)
        assert len(metadata.segments(KEY)) == 3
        await metadata.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert caplog.text.count("cannot be written") == 1


def test_a_crash_while_a_snapshot_is_written_leaves_the_old_one_or_the_new_one() -> None:
    async def main(seed: int) -> None:
        log, disk = FaultyLog(), SimulatedDisk(seed=seed)
        snapshots = MetadataSnapshots(disk)
        first = await run_manager(log, disk, count=3)
        await first.stop()
        second = await run_manager(log, disk, count=3)
        place = second.partition_of(KEY)
        saving = asyncio.create_task(
            snapshots.save(place, log.log_id, 6, second._reader.partitions[place].cache)
        )
        await asyncio.sleep(0)
        disk.crash()
        await asyncio.gather(saving, return_exceptions=True)
        await asyncio.gather(second.stop(), return_exceptions=True)
        found = await snapshots.load(place, log.log_id)
        assert found is not None
        cache, offset = found
        assert (offset, cache.segment_count) in {(3, 3), (6, 6)}

    for seed in range(10):
        asyncio.run(main(seed))


class _FullDisk:
    """A disk on which nothing can be replaced."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.attempts = 0

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def make_folder(self, path: str) -> None:
        self._disk.make_folder(path)

    def replace(self, path: str, data: bytes) -> None:
        self.attempts += 1
        raise OSError(28, "No space left on device", path)
