"""Validation of a produced batch before it is appended, with Kafka's error codes.

Records are never touched one by one in Python. Those of an uncompressed batch are walked by the
compiled `scan`, which is cheap compared to the checksum: unreadable records are refused. A
compressed batch is judged by its header, its checksum and its possible decompressed size. It is
decompressed only if needed: because of the topic or the node (`TopicRules.looks_inside`), a
timestamp that is too late, or a claim of more records than the batch has bytes.

Expensive validation is not done here: `validate_batch` raises CostlyBatch, and `finish_validation`
runs in a thread. Sequences, epochs and transactions are not checked here: they need state.

Stricter than Kafka 4.3.1 where it is lax or fails: bytes after the one batch are refused (Kafka
drops an incomplete tail), and so are gaps in offset deltas where records are validated (Kafka keeps
them in an uncompressed batch, and readers see them). An unknown codec and a payload that cannot be
decompressed are the client's fault (UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD), where Kafka
responds with UNKNOWN_SERVER_ERROR.
"""

from dataclasses import dataclass, field
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
from headrace.records.compression import Compression, compress, inflated_bytes_bound
from headrace.records.errors import (
    CorruptBatch,
    CostlyBatch,
    InflatedTooLarge,
    RecordError,
    RecordsError,
    RefusedBatch,
)
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
    assemble,
    check_crc,
    malformed,
    read_header,
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
    record_errors_max: int = RECORD_ERRORS_MAX.default
    """How many records of a refused batch are named."""
    checks_records: bool = False
    """Whether the records of every batch are checked, also those of compressed ones."""
    is_append_time: bool = field(init=False)
    looks_inside: bool = field(init=False)
    needs_only_header: bool = field(init=False)

    def __post_init__(self) -> None:
        is_append_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        bounds_age = not is_append_time and self.timestamp_before_max_ms != INT64_MAX
        looks_inside = (
            self.checks_records or self.is_compacted or self.compression is not None or bounds_age
        )
        object.__setattr__(self, "is_append_time", is_append_time)
        object.__setattr__(self, "looks_inside", looks_inside)
        object.__setattr__(self, "needs_only_header", not looks_inside and not is_append_time)


QUICK_INFLATED_BYTES_MAX: Final = 16 * 1024
"""How much is inflated or compressed on the spot; what is larger is for a thread."""


def validate_batch(  # noqa: PLR0912  in one piece, as every produce passes here
    batch: memoryview, rules: TopicRules, now_ms: int
) -> tuple[BatchHeader, memoryview]:
    """Accept the records of a produce request for one partition: their header, and their bytes.

    The bytes are the given ones, which must be writable: where only the header has to change they
    are changed in place. A topic that keeps another codec gets a new batch. Raises CorruptBatch,
    UnsupportedBatch, InflatedTooLarge or RefusedBatch; the latter names the records to blame where
    it can. Raises CostlyBatch, and changes nothing, if the rest is for `finish_validation`.
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
    if record_count < 1 or header.last_offset_delta != record_count - 1:
        _refuse_count(header)
    if attributes & CONTROL_BIT:
        raise RefusedBatch(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.base_sequence < 0 <= header.producer_id:
        raise RefusedBatch(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent sequence {header.base_sequence}",
        )
    tally = None
    max_timestamp = header.max_timestamp
    if attributes & COMPRESSION_MASK:
        is_settled = not _looks_suspicious(batch, header, rules)
    else:
        if record_count > scan.QUICK_RECORDS_MAX:
            if record_count > size_bytes // RECORD_BYTES_MIN:
                _refuse_count(header)
            raise CostlyBatch(header)
        try:
            tally = scan.measure_one(batch, HEADER_BYTES, size_bytes, header)
        except CorruptBatch as error:
            raise _unreadable(error) from None
        is_settled = tally.max_timestamp == max_timestamp >= NO_TIMESTAMP
    if (
        is_settled
        and rules.needs_only_header
        and max_timestamp <= now_ms + rules.timestamp_after_max_ms
        and not attributes & LOG_APPEND_TIME_BIT
    ):
        return header, batch
    return _validate_closely(batch, header, rules, now_ms, tally)


_unpack_header: Final = HEADER.unpack_from
_LAST_CODEC: Final = max(Compression)


def finish_validation(
    batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int
) -> tuple[BatchHeader, memoryview] | RecordsError:
    """Do what `validate_batch` left with CostlyBatch, and return what it would return or raise.

    Safe in a thread: most of the work is done without the interpreter's lock.
    """
    try:
        return _validate_closely(batch, header, rules, now_ms, is_quick=False)
    except RecordsError as error:
        # Its frames hold what was inflated, which is to be gone before somebody looks at it.
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)


def _looks_suspicious(batch: memoryview, header: BatchHeader, rules: TopicRules) -> bool:
    """Return whether a compressed batch must be inflated to believe its header.

    RefusedBatch if it surely cannot hold what the header says. A batch that claims more records
    than it has bytes may be honest, but too many offsets would be lost to it if it is not.
    """
    code = header.attributes & COMPRESSION_MASK
    if code > _LAST_CODEC:
        raise RefusedBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {code}")
    codec = header.compression
    bound = inflated_bytes_bound(codec, batch[HEADER_BYTES:])
    if bound == 0:
        raise RefusedBatch(
            ErrorCode.INVALID_RECORD, f"the records are not {codec.name.lower()} data"
        )
    if header.record_count > min(bound, rules.inflated_bytes_max) // RECORD_BYTES_MIN:
        _refuse_count(header)
    return header.record_count > header.size_bytes


def _validate_closely(  # noqa: PLR0917  the batch, the rules, and what is known of its records
    batch: memoryview,
    header: BatchHeader,
    rules: TopicRules,
    now_ms: int,
    tally: scan.Tally | None = None,
    is_quick: bool = True,
) -> tuple[BatchHeader, memoryview]:
    """Finish what the header alone cannot settle: timestamps, and records if the topic asks."""
    if rules.is_append_time and header.attributes & LOG_APPEND_TIME_BIT:
        message = "a producer may not set the timestamp type LogAppendTime"
        named = min(header.record_count, rules.record_errors_max)
        record_errors = tuple(RecordError(index, message) for index in range(named))
        raise RefusedBatch(ErrorCode.INVALID_TIMESTAMP, message, record_errors)
    max_timestamp = header.max_timestamp
    is_compressed = header.attributes & COMPRESSION_MASK != 0
    is_late = not rules.is_append_time and max_timestamp > now_ms + rules.timestamp_after_max_ms
    if (
        not is_compressed
        or rules.looks_inside
        or is_late
        or header.record_count > header.size_bytes
    ):
        segment = _find_records(batch, header, rules, is_quick=is_quick)
        try:
            tally = tally or scan.measure([segment], True)
        except CorruptBatch as error:
            raise _unreadable(error) from None
        max_timestamp = _look_inside(segment, tally, rules, now_ms)
        if rules.compression is not None and rules.compression is not header.compression:
            if is_quick and segment[2] - segment[1] > QUICK_INFLATED_BYTES_MAX:
                raise CostlyBatch(header)
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


def _find_records(
    batch: memoryview, header: BatchHeader, rules: TopicRules, *, is_quick: bool
) -> scan.Segment:
    """Inflate the records if they need it; CostlyBatch if that is too much for now."""
    bytes_max = rules.inflated_bytes_max
    if is_quick and header.attributes & COMPRESSION_MASK:
        if header.size_bytes > QUICK_INFLATED_BYTES_MAX:
            raise CostlyBatch(header)
        bytes_max = min(bytes_max, QUICK_INFLATED_BYTES_MAX)
    try:
        return find_records(batch, 0, header, bytes_max)
    except CorruptBatch as error:
        raise _unreadable(error) from None
    except InflatedTooLarge:
        if bytes_max == rules.inflated_bytes_max:
            raise
        raise CostlyBatch(header) from None


def _unreadable(error: CorruptBatch) -> RefusedBatch:
    """Refuse records that are what the producer sent: the checksum was right."""
    return RefusedBatch(ErrorCode.INVALID_RECORD, error.message)


def _look_inside(segment: scan.Segment, tally: scan.Tally, rules: TopicRules, now_ms: int) -> int:
    """Return the records' largest timestamp, -1 for none; RefusedBatch if a rule is broken."""
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
        record_errors = _record_errors(segment, rules, now_ms)
        if record_errors:
            _refuse_records(record_errors)
    return max(latest, NO_TIMESTAMP)


def _record_errors(
    segment: scan.Segment, rules: TopicRules, now_ms: int
) -> list[tuple[ErrorCode, RecordError]]:
    """Name the first records that a rule is broken by; for a missing key rather than its time."""
    earliest, latest = scan.INT64_MIN, INT64_MAX
    if not rules.is_append_time:
        earliest = now_ms - rules.timestamp_before_max_ms
        latest = now_ms + rules.timestamp_after_max_ms
    found: list[tuple[ErrorCode, RecordError]] = []
    for index, timestamp, has_key in scan.find_faulty(
        segment, rules.is_compacted, earliest, latest, rules.record_errors_max
    ):
        if rules.is_compacted and not has_key:
            message = "a compacted topic takes no record without a key"
            found.append((ErrorCode.INVALID_RECORD, RecordError(index, message)))
        else:
            message = f"timestamp {timestamp} is not in [{earliest}, {latest}]"
            found.append((ErrorCode.INVALID_TIMESTAMP, RecordError(index, message)))
    return found


def _refuse_records(record_errors: list[tuple[ErrorCode, RecordError]]) -> NoReturn:
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
    """Return the same batch with its records in another codec."""
    data, start, end, header = segment
    payload = compress(codec, memoryview(data)[start:end], level)
    recoded = structs.replace(header, attributes=header.attributes & ~COMPRESSION_MASK | codec)
    return memoryview(assemble(recoded, payload))


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
