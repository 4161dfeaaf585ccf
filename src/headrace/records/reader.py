"""Records out of a batch, one object each: for clients, tools and tests.

Strict: every byte of the payload is checked before the first record is returned. Code that
handles many records at once uses `columns` instead; a broker reads headers only.
"""

from collections.abc import Iterator

from headrace.config import INFLATED_BATCH_MAX_BYTES
from headrace.records import scan
from headrace.records.compression import Compression, ReadableBuffer, decompress
from headrace.records.errors import CorruptBatch
from headrace.records.header import HEADER_BYTES, BatchHeader, read_header
from headrace.records.record import Record


def read_records(
    batch: ReadableBuffer,
    header: BatchHeader | None = None,
    *,
    inflated_bytes_max: int = INFLATED_BATCH_MAX_BYTES.default,
) -> Iterator[Record]:
    """Check one batch from end to end, then yield its records; CRC is the caller's to check.

    Control batches are read like others: `control` says what their keys mean.
    """
    header = header or read_header(batch)
    segment = find_records(batch, 0, header, inflated_bytes_max)
    scan.measure([segment], False)
    return (Record(*fields) for fields in scan.read(segment))


def find_records(
    chunk: ReadableBuffer, position: int, header: BatchHeader, inflated_bytes_max: int
) -> scan.Segment:
    """Return the bytes of the records of the batch at `position`, decompressed if needed."""
    start = position + HEADER_BYTES
    end = position + header.size_bytes
    if end > len(chunk):
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: {header.size_bytes} bytes, "
            f"{len(chunk) - position} are there"
        )
    codec = header.compression
    if codec is Compression.NONE or start == end:
        return chunk, start, end, header
    payload = decompress(codec, memoryview(chunk)[start:end], inflated_bytes_max)
    return payload, 0, len(payload), header
