"""A record batch out of records: bytes as the JVM's producer would lay them out.

What shapes the records (codec, timestamps, delete horizon) is fixed when the builder is made;
what only the header says (offsets, producer, epoch) is given at the end, as a producer knows its
sequence when it sends. Nothing is checked against a topic here: that is `validation`.
"""

from collections.abc import Iterable
from typing import Final

from headrace.config import INT32_MAX
from headrace.ids import NO_PRODUCER_ID, NO_TIMESTAMP
from headrace.records.compression import Compression, compress
from headrace.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    assemble,
)
from headrace.records.record import Headers, Record
from headrace.records.varint import encode_varint

NO_LEADER_EPOCH: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

# Length, attributes, two deltas, two lengths and a count, each as long as it can get.
_RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD_BYTES_MAX: Final = 5 + 5


class BatchBuilder:
    """Collects records, then builds one batch of them. Use it once."""

    def __init__(
        self,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        *,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        delete_horizon_ms: int | None = None,
    ) -> None:
        """`level` counts as Kafka's settings do; a horizon is kept as the base timestamp."""
        self._compression = compression
        self._level = level
        self._attributes = 0
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            self._attributes |= LOG_APPEND_TIME_BIT
        if delete_horizon_ms is not None:
            self._attributes |= DELETE_HORIZON_BIT
        self._payload = bytearray()
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp: int = NO_TIMESTAMP
        self._last_offset_delta = -1
        self.record_count = 0

    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, before compression."""
        return HEADER_BYTES + len(self._payload)

    def has_room_for(
        self, key: bytes | None, value: bytes | None, headers: Headers, limit_bytes: int
    ) -> bool:
        """Whether the batch, uncompressed, would surely stay within the limit with this record.

        An empty batch has room for any record: one that is too large is the broker's to refuse.
        """
        if self.record_count == 0:
            return True
        return self.size_bytes + record_bytes_max(key, value, headers) <= limit_bytes

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        offset_delta: int | None = None,
    ) -> int:
        """Add a record and return its offset delta: the next one, or one given beyond the last."""
        last_offset_delta = self._last_offset_delta
        if offset_delta is None:
            offset_delta = last_offset_delta + 1
        elif not last_offset_delta < offset_delta <= INT32_MAX:
            raise ValueError(f"offset delta {offset_delta} after {last_offset_delta}")
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        elif timestamp < NO_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp}: it must be ms since 1970, or -1 for none")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        body = b"".join(
            (
                b"\x00",  # attributes: no bit has a meaning yet
                encode_varint(timestamp - self._base_timestamp),
                encode_varint(offset_delta),
                _NULL if key is None else encode_varint(len(key)),
                key or b"",
                _NULL if value is None else encode_varint(len(value)),
                value or b"",
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        self._payload += encode_varint(len(body))
        self._payload += body
        self._last_offset_delta = offset_delta
        self.record_count += 1
        return offset_delta

    def build(  # noqa: PLR0913  a field of the header each
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        max_timestamp: int | None = None,
        last_offset_delta: int | None = None,
    ) -> bytearray:
        """The whole batch, sealed with its checksum.

        `max_timestamp` is the append time with LOG_APPEND_TIME. `last_offset_delta` keeps the
        range of offsets of a batch whose last records compaction took away, even all of them.
        """
        attributes = self._attributes
        if self.record_count > 0:
            attributes |= self._compression
        if is_transactional:
            attributes |= TRANSACTIONAL_BIT
        if is_control:
            attributes |= CONTROL_BIT
        payload = compress(self._compression, self._payload, self._level)
        if self.record_count == 0:
            payload = payload[:0]
        header = BatchHeader(
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self._last_offset_delta if last_offset_delta is None else last_offset_delta,
            NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            self._max_timestamp if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.record_count,
        )
        return assemble(header, payload)


def build_batch(
    records: Iterable[Record], compression: Compression = Compression.NONE, base_offset: int = 0
) -> bytearray:
    """A batch of records at their own offsets, from `base_offset` on."""
    builder = BatchBuilder(compression)
    for record in records:
        builder.append(
            record.timestamp, record.key, record.value, record.headers, record.offset - base_offset
        )
    return builder.build(base_offset=base_offset)


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """The most that a record can take in a batch before compression."""
    size = _RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for header_key, header_value in headers:
        size += _HEADER_OVERHEAD_BYTES_MAX + len(header_key.encode()) + len(header_value or b"")
    return size


def _encode_headers(headers: Headers) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


_NULL: Final = encode_varint(-1)
_NO_HEADERS: Final = encode_varint(0)
