"""Batches on their way to a mirror: what changes of them, and what does not."""

import pytest

from headrace.client.mirror.batches import SplitBatch, adopt, filler, fingerprints
from headrace.records.builder import BatchBuilder
from headrace.records.errors import CorruptBatch
from headrace.records.header import check_crc, read_header, read_headers
from headrace.records.reader import read_records
from headrace.wire.mirror_records import PRODUCER_ID_SHIFT, Front, decode_front, encode_front


def batch(base_offset: int, count: int = 3, **fields: int | bool) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1000 + number, b"key", b"value %d" % number)
    return bytes(builder.build(base_offset=base_offset, leader_epoch=7, **fields))  # type: ignore[arg-type]


def test_batches_without_a_producer_stay_as_they_are() -> None:
    chunk = batch(5) + batch(8)
    adopted = adopt(memoryview(bytearray(chunk)), 5)
    assert adopted is not None
    assert bytes(adopted.records) == chunk
    assert (adopted.next_offset, adopted.last_epoch, adopted.batch_count) == (11, 7, 2)


def test_producer_ids_are_those_of_no_producer_of_the_target() -> None:
    data = batch(5, producer_id=12, producer_epoch=1, base_sequence=4, is_transactional=True)
    adopted = adopt(memoryview(data), 5)
    assert adopted is not None
    header = read_header(adopted.records)
    check_crc(adopted.records, header)
    assert header.producer_id == 12 + PRODUCER_ID_SHIFT
    assert (header.producer_epoch, header.base_sequence, header.is_transactional) == (1, 4, True)
    assert list(read_records(adopted.records)) == list(read_records(data))
    again = adopt(adopted.records, 5)
    assert again is not None
    assert read_header(again.records).producer_id == 12 + 2 * PRODUCER_ID_SHIFT


def test_what_is_there_already_and_what_is_cut_off_is_left_out() -> None:
    chunk = batch(0) + batch(3) + batch(9)[:-1]
    adopted = adopt(memoryview(chunk), 3)
    assert adopted is not None
    assert [header.base_offset for _, header in read_headers(adopted.records)] == [3]
    assert adopt(memoryview(chunk[:100]), 3) is None


def test_a_gap_of_compaction_is_kept() -> None:
    adopted = adopt(memoryview(batch(4) + batch(90)), 2)
    assert adopted is not None
    assert [mark.base_offset for _, mark in fingerprints(adopted.records)] == [4, 90]


def test_a_batch_around_the_position_says_that_the_source_is_another_one() -> None:
    with pytest.raises(SplitBatch, match="offsets 3 to 5 where one that begins at 4"):
        adopt(memoryview(batch(3)), 4)


def test_a_batch_around_the_start_of_the_source_goes_behind_what_the_target_has() -> None:
    adopted = adopt(memoryview(batch(3) + batch(6)), 4, 3)
    assert adopted is not None
    assert bytes(adopted.records) == batch(3) + batch(6)
    assert (adopted.end_offset, adopted.next_offset) == (9, 9)
    with pytest.raises(SplitBatch):
        adopt(memoryview(batch(3)), 5, 4)


def test_a_damaged_batch_does_not_get_a_new_checksum() -> None:
    data = bytearray(batch(3, producer_id=1, producer_epoch=0, base_sequence=0))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC32C"):
        adopt(memoryview(data), 3)


def test_batches_without_records_are_left_out_and_passed_over() -> None:
    """They open transactions without markers, and clients fail at too many of them in a row."""
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    empty = batch(3, 0, last_offset_delta=4, **fields)
    adopted = adopt(memoryview(batch(0) + empty + batch(8) + batch(11, 0, last_offset_delta=1)), 0)
    assert adopted is not None
    assert bytes(adopted.records) == batch(0) + batch(8)
    assert (adopted.end_offset, adopted.next_offset, adopted.batch_count) == (11, 13, 2)
    alone = adopt(memoryview(empty), 3, 2)
    assert alone is not None
    assert (len(alone.records), alone.end_offset, alone.next_offset) == (0, 2, 8)


def test_a_filler_ends_a_log_without_a_record() -> None:
    header = read_header(filler(17))
    check_crc(filler(17), header)
    assert (header.next_offset, header.record_count, header.producer_id) == (17, 0, -1)


def test_the_front_is_read_as_it_was_written() -> None:
    front = Front(17, -1, "cluster/topic")
    records = memoryview(encode_front(front) + b"batches")
    assert decode_front(records) == (front, memoryview(b"batches"))
    for size in range(len(encode_front(front))):
        with pytest.raises(ValueError, match="front"):
            decode_front(records[:size])
