"""Records of internal topics as Kafka writes them: two bytes of type or version, then the message.

The key starts with the record type, which is the message's own number, and the value with the
version it is written in. A record without a value is a tombstone: its key is deleted.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct as Layout
from typing import Final, NamedTuple

from headrace.errors import HeadraceError
from headrace.records.builder import NO_PRODUCER_EPOCH, BatchBuilder, record_bytes_max
from headrace.records.compression import Compression
from headrace.records.header import BatchHeader, check_crc
from headrace.records.reader import read_records
from headrace.wire import WireError, decode, encode
from headrace.wire.schema import Buffer, Message

NO_PRODUCER: Final = -1
_VERSION: Final = Layout(">h")
_KEY_VERSION: Final = 0
_OVERHEAD_BYTES_MAX: Final = record_bytes_max(None, None)


class EncodedRecord(NamedTuple):
    """The encoded key and value."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """The most bytes that it takes in a batch."""
        value = self.value
        return _OVERHEAD_BYTES_MAX + len(self.key) + (0 if value is None else len(value))


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic."""

    key: Message
    value: Message | None
    value_version: int = 0
    producer_id: int = NO_PRODUCER
    """The producer of its transaction, if any: the record counts once that is committed."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    timestamp_ms: int = -1
    encoded: EncodedRecord | None = None
    """Its bytes, if its creator has a faster way to encode it."""
    offset: int = -1
    """Its offset in the log, for replay."""


RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]
"""The key and value classes of each record type of a topic."""


class UnreadableRecord(NamedTuple):
    """A record of an internal topic that this version cannot read."""

    offset: int
    raw_key: bytes
    reason: str
    key: Message | None = None
    """Its subject, if at least that can be read."""


def encode_record(record: CoordinatorRecord) -> EncodedRecord:
    if record.encoded is not None:
        return record.encoded
    key, value, version = record.key, record.value, record.value_version
    return EncodedRecord(
        _VERSION.pack(key.API_KEY) + encode(key, _KEY_VERSION),
        None if value is None else _VERSION.pack(version) + encode(value, version),
    )


def build_record_batch(
    records: Iterable[EncodedRecord],
    now_ms: int,
    *,
    producer_id: int,
    producer_epoch: int,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Return a batch of records; with a producer id they belong to its transaction."""
    builder = BatchBuilder(compression)
    for record in records:
        builder.append(now_ms, record.key, record.value)
    return builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=producer_id != NO_PRODUCER,
    )


def read_record_batch(
    batch: memoryview, header: BatchHeader, types: RecordTypes
) -> Iterator[CoordinatorRecord]:
    """Yield the records of a batch. Raise HeadraceError if one of them cannot be read."""
    for record in scan_record_batch(batch, header, types):
        if isinstance(record, UnreadableRecord):
            raise _Unreadable(f"the record at offset {record.offset}: {record.reason}")
        yield record


def scan_record_batch(
    batch: memoryview, header: BatchHeader, types: RecordTypes
) -> Iterator[CoordinatorRecord | UnreadableRecord]:
    """Yield the records of a batch. Raise CorruptBatch if its bytes were damaged.

    The checksum is verified only when a record cannot be read: then it matters whether the record
    was written like this, or was damaged since and may concern any id.
    """
    for record in read_records(batch, header):
        raw_key, value = record.key, record.value
        version, key, decoded = 0, None, None
        try:
            key_kind, value_kind = _types_of(raw_key, types)
            key = decode(key_kind, raw_key[_VERSION.size :], _KEY_VERSION)  # type: ignore[index]
            if value is not None:
                version = _version_of(value)
                decoded = decode(value_kind, value[_VERSION.size :], version)
        except (_Unreadable, WireError, UnicodeDecodeError) as error:
            check_crc(batch, header)
            yield UnreadableRecord(record.offset, bytes(raw_key or b""), str(error), key)
            continue
        yield CoordinatorRecord(
            key,
            decoded,
            version,
            header.producer_id if header.is_transactional else NO_PRODUCER,
            header.producer_epoch,
            record.timestamp,
            offset=record.offset,
        )


class _Unreadable(HeadraceError):
    """The reason why a record cannot be read."""


def _types_of(key: Buffer | None, types: RecordTypes) -> tuple[type[Message], type[Message]]:
    if key is None or len(key) < _VERSION.size:
        raise _Unreadable("its key has no record type")
    (record_type,) = _VERSION.unpack_from(key)
    if record_type not in types:
        raise _Unreadable(f"type {record_type} is unknown to this version of the software")
    return types[record_type]


def _version_of(value: Buffer) -> int:
    if len(value) < _VERSION.size:
        raise _Unreadable("its value has no version")
    return int(_VERSION.unpack_from(value)[0])
