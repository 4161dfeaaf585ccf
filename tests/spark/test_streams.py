"""Streams against a broker, step by step as Spark's driver calls them."""

import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headrace.client import Admin
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.loss import DataLoss
from headrace.spark.progress import WrongCheckpoint
from headrace.spark.streaming import StreamReader
from headrace.testing.broker import TestBroker
from tests.spark.reads import (
    committed,
    delete_records,
    delete_topic,
    rows_of,
    stream_reader,
    transactional_producer,
    values_of,
)

ALL = ReadAllAvailable()
Offset = dict[str, Any]


def stored(offset: Offset) -> Offset:
    """An offset as it comes back from Spark's checkpoint."""
    return dict(json.loads(json.dumps(offset)))


def step(reader: StreamReader, start: Offset, limit: Any = ALL) -> tuple[Offset, list[bytes]]:
    """One micro-batch: its end, and what it read."""
    end = stored(reader.latestOffset(start, limit))
    return end, values_of(rows_of(reader, reader.partitions(start, end)))


def test_a_stream_reads_what_comes_and_nothing_twice(headrace: TestBroker) -> None:
    headrace.create_topic("t", partitions=2)
    headrace.produce("t", "before")
    reader = stream_reader(headrace, "t")
    start = stored(reader.initialOffset())
    headrace.produce("t", "a", partition=0)
    headrace.produce("t", "b", partition=1)
    start, values = step(reader, start)
    assert sorted(values) == [b"a", b"b"]
    assert step(reader, start) == (start, [])
    headrace.produce("t", "c", partition=1)
    assert step(reader, start)[1] == [b"c"]


def test_a_stream_may_start_at_the_beginning(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a")
    reader = stream_reader(headrace, "t", startingOffsets="earliest")
    assert step(reader, stored(reader.initialOffset()))[1] == [b"a"]


def test_a_batch_is_read_again_exactly(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a", "b")
    first = stream_reader(headrace, "t", startingOffsets="earliest")
    start = stored(first.initialOffset())
    end = stored(first.latestOffset(start, ALL))
    headrace.produce("t", "later")
    again = stream_reader(headrace, "t", startingOffsets="earliest")
    assert values_of(rows_of(again, again.partitions(start, end))) == [b"a", b"b"]


def test_a_limit_bounds_a_batch(headrace: TestBroker) -> None:
    headrace.create_topic("t", partitions=2)
    headrace.produce("t", *map(str, range(30)), partition=0)
    headrace.produce("t", *map(str, range(9)), partition=1)
    reader = stream_reader(headrace, "t", startingOffsets="earliest", maxOffsetsPerTrigger=10)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    start, sizes = stored(reader.initialOffset()), []
    while True:
        end, values = step(reader, start, limit)
        if end == start:
            break
        sizes.append(len(values))
        start = end
    assert sizes == [10, 10, 10, 9]


def test_too_few_records_are_waited_for_up_to_the_delay(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    more = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 3}
    reader = stream_reader(headrace, "t", **more)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    start = stored(reader.initialOffset())
    headrace.produce("t", "a", "b")
    assert step(reader, start, limit) == (start, [])
    assert step(reader, start, ALL)[1] == [b"a", b"b"]
    headrace.produce("t", "c")
    assert step(reader, start, limit)[1] == [b"a", b"b", b"c"]
    impatient = stream_reader(headrace, "t", **more | {"maxTriggerDelay": "0ms"})
    headrace.produce("t", "d")
    start = stored(reader.latestOffset(start, limit))
    assert step(impatient, start, limit)[1] == []
    headrace.produce("t", "e")
    assert step(impatient, start, limit)[1] == [b"e"]


def test_available_now_ends_where_it_began(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a")
    reader = stream_reader(headrace, "t", startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    start = stored(reader.initialOffset())
    headrace.produce("t", "late")
    start, values = step(reader, start)
    assert values == [b"a"]
    assert step(reader, start) == (start, [])


def test_progress_is_committed_when_spark_asks_for_more(headrace: TestBroker) -> None:
    headrace.create_topic("t", partitions=2)
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    more = {"startingOffsets": "earliest", "kafka.group.id": "billing"}
    reader = stream_reader(headrace, "t", **more)
    headrace.produce("t", "a", "b", partition=0)
    start = stored(reader.initialOffset())
    end, _ = step(reader, start)
    assert committed(headrace, "billing") == {here: 0, there: 0}
    reader.latestOffset(end, ALL)
    assert committed(headrace, "billing") == {here: 2, there: 0}


def test_a_stream_without_a_group_has_one_of_its_own_and_keeps_it(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a")
    groups = []
    for _ in range(2):
        reader = stream_reader(headrace, "t", startingOffsets="earliest")
        start = stored(reader.initialOffset())
        end, _ = step(reader, start)
        restarted = stream_reader(headrace, "t", startingOffsets="earliest")
        assert step(restarted, end) == (end, [])
        assert committed(headrace, end["#group"]) == {TopicPartition("t", 0): 1}
        groups.append(end["#group"])
    assert len(set(groups)) == 2
    assert all(group.startswith("spark-t-") for group in groups)


def test_a_group_that_cannot_be_committed_for_is_an_error_if_the_user_named_it(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("t")
    refused = stream_reader(headrace, "t", **{"kafka.group.id": "theirs"})
    start = stored(refused.initialOffset())
    headrace.faults.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=2)
    with pytest.raises(KafkaError, match="cannot be committed for group 'theirs'"):
        refused.latestOffset(start, ALL)
    unnamed = stream_reader(headrace, "t")
    start = stored(unnamed.initialOffset())
    assert unnamed.latestOffset(start, ALL) == start


def test_the_newest_offsets_are_reported(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a", "b", "c")
    reader = stream_reader(headrace, "t", startingOffsets="earliest")
    assert reader.reportLatestOffset() is None
    reader.latestOffset(stored(reader.initialOffset()), ReadMaxRows(1))
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest["t"] == {"0": 3}


def test_partitions_that_are_added_are_read_from_their_beginning(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    reader = stream_reader(headrace, "t")
    start = stored(reader.initialOffset())

    async def grow() -> None:
        async with Admin(headrace.bootstrap) as admin:
            await admin.add_partitions("t", 2)

    headrace.run(grow())
    headrace.produce("t", "new", partition=1)
    assert step(reader, start)[1] == [b"new"]


def test_topics_that_begin_to_match_are_read_from_their_beginning(headrace: TestBroker) -> None:
    reader = stream_reader(headrace, "", subscribePattern="log-.*")
    start = stored(reader.initialOffset())
    headrace.create_topic("log-a")
    headrace.produce("log-a", "new")
    assert step(reader, start)[1] == [b"new"]


def test_a_topic_that_is_another_one_now_is_told_by_its_id(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a", "b")
    reader = stream_reader(headrace, "t", startingOffsets="earliest")
    start, _ = step(reader, stored(reader.initialOffset()))
    delete_topic(headrace, "t")
    headrace.create_topic("t")
    headrace.produce("t", "c", "d", "e")
    with pytest.raises(DataLoss, match="re-created: topic 't'"):
        reader.latestOffset(start, ALL)
    lenient = stream_reader(headrace, "t", failOnDataLoss="false")
    end, values = step(lenient, start)
    assert values == [b"c", b"d", b"e"]
    assert step(lenient, end) == (end, [])


def test_a_topic_that_is_deleted_is_a_loss_and_may_come_back(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a")
    reader = stream_reader(headrace, "t", startingOffsets="earliest")
    start, _ = step(reader, stored(reader.initialOffset()))
    delete_topic(headrace, "t")
    with pytest.raises(DataLoss, match="deleted: topic 't'"):
        reader.latestOffset(start, ALL)
    lenient = stream_reader(headrace, "t", failOnDataLoss="false")
    start, values = step(lenient, start)
    assert values == []
    headrace.create_topic("t")
    headrace.produce("t", "b")
    assert step(lenient, start)[1] == [b"b"]


def test_offsets_that_expired_under_a_stream_are_a_loss(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", *map(str, range(10)))
    more = {"startingOffsets": '{"t": {"0": 2}}'}
    reader = stream_reader(headrace, "t", **more)
    start = stored(reader.initialOffset())
    delete_records(headrace, "t", 5)
    with pytest.raises(DataLoss, match="truncated: offsets 2 to 4 of t-0 are gone"):
        step(reader, start)
    lenient = stream_reader(headrace, "t", **more, failOnDataLoss="false")
    assert step(lenient, start)[1] == [b"5", b"6", b"7", b"8", b"9"]


def test_an_end_that_went_back_is_a_loss(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a", "b", "c")
    beyond, more = {"t": {"0": 100}}, {"kafka.default.api.timeout.ms": 100}
    with pytest.raises(DataLoss, match="t-0 ends at offset 3, before 100"):
        stream_reader(headrace, "t", **more).latestOffset(beyond, ALL)
    lenient = stream_reader(headrace, "t", **more, failOnDataLoss="false")
    start = stored(lenient.latestOffset(beyond, ALL))
    headrace.produce("t", "d")
    assert step(lenient, start)[1] == [b"d"]


def test_an_open_transaction_before_the_checkpoint_is_no_loss(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    producer = transactional_producer(headrace)
    producer.begin_transaction()
    producer.produce("t", b"a")
    producer.flush()
    eager = stream_reader(
        headrace,
        "t",
        **{"startingOffsets": "earliest", "kafka.isolation.level": "read_uncommitted"},
    )
    start, values = step(eager, stored(eager.initialOffset()))
    assert values == [b"a"]
    reader = stream_reader(headrace, "t")
    assert step(reader, start) == (start, [])
    producer.commit_transaction()
    headrace.produce("t", "b")
    assert step(reader, start)[1] == [b"b"]


def test_a_checkpoint_of_another_topic_is_refused(headrace: TestBroker) -> None:
    headrace.create_topic("mine")
    headrace.create_topic("theirs")
    start = stored(stream_reader(headrace, "theirs").initialOffset())
    with pytest.raises(WrongCheckpoint, match=r"is of theirs, and this query reads topic 'mine'"):
        stream_reader(headrace, "mine").latestOffset(start, ALL)


def test_a_topic_that_is_not_subscribed_any_more_is_named(headrace: TestBroker) -> None:
    headrace.create_topic("a")
    headrace.create_topic("b")
    start = stored(stream_reader(headrace, "a,b").initialOffset())
    with pytest.raises(DataLoss, match="topic 'b' is in the checkpoint"):
        stream_reader(headrace, "a").latestOffset(start, ALL)
    lenient = stream_reader(headrace, "a", failOnDataLoss="false")
    assert "b" not in lenient.latestOffset(start, ALL)


def test_what_the_connector_checkpointed_is_read_on(headrace: TestBroker) -> None:
    headrace.create_topic("t")
    headrace.produce("t", "a", "b", "c")
    assert step(stream_reader(headrace, "t"), {"t": {"0": 1}})[1] == [b"b", b"c"]
