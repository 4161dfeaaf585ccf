"""The 61 bytes in front of every record batch: a view of them, and the edits a log makes in place.

Offsets and the leader epoch are before the checksum's range, so a log assigns them without
touching a record; everything after them is covered by CRC32C. Records are never read here.
The layout is that of KIP-98; https://kafka.apache.org/documentation/#recordbatch draws it.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct as Layout
from typing import Final

from crc32c import crc32c
from msgspec import Struct, structs

from headrace.records.compression import Compression, ReadableBuffer
from headrace.records.errors import CorruptBatch, UnsupportedBatch

HEADER: Final = Layout(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_PREFIX_BYTES: Final = 12
"""The base offset and the length itself, which the length does not count."""
LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
FLAGS_AT: Final = 22
"""The low byte of the attributes, which has every bit that is used."""
LAST_OFFSET_DELTA_AT: Final = 23
CHECKSUMMED_FROM: Final = 21
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40


class TimestampType(IntEnum):
    """Whether a record's time is the producer's or that of its append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(Struct, frozen=True, gc=False):
    """What the header says, field for field in the order of the bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec; CorruptBatch if it is none that exists."""
        code = self.attributes & COMPRESSION_MASK
        if code >= len(_COMPRESSIONS):
            raise CorruptBatch(f"there is no codec {code}")
        return _COMPRESSIONS[code]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & LOG_APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones or marker: kept in base_timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


_COMPRESSIONS: Final = tuple(Compression)


def read_header(buffer: ReadableBuffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; CorruptBatch or UnsupportedBatch if none can be there.

    A header says how long its batch is; whether the bytes are all there is not checked.
    """
    if len(buffer) - position < HEADER_BYTES:
        raise CorruptBatch(
            f"at {position}: {len(buffer) - position} bytes, a batch has at least {HEADER_BYTES}"
        )
    header = BatchHeader(*HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC or header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise malformed(header, position)
    return header


def malformed(header: BatchHeader, position: int = 0) -> CorruptBatch | UnsupportedBatch:
    """Name what makes a header unreadable: its magic, else its length."""
    if header.magic in (0, 1):
        return UnsupportedBatch(
            f"at {position}: message format v{header.magic}; only v2 (Kafka 0.11 and later) is read"
        )
    if header.magic != MAGIC:
        return CorruptBatch(f"at {position}: magic {header.magic}, a batch has {MAGIC}")
    return CorruptBatch(
        f"at {position}: batch length {header.batch_length}, "
        f"the header alone has {HEADER_BYTES - LENGTH_PREFIX_BYTES}"
    )


def read_headers(chunk: ReadableBuffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every whole batch.

    Stops without complaint at a last batch that is cut off, as a fetch may return one.
    """
    position = 0
    end = len(chunk)
    while end - position >= HEADER_BYTES:
        header = read_header(chunk, position)
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def checksum(batch: ReadableBuffer) -> int:
    """Return the CRC32C of everything after the checksum field of one whole batch."""
    return crc32c(memoryview(batch)[CHECKSUMMED_FROM:])


def check_crc(batch: ReadableBuffer, header: BatchHeader) -> None:
    """CorruptBatch if the bytes of one whole batch are not those that were checksummed."""
    computed = checksum(batch)
    if computed != header.crc:
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: CRC32C is {computed:08x}, "
            f"its header says {header.crc:08x}"
        )


_OFFSET: Final = Layout(">q")
_LEADER_EPOCH: Final = Layout(">i")
_LEADER_EPOCH_AT: Final = 12
_CRC: Final = Layout(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = Layout(">h")
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP: Final = Layout(">q")
_MAX_TIMESTAMP_AT: Final = 35


def assign_offset(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Set a batch's offset in a log; its checksum stays valid."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, leader_epoch)


def set_timestamp(
    batch: memoryview, header: BatchHeader, timestamp_type: TimestampType, max_timestamp: int
) -> None:
    """Set the timestamp type and the largest timestamp, and the checksum to match.

    With LOG_APPEND_TIME, `max_timestamp` is what readers take as the time of every record.
    """
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, max_timestamp)
    seal(batch)


def assemble(header: BatchHeader, payload: ReadableBuffer) -> bytearray:
    """Return a batch of these records, encoded and compressed as the header says.

    The header's own length and checksum do not matter: they are computed.
    """
    batch = bytearray(HEADER_BYTES + len(payload))
    batch[HEADER_BYTES:] = payload
    write_header(batch, header)
    return batch


def write_header(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Write a header in front of records, with the length and the checksum that they have."""
    fields = structs.astuple(header)
    HEADER.pack_into(batch, 0, fields[0], len(batch) - LENGTH_PREFIX_BYTES, *fields[2:])
    seal(batch)


def seal(batch: bytearray | memoryview) -> None:
    """Write the checksum that the bytes of one whole batch have now."""
    _CRC.pack_into(batch, _CRC_AT, checksum(batch))
