"""Batch reads against a broker: what planning and executors do, without a session around them."""

import json
import threading

import pytest

from headrace.client import NotReachable, Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.blocking import close_clusters
from headrace.spark.loss import DataLoss
from headrace.spark.options import InvalidOption
from headrace.spark.reading import UnreadableRecords
from headrace.testing.broker import TestBroker
from tests.spark.reads import (
    batch_reader,
    delete_records,
    delete_topic,
    read_batch,
    rows_of,
    transactional_producer,
    values_of,
)


def numbered(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def as_bytes(count: int, first: int = 0) -> list[bytes]:
    return [text.encode() for text in numbered(count, first)]


def test_every_record_of_every_partition_is_read_once(headrace: TestBroker) -> None:
    headrace.create_topic("orders", partitions=3)
    for partition in range(3):
        headrace.produce("orders", *numbered(50, partition * 50), partition=partition)
    rows = read_batch(headrace, "orders")
    assert values_of(rows) == as_bytes(150)
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (partition, offset) for partition in range(3) for offset in range(50)
    ]


def test_a_topic_without_records_gives_no_rows(headrace: TestBroker) -> None:
    headrace.create_topic("empty", partitions=2)
    assert read_batch(headrace, "empty") == []


def test_fetches_smaller_than_a_batch_lose_nothing(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    for first in range(0, 200, 40):
        headrace.produce("t", *numbered(40, first))
    more = {"kafka.max.partition.fetch.bytes": 100}
    assert values_of(read_batch(headrace, "t", **more)) == as_bytes(200)


def test_parts_of_a_partition_meet_inside_of_batches(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", *numbered(1000))
    reader = batch_reader(headrace, "t", minPartitions=7)
    partitions = reader.partitions()
    assert len(partitions) == 7
    assert values_of(rows_of(reader, partitions)) == as_bytes(1000)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_of_each_codec_are_read(headrace: TestBroker, codec: str) -> None:
    headrace.create_topic("t")

    async def produce() -> None:
        async with Producer(headrace.bootstrap, compression=codec) as producer:
            for text in numbered(300):
                await producer.send("t", text * 20)

    headrace.run(produce())
    assert values_of(read_batch(headrace, "t")) == [text * 20 for text in as_bytes(300)]


def test_offsets_bound_what_is_read(headrace: TestBroker) -> None:
    headrace.create_topic("t", partitions=2)
    headrace.produce("t", *numbered(10), partition=0)
    headrace.produce("t", *numbered(10, 10), partition=1)
    rows = read_batch(
        headrace,
        "t",
        startingOffsets=json.dumps({"t": {"0": 4, "1": -2}}),
        endingOffsets=json.dumps({"t": {"0": -1, "1": 3}}),
    )
    assert values_of(rows) == [*as_bytes(6, 4), *as_bytes(3, 10)]


def test_offsets_must_name_every_partition(headrace: TestBroker) -> None:
    headrace.create_topic("t", partitions=2)
    with pytest.raises(InvalidOption, match="does not say where t-1 is"):
        read_batch(headrace, "t", startingOffsets='{"t": {"0": 0}}')
    with pytest.raises(InvalidOption, match="names t-2, which is not read"):
        read_batch(headrace, "t", startingOffsets='{"t": {"0": 0, "1": 0, "2": 0}}')


def test_a_time_bounds_what_is_read(headrace: TestBroker) -> None:
    headrace.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    headrace.produce("t", "old")
    headrace.clock.advance(60_000)
    between = headrace.clock.now_ms() - 30_000
    headrace.produce("t", "new")
    assert values_of(read_batch(headrace, "t", startingTimestamp=between)) == [b"new"]
    assert values_of(read_batch(headrace, "t", endingTimestamp=between)) == [b"old"]


def test_a_start_later_than_every_record_is_an_error_unless_it_may_be_the_end(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "old")
    later = headrace.clock.now_ms() + 60_000
    with pytest.raises(InvalidOption, match="no record of t-0 is as late"):
        read_batch(headrace, "t", startingTimestamp=later)
    more = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read_batch(headrace, "t", startingTimestamp=later, **more) == []


def test_partitions_can_be_assigned_and_topics_matched(headrace: TestBroker) -> None:
    headrace.create_topic("one", partitions=2)
    headrace.create_topic("two")
    headrace.produce("one", "a", partition=0)
    headrace.produce("one", "b", partition=1)
    headrace.produce("two", "c")
    assert values_of(read_batch(headrace, "", assign='{"one": [1]}')) == [b"b"]
    assert values_of(read_batch(headrace, "", subscribePattern="t.*")) == [b"c"]
    assert read_batch(headrace, "", subscribePattern="nothing.*") == []
    with pytest.raises(KafkaError, match="names one-7, which there is not"):
        read_batch(headrace, "", assign='{"one": [7]}')


def test_a_missing_topic_is_named(headrace: TestBroker) -> None:
    with pytest.raises(KafkaError, match="there is no topic 'nowhere'"):
        read_batch(headrace, "nowhere")


def test_aborted_records_are_read_only_by_who_asks_for_them(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    producer = transactional_producer(headrace)
    for value, is_kept in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce("t", value)
        producer.flush()
        if is_kept:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert values_of(read_batch(headrace, "t")) == [b"a", b"c"]
    more = {"kafka.isolation.level": "read_uncommitted"}
    assert values_of(read_batch(headrace, "t", **more)) == [b"a", b"b", b"c"]


def test_an_open_transaction_ends_a_read_and_is_named_if_more_was_asked_for(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a")
    producer = transactional_producer(headrace)
    producer.begin_transaction()
    producer.produce("t", b"b")
    producer.flush()
    assert values_of(read_batch(headrace, "t")) == [b"a"]
    more = {"kafkaConsumer.pollTimeoutMs": 20, "kafka.fetch.max.wait.ms": 10}
    with pytest.raises(DataLoss, match=r"transactional: .* open at offset 1"):
        read_batch(headrace, "t", endingOffsets='{"t": {"0": 2}}', **more)
    producer.abort_transaction()


def test_gaps_of_compaction_are_no_loss(headrace: TestBroker) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1000"}
    headrace.create_topic("t", configs=configs)
    for text in numbered(20):
        headrace.produce("t", ("same", text))
    headrace.clock.advance(3_600_000)
    headrace.run(_produce_at(headrace, headrace.clock.now_ms()))
    headrace.clock.advance(3_600_000)
    rows = read_batch(headrace, "t", startingOffsets='{"t": {"0": 3}}')
    assert values_of(rows) == [b"19", b"last"]
    assert [row["offset"] for row in rows] == [19, 20]


async def _produce_at(broker: TestBroker, now_ms: int) -> None:
    """A record of the broker's time, so that its segment is not the one of the others."""
    async with Producer(broker.bootstrap) as producer:
        await producer.deliver("t", b"last", b"other", timestamp_ms=now_ms)


@pytest.mark.parametrize("is_planned", [True, False])
def test_removed_offsets_are_a_loss_that_may_be_passed_over(
    headrace: TestBroker, is_planned: bool
) -> None:
    headrace.create_topic("t")
    headrace.produce("t", *numbered(10))
    where = {"startingOffsets": '{"t": {"0": 2}}'}
    strict = batch_reader(headrace, "t", **where)
    lenient = batch_reader(headrace, "t", **where, failOnDataLoss="false")
    planned = strict.partitions() if is_planned else []
    delete_records(headrace, "t", 6)
    with pytest.raises(DataLoss, match="truncated: offsets 2 to 5 of t-0 are gone"):
        rows_of(strict, planned or strict.partitions())
    assert values_of(rows_of(lenient, planned or lenient.partitions())) == as_bytes(4, 6)


def test_an_end_that_was_never_written_is_a_loss(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", *numbered(3))
    where = {"endingOffsets": '{"t": {"0": 5}}'}
    with pytest.raises(DataLoss, match="t-0 ends at offset 3, before 5"):
        read_batch(headrace, "t", **where)
    assert values_of(read_batch(headrace, "t", **where, failOnDataLoss="false")) == as_bytes(3)


def test_a_topic_that_is_another_one_now_is_told_by_its_id(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "old")
    strict = batch_reader(headrace, "t")
    lenient = batch_reader(headrace, "t", failOnDataLoss="false")
    planned = strict.partitions()
    delete_topic(headrace, "t")
    headrace.create_topic("t")
    headrace.produce("t", "new")
    with pytest.raises(DataLoss, match="re-created: topic 't' was deleted and created again"):
        rows_of(strict, planned)
    assert rows_of(lenient, planned) == []
    delete_topic(headrace, "t")
    with pytest.raises(DataLoss, match="deleted: topic 't' does not exist any more"):
        rows_of(strict, planned)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_broker_that_comes_back_is_waited_for(headrace: TestBroker, is_known: bool) -> None:
    headrace.create_topic("t")
    headrace.produce("t", *numbered(10))
    reader = batch_reader(headrace, "t")
    planned = reader.partitions()
    headrace.crash()
    if not is_known:
        close_clusters()  # as on an executor that has not read from it yet
    back = threading.Timer(0.5, headrace.start)
    back.start()
    try:
        assert values_of(rows_of(reader, planned)) == as_bytes(10)
    finally:
        back.join()


def test_an_address_where_nobody_listens_is_named_at_once(headrace: TestBroker) -> None:
    reader = batch_reader(headrace, "t")
    headrace.stop()
    with pytest.raises(NotReachable, match="connection refused"):
        reader.partitions()


def test_a_leader_that_moves_is_followed(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", *numbered(10))
    headrace.faults.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    headrace.faults.close_connection("Fetch", times=1)
    assert values_of(read_batch(headrace, "t")) == as_bytes(10)


def test_damaged_records_are_named_with_their_place(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "good")
    headrace.produce("t", "damaged-value")
    (segment,) = headrace.folder.glob("t-0/*.log")
    written = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(written.index(b"damaged-value"))
        file.write(b"X")
    with pytest.raises(UnreadableRecords, match=r"t-0, offsets 1 to 1: .*startingOffsets 2"):
        read_batch(headrace, "t")


def test_damaged_records_can_be_read_around(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    for value in ("before", "damaged-value", "behind"):
        headrace.produce("t", value)
    (segment,) = headrace.folder.glob("t-0/*.log")
    written = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(written.index(b"damaged-value"))
        file.write(b"X")
    before = read_batch(headrace, "t", endingOffsets='{"t": {"0": 1}}')
    behind = read_batch(headrace, "t", startingOffsets='{"t": {"0": 2}}')
    assert values_of(before + behind) == [b"before", b"behind"]
