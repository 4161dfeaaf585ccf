"""Control batches, byte for byte as Apache Kafka 4.3.1 wrote them when it was asked."""

import pytest

from headrace.records.builder import BatchBuilder
from headrace.records.control import (
    ControlRecord,
    ControlType,
    build_control_batch,
    build_end_transaction_marker,
    coordinator_epoch,
    read_control,
)
from headrace.records.errors import CorruptBatch
from headrace.records.header import check_crc, read_header
from tests.unit.records.record_values import NOW_MS

# MemoryRecords.withEndTransactionMarker(5, 1700000000000, 7, 99, 3, marker of coordinator epoch 12)
COMMIT = bytes.fromhex(
    "0000000000000005000000420000000702d77d1a1c0030000000000000018bcfe568000000018bcfe568000000"
    "0000000000630003ffffffff000000012000000008000000010c00000000000c00"
)
ABORT = bytes.fromhex(
    "00000000000000050000004200000007022343cc540030000000000000018bcfe568000000018bcfe568000000"
    "0000000000630003ffffffff000000012000000008000000000c00000000000c00"
)
# MemoryRecords.withLeaderChangeMessage(5, 1700000000000, 7, .., leader 1 of voters 1 and 2)
LEADER_CHANGE = bytes.fromhex(
    "00000000000000050000004f0000000702df0da26f0020000000000000018bcfe568000000018bcfe56800ffff"
    "ffffffffffffffffffffffff000000013a0000000800000002260000000000010300000001000000000200010000"
)
LEADER_CHANGE_MESSAGE = bytes.fromhex("00000000000103000000010000000002000100")


@pytest.mark.parametrize(("is_commit", "expected"), [(True, COMMIT), (False, ABORT)])
def test_the_end_of_a_transaction_is_marked_as_kafka_does(is_commit: bool, expected: bytes) -> None:
    batch = build_end_transaction_marker(
        NOW_MS,
        is_commit=is_commit,
        producer_id=99,
        producer_epoch=3,
        coordinator_epoch=12,
        base_offset=5,
        leader_epoch=7,
    )
    assert batch == expected
    control = read_control(expected)
    assert control.control_type == (ControlType.COMMIT if is_commit else ControlType.ABORT)
    assert coordinator_epoch(control) == 12
    check_crc(expected, read_header(expected))


def test_a_leader_change_is_told_as_kafka_does() -> None:
    batch = build_control_batch(
        ControlType.LEADER_CHANGE, LEADER_CHANGE_MESSAGE, NOW_MS, base_offset=5, leader_epoch=7
    )
    assert batch == LEADER_CHANGE
    assert read_control(batch) == ControlRecord(ControlType.LEADER_CHANGE, LEADER_CHANGE_MESSAGE)


def control_batch(key: bytes | None, value: bytes | None = b"") -> bytearray:
    builder = BatchBuilder()
    builder.append(NOW_MS, key, value)
    return builder.build(is_control=True)


def test_a_type_that_is_newer_than_us_is_read_all_the_same() -> None:
    assert read_control(control_batch(b"\x00\x01\x00\x63 and more", None)).control_type == 99


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_a_key_that_gives_no_type_is_named(key: bytes | None) -> None:
    with pytest.raises(CorruptBatch, match="key"):
        read_control(control_batch(key))


def test_a_control_batch_without_a_record_is_named() -> None:
    with pytest.raises(CorruptBatch, match="no record"):
        read_control(BatchBuilder().build(is_control=True))


@pytest.mark.parametrize(
    "record",
    [
        ControlRecord(ControlType.LEADER_CHANGE, bytes(6)),
        ControlRecord(ControlType.ABORT, bytes(5)),
        ControlRecord(ControlType.COMMIT, b"\xff\xff" + bytes(4)),
    ],
)
def test_only_a_marker_has_a_coordinator_epoch(record: ControlRecord) -> None:
    with pytest.raises(CorruptBatch):
        coordinator_epoch(record)
