"""Records of internal topics as Kafka writes them: two bytes of type or version, then the message.

The key begins with the type of the record, which is the message's own number, and the value with
the version it is written in. No value is a tombstone: what the key names is gone.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct as Layout
from typing import Final, NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.records.builder import NO_PRODUCER_EPOCH, BatchBuilder, record_bytes_max
from headrace.records.compression import Compression
from headrace.records.header import BatchHeader
from headrace.records.reader import read_records
from headrace.wire import decode, encode
from headrace.wire.schema import Message

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


class UnknownRecord(KafkaError):
    """A record of a type that this software does not know; loading stops, nothing is skipped."""

    def __init__(self, record_type: int) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"a record of type {record_type} in an internal topic: it is of a newer version",
        )


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
    """Give a batch of records; they belong to a transaction if there is a producer id."""
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
    """Give the records of a batch; UnknownRecord for what this software does not know."""
    for record in read_records(batch, header):
        key = record.key
        if key is None or len(key) < _VERSION.size:
            raise UnknownRecord(-1)
        (record_type,) = _VERSION.unpack_from(key)
        if record_type not in types:
            raise UnknownRecord(record_type)
        key_kind, value_kind = types[record_type]
        value, version = None, 0
        if record.value is not None:
            (version,) = _VERSION.unpack_from(record.value)
            value = decode(value_kind, record.value[_VERSION.size :], version)
        yield CoordinatorRecord(
            decode(key_kind, key[_VERSION.size :], _KEY_VERSION),
            value,
            version,
            header.producer_id if header.is_transactional else NO_PRODUCER,
            header.producer_epoch,
            record.timestamp,
            offset=record.offset,
        )
