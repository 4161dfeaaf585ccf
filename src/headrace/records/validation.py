"""What a broker checks before it appends a produced batch, with the answers that Kafka gives.

The usual batch is judged by its header and checksum alone, with a constant amount of Python: the
header's count, offsets and largest timestamp are taken at their word. Only a topic whose settings
ask for it (`TopicRules.looks_inside`), or a batch that is about to be refused for its timestamp,
has its records walked. Sequences, epochs and transactions are not checked here: they need state.

Stricter than Kafka 4.3.1 where it is lax or trips: bytes behind the one batch are refused (Kafka
drops an incomplete tail), and so are gaps in offset deltas where records are looked at. A codec
that does not exist and a payload that does not inflate are the client's fault
(UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD), where Kafka answers UNKNOWN_SERVER_ERROR.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NoReturn

from crc32c import crc32c
from msgspec import structs

from headrace.config import (
    INFLATED_BATCH_MAX_BYTES,
    INT64_MAX,
    MAX_MESSAGE_BYTES,
    MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
    RECORD_ERRORS_MAX,
)
from headrace.errors import ErrorCode
from headrace.ids import NO_TIMESTAMP
from headrace.records import scan
from headrace.records.compression import Compression, compress
from headrace.records.errors import CorruptBatch, RecordError, RefusedBatch
from headrace.records.header import (
    CHECKSUMMED_FROM,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    BatchHeader,
    TimestampType,
    check_crc,
    malformed,
    read_header,
    seal,
    set_timestamp,
)
from headrace.records.reader import find_records
from headrace.records.scan import RECORD_BYTES_MIN


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What a topic's settings demand of a batch; made once when they change."""

    max_message_bytes: int = MAX_MESSAGE_BYTES.default
    is_compacted: bool = False
    compression: Compression | None = None
    """The codec to keep batches in; None keeps the producer's."""
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = MESSAGE_TIMESTAMP_BEFORE_MAX_MS.default
    timestamp_after_max_ms: int = MESSAGE_TIMESTAMP_AFTER_MAX_MS.default
    inflated_bytes_max: int = INFLATED_BATCH_MAX_BYTES.default
    is_append_time: bool = field(init=False)
    looks_inside: bool = field(init=False)
    needs_only_header: bool = field(init=False)

    def __post_init__(self) -> None:
        is_append_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        bounds_age = not is_append_time and self.timestamp_before_max_ms != INT64_MAX
        looks_inside = self.is_compacted or self.compression is not None or bounds_age
        object.__setattr__(self, "is_append_time", is_append_time)
        object.__setattr__(self, "looks_inside", looks_inside)
        object.__setattr__(self, "needs_only_header", not looks_inside and not is_append_time)


def validate_batch(
    batch: memoryview, rules: TopicRules, now_ms: int
) -> tuple[BatchHeader, memoryview]:
    """Accept the records of a produce request for one partition: their header, and their bytes.

    The bytes are the given ones, which must be writable: where only the header has to change they
    are changed in place. A topic that keeps another codec gets a new batch. Raises CorruptBatch,
    UnsupportedBatch, InflatedTooLarge or RefusedBatch; the latter names the records to blame where
    it can.
    """
    size_bytes = len(batch)
    if size_bytes < HEADER_BYTES:
        _refuse_incomplete(batch)
    header = BatchHeader(*_unpack_header(batch))
    if header.batch_length != size_bytes - LENGTH_PREFIX_BYTES or header.magic != MAGIC:
        _refuse_frame(batch, header)
    if size_bytes > rules.max_message_bytes:
        _refuse_size(size_bytes, rules)
    if crc32c(batch[CHECKSUMMED_FROM:]) != header.crc:
        check_crc(batch, header)
    record_count = header.record_count
    attributes = header.attributes
    if (
        record_count < 1
        or header.last_offset_delta != record_count - 1
        or (record_count > size_bytes // RECORD_BYTES_MIN and not attributes & COMPRESSION_MASK)
    ):
        _refuse_count(header)
    if attributes & CONTROL_BIT:
        raise RefusedBatch(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if attributes & COMPRESSION_MASK > _LAST_CODEC:
        raise RefusedBatch(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"there is no codec {attributes & COMPRESSION_MASK}",
        )
    if header.base_sequence < 0 <= header.producer_id:
        raise RefusedBatch(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent sequence {header.base_sequence}",
        )
    if (
        rules.needs_only_header
        and header.max_timestamp <= now_ms + rules.timestamp_after_max_ms
        and not attributes & LOG_APPEND_TIME_BIT
    ):
        return header, batch
    return _validate_closely(batch, header, rules, now_ms)


_unpack_header: Final = HEADER.unpack_from
_LAST_CODEC: Final = max(Compression)


def _validate_closely(
    batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int
) -> tuple[BatchHeader, memoryview]:
    """Finish what the header alone cannot settle: timestamps, and records if the topic asks."""
    if rules.is_append_time and header.attributes & LOG_APPEND_TIME_BIT:
        message = "a producer may not set the timestamp type LogAppendTime"
        named = min(header.record_count, RECORD_ERRORS_MAX.default)
        record_errors = tuple(RecordError(index, message) for index in range(named))
        raise RefusedBatch(ErrorCode.INVALID_TIMESTAMP, message, record_errors)
    max_timestamp = header.max_timestamp
    is_late = not rules.is_append_time and max_timestamp > now_ms + rules.timestamp_after_max_ms
    if rules.looks_inside or is_late:
        try:
            segment = find_records(batch, 0, header, rules.inflated_bytes_max)
            max_timestamp = _look_inside(segment, rules, now_ms)
        except CorruptBatch as error:
            # The checksum was right, so a retry would bring the same bytes.
            raise RefusedBatch(ErrorCode.INVALID_RECORD, error.message) from None
        if rules.compression is not None and rules.compression is not header.compression:
            batch = _recompress(segment, rules.compression, rules.compression_level)
            header = read_header(batch)
            if header.size_bytes > rules.max_message_bytes:
                _refuse_size(header.size_bytes, rules)
    if rules.is_append_time:
        max_timestamp = now_ms
    if max_timestamp != header.max_timestamp or rules.timestamp_type is not header.timestamp_type:
        set_timestamp(batch, header, rules.timestamp_type, max_timestamp)
        header = read_header(batch)
    return header, batch


def _look_inside(segment: scan.Segment, rules: TopicRules, now_ms: int) -> int:
    """Walk the records and return their largest timestamp; RefusedBatch if a rule is broken."""
    tally = scan.measure([segment], True)
    header = segment[3]
    if header.attributes & LOG_APPEND_TIME_BIT:
        earliest = latest = header.max_timestamp
    else:
        earliest, latest = tally.min_timestamp, tally.max_timestamp
    is_out_of_range = not rules.is_append_time and (
        earliest < now_ms - rules.timestamp_before_max_ms
        or latest > now_ms + rules.timestamp_after_max_ms
    )
    if is_out_of_range or (rules.is_compacted and tally.null_keys > 0):
        record_errors = tuple(
            islice(_record_errors(segment, rules, now_ms), RECORD_ERRORS_MAX.default)
        )
        if record_errors:
            _refuse_records(record_errors)
    return latest


def _record_errors(
    segment: scan.Segment, rules: TopicRules, now_ms: int
) -> Iterator[tuple[ErrorCode, RecordError]]:
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    for index, (_, timestamp, key, _, _) in enumerate(scan.read(segment)):
        if rules.is_compacted and key is None:
            message = "a compacted topic takes no record without a key"
            yield ErrorCode.INVALID_RECORD, RecordError(index, message)
        elif not (
            rules.is_append_time or timestamp == NO_TIMESTAMP or earliest <= timestamp <= latest
        ):
            message = f"timestamp {timestamp} is not in [{earliest}, {latest}]"
            yield ErrorCode.INVALID_TIMESTAMP, RecordError(index, message)


def _refuse_records(record_errors: Sequence[tuple[ErrorCode, RecordError]]) -> NoReturn:
    """Refuse a batch for some of its records; one bad timestamp gives its code to all."""
    codes = {code for code, _ in record_errors}
    is_timestamp = ErrorCode.INVALID_TIMESTAMP in codes
    first = record_errors[0][1]
    raise RefusedBatch(
        ErrorCode.INVALID_TIMESTAMP if is_timestamp else ErrorCode.INVALID_RECORD,
        f"{len(record_errors)} invalid records; "
        f"the first is record {first.batch_index}: {first.message}",
        tuple(error for _, error in record_errors),
    )


def _recompress(segment: scan.Segment, codec: Compression, level: int | None) -> memoryview:
    """The same batch with its records in another codec."""
    data, start, end, header = segment
    payload = compress(codec, memoryview(data)[start:end], level)
    batch = bytearray(HEADER_BYTES + len(payload))
    batch[HEADER_BYTES:] = payload
    recoded = structs.replace(
        header,
        batch_length=len(batch) - LENGTH_PREFIX_BYTES,
        attributes=header.attributes & ~COMPRESSION_MASK | codec,
    )
    HEADER.pack_into(batch, 0, *structs.astuple(recoded))
    seal(batch)
    return memoryview(batch)


def _refuse_incomplete(batch: memoryview) -> NoReturn:
    raise RefusedBatch(
        ErrorCode.INVALID_RECORD,
        f"{len(batch)} bytes hold no record batch, and a partition must be sent exactly one",
    )


def _refuse_frame(batch: memoryview, header: BatchHeader) -> NoReturn:
    if header.magic != MAGIC or header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise malformed(header)
    if header.size_bytes > len(batch):
        _refuse_incomplete(batch)
    raise RefusedBatch(
        ErrorCode.INVALID_RECORD,
        f"{len(batch) - header.size_bytes} bytes behind the batch: "
        "a partition must be sent exactly one",
    )


def _refuse_size(size_bytes: int, rules: TopicRules) -> NoReturn:
    raise RefusedBatch(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size_bytes} bytes; max.message.bytes is {rules.max_message_bytes}",
    )


def _refuse_count(header: BatchHeader) -> NoReturn:
    raise RefusedBatch(
        ErrorCode.INVALID_RECORD,
        f"{header.record_count} records with a last offset delta of {header.last_offset_delta} "
        f"cannot be in a batch of {header.size_bytes} bytes",
    )
