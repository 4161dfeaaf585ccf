"""Whether the objects of a segment are what was written: checksums, offsets and sizes.

Two checksums are compared: that of the whole object, which our own copies carry in their custom
metadata, and that of every batch, which its producer computed. The second one is there for
segments that Kafka copied, too.
"""

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from headrace.records.errors import RecordsError
from headrace.records.header import HEADER_BYTES, check_crc, read_header
from headrace.remote.fingerprints import Fingerprint, decode_fingerprints
from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.segments import RemoteSegment
from headrace.remote.store import NoSuchObject, ObjectStore
from headrace.wire.schema import Buffer

PART_BYTES: Final = 8 * 1024 * 1024


class LogCheck:
    """Checks the bytes of a segment's log, part by part. Pure."""

    def __init__(self, segment: RemoteSegment) -> None:
        self._segment = segment
        self._rest = b""
        self._position = 0
        self._next_offset = segment.start_offset
        self.crc32c = 0
        self.problem: str | None = None

    def feed(self, part: Buffer) -> None:
        """Take the next bytes; the first thing that is wrong is kept as `problem`."""
        self.crc32c = crc32c(part, self.crc32c)
        if self.problem is not None:
            return
        data = memoryview(self._rest + bytes(part) if self._rest else part)
        try:
            consumed = sum(self._batches(data))
        except RecordsError as error:
            self.problem = f"{ObjectKind.LOG} is damaged: {error.message}"
            return
        self._position += consumed
        self._rest = bytes(data[consumed:])

    def finish(self) -> str | None:
        """Return what is wrong with the whole, None if nothing is."""
        size_bytes = self._position + len(self._rest)
        if self.problem is None and self._rest:
            self.problem = f"{ObjectKind.LOG} ends within a batch at {size_bytes} bytes"
        if self.problem is None and size_bytes != self._segment.size_bytes:
            self.problem = (
                f"{ObjectKind.LOG} has {size_bytes} bytes, {self._segment.size_bytes} were written"
            )
        return self.problem

    def _batches(self, data: memoryview) -> Iterator[int]:
        """Yield the sizes of whole batches after checking each."""
        segment = self._segment
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = read_header(data, position)
            end = position + header.size_bytes
            if end > len(data):
                return
            check_crc(data[position:end], header)
            if header.base_offset < self._next_offset or header.last_offset > segment.end_offset:
                self.problem = (
                    f"{ObjectKind.LOG} has offsets {header.base_offset} to {header.last_offset} "
                    f"where {self._next_offset} to {segment.end_offset} are left"
                )
                return
            self._next_offset = header.next_offset
            yield header.size_bytes
            position = end


async def check_segment(store: ObjectStore, segment: RemoteSegment) -> str | None:
    """Read the objects of a finished segment; return what is wrong with them.

    Raise StoreError if they cannot be read now.
    """
    written = decode_fingerprints(segment.custom_metadata) or {}
    check = LogCheck(segment)
    key = object_key(segment, ObjectKind.LOG)
    try:
        for begin in range(0, segment.size_bytes, PART_BYTES):
            part = await store.get(key, begin, min(begin + PART_BYTES, segment.size_bytes))
            check.feed(part)
            if len(part) < min(PART_BYTES, segment.size_bytes - begin):
                break
        problem = check.finish() or _compare(ObjectKind.LOG, check.crc32c, written)
        for kind in written:
            if problem is None and kind is not ObjectKind.LOG:
                data = await store.get(object_key(segment, kind))
                problem = _compare(kind, crc32c(data), written)
    except NoSuchObject as error:
        return str(error)
    return problem


def _compare(kind: ObjectKind, crc: int, written: dict[ObjectKind, Fingerprint]) -> str | None:
    expected = written.get(kind)
    if expected is None or expected.crc32c == crc:
        return None
    return f"{kind} has the checksum {crc:08x}, {expected.crc32c:08x} was written"
