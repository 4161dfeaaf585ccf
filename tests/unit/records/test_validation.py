"""What a broker takes and refuses, with the codes that Kafka 4.3.1's LogValidator gave.

Where the codes differ on purpose, `validation` says so.
"""

from collections.abc import Callable
from random import Random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode
from headrace.records.builder import BatchBuilder, build_batch
from headrace.records.compression import Compression, compress
from headrace.records.errors import CostlyBatch, InflatedTooLarge, RecordsError, RefusedBatch
from headrace.records.header import BatchHeader, TimestampType, check_crc, read_header
from headrace.records.reader import read_records
from headrace.records.record import Record
from headrace.records.validation import (
    QUICK_INFLATED_BYTES_MAX,
    TopicRules,
    finish_validation,
    validate_batch,
)
from tests.unit.records.record_values import (
    NOW_MS,
    dense_records,
    plain_batch,
    plain_records,
    with_bytes,
    with_payload,
)

pytestmark = pytest.mark.usefixtures("scan_mode")

HOUR_MS = 3_600_000
COMPACTED = TopicRules(is_compacted=True)
APPEND_TIME = TopicRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
BOUNDED_AGE = TopicRules(timestamp_before_max_ms=1000)
Edit = Callable[[bytearray], bytearray]
RECORD_PARTS = [bytes((0x0C, 0, 0, 2 * index, 1, 1, 0)) for index in range(6)]
"""The smallest records, each with the offset delta of its place."""


def refusal(
    batch: bytearray | bytes, rules: TopicRules | None = None, now_ms: int = NOW_MS
) -> RecordsError:
    with pytest.raises(RecordsError) as caught:
        validate(memoryview(bytearray(batch)), rules or TopicRules(), now_ms)
    return caught.value


def validate(
    batch: memoryview, rules: TopicRules, now_ms: int = NOW_MS
) -> tuple[BatchHeader, memoryview]:
    """Validate as a broker does, which leaves what is costly to a thread."""
    try:
        return validate_batch(batch, rules, now_ms)
    except CostlyBatch as costly:
        outcome = finish_validation(batch, costly.header, rules, now_ms)
        if isinstance(outcome, RecordsError):
            raise outcome from None
        return outcome


def claiming(batch: bytearray, count: int) -> bytearray:
    """The batch with another number of records in its header."""
    return with_bytes(with_bytes(batch, 23, pack(">i", count - 1)), 57, pack(">i", count))


def keyed_batch(timestamps: list[int], codec: Compression = Compression.NONE) -> bytearray:
    return build_batch(
        [Record(index, timestamp, b"k", b"v") for index, timestamp in enumerate(timestamps)], codec
    )


@given(dense_records(), st.sampled_from(Compression))
def test_the_usual_batch_is_taken_as_it_is(records: list[Record], codec: Compression) -> None:
    now_ms = 2**62
    if records:
        batch = memoryview(build_batch(records, codec))
        before = bytes(batch)
        header, accepted = validate_batch(batch, TopicRules(), now_ms)
        assert header == read_header(before)
        assert accepted is batch
        assert accepted == before


def at(position: int, new: bytes) -> Edit:
    return lambda batch: with_bytes(batch, position, new)


def both(first: Edit, second: Edit) -> Edit:
    return lambda batch: second(first(batch))


PRODUCER_WITHOUT_SEQUENCE = at(43, pack(">qhi", 5, 0, -1))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (lambda batch: batch[:0], "INVALID_RECORD"),
        (lambda batch: batch[:60], "INVALID_RECORD"),
        (lambda batch: batch[:-1], "INVALID_RECORD"),
        (lambda batch: batch + batch, "INVALID_RECORD"),
        (lambda batch: batch + b"\x00", "INVALID_RECORD"),
        (lambda _: bytearray(61), "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        (lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]), "CORRUPT_MESSAGE"),
        (at(8, pack(">i", 48)), "CORRUPT_MESSAGE"),
        (at(8, pack(">i", -1)), "CORRUPT_MESSAGE"),
        (at(8, pack(">i", 2**31 - 1)), "INVALID_RECORD"),
        (at(16, b"\x00"), "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        (at(16, b"\x01"), "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        (at(16, b"\x03"), "CORRUPT_MESSAGE"),
        (at(23, pack(">i", 3)), "INVALID_RECORD"),
        (at(23, pack(">i", 1)), "INVALID_RECORD"),
        (at(23, pack(">i", -1)), "INVALID_RECORD"),
        (at(57, pack(">i", 4)), "INVALID_RECORD"),
        (both(at(57, pack(">i", 0)), at(23, pack(">i", -1))), "INVALID_RECORD"),
        (both(at(57, pack(">i", -1)), at(23, pack(">i", -2))), "INVALID_RECORD"),
        (at(22, b"\x20"), "INVALID_RECORD"),
        (PRODUCER_WITHOUT_SEQUENCE, "INVALID_RECORD"),
        (at(22, b"\x05"), "UNSUPPORTED_COMPRESSION_TYPE"),
        (at(22, b"\x07"), "UNSUPPORTED_COMPRESSION_TYPE"),
    ],
)
def test_a_spoiled_header_is_refused(codec: Compression, edit: Edit, code: str) -> None:
    spoiled = edit(keyed_batch([NOW_MS, NOW_MS + 1, NOW_MS - 1], codec))
    for rules in (TopicRules(), COMPACTED, APPEND_TIME):
        assert refusal(spoiled, rules).code.name == code


@pytest.mark.parametrize(
    "edit",
    [
        at(0, pack(">q", 77)),
        at(12, pack(">i", 77)),
        at(21, b"\x80\x00"),
        at(21, b"\x01\x80"),
        at(22, b"\x10"),
        at(22, b"\x40"),
        at(43, pack(">qhi", 5, 0, 2**31 - 1)),
        at(43, pack(">qhi", 5, -1, 0)),
        at(43, pack(">qhi", -1, 3, 4)),
        at(43, pack(">qhi", -2, -1, -1)),
    ],
)
def test_what_kafka_takes_is_taken_and_kept(edit: Edit) -> None:
    batch = edit(keyed_batch([NOW_MS]))
    _, accepted = validate_batch(memoryview(bytearray(batch)), TopicRules(), NOW_MS)
    assert accepted == batch


def test_more_records_than_the_bytes_can_hold_are_refused_unseen() -> None:
    claim = both(at(23, pack(">i", 999_999)), at(57, pack(">i", 1_000_000)))
    assert refusal(claim(keyed_batch([NOW_MS]))).code is ErrorCode.INVALID_RECORD


def test_the_size_limit_counts_the_whole_batch() -> None:
    batch = plain_batch(10)
    validate_batch(memoryview(batch), TopicRules(max_message_bytes=len(batch)), NOW_MS)
    error = refusal(batch, TopicRules(max_message_bytes=len(batch) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in error.message


@pytest.mark.parametrize("codec", Compression)
def test_a_timestamp_too_far_ahead_is_refused_with_its_record(codec: Compression) -> None:
    error = refusal(keyed_batch([NOW_MS, NOW_MS + HOUR_MS + 1], codec))
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RefusedBatch)
    assert [record.batch_index for record in error.record_errors] == [1]
    assert str(NOW_MS + HOUR_MS) in error.record_errors[0].message
    validate_batch(memoryview(keyed_batch([NOW_MS, NOW_MS + HOUR_MS], codec)), TopicRules(), NOW_MS)


def test_a_timestamp_too_old_is_refused_with_its_record() -> None:
    error = refusal(keyed_batch([NOW_MS, NOW_MS - 1001, NOW_MS - 1000]), BOUNDED_AGE)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RefusedBatch)
    assert [record.batch_index for record in error.record_errors] == [1]


@pytest.mark.parametrize("rules", [TopicRules(), BOUNDED_AGE, COMPACTED])
def test_a_record_without_a_timestamp_is_taken(rules: TopicRules) -> None:
    header, _ = validate_batch(memoryview(keyed_batch([-1, -1])), rules, NOW_MS)
    assert header.max_timestamp == -1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_compacted_topic_names_the_records_without_a_key(codec: Compression) -> None:
    error = refusal(build_batch(plain_records(11), codec), COMPACTED)
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, RefusedBatch)
    assert [record.batch_index for record in error.record_errors] == [4, 9]
    validate_batch(memoryview(build_batch(plain_records(4), codec)), COMPACTED, NOW_MS)


def test_a_bad_timestamp_gives_its_code_to_a_batch_that_also_lacks_keys() -> None:
    batch = build_batch(
        [Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS + 2 * HOUR_MS, b"k", b"v")]
    )
    error = refusal(batch, COMPACTED)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RefusedBatch)
    assert [record.batch_index for record in error.record_errors] == [0, 1]


def test_only_so_many_records_are_named() -> None:
    batch = build_batch([Record(index, NOW_MS, None, b"") for index in range(1500)])
    error = refusal(batch, COMPACTED)
    assert isinstance(error, RefusedBatch)
    assert [record.batch_index for record in error.record_errors] == list(range(1000))


@pytest.mark.parametrize("codec", Compression)
def test_append_time_changes_the_header_and_no_record(codec: Compression) -> None:
    batch = keyed_batch([1, 2 * NOW_MS], codec)
    payload = bytes(batch[61:])
    view = memoryview(batch)
    header, accepted = validate_batch(view, APPEND_TIME, NOW_MS)
    assert accepted is view
    assert accepted[61:] == payload
    assert header == read_header(accepted)
    check_crc(accepted, header)
    assert [record.timestamp for record in read_records(accepted)] == [NOW_MS, NOW_MS]


def test_a_producer_may_not_claim_append_time_where_the_broker_gives_it() -> None:
    claimed = with_bytes(keyed_batch([NOW_MS]), 22, b"\x08")
    assert refusal(claimed, APPEND_TIME).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("rules", [TopicRules(), COMPACTED])
def test_a_claim_of_append_time_is_taken_back_elsewhere(rules: TopicRules) -> None:
    claimed = with_bytes(keyed_batch([NOW_MS, NOW_MS - 5]), 22, b"\x08")
    header, accepted = validate_batch(memoryview(claimed), rules, NOW_MS)
    check_crc(accepted, header)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.max_timestamp == NOW_MS


@pytest.mark.parametrize("rules", [TopicRules(), COMPACTED])
@pytest.mark.parametrize("claim", [NOW_MS - 1, NOW_MS + 1, -1, NOW_MS + 2 * HOUR_MS])
def test_a_wrong_largest_timestamp_is_put_right_where_records_are_looked_at(
    claim: int, rules: TopicRules
) -> None:
    batch = with_bytes(keyed_batch([NOW_MS - 9, NOW_MS]), 35, pack(">q", claim))
    header, accepted = validate_batch(memoryview(batch), rules, NOW_MS)
    check_crc(accepted, header)
    assert header.max_timestamp == NOW_MS


@pytest.mark.parametrize("stored", Compression)
@pytest.mark.parametrize("sent", Compression)
def test_a_topic_keeps_batches_in_its_codec(sent: Compression, stored: Compression) -> None:
    records = plain_records(50)
    builder = BatchBuilder(sent)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    batch = memoryview(
        builder.build(producer_id=5, producer_epoch=1, base_sequence=7, is_transactional=True)
    )
    header, accepted = validate_batch(batch, TopicRules(compression=stored), NOW_MS)
    assert (accepted is batch) == (sent is stored)
    assert header == read_header(accepted)
    check_crc(accepted, header)
    assert header.compression is stored
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    assert header.is_transactional
    assert list(read_records(accepted)) == records


def test_a_batch_that_outgrows_the_limit_in_the_topics_codec_is_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", bytes(10_000))], Compression.ZSTD)
    rules = TopicRules(compression=Compression.NONE, max_message_bytes=5_000)
    assert refusal(batch, rules).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_payload_that_inflates_too_far_is_refused() -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", bytes(10_000))], Compression.ZSTD)
    rules = TopicRules(is_compacted=True, inflated_bytes_max=5_000)
    assert refusal(batch, rules).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00" * 21,
        bytes.fromhex("0c 00 00 00 01 01 00") * 2 + bytes.fromhex("0c 00 00 08 01 01 00"),
    ],
)
def test_records_that_do_not_parse_are_refused_for_good(payload: bytes) -> None:
    spoiled = with_payload(keyed_batch([NOW_MS] * 3), payload)
    error = refusal(spoiled, COMPACTED)
    assert (error.code, error.is_retriable) == (ErrorCode.INVALID_RECORD, False)


def test_a_payload_that_is_not_of_its_codec_is_refused_for_good() -> None:
    spoiled = with_bytes(keyed_batch([NOW_MS]), 22, b"\x03")
    assert refusal(spoiled, COMPACTED).code is ErrorCode.INVALID_RECORD


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_any_bounds_and_clock_make_sense(before_ms: int, after_ms: int) -> None:
    rules = TopicRules(timestamp_before_max_ms=before_ms, timestamp_after_max_ms=after_ms)
    batch = keyed_batch([NOW_MS])
    if before_ms < 10:
        assert refusal(batch, rules, NOW_MS + 10).code is ErrorCode.INVALID_TIMESTAMP
    else:
        validate_batch(memoryview(batch), rules, NOW_MS + 10)


GARBAGE = b"x" * 40


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec.name != "SNAPPY"])
@pytest.mark.parametrize("count", [1, 5, 2**31 - 1])
def test_garbage_is_refused_whatever_it_says_it_is(codec: Compression, count: int) -> None:
    batch = with_payload(keyed_batch([NOW_MS], codec), GARBAGE)
    assert refusal(claiming(batch, count)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_cannot_claim_more_records_than_it_could_inflate_to(codec: Compression) -> None:
    batch = keyed_batch([NOW_MS] * 3, codec)
    assert refusal(claiming(batch, 2**31 - 1)).code is ErrorCode.INVALID_RECORD


def test_a_bound_on_inflation_bounds_the_records_that_may_be_claimed() -> None:
    batch = with_payload(keyed_batch([NOW_MS], Compression.ZSTD), b"\x28\xb5\x2f\xfd" * 5_000)
    rules = TopicRules(inflated_bytes_max=7 * 1000)
    validate_batch(memoryview(claiming(batch, 1000)), rules, NOW_MS)
    assert refusal(claiming(batch, 1001), rules).code is ErrorCode.INVALID_RECORD


def test_a_batch_that_claims_more_records_than_it_has_bytes_is_inflated_to_see() -> None:
    count = 5_000
    honest = build_batch([Record(at, NOW_MS, b"", b"") for at in range(count)], Compression.ZSTD)
    assert count > len(honest)
    header, accepted = validate(memoryview(bytearray(honest)), TopicRules())
    assert header.record_count == count
    assert bytes(accepted) == honest
    records = compress(Compression.ZSTD, bytes(7 * count))
    assert refusal(with_payload(honest, bytes(records))).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_compressed_records_are_checked_where_the_node_says_so(codec: Compression) -> None:
    batch = keyed_batch([NOW_MS] * 3, codec)
    spoiled = with_payload(batch, bytes(compress(codec, b"\x0c" + bytes(40))))
    validate_batch(memoryview(bytearray(spoiled)), TopicRules(), NOW_MS)
    rules = TopicRules(checks_records=True)
    assert refusal(spoiled, rules).code is ErrorCode.INVALID_RECORD
    _, accepted = validate(memoryview(batch), rules)
    assert len(list(read_records(accepted))) == 3


def test_gaps_between_offsets_are_refused() -> None:
    gaps = BatchBuilder()
    gaps.append(NOW_MS, b"k", b"v")
    gaps.append(NOW_MS, b"k", b"v", offset_delta=2)
    batch = with_bytes(gaps.build(), 23, pack(">i", 1))
    assert refusal(batch).code is ErrorCode.INVALID_RECORD


def test_a_late_record_is_noticed_though_the_header_hides_it() -> None:
    batch = with_bytes(keyed_batch([NOW_MS, NOW_MS + 2 * HOUR_MS]), 35, pack(">q", NOW_MS))
    error = refusal(batch)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RefusedBatch)
    assert [record.batch_index for record in error.record_errors] == [1]


def test_times_before_1970_leave_the_batch_without_one() -> None:
    batch = with_bytes(keyed_batch([NOW_MS]), 27, pack(">qq", -(2**62), -(2**62)))
    header, accepted = validate_batch(memoryview(batch), TopicRules(), NOW_MS)
    check_crc(accepted, header)
    assert header.max_timestamp == -1


def large_batch(timestamp: int, codec: Compression, size: int = 50_000) -> bytearray:
    return build_batch([Record(0, timestamp, b"k", bytes(size))], codec)


@pytest.mark.parametrize(
    ("batch", "rules"),
    [
        (large_batch(NOW_MS + 2 * HOUR_MS, Compression.ZSTD), TopicRules()),
        (large_batch(NOW_MS, Compression.ZSTD), COMPACTED),
        (large_batch(NOW_MS, Compression.GZIP), BOUNDED_AGE),
        (large_batch(NOW_MS, Compression.LZ4), TopicRules(checks_records=True)),
        (large_batch(NOW_MS, Compression.NONE), TopicRules(compression=Compression.GZIP)),
        (large_batch(NOW_MS, Compression.ZSTD), TopicRules(compression=Compression.SNAPPY)),
    ],
)
def test_what_inflates_far_is_left_to_a_thread_and_comes_out_the_same(
    batch: bytearray, rules: TopicRules
) -> None:
    before = bytes(batch)
    with pytest.raises(CostlyBatch) as costly:
        validate_batch(memoryview(batch), rules, NOW_MS)
    assert batch == before
    outcome = finish_validation(memoryview(batch), costly.value.header, rules, NOW_MS)
    if read_header(batch).max_timestamp > NOW_MS:
        assert isinstance(outcome, RefusedBatch)
        assert outcome.code is ErrorCode.INVALID_TIMESTAMP
        assert [record.batch_index for record in outcome.record_errors] == [0]
        assert (outcome.__traceback__, outcome.__context__) == (None, None)
    else:
        assert isinstance(outcome, tuple)
        assert list(read_records(outcome[1])) == [Record(0, NOW_MS, b"k", bytes(50_000))]


def test_what_inflates_little_is_validated_on_the_spot() -> None:
    size = QUICK_INFLATED_BYTES_MAX - 100
    for codec in Compression:
        validate_batch(memoryview(large_batch(NOW_MS, codec, size)), COMPACTED, NOW_MS)


def test_the_bound_on_inflation_holds_in_a_thread_too() -> None:
    batch = memoryview(large_batch(NOW_MS, Compression.ZSTD))
    rules = TopicRules(is_compacted=True, inflated_bytes_max=40_000)
    outcome = finish_validation(batch, read_header(batch), rules, NOW_MS)
    assert isinstance(outcome, InflatedTooLarge)


@given(
    st.lists(st.binary(max_size=6) | st.sampled_from(RECORD_PARTS), max_size=12).map(b"".join),
    st.integers(1, 6),
)
def test_what_is_taken_uncompressed_can_be_read_at_the_offsets_of_its_header(
    payload: bytes, count: int
) -> None:
    batch = with_bytes(claiming(with_payload(keyed_batch([0]), payload), count), 27, bytes(16))
    try:
        header, accepted = validate(memoryview(batch), TopicRules(timestamp_after_max_ms=2**62))
    except RecordsError:
        return
    records = list(read_records(accepted))
    assert [record.offset for record in records] == list(range(header.last_offset + 1))
    assert max(record.timestamp for record in records) <= max(header.max_timestamp, -1)


@given(dense_records(), st.randoms())
def test_what_is_taken_of_a_bent_batch_can_be_read_at_the_offsets_of_its_header(
    records: list[Record], random: Random
) -> None:
    batch = build_batch(records or plain_records(3))
    for _ in range(random.randint(0, 2)):
        batch[random.randrange(61, len(batch))] = random.getrandbits(8)
    batch = with_payload(batch, bytes(batch[61:]))
    try:
        header, accepted = validate(memoryview(batch), TopicRules(), 2**62)
    except RecordsError:
        return
    assert len(list(read_records(accepted))) == header.last_offset_delta + 1
