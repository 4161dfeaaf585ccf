"""One bit that is wrong, anywhere: no record is served that is not the one that was written.

Opening a log walks over its batches one after the other, so what becomes of a flipped bit is
decided by the walk over its batch, with the one behind in sight. That is done for a bit in each
byte of 1 MiB; for two bits of every third batch, one in its header, the whole log is opened.
"""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from headrace.log.errors import CorruptLog
from headrace.log.settings import LogSettings
from headrace.log.walk import NO_END, Walk
from headrace.records.header import HEADER_BYTES, read_headers
from headrace.testing.disk import SimulatedDisk
from tests.crash.histories import content_of, open_torn, quiet, write_history
from tests.unit.log.logs import FOLDER

SEGMENT_BYTES = 1024 * 1024
SEED = 20261
PATH = f"{FOLDER}/00000000000000000000.log"
LEADER_EPOCH = range(12, 16)
"""Bytes of a batch that are under no checksum and of which no record depends."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


@pytest.fixture(scope="module")
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(SEED)
    log = open_torn(disk, LogSettings(), is_clean=True)
    while log.size_bytes < SEGMENT_BYTES:
        write_history(log, sizes=[200, 900, 4000, 16_000, 60, 2000])
        log.producers.restore(())  # the next round begins again with sequence 0
    log.close()
    return disk


class Bytes:
    """A file in memory, as far as a walk needs one."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.size = len(data)

    def read(self, position: int, count: int) -> bytearray:
        return self.data[position : position + count]


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_bit_in_any_byte_ends_the_walk_before_its_batch(disk: SimulatedDisk, step: int) -> None:
    random = Random(SEED)
    chunk = bytearray(disk.read(PATH))
    batches = [(position, header) for position, header in read_headers(chunk)]
    starts = [position for position, _ in batches]
    for number, (start, header) in enumerate(batches):
        following = starts[number + 2] if number + 2 < len(starts) else len(chunk)
        data = chunk[start:following]
        file = Bytes(data)
        for position in sorted({*range(HEADER_BYTES), *range(0, header.size_bytes, step)}):
            bit = 1 << random.randrange(8)
            data[position] ^= bit
            walk = Walk(
                file,  # type: ignore[arg-type]
                next_offset=header.base_offset,
                end_offset=NO_END,
                may_have_gaps=False,
            )
            found = next(iter(walk), None)
            data[position] ^= bit
            if found is None:
                assert walk.fault is not None
                assert walk.fault[:2] == (0, header.base_offset)
            else:
                assert position in LEADER_EPOCH, f"byte {start + position}, bit {bit:#x}, {SEED=}"


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_log_with_a_wrong_bit_opens_as_a_prefix_or_not_at_all(
    disk: SimulatedDisk, is_synced: bool
) -> None:
    random = Random(SEED)
    chunk = disk.read(PATH)
    headers = list(read_headers(chunk))
    ends = [*(position for position, _ in headers[1:]), len(chunk)]
    end_offset = headers[-1][1].next_offset
    for (start, header), end in list(zip(headers, ends, strict=True))[::3]:
        header_byte = random.choice([b for b in range(HEADER_BYTES) if b not in LEADER_EPOCH])
        for position in (start + header_byte, random.randrange(start + HEADER_BYTES, end)):
            bit = random.randrange(8)
            broken = disk.clone()
            broken.flip_bit(PATH, position, bit)
            if is_synced:
                with pytest.raises(CorruptLog, match=f"{PATH} at byte {start}: "):
                    open_torn(broken, LogSettings(), recovery_point=end_offset)
                continue
            log = open_torn(broken, LogSettings())
            assert log.end_offset == header.base_offset
            assert content_of(log) == chunk[:start]
            if end < len(chunk):
                kept = broken.read(f"{PATH}.{start}.damaged")
                assert kept[end - start :] == chunk[end:]


def test_offsets_that_a_bit_has_moved_are_found_in_a_compacted_log_too(disk: SimulatedDisk) -> None:
    settings = LogSettings(is_compacted=True)
    headers = list(read_headers(disk.read(PATH)))
    for (start, header), (_, following) in pairwise(headers[:20]):
        for bit in range(63):
            moved = header.base_offset ^ 1 << bit
            broken = disk.clone()
            broken.flip_bit(PATH, start + 7 - bit // 8, bit % 8)
            broken.truncate_file(PATH, start + header.size_bytes + following.size_bytes)
            log = open_torn(broken, settings)
            assert log.end_offset == header.base_offset, f"base offset {moved}"
