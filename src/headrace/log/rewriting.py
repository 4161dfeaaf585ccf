"""The file work of a compaction: read the dirty part, rewrite segments.

These are generators, because this runs in a thread in slices: from one yield to the next about one
chunk is read, and never more than a chunk and a batch are in memory. Nothing here touches the Log,
and only immutable parts of its old segments.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from headrace.log.cleaning import Sieve, TransactionWalk
from headrace.log.compaction_files import complete_cleaned
from headrace.log.disk import folder_of
from headrace.log.errors import CorruptLog
from headrace.log.offset_map import OffsetMap
from headrace.log.segment import Segment
from headrace.log.walk import CHUNK_BYTES
from headrace.records.aborted import AbortedTransaction, read_entries
from headrace.records.compression import ReadableBuffer
from headrace.records.errors import RecordsError
from headrace.records.header import BatchHeader, check_crc, read_header, read_headers
from headrace.records.reader import find_records

SYNC_BYTES: Final = 64 * 1024 * 1024
"""How much is written between two syncs, so that the last one does not wait for all of it."""

Result = TypeVar("Result")
Slices = Generator[None, None, Result]


def fill(
    offsets: OffsetMap,
    segments: Sequence[Segment],
    aborted: Iterable[AbortedTransaction],
    begin_offset: int,
    end_offset: int,
    *,
    inflated_bytes_max: int,
) -> Slices[int]:
    """Add the keys from one offset up to another; return the end, or where the map was full."""
    transactions = TransactionWalk(aborted)
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= begin_offset:
            continue
        for chunk in _read(segment):
            for position, batch, header in chunk:
                if header.base_offset >= end_offset:
                    return end_offset
                if header.last_offset < begin_offset or header.is_control:
                    continue
                if transactions.is_aborted(header):
                    continue
                try:
                    records = find_records(batch, 0, header, inflated_bytes_max)
                    full_at = offsets.add(records, begin_offset)
                except RecordsError as error:
                    raise CorruptLog(segment.path(".log"), position, error.message) from None
                if full_at >= 0:
                    return full_at
            yield
    return end_offset


def rewrite(old: Sequence[Segment], new: Segment, sieve: Sieve) -> Slices[None]:
    """Write what the sieve leaves of some segments to the files of a new one, and sync them."""
    new.create()
    synced_bytes = 0
    for segment in old:
        aborted = {entry.last_offset: entry for entry in _aborted_in(segment)}
        for chunk in _read(segment):
            parts: list[ReadableBuffer] = []
            for position, batch, header in chunk:
                try:
                    left = sieve.sift(batch, header)
                except RecordsError as error:
                    raise CorruptLog(segment.path(".log"), position, error.message) from None
                if left is None:
                    continue
                parts.append(left)
                left_header = header if left is batch else read_header(left)
                new.note(len(left), header.last_offset, left_header.max_timestamp)
                # A marker with a horizon has outlived its transaction: no reader asks for that.
                if header.last_offset in aborted and not left_header.has_delete_horizon:
                    new.transaction_index.append(aborted[header.last_offset])
            new.file.append(b"".join(parts))
            if new.size_bytes - synced_bytes >= SYNC_BYTES:
                new.file.sync()
                synced_bytes = new.size_bytes
            yield
    new.finish()
    for file in new.opened_files():
        file.sync()
    complete_cleaned(new.disk, folder_of(new.path(".log")), new.base_offset)


def _aborted_in(segment: Segment) -> list[AbortedTransaction]:
    """Read a transaction index without the segment's own objects, which belong to the loop."""
    path = segment.path(".txnindex")
    return list(read_entries(segment.disk.read(path))) if segment.disk.exists(path) else []


class PlacedBatch(NamedTuple):
    """A batch of a segment, and where it begins."""

    position: int
    batch: memoryview
    header: BatchHeader


def _read(segment: Segment) -> Iterator[list[PlacedBatch]]:
    """Yield the batches of a segment, checked, a chunk of them at a time; CorruptLog at damage."""
    path = segment.path(".log")
    position = 0
    file = segment.disk.open(path)
    try:
        while position < segment.size_bytes:
            data = memoryview(file.read(position, min(CHUNK_BYTES, segment.size_bytes - position)))
            first_bytes = read_header(data).size_bytes
            if first_bytes > len(data):
                data = memoryview(file.read(position, first_bytes))
            chunk = []
            end = 0
            for at, header in read_headers(data):
                end = at + header.size_bytes
                batch = data[at:end]
                check_crc(batch, header)
                chunk.append(PlacedBatch(position + at, batch, header))
            if not chunk:
                raise CorruptLog(path, position, f"a batch of {first_bytes} bytes is cut off")
            yield chunk
            position += end
    except RecordsError as error:
        raise CorruptLog(path, position, error.message) from None
    finally:
        file.close()
