"""Rows of Arrow batches to record batches: what a broker would be sent."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.client.topics import TopicPartition
from headrace.records.compression import Compression
from headrace.records.header import check_crc, read_header
from headrace.records.reader import read_records
from headrace.records.record import Record
from headrace.spark.sink.batching import Batching, Closed
from headrace.spark.sink.columns import by_partition, by_topic
from headrace.spark.sink.decisions import Slot
from headrace.spark.sink.write_options import InvalidColumns

SLOT = Slot(0, 0, 77, 5, 0)


def batching(batch_bytes: int = 1000, compression: Compression = Compression.NONE) -> Batching:
    return Batching(SLOT, batch_bytes, compression, None, lambda: 1234)


def close_all(batches: Batching, frame: pa.RecordBatch, partitions: int = 1) -> list[Closed]:
    placed = by_partition(frame, "t", partitions, keyless=0, has_headers=False)
    return [*batches.add("t", placed), *batches.close()]


def records_of(closed: list[Closed]) -> Iterator[Record]:
    for _, data in closed:
        check_crc(data, read_header(data))
        yield from read_records(data)


def values(count: int, size: int = 1) -> pa.RecordBatch:
    rows = [str(number).encode() * size for number in range(count)]
    return pa.record_batch({"value": pa.array(rows, pa.binary())})


def test_batches_carry_the_producer_and_sequences_without_gaps() -> None:
    closed = close_all(batching(200), values(100))
    assert len(closed) > 1
    sequence = 0
    for partition, data in closed:
        header = read_header(data)
        assert partition == TopicPartition("t", 0)
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch) == (77, 5)
        assert header.base_sequence == sequence
        assert header.size_bytes == len(data) <= 200
        sequence += header.record_count
    assert [record.value for record in records_of(closed)] == [
        str(number).encode() for number in range(100)
    ]


def test_a_batch_grows_over_several_arrow_batches_up_to_its_limit() -> None:
    batches = batching(1_000_000)
    closed: list[Closed] = []
    for _ in range(20):
        placed = by_partition(values(1000, 30), "t", 1, keyless=0, has_headers=False)
        closed += batches.add("t", placed)
    closed += batches.close()
    assert len(list(records_of(closed))) == batches.record_count == 20_000
    sizes = [len(data) for _, data in closed]
    assert max(sizes) <= 1_000_000
    assert min(sizes[:-1]) > 900_000


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    frame = pa.record_batch({"value": pa.array([b"a", b"x" * 5000, b"b"], pa.binary())})
    closed = close_all(batching(1000), frame)
    assert [record.value for record in records_of(closed)] == [b"a", b"x" * 5000, b"b"]
    assert len(closed) == 3


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_of_each_codec_can_be_read(codec: Compression) -> None:
    closed = close_all(batching(10_000, codec), values(500))
    assert len(list(records_of(closed))) == 500
    assert read_header(closed[0][1]).compression is codec


def test_a_column_of_partitions_goes_before_keys() -> None:
    frame = pa.record_batch(
        {
            "key": pa.array(["a", "b", None], pa.string()),
            "value": pa.array(["1", None, "3"], pa.string()),
            "partition": pa.array([2, 0, None], pa.int32()),
        }
    )
    closed = close_all(batching(), frame, partitions=3)
    found = {partition.partition: list(read_records(data)) for partition, data in closed}
    assert [record.key for record in found[2]] == [b"a"]
    assert [(record.key, record.value) for record in found[0]] == [(b"b", None), (None, b"3")]
    assert {record.timestamp for records in found.values() for record in records} == {1234}


@pytest.mark.parametrize("wrong", [3, -1])
def test_a_partition_that_does_not_exist_is_named(wrong: int) -> None:
    frame = pa.record_batch({"value": pa.array(["1"]), "partition": pa.array([wrong], pa.int32())})
    with pytest.raises(InvalidColumns, match=f"has {wrong}; topic 't' has partitions 0 to 2"):
        close_all(batching(), frame, partitions=3)


def test_rows_are_parted_by_the_column_of_topics() -> None:
    frame = pa.record_batch(
        {"value": pa.array(["1", "2", "3"]), "topic": pa.array(["a", "b", "a"])}
    )
    parts = {name: part.column("value").to_pylist() for name, part in by_topic(frame, None)}
    assert parts == {"a": ["1", "3"], "b": ["2"]}
    assert [name for name, _ in by_topic(frame, "c")] == ["c"]


def test_a_row_without_a_topic_is_refused() -> None:
    frame = pa.record_batch({"value": pa.array(["1"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(InvalidColumns, match="a row has no topic"):
        list(by_topic(frame, None))


def test_large_arrow_types_are_taken_too() -> None:
    frame = pa.record_batch({"value": pa.array(["1", "2"], pa.large_string())})
    assert [record.value for record in records_of(close_all(batching(), frame))] == [b"1", b"2"]
