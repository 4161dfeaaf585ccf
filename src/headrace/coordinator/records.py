"""Records of internal topics as Kafka writes them: two bytes of type or version, then the message.

The key begins with the type of the record, which is the message's own number, and the value with
the version it is written in. No value is a tombstone: what the key names is gone.
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
    """Key and value as they are written."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """The most that it takes in a batch."""
        value = self.value
        return _OVERHEAD_BYTES_MAX + len(self.key) + (0 if value is None else len(value))


class CoordinatorRecord(NamedTuple):
    """One record of an internal topic."""

    key: Message
    value: Message | None
    value_version: int = 0
    producer_id: int = NO_PRODUCER
    """Of the transaction that it belongs to, if any: it counts once that is committed."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    timestamp_ms: int = -1
    encoded: EncodedRecord | None = None
    """Its bytes, if whoever made it has a quicker way to them."""
    offset: int = -1
    """Where it is in the log, for those who replay it."""


RecordTypes = Mapping[int, tuple[type[Message], type[Message]]]
"""Key and value of each type of record that a topic has."""


class UnreadableRecord(NamedTuple):
    """A record of an internal topic that this software cannot read."""

    offset: int
    raw_key: bytes
    reason: str
    key: Message | None = None
    """What it is about, if at least that can be read."""


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
    """Return a batch of records; they belong to a transaction if there is a producer id."""
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
    """Yield the records of a batch. HeadraceError if one of them cannot be read."""
    for record in scan_record_batch(batch, header, types):
        if isinstance(record, UnreadableRecord):
            raise _Unreadable(f"the record at offset {record.offset}: {record.reason}")
        yield record


def scan_record_batch(
    batch: memoryview, header: BatchHeader, types: RecordTypes
) -> Iterator[CoordinatorRecord | UnreadableRecord]:
    """Yield the records of a batch. CorruptBatch if its bytes are not those that were written.

    The checksum is looked at when a record cannot be read: then it matters whether the record was
    written like this, or was damaged since and may have been anybody's.
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
    """Says why a record cannot be read."""


def _types_of(key: Buffer | None, types: RecordTypes) -> tuple[type[Message], type[Message]]:
    if key is None or len(key) < _VERSION.size:
        raise _Unreadable("its key does not say of which type it is")
    (record_type,) = _VERSION.unpack_from(key)
    if record_type not in types:
        raise _Unreadable(f"type {record_type} is unknown to this version of the software")
    return types[record_type]


def _version_of(value: Buffer) -> int:
    if len(value) < _VERSION.size:
        raise _Unreadable("its value does not say in which version it is")
    return int(_VERSION.unpack_from(value)[0])
