"""Tables with Spark itself: rows through executors, and drivers that are killed.

Kills: one in a sample, and every step for each of the three formats, 24, which is exhaustive.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark import session
from headrace.spark.tables import api
from headrace.spark.tables.administration import create_table
from headrace.spark.tables.running import STEPS
from headrace.testing.broker import TestBroker
from tests.spark.fated_jobs import RUN_SECONDS_MAX, run_job
from tests.spark.table_job import TABLE
from tests.tables.worlds import stored_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(30 * RUN_SECONDS_MAX),
    pytest.mark.usefixtures("java"),
]


@pytest.fixture(scope="module")
def spark(java: None) -> Iterator[SparkSession]:
    made = session("local[2]", banner=False)
    yield made
    made.stop()


def produce(broker: TestBroker, batch: int) -> None:
    """Two partitions, a column that comes later, and a record that is not JSON."""
    for partition in range(2):
        rows = [json.dumps({"id": number, f"c{batch}": "x" * number}) for number in range(20)]
        broker.produce("orders", *rows, f"bad {batch}", partition=partition)


def test_a_table_equals_its_topic_after_its_driver_was_killed(
    headrace: TestBroker, spark: SparkSession, tmp_path: Path
) -> None:
    headrace.create_topic("orders", partitions=2)
    create_table(headrace.bootstrap, TABLE, topic="orders", location=str(tmp_path / "lake"))
    produce(headrace, 0)
    run_job("table_job", headrace.bootstrap, tmp_path, 0, "after letters")
    assert stored_rows(tmp_path / "lake", "iceberg") == []
    produce(headrace, 1)
    done = api.run_table(headrace.bootstrap, TABLE, spark)
    assert sum(each.rows for each in done) == 80
    report = api.verify(headrace.bootstrap, TABLE, spark)
    assert report.is_equal
    assert sum(each.table_dead for each in report.ranges) == 4
    produce(headrace, 1)
    joined = (
        spark.read.format("headrace-table")
        .option("kafka.bootstrap.servers", headrace.bootstrap)
        .option("table", TABLE)
        .load()
    )
    assert joined.where("c1 is not null").count() == 80
    assert joined.select("_partition", "_offset").distinct().count() == 120
    rows = stored_rows(tmp_path / "lake", "iceberg")
    assert len(rows) == 80
    assert rows[5]["c0"] == "xxxxx"


@pytest.mark.exhaustive
@pytest.mark.parametrize("to", ["iceberg", "delta", "parquet"])
def test_a_table_equals_its_topic_wherever_its_driver_is_killed(
    headrace: TestBroker, spark: SparkSession, tmp_path: Path, to: str
) -> None:
    headrace.create_topic("orders", partitions=2)
    create_table(headrace.bootstrap, TABLE, topic="orders", location=str(tmp_path / "lake"), to=to)
    for batch, step in enumerate(STEPS):
        produce(headrace, batch)
        run_job("table_job", headrace.bootstrap, tmp_path, 0, step)
    api.run_table(headrace.bootstrap, TABLE, spark)
    assert api.verify(headrace.bootstrap, TABLE, spark).is_equal
    assert len(stored_rows(tmp_path / "lake", to)) == 40 * len(STEPS)
