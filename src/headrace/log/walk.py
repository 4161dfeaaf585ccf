"""Walking over the batches of a log file: by their headers, or byte by byte.

Headers alone are enough to find an offset; after a crash every batch is read and its checksum
compared. What is wrong is described, not judged: `opening` decides whether it is a torn tail.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.config import INT64_MAX
from headrace.log.disk import DiskFile
from headrace.records.errors import CorruptBatch, RecordsError
from headrace.records.header import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    check_crc,
    read_header,
)

CHUNK_BYTES: Final = 1024 * 1024
NO_END: Final = INT64_MAX


class Fault(NamedTuple):
    """Where a walk had to stop, the expected offset there, and why."""

    position: int
    next_offset: int
    reason: str


def headers(file: DiskFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from `position`, which is the start of one.

    Stops where no whole batch follows; RecordsError if what follows is not a batch.
    """
    while position + HEADER_BYTES <= end:
        header = read_header(file.read(position, HEADER_BYTES))
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


class Walk:
    """Iterator over the batches of a file, read whole and checked.

    Afterwards `position` and `next_offset` are those after the last good batch, and `fault` is
    None if the file ends there.
    """

    def __init__(
        self, file: DiskFile, *, next_offset: int, end_offset: int, may_have_gaps: bool
    ) -> None:
        """Begin at the file's start, where `next_offset` is due; no batch reaches `end_offset`.

        `may_have_gaps` says that compaction may have taken the batches before the last one.
        """
        self.position = 0
        self.fault: Fault | None = None
        self._file = file
        self.next_offset = next_offset
        self._end_offset = end_offset
        self._may_have_gaps = may_have_gaps
        self._chunk = memoryview(b"")
        self._chunk_at = 0

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while self.position < self._file.size:
            try:
                header = self._read_batch()
            except RecordsError as error:
                self.fault = Fault(self.position, self.next_offset, error.message)
                return
            position = self.position
            self.next_offset = header.next_offset
            self.position += header.size_bytes
            yield position, header

    def _read_batch(self) -> BatchHeader:
        left = self._file.size - self.position
        header = read_header(self._bytes(min(HEADER_BYTES, left)))
        if header.size_bytes > left:
            raise CorruptBatch(f"a batch of {header.size_bytes} bytes, {left} are left")
        check_crc(self._bytes(header.size_bytes), header)
        if header.base_offset != self.next_offset or header.next_offset > self._end_offset:
            self._check_offsets(header)
        return header

    def _check_offsets(self, header: BatchHeader) -> None:
        """CorruptBatch if the batch at the position cannot have the offsets that it says.

        They are not under its checksum. Compaction leaves gaps; but a batch that says to be where
        a later one is, or the last one of a log that was never compacted, has no gap before it.
        """
        following = _good_header(self._file, self.position + header.size_bytes)
        end_offset = self._end_offset if following is None else following.base_offset
        is_last = end_offset == NO_END
        if not self.next_offset <= header.base_offset < header.next_offset <= end_offset or (
            is_last and not self._may_have_gaps
        ):
            raise CorruptBatch(
                f"offsets {header.base_offset} to {header.last_offset} where {self.next_offset} "
                "is due"
            )

    def _bytes(self, count: int) -> memoryview:
        """Return `count` bytes at the position, from a chunk that is read ahead."""
        begin = self.position - self._chunk_at
        if begin + count > len(self._chunk):
            self._chunk = memoryview(self._file.read(self.position, max(count, CHUNK_BYTES)))
            self._chunk_at, begin = self.position, 0
        return self._chunk[begin : begin + count]


def find_good_batch(file: DiskFile, position: int, next_offset: int) -> int | None:
    """Find a batch with a valid checksum and a later offset anywhere after `position`.

    This distinguishes damage in the middle of a file from an incomplete tail.
    """
    while position + HEADER_BYTES <= file.size:
        chunk = file.read(position, CHUNK_BYTES)
        magic_at = chunk.find(MAGIC, MAGIC_AT)
        while magic_at >= 0:
            candidate = position + magic_at - MAGIC_AT
            if _is_good_batch(file, candidate, next_offset):
                return candidate
            magic_at = chunk.find(MAGIC, magic_at + 1)
        position += max(len(chunk) - MAGIC_AT, 1)
    return None


def _is_good_batch(file: DiskFile, position: int, next_offset: int) -> bool:
    header = _good_header(file, position)
    return header is not None and header.base_offset >= next_offset


def _good_header(file: DiskFile, position: int) -> BatchHeader | None:
    """Return the header of a whole batch with a valid checksum, or None."""
    try:
        header = read_header(file.read(position, HEADER_BYTES))
        if position + header.size_bytes > file.size:
            return None
        check_crc(file.read(position, header.size_bytes), header)
    except RecordsError:
        return None
    return header
