"""Writes with a session: batch and stream, tasks that fail, and what is said of bad input."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.functions import udf
from pyspark.sql.types import StructType

from headrace.client.partitioner import partition_for_key
from headrace.spark import session
from headrace.spark.sink.stopping import writer_of
from headrace.spark.sink.write_options import write_options
from headrace.spark.sink.writers import BatchWriter, StreamWriter
from headrace.spark.source import HeadraceDataSource
from headrace.testing.broker import TestBroker
from tests.spark.sink_reads import (
    committed_records,
    committed_values,
    open_transactions,
    transactional_ids,
    values_by_confluent,
    written_records,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
QUERY_SECONDS_MAX = 120
POLL_SECONDS = 0.05


@pytest.fixture(scope="module")
def spark(java: None) -> Iterator[SparkSession]:
    # Two tasks at a time, and two retries for each.
    made = session("local[2,3]", banner=False, config={"spark.sql.shuffle.partitions": "3"})
    yield made
    made.stop()


class DyingWriter(BatchWriter):
    """A sink whose second task is killed the first time, when it has written everything."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return message


class DyingSource(HeadraceDataSource):
    """The format with that sink."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DyingWriter(write_options(self._given(), schema, "a test"))


def gate_of(checkpoint: str) -> Path:
    return Path(f"{checkpoint}.gate")


class WaitingWriter(StreamWriter):
    """A sink whose tasks wait, with everything written, until there is a file."""

    gate: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        return super().write(self._held(iterator))

    def _held(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from iterator
        while not self.gate.exists():
            time.sleep(POLL_SECONDS)  # polls: the test stops the query here


class WaitingSource(HeadraceDataSource):
    """The format with that sink."""

    @classmethod
    def name(cls) -> str:
        return "waiting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        given = self._given()
        writer = WaitingWriter(write_options(given, schema, "a test"), writer_of(given))
        writer.gate = gate_of(given["checkpointLocation"])
        return writer


# Workers cannot import this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def write(frame: DataFrame, broker: TestBroker, **options: str) -> None:
    writer = frame.write.format("headrace").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).save()


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as value")


def as_values(count: int) -> list[bytes]:
    return sorted(str(number).encode() for number in range(count))


def start(frame: DataFrame, broker: TestBroker, checkpoint: Path, **options: str) -> Any:
    writer = frame.writeStream.format(options.pop("format", "headrace")).trigger(availableNow=True)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    return writer.option("checkpointLocation", str(checkpoint)).options(**options).start()


def finish(query: Any) -> None:
    assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"


def test_rows_of_a_batch_write_are_there_for_every_client(
    spark: SparkSession, headrace_module: TestBroker
) -> None:
    headrace_module.create_topic("numbers", partitions=3)
    write(numbers(spark, 5000), headrace_module, topic="numbers")
    assert committed_values(headrace_module.bootstrap, "numbers") == as_values(5000)
    assert values_by_confluent(headrace_module.bootstrap, "numbers", 5000) == as_values(5000)
    assert open_transactions(headrace_module.bootstrap) == []


def test_keys_headers_topics_and_partitions_are_the_columns(
    spark: SparkSession, headrace_module: TestBroker
) -> None:
    for topic in ("left", "right"):
        headrace_module.create_topic(topic, partitions=4)
    frame = spark.range(0, 200, 1, 2).selectExpr(
        "cast(concat('key ', id) as binary) as key",
        "if(id % 10 = 0, null, cast(id as string)) as value",
        "if(id % 2 = 0, 'left', 'right') as topic",
        "if(id >= 100, 3, null) as partition",
        "if(id % 3 = 0, null, array("
        "struct('name' as key, cast(cast(id as string) as binary) as value),"
        " struct('none' as key, cast(null as binary) as value))) as headers",
        "timestamp '2001-01-01' as timestamp",
    )
    write(frame, headrace_module)
    seen = 0
    for topic, rest in (("left", 0), ("right", 1)):
        for record in committed_records(headrace_module.bootstrap, topic):
            assert record.key is not None
            number = int(record.key.removeprefix(b"key "))
            assert number % 2 == rest
            assert record.value == (None if number % 10 == 0 else str(number).encode())
            by_key = partition_for_key(record.key, 4)
            assert record.partition == (3 if number >= 100 else by_key)
            names = [name for name, _ in record.headers]
            assert names == ([] if number % 3 == 0 else ["name", "none"])
            if names:
                assert record.headers[0][1] == str(number).encode()
                assert record.headers[1][1] is None
            assert abs(record.timestamp - time.time() * 1000) < 600_000, "the time of the write"
            seen += 1
    assert seen == 200


def test_a_task_that_fails_is_tried_again_and_leaves_nothing(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    headrace_module.create_topic("retried", partitions=2)
    failed = str(tmp_path / "failed")

    @udf("string", useArrow=False)
    def fails_once(value: str) -> str:
        if value == "700" and not Path(failed).exists():
            Path(failed).touch()
            raise RuntimeError("this task fails the first time")
        return value

    frame = numbers(spark, 1000).select(fails_once("value").alias("value"))
    write(frame, headrace_module, topic="retried", **{"kafka.batch.size": "500"})
    assert Path(failed).exists()
    assert committed_values(headrace_module.bootstrap, "retried") == as_values(1000)
    assert open_transactions(headrace_module.bootstrap) == []


def test_what_a_killed_worker_wrote_is_aborted_and_written_anew(
    spark: SparkSession, headrace_module: TestBroker
) -> None:
    headrace_module.create_topic("killed", partitions=2)
    spark.dataSource.register(DyingSource)
    frame = numbers(spark, 1000)
    writer = frame.write.format(DyingSource.name()).mode("append").option("topic", "killed")
    writer.option("kafka.bootstrap.servers", headrace_module.bootstrap).save()
    assert committed_values(headrace_module.bootstrap, "killed") == as_values(1000)
    everything = written_records(headrace_module.bootstrap, "killed")
    assert len(everything) > 1000, "the first attempt wrote, too"
    assert open_transactions(headrace_module.bootstrap) == []


def test_nothing_of_a_write_that_fails_is_seen(
    spark: SparkSession, headrace_module: TestBroker
) -> None:
    headrace_module.create_topic("failed", partitions=2)
    frame = numbers(spark, 1000).selectExpr(
        "if(value = '999', cast(raise_error('bad row') as string), value) as value"
    )
    with pytest.raises(Exception, match="bad row"):
        write(frame, headrace_module, topic="failed", **{"kafka.batch.size": "500"})
    assert committed_values(headrace_module.bootstrap, "failed") == []
    assert open_transactions(headrace_module.bootstrap) == []


def test_a_stream_goes_on_where_it_was_and_writes_each_row_once(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    headrace_module.create_topic("lines", partitions=3)
    folder = tmp_path / "in"
    folder.mkdir()
    expected = []
    for run in range(2):
        for name in ("a", "b"):
            lines = [f"{run} {name} {number}" for number in range(50)]
            (folder / f"{run}{name}.txt").write_text("\n".join(lines))
            expected += [line.encode() for line in lines]
        frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        query = start(frame.repartition(3), headrace_module, tmp_path / "checkpoint", topic="lines")
        finish(query)
        assert committed_values(headrace_module.bootstrap, "lines") == sorted(expected)
    assert open_transactions(headrace_module.bootstrap) == []


def test_a_query_that_is_stopped_in_a_batch_leaves_no_transaction_open(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    headrace_module.create_topic("stopped", partitions=2)
    spark.dataSource.register(WaitingSource)
    folder = tmp_path / "in"
    folder.mkdir()
    values = [str(number) for number in range(100, 600)]
    (folder / "lines.txt").write_text("\n".join(values))
    frame = spark.readStream.text(str(folder)).repartition(2)
    checkpoint = tmp_path / "checkpoint"
    options = {"topic": "stopped", "kafka.batch.size": "500", "format": WaitingSource.name()}
    query = start(frame, headrace_module, checkpoint, **options)
    deadline = time.monotonic() + QUERY_SECONDS_MAX
    while len(open_transactions(headrace_module.bootstrap)) < 2:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "nothing is written"
        time.sleep(POLL_SECONDS)  # polls, up to the deadline
    query.stop()
    assert open_transactions(headrace_module.bootstrap) == []
    assert written_records(headrace_module.bootstrap, "stopped"), "something was written"
    headrace_module.produce("stopped", "seen by everybody")
    assert committed_values(headrace_module.bootstrap, "stopped") == [b"seen by everybody"]

    gate_of(str(checkpoint)).touch()
    finish(start(frame, headrace_module, checkpoint, **options))
    expected = sorted([*(value.encode() for value in values), b"seen by everybody"])
    assert committed_values(headrace_module.bootstrap, "stopped") == expected


def test_writes_of_a_driver_use_the_same_transactional_ids_again(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    headrace_module.create_topic("batches", partitions=2)
    before = transactional_ids(headrace_module.bootstrap)
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(6):
        lines = [f"{number} {line}" for line in range(30)]
        (folder / f"{number}.txt").write_text("\n".join(lines))

    def work(batch: DataFrame, _: int) -> None:
        write(batch.repartition(3), headrace_module, topic="batches")

    frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    query = (
        frame.writeStream.foreachBatch(work)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    finish(query)
    expected = sorted(f"{number} {line}".encode() for number in range(6) for line in range(30))
    assert committed_values(headrace_module.bootstrap, "batches") == expected
    assert len(transactional_ids(headrace_module.bootstrap) - before) <= 4

    # Writes that run at the same time have names of their own.
    def write_some(first: int) -> None:
        rows = [(str(number),) for number in range(first, first + 500)]
        frame = spark.createDataFrame(rows, "value string").repartition(3)
        write(frame, headrace_module, topic="batches")

    with ThreadPoolExecutor() as threads:
        list(threads.map(write_some, (0, 500, 1000)))
    assert len(committed_values(headrace_module.bootstrap, "batches")) == 180 + 3 * 500
    assert len(transactional_ids(headrace_module.bootstrap) - before) <= 12
    assert open_transactions(headrace_module.bootstrap) == []


def test_an_aggregate_is_written_whole_in_complete_mode(
    spark: SparkSession, headrace_module: TestBroker, tmp_path: Path
) -> None:
    headrace_module.create_topic("counts")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "words.txt").write_text("a\nb\na\n")
    counts = (
        spark.readStream.text(str(tmp_path / "in"))
        .groupBy("value")
        .count()
        .selectExpr("value as key", "cast(count as string) as value")
    )
    query = (
        counts.writeStream.format("headrace")
        .outputMode("complete")
        .trigger(availableNow=True)
        .option("kafka.bootstrap.servers", headrace_module.bootstrap)
        .option("topic", "counts")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    finish(query)
    records = committed_records(headrace_module.bootstrap, "counts")
    assert sorted((record.key, record.value) for record in records) == [(b"a", b"2"), (b"b", b"1")]


@pytest.mark.parametrize(
    ("expressions", "options", "message"),
    [
        (["id as value"], {"topic": "t"}, "column 'value' is bigint, it must be string or binary"),
        (["id"], {"topic": "t"}, "a column 'value' is needed, there are id"),
        (["'x' as value"], {}, "where to\\? Give the option 'topic' or a column 'topic'"),
        (["'x' as value", "1 as topic"], {}, "column 'topic' is int, it must be string"),
        (["'x' as value"], {"topic": "t", "tpic": "u"}, "no option 'tpic'; did you mean 'topic'"),
        (
            ["'x' as value"],
            {"topic": "t", "kafka.transactional.id": "mine"},
            "the sink names its transactions",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    spark: SparkSession,
    headrace_module: TestBroker,
    expressions: list[str],
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.range(3).selectExpr(*expressions), headrace_module, **options)


def test_overwriting_a_topic_is_refused(spark: SparkSession, headrace_module: TestBroker) -> None:
    writer = numbers(spark, 3).write.format("headrace").mode("overwrite").option("topic", "t")
    with pytest.raises(Exception, match="a topic cannot be overwritten; write with mode"):
        writer.option("kafka.bootstrap.servers", headrace_module.bootstrap).save()
