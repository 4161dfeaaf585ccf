"""Topics as DataFrames, with a session: what only Spark itself can show."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client import Producer
from headrace.client.topics import TopicPartition
from headrace.spark import session
from headrace.spark.session import PUSHDOWN
from headrace.testing.broker import TestBroker
from tests.spark.queries import run
from tests.spark.reads import committed, options_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
RECORDS = 1000
PARTITIONS = 3
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def spark(java: None) -> Iterator[SparkSession]:
    made = session("local[2]", banner=False)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def orders(headrace_module: TestBroker) -> str:
    """A topic whose keys say the partition and whose values count."""
    headrace_module.create_topic("orders", partitions=PARTITIONS)

    async def produce() -> None:
        async with Producer(headrace_module.bootstrap, compression="zstd") as producer:
            for number in range(RECORDS):
                partition = number % PARTITIONS
                headers = (("source", b"test"),) if number % 2 else ()
                key = str(partition)
                await producer.send("orders", str(number), key, partition, headers=headers)

    headrace_module.run(produce())
    return "orders"


def frame(spark: SparkSession, broker: TestBroker, topic: str, **more: object) -> DataFrame:
    return spark.read.format("headrace").options(**options_of(broker, topic, more)).load()


def stream(
    spark: SparkSession, broker: TestBroker, topic: str, checkpoint: Path, each: Any, **more: object
) -> StreamingQuery:
    """Read what is there now, and hand every micro-batch to `each`."""
    given = options_of(broker, topic, {"startingOffsets": "earliest", **more})
    writer = (
        spark.readStream.format("headrace")
        .options(**given)
        .load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    return run(writer.start)


def test_spark_sees_every_record(
    spark: SparkSession, headrace_module: TestBroker, orders: str
) -> None:
    rows = frame(spark, headrace_module, orders, includeHeaders="true").collect()
    assert sorted(int(row.value) for row in rows) == list(range(RECORDS))
    assert all(row.topic == orders and int(row.key) == row.partition for row in rows)
    assert all((row.headers is not None) == int(row.value) % 2 for row in rows)
    assert abs(rows[0].timestamp.timestamp() - time.time()) < 600


def test_the_example_of_the_readme_runs(
    spark: SparkSession,
    headrace_module: TestBroker,
    orders: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    (block,) = (each for each in blocks if "spark.session()" in each)
    here = block.replace("127.0.0.1:9092", headrace_module.bootstrap)
    assert here != block
    exec(compile(here, "README.md", "exec"), {})
    assert re.search(r"\| +0\| +334\|", capsys.readouterr().out)


def test_columns_that_are_not_wanted_are_not_there(
    spark: SparkSession, headrace_module: TestBroker, orders: str
) -> None:
    read = frame(spark, headrace_module, orders, columns="offset,value")
    assert read.columns == ["offset", "value"]
    assert read.count() == RECORDS


def test_filters_reach_the_source_when_sparks_switch_is_on(
    spark: SparkSession, headrace_module: TestBroker, orders: str
) -> None:
    wanted = "partition = 1 and offset >= 10 and offset < 20 and timestamp > '2020-01-01'"
    read = frame(spark, headrace_module, orders).where(wanted)
    assert [row.offset for row in read.collect()] == list(range(10, 20))
    # One task: the other partitions are not even planned.
    assert read.rdd.getNumPartitions() == 1


def test_without_the_switch_filters_hold_all_the_same(
    spark: SparkSession, headrace_module: TestBroker, orders: str
) -> None:
    spark.conf.set(PUSHDOWN, "false")
    try:
        read = frame(spark, headrace_module, orders).where("partition = 1 and offset < 5")
        assert read.count() == 5
        assert read.rdd.getNumPartitions() == PARTITIONS
        asked_for = frame(spark, headrace_module, orders, filterPushdown="true")
        with pytest.raises(PySparkException, match=PUSHDOWN):
            asked_for.where("partition = 1").count()
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_one_partition_can_be_many_tasks(
    spark: SparkSession, headrace_module: TestBroker, orders: str
) -> None:
    read = frame(spark, headrace_module, orders, minPartitions=9)
    assert read.rdd.getNumPartitions() == 9
    assert read.select("value").distinct().count() == RECORDS


def test_a_mistyped_option_fails_before_anything_runs(
    spark: SparkSession, headrace_module: TestBroker, orders: str
) -> None:
    with pytest.raises(PySparkException, match="did you mean 'startingOffsets'"):
        frame(spark, headrace_module, orders, startingOfsets="earliest")


def test_progress_is_committed_after_a_batch_is_durable_and_not_before(
    spark: SparkSession, headrace_module: TestBroker, orders: str, tmp_path: Path
) -> None:
    """Pins that Spark calls latestOffset(start) only when the batch up to start is committed."""
    seen: list[tuple[int, int, int]] = []

    def note(batch: DataFrame, number: int) -> None:
        done = sum(committed(headrace_module, "pinned").values())
        commits = len(list((tmp_path / "commits").glob("[0-9]*")))
        seen.append((number, commits, done))
        assert batch.count() > 0

    more = {"kafka.group.id": "pinned", "maxOffsetsPerTrigger": 300}
    query = stream(spark, headrace_module, orders, tmp_path, note, **more)
    assert seen == [(0, 0, 0), (1, 1, 300), (2, 2, 600), (3, 3, 900)]
    assert sum(committed(headrace_module, "pinned").values()) == RECORDS
    progress = query.lastProgress
    assert progress is not None
    source = progress["sources"][0]
    assert '"orders"' in str(source["latestOffset"]).replace("'", '"')


def test_a_batch_that_fails_is_not_committed_and_comes_again(
    spark: SparkSession, headrace_module: TestBroker, orders: str, tmp_path: Path
) -> None:
    def fail(batch: DataFrame, number: int) -> None:
        if number == 1:
            raise RuntimeError("not today")

    more = {"kafka.group.id": "failing", "maxOffsetsPerTrigger": 400}
    with pytest.raises(PySparkException, match="not today"):
        stream(spark, headrace_module, orders, tmp_path, fail, **more)
    assert sum(committed(headrace_module, "failing").values()) == 400

    values: list[int] = []
    stream(
        spark,
        headrace_module,
        orders,
        tmp_path,
        lambda batch, _: values.extend(int(row.value) for row in batch.collect()),
        **more,
    )
    assert len(values) == RECORDS - 400
    done = committed(headrace_module, "failing")
    assert set(done) == {TopicPartition(orders, index) for index in range(PARTITIONS)}
    assert sum(done.values()) == RECORDS


def test_a_lost_topic_is_named_to_the_user(
    spark: SparkSession, headrace_module: TestBroker
) -> None:
    with pytest.raises(PySparkException, match="there is no topic 'nowhere'; create it first"):
        frame(spark, headrace_module, "nowhere").count()
