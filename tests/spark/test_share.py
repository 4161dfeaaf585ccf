"""Queues as streams, with a session: what only Spark itself can show."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from headrace.client import BlockingShareConsumer
from headrace.spark import reject, session
from headrace.spark.share.options import share_options
from headrace.spark.share.source import ShareDataSource
from headrace.spark.share.streaming import ShareStreamReader
from headrace.testing.broker import TestBroker
from tests.spark.queries import POLL_SECONDS, QUERY_SECONDS_MAX, revived, run
from tests.spark.share_queues import QUICK, SESSION, lag, make_queue, options_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
RECORDS = 60
A_BATCH = 20
EVERY_BAD = 7
DEADLINE_SECONDS = 30


@pytest.fixture(scope="module")
def headrace_settings() -> Mapping[str, str]:
    return QUICK


@pytest.fixture(scope="module")
def spark(java: None) -> Iterator[SparkSession]:
    made = session("local[2]", banner=False)
    yield made
    made.stop()


def watching_source(checkpoint: Path, log: Path) -> type[ShareDataSource]:
    """The format, with a log of what Spark has committed at each `latestOffset`."""

    class WatchedReader(ShareStreamReader):
        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            commits = [path.name for path in (checkpoint / "commits").glob("[0-9]*")]
            with log.open("a") as lines:
                lines.write(json.dumps({"start": start["batch"], "commits": commits}) + "\n")
            return super().latestOffset(start, limit)

    class WatchedSource(ShareDataSource):
        @classmethod
        def name(cls) -> str:
            return "watched-share"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return WatchedReader(share_options(self._given()), schema)

    return WatchedSource


def test_a_queue_is_worked_off_and_accepted_when_batches_are_durable(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    topic, group = make_queue(
        headrace_module, partitions=2, errors_deadletterqueue_topic_name="dlq.share"
    )
    for partition in range(2):
        numbers = range(partition, RECORDS, 2)
        headrace_module.produce(topic, *map(str, numbers), partition=partition)
    bootstrap = headrace_module.bootstrap
    checkpoint, log = tmp_path / "checkpoint", tmp_path / "log"
    spark.dataSource.register(watching_source(checkpoint, log))
    seen: list[int] = []
    tasks: list[int] = []
    counts: set[int] = set()

    def work(batch: DataFrame, number: int) -> None:
        rows = batch.collect()
        seen.extend(int(row.value) for row in rows)
        counts.update(row.deliveryCount for row in rows)
        tasks.append(batch.rdd.getNumPartitions())
        bad = batch.where(f"cast(cast(value as string) as int) % {EVERY_BAD} = 0")
        reject(bad, bootstrap=bootstrap, group=group)

    given = options_of(headrace_module, topic, group, maxRecordsPerTrigger=A_BATCH, minPartitions=3)
    writer = (
        spark.readStream.format("watched-share")
        .options(**given)
        .load()
        .writeStream.foreachBatch(work)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    query = run(writer.start)
    assert sorted(seen) == list(range(RECORDS))
    assert counts == {1}
    assert tasks == [3] * (RECORDS // A_BATCH)
    assert lag(headrace_module, group) == 0
    progress: Any = query.recentProgress
    assert sum(each["numInputRows"] for each in progress) >= RECORDS
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    assert {call["start"] for call in calls} == set(range(RECORDS // A_BATCH + 1))
    for call in calls:
        # A batch ends with the offset of the next number, and is committed when that is settled.
        assert set(call["commits"]) == {str(number) for number in range(call["start"])}
    until = time.monotonic() + DEADLINE_SECONDS
    letters: set[int] = set()
    while letters != set(range(0, RECORDS, EVERY_BAD)):
        assert time.monotonic() < until, letters
        letters = {int(record.value or b"") for record in headrace_module.consume("dlq.share")}


def test_a_batch_that_fails_gives_its_records_back_at_once(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    topic, group = make_queue(headrace_module, share_record_lock_duration_ms="60000")
    headrace_module.produce(topic, "a", "b")

    def fail(batch: DataFrame, number: int) -> None:
        raise ValueError("no, thanks")

    writer = (
        spark.readStream.format("headrace-share")
        .options(**options_of(headrace_module, topic, group))
        .load()
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with pytest.raises(StreamingQueryException, match="no, thanks"):
        run(writer.start)
    with BlockingShareConsumer(headrace_module.bootstrap, group, [topic]) as consumer:
        records = consumer.poll(DEADLINE_SECONDS * 1000)
    assert [record.value for record in records] == [b"a", b"b"]


def test_two_queries_share_a_queue_and_one_takes_over_when_the_other_stops(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    topic, group = make_queue(headrace_module, partitions=2, **SESSION)
    seen: dict[str, list[int]] = {"one": [], "two": []}
    produced = count()

    def start(name: str) -> StreamingQuery:
        def work(batch: DataFrame, number: int) -> None:
            seen[name].extend(int(row.value) for row in batch.collect())

        return (
            spark.readStream.format("headrace-share")
            .options(**options_of(headrace_module, topic, group))
            .load()
            .writeStream.foreachBatch(work)
            .option("checkpointLocation", str(tmp_path / name))
            .start()
        )

    def produce() -> None:
        for partition in range(2):
            headrace_module.produce(topic, str(next(produced)), partition=partition)

    queries = {name: start(name) for name in seen}

    def wait_until(is_so: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
        until = time.monotonic() + QUERY_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < until, seen
            for name, query in queries.items():
                queries[name] = revived(query, partial(start, name))
            meanwhile()
            time.sleep(POLL_SECONDS)  # polls, up to the deadline

    def is_worked_off() -> bool:
        return lag(headrace_module, group) == 0

    try:
        wait_until(lambda: all(seen.values()), meanwhile=produce)
        wait_until(is_worked_off, meanwhile=lambda: None)
        so_far = next(produced)
        assert sorted(seen["one"] + seen["two"]) == list(range(so_far))
        queries.pop("one").stop()
        of_one = len(seen["one"])
        produce()
        wait_until(is_worked_off, meanwhile=lambda: None)
    finally:
        for query in queries.values():
            query.stop()
    assert len(seen["one"]) == of_one
    assert sorted(seen["two"])[-2:] == [so_far + 1, so_far + 2]
    assert len(seen["one"] + seen["two"]) == so_far + 2


def test_a_batch_read_is_refused_with_a_sentence(
    spark: SparkSession, headrace_module: TestBroker
) -> None:
    given = options_of(headrace_module, "any", "group")
    with pytest.raises(PySparkException, match="use readStream"):
        spark.read.format("headrace-share").options(**given).load().collect()
