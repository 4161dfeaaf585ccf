"""The control plane in Spark: frames, SQL, filters, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.client.cluster import Cluster
from headrace.client.groups import commit_offsets
from headrace.client.topics import TopicPartition
from headrace.spark import session, system
from headrace.spark.options import InvalidOption
from headrace.testing.broker import TestBroker
from headrace.web.server import WebServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    settings = {"http.listen": "127.0.0.1:0"}
    with TestBroker(tmp_path_factory.mktemp("system"), settings=settings) as made:
        web = WebServer(made.node)
        made.run(web.start())
        made.create_topic("orders", partitions=2)
        made.produce("orders", *map(str, range(10)), partition=0)

        async def commit() -> None:
            async with Cluster(made.bootstrap) as cluster:
                await commit_offsets(cluster, "billing", {TopicPartition("orders", 0): 4})

        made.run(commit())
        yield made
        made.run(web.stop())


@pytest.fixture(scope="module")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    made = session("local[2]", banner=False, config={"spark.sql.warehouse.dir": str(warehouse)})
    yield made
    made.stop()


@pytest.fixture(scope="module")
def tables(spark: SparkSession, broker: TestBroker) -> list[str]:
    return system.attach(spark, broker.bootstrap)


def test_groups_and_their_lag_can_be_asked_for_in_sql(
    spark: SparkSession, tables: list[str]
) -> None:
    rows = spark.sql("select group_id, lag from headrace.groups where group_id = 'billing'")
    assert [tuple(row) for row in rows.collect()] == [("billing", 6)]
    joined = spark.sql(
        "select p.topic, p.end_offset, o.offset, o.lag from headrace.partitions p "
        "join headrace.group_offsets o on p.topic = o.topic and p.partition = o.partition"
    )
    assert [tuple(row) for row in joined.collect()] == [("orders", 10, 4, 6)]


def test_tables_of_headrace_alone_can_be_read_and_explain_their_columns(
    spark: SparkSession, tables: list[str]
) -> None:
    assert len(tables) == len(system.FRAMES)
    names = ("headrace.sessions", "headrace.segments", "headrace.metadata")
    every = " union all ".join(
        f"select '{each}' as name, count(*) as n from {each}" for each in names
    )
    assert all(row["n"] > 0 for row in spark.sql(every).collect())
    described = {
        row["col_name"]: row["comment"] for row in spark.sql("describe headrace.groups").collect()
    }
    assert described["lag"] == "The sum of its lags; null if none is known"


def test_tables_are_attached_again_and_a_users_table_is_not_dropped(
    spark: SparkSession, broker: TestBroker, tables: list[str]
) -> None:
    assert system.attach(spark, broker.bootstrap) == tables
    spark.sql("create database if not exists mine")
    spark.sql("create table mine.groups (a int) using parquet")
    with pytest.raises(InvalidOption, match=r"mine\.groups that is no system frame"):
        system.attach(spark, broker.bootstrap, database="mine")


def test_a_frame_is_a_dataframe_with_types(spark: SparkSession, broker: TestBroker) -> None:
    segments = system.frame(spark, "segments", broker.bootstrap).where("topic = 'orders'")
    assert dict(segments.dtypes)["last_timestamp"] == "timestamp"
    assert segments.agg({"end_offset": "max"}).collect()[0][0] == 10


def test_what_is_misspelt_is_told(spark: SparkSession, broker: TestBroker) -> None:
    with pytest.raises(InvalidOption, match="did you mean 'partitions'"):
        system.frame(spark, "partition", broker.bootstrap)
    reader = spark.read.format("headrace-system").option("frame", "gruops")
    with pytest.raises(PySparkException, match="did you mean 'groups'"):
        reader.option("kafka.bootstrap.servers", broker.bootstrap).load()


def test_a_cluster_without_pages_names_the_frame(spark: SparkSession, tmp_path: Path) -> None:
    with TestBroker(tmp_path, settings={"http.listen": ""}) as plain:
        assert system.frame(spark, "nodes", plain.bootstrap).count() == 1
        with pytest.raises(PySparkException, match="system frame 'segments' needs the HTTP pages"):
            system.frame(spark, "segments", plain.bootstrap).count()
