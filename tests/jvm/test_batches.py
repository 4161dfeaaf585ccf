"""Batches: what we build Apache Kafka reads, what it builds we read, and both refuse the same."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.records.builder import BatchBuilder, build_batch
from headrace.records.compression import Compression
from headrace.records.control import (
    ControlType,
    build_control_batch,
    build_end_transaction_marker,
    coordinator_epoch,
    read_control,
)
from headrace.records.errors import RecordsError, RefusedBatch
from headrace.records.header import TimestampType, check_crc, read_header, seal
from headrace.records.reader import read_records
from headrace.records.record import Record
from headrace.records.validation import TopicRules, validate_batch
from headrace.wire import encode
from headrace.wire.messages.leader_change_message import LeaderChangeMessage, Voter
from tests.unit.records.record_values import plain_batch, plain_records
from tools.jvm.oracles import BatchOracle, LogOracle

CODECS = [codec.name.lower() for codec in Compression]
COUNTS = [1, 10_000]
NOW_MS = 1_700_000_000_000


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def as_json(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [{"key": key, "value": text(value)} for key, value in record.headers],
    }


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", COUNTS)
def test_kafka_reads_what_we_build(batches: BatchOracle, codec: str, count: int) -> None:
    records = plain_records(count, base_offset=40)
    batch = build_batch(records, Compression[codec.upper()], base_offset=40)
    (read,) = batches.read(batch)
    assert read["valid"]
    assert (read["baseOffset"], read["lastOffset"], read["count"]) == (40, 39 + count, count)
    assert read["compression"] == codec
    assert read["records"] == [as_json(record) for record in records]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", COUNTS)
def test_we_read_what_kafka_builds(batches: BatchOracle, codec: str, count: int) -> None:
    records = plain_records(count, base_offset=40)
    batch = batches.write(
        {
            "baseOffset": 40,
            "compression": codec,
            "producerId": 9,
            "producerEpoch": 2,
            "baseSequence": 5,
            "transactional": True,
            "records": [as_json(record) for record in records],
        }
    )
    header = read_header(batch)
    check_crc(batch, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)
    assert header.is_transactional
    assert list(read_records(batch, header)) == records


def test_batches_of_no_records_are_read_by_both(batches: BatchOracle) -> None:
    ours = BatchBuilder().build(base_offset=7, last_offset_delta=2)
    (read,) = batches.read(ours)
    assert (read["valid"], read["baseOffset"], read["lastOffset"]) == (True, 7, 9)
    assert (read["count"], read["records"]) == (0, [])
    theirs = batches.write({"baseOffset": 7, "lastOffset": 9, "count": 0, "records": []})
    assert theirs == ours


def test_uncompressed_batches_are_the_same_bytes(batches: BatchOracle) -> None:
    records = plain_records(50)
    theirs = batches.write({"records": [as_json(record) for record in records]})
    assert theirs == build_batch(records)


def test_append_time_and_delete_horizon_mean_the_same(batches: BatchOracle) -> None:
    builder = BatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME, delete_horizon_ms=99)
    builder.append(70, b"k", None)
    batch = builder.build(max_timestamp=77)
    (read,) = batches.read(batch)
    assert (read["timestampType"], read["deleteHorizon"]) == ("LogAppendTime", 99)
    assert [record["timestamp"] for record in read["records"]] == [77]
    assert [record.timestamp for record in read_records(batch)] == [77]


@pytest.mark.parametrize("is_commit", [True, False])
def test_transaction_markers_are_the_same_bytes(batches: BatchOracle, is_commit: bool) -> None:
    ours = build_end_transaction_marker(
        5, is_commit=is_commit, producer_id=4, producer_epoch=2, coordinator_epoch=12
    )
    control = {
        "controlType": "COMMIT" if is_commit else "ABORT",
        "coordinatorEpoch": 12,
        "timestamp": 5,
    }
    batch = {"control": True, "producerId": 4, "producerEpoch": 2, "records": [control]}
    theirs = batches.write(batch)
    (read,) = batches.read(ours)
    assert read["records"][0].items() >= control.items()
    assert coordinator_epoch(read_control(theirs)) == 12
    assert read_control(ours) == read_control(theirs)


def test_leader_changes_are_read_by_both(batches: BatchOracle) -> None:
    value = encode(LeaderChangeMessage(0, 3, [Voter(3)], []), 0)
    ours = build_control_batch(ControlType.LEADER_CHANGE, value, 5, leader_epoch=1)
    (read,) = batches.read(ours)
    message = {"version": 0, "leaderId": 3, "voters": [{"voterId": 3}], "grantingVoters": []}
    assert read["records"][0]["message"] == message
    control = {"controlType": "LEADER_CHANGE", "message": message, "timestamp": 5}
    theirs = batches.write({"control": True, "leaderEpoch": 1, "records": [control]})
    assert read_control(theirs) == read_control(ours)


def spoiled(position: int, new: bytes) -> bytearray:
    batch = plain_batch(4)
    batch[position : position + len(new)] = new
    seal(batch)
    return batch


def with_flag(attributes: int) -> bytearray:
    return spoiled(21, attributes.to_bytes(2))


REFUSALS: dict[str, tuple[Callable[[], bytearray], dict[str, str], ErrorCode]] = {
    "a wrong checksum": (lambda: plain_batch(4)[:-1] + b"\x01", {}, ErrorCode.CORRUPT_MESSAGE),
    "a magic from the future": (lambda: spoiled(16, b"\x03"), {}, ErrorCode.CORRUPT_MESSAGE),
    "nothing": (bytearray, {}, ErrorCode.INVALID_RECORD),
    "a batch cut short": (lambda: plain_batch(4)[:-1], {}, ErrorCode.INVALID_RECORD),
    "two batches": (lambda: plain_batch(4) * 2, {}, ErrorCode.INVALID_RECORD),
    "a count of none": (lambda: spoiled(57, bytes(4)), {}, ErrorCode.INVALID_RECORD),
    "a count too large": (lambda: spoiled(57, b"\0\0\0\5"), {}, ErrorCode.INVALID_RECORD),
    "a control batch": (lambda: with_flag(0x20), {}, ErrorCode.INVALID_RECORD),
    "a producer without sequence": (lambda: spoiled(43, bytes(8)), {}, ErrorCode.INVALID_RECORD),
    "more bytes than allowed": (
        lambda: plain_batch(40),
        {"max.message.bytes": "200"},
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "a record without key on a compacted topic": (
        lambda: plain_batch(10),
        {"cleanup.policy": "compact"},
        ErrorCode.INVALID_RECORD,
    ),
    "a record from the future": (
        lambda: build_batch([Record(0, NOW_MS + 5000, b"", b"")]),
        {"message.timestamp.after.max.ms": "1000"},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "a record from the past": (
        lambda: build_batch([Record(0, NOW_MS - 5000, b"", b"")]),
        {"message.timestamp.before.max.ms": "1000"},
        ErrorCode.INVALID_TIMESTAMP,
    ),
}


def rules_of(config: dict[str, str]) -> TopicRules:
    return TopicRules(
        max_message_bytes=int(config.get("max.message.bytes", 1_000_000)),
        is_compacted=config.get("cleanup.policy") == "compact",
        timestamp_before_max_ms=int(config.get("message.timestamp.before.max.ms", 2**63 - 1)),
        timestamp_after_max_ms=int(config.get("message.timestamp.after.max.ms", 3_600_000)),
    )


@pytest.mark.parametrize("case", REFUSALS)
def test_kafka_and_we_refuse_with_the_same_code(log: LogOracle, case: str) -> None:
    make, config, code = REFUSALS[case]
    batch = make()
    theirs = log.append(batch, config, now_ms=NOW_MS)
    with pytest.raises(RecordsError) as refusal:
        validate_batch(memoryview(batch), rules_of(config), NOW_MS)
    assert (refusal.value.code.name, theirs.error) == (code.name, code.name)
    if isinstance(refusal.value, RefusedBatch) and theirs.record_errors:
        ours = [error.batch_index for error in refusal.value.record_errors]
        assert ours == [index for index, _ in theirs.record_errors]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_and_we_accept_the_same(log: LogOracle, codec: str) -> None:
    batch = plain_batch(20, Compression[codec.upper()])
    theirs = log.append(batch, now_ms=NOW_MS, leader_epoch=4)
    header, ours = validate_batch(memoryview(batch), TopicRules(), NOW_MS)
    assert theirs.error == "NONE"
    assert header.record_count == 20
    assert theirs.stored is not None
    assert theirs.stored[16:] == bytes(ours)[16:]


def test_append_time_changes_the_same_bytes(log: LogOracle) -> None:
    batch = plain_batch(20)
    theirs = log.append(batch, {"message.timestamp.type": "LogAppendTime"}, now_ms=NOW_MS)
    rules = TopicRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
    _, ours = validate_batch(memoryview(bytearray(batch)), rules, NOW_MS)
    assert theirs.stored is not None
    assert theirs.stored[16:] == bytes(ours)[16:]
