"""Records of internal topics that cannot be read: what is told of them, and when nothing is."""

import pytest

from headrace.coordinator.records import (
    CoordinatorRecord,
    EncodedRecord,
    UnreadableRecord,
    build_record_batch,
    encode_record,
    scan_record_batch,
)
from headrace.records.errors import CorruptBatch
from headrace.records.header import read_headers
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from tests.unit.coordinator.shards import TYPES, VERSION

KEY = OffsetCommitKey(group="g", topic="t")
GOOD = encode_record(CoordinatorRecord(KEY, OffsetCommitValue(offset=5), VERSION))


def read(batch: bytearray) -> list[CoordinatorRecord | UnreadableRecord]:
    ((_, header),) = read_headers(batch)
    return list(scan_record_batch(memoryview(batch), header, TYPES))


def build(*records: EncodedRecord) -> bytearray:
    return build_record_batch(records, 0, producer_id=-1, producer_epoch=-1)


@pytest.mark.parametrize(
    "key", [b"", b"\x00", b"\x7f\x7fjunk", GOOD.key[:-1], b"\x00\x01\x00\x01\xff\x00\x00"]
)
def test_a_key_that_cannot_be_read_says_nothing_and_holds_up_nobody(key: bytes) -> None:
    junk, good = read(build(EncodedRecord(key, b"junk"), GOOD))
    assert isinstance(junk, UnreadableRecord)
    assert (junk.offset, junk.raw_key, junk.key) == (0, key, None)
    assert isinstance(good, CoordinatorRecord)


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x63junk", b"\x00\x04short"])
def test_a_value_that_cannot_be_read_says_what_it_is_about(value: bytes) -> None:
    good, junk = read(build(GOOD, EncodedRecord(GOOD.key, value)))
    assert isinstance(good, CoordinatorRecord)
    assert isinstance(junk, UnreadableRecord)
    assert (junk.offset, junk.key) == (1, KEY)


def test_what_was_damaged_since_it_was_written_may_concern_anybody() -> None:
    batch = build(GOOD)
    batch[batch.index(GOOD.key)] = 0x7F
    with pytest.raises(CorruptBatch):
        read(batch)
