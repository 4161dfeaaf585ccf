"""The tier as DataFrames, with a session and a broker that copies to a folder."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as Spark's users write it

from headrace.cli.program import headrace as program
from headrace.client import Producer
from headrace.client.cluster import Cluster
from headrace.client.remote_log import RemoteLogTopic
from headrace.remote.layout import LEASES_PREFIX
from headrace.remote.segments import RemoteSegment, SegmentState
from headrace.remote.store_options import StoreOptions
from headrace.spark import session
from headrace.spark.tier.audit import check_with
from headrace.testing.broker import TestBroker
from tests.spark.reads import options_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
BATCHES = 60
DEADLINE_SECONDS = 120


class Tiered:
    """A topic with aborted transactions whose old segments a broker has copied."""

    def __init__(self, folder: Path) -> None:
        self.store = folder.as_uri()
        self.folder = folder
        self.broker = TestBroker(
            settings={
                "remote.log.storage.system.enable": "true",
                "headrace.tier.store": self.store,
                "remote.log.manager.task.interval.ms": "100",
                "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
                "rlmm.config.remote.log.metadata.topic.min.isr": "1",
                "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
            }
        )
        self.broker.start()
        self.broker.create_topic(
            "orders",
            partitions=2,
            configs={"remote.storage.enable": "true", "segment.bytes": str(1024 * 1024)},
        )
        self.broker.run(self._produce())

    async def _produce(self) -> None:
        async with Producer(self.broker.bootstrap, transactional_id="t") as producer:
            for number in range(BATCHES):
                try:
                    async with producer.transaction():
                        for each in range(40):
                            value = f"{number}-{each}".ljust(5000)
                            await producer.send("orders", value, partition=each % 2)
                        if number % 3 == 0:
                            raise _Abort
                except _Abort:
                    pass

    def segments(self) -> list[RemoteSegment]:
        async def read() -> list[RemoteSegment]:
            async with Cluster(self.broker.bootstrap) as cluster:
                known = await RemoteLogTopic(cluster).read()
                return [
                    each
                    for key in known.partitions()
                    for each in known.cache.segments(key)
                    if each.state is SegmentState.COPY_FINISHED
                ]

        return asyncio.run(read())

    def wait(self, wanted: int) -> list[RemoteSegment]:
        """Wait until so many segments are copied."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(found := self.segments()) < wanted:
            assert time.monotonic() < deadline, f"{len(found)} segments are copied, not {wanted}"
            time.sleep(0.1)  # polls, up to the deadline
        return found


class _Abort(Exception):
    pass


@pytest.fixture(scope="module")
def spark(java: None) -> Iterator[SparkSession]:
    made = session("local[2]", banner=False)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    made = Tiered(tmp_path_factory.mktemp("tier"))
    try:
        made.wait(8)
        yield made
    finally:
        made.broker.stop()


def frame(spark: SparkSession, tiered: Tiered, **more: object) -> DataFrame:
    given = {"store": tiered.store, "subscribe": "orders"}
    given |= {name.replace("_", "."): str(value) for name, value in more.items()}
    return spark.read.format("headrace-tier").options(**given).load()


def test_the_tier_has_the_same_rows_as_the_brokers(spark: SparkSession, tiered: Tiered) -> None:
    whole = spark.read.format("headrace").options(**options_of(tiered.broker, "orders", {})).load()
    for more in ({}, {"kafka_bootstrap_servers": tiered.broker.bootstrap}):
        rows = frame(spark, tiered, **more)
        ends = {
            row["partition"]: row["end"]
            for row in rows.groupBy("partition").agg(F.max("offset").alias("end")).collect()
        }
        assert len(ends) == 2
        expected = [row for row in whole.collect() if row["offset"] <= ends[row["partition"]]]
        assert sorted(map(tuple, rows.collect())) == sorted(map(tuple, expected))
        assert len(expected) > 500


def test_filters_skip_segments_and_change_no_row(spark: SparkSession, tiered: Tiered) -> None:
    rows = frame(spark, tiered)
    everything = rows.collect()
    some = rows.where("partition = 1 and offset >= 100 and offset < 300").collect()
    assert sorted(map(tuple, some)) == sorted(
        tuple(row) for row in everything if row["partition"] == 1 and 100 <= row["offset"] < 300
    )
    middle = sorted(row["timestamp"] for row in everything)[len(everything) // 2]
    late = rows.where(F.col("timestamp") >= F.lit(middle)).count()
    assert late == sum(row["timestamp"] >= middle for row in everything)


def test_a_read_leaves_no_lease(spark: SparkSession, tiered: Tiered) -> None:
    rows = frame(spark, tiered, maxRecordsPerPartition=200)
    assert rows.count() == rows.count() > 0
    assert list((tiered.folder / LEASES_PREFIX).rglob("*.json")) == []


def test_uncommitted_rows_are_more(spark: SparkSession, tiered: Tiered) -> None:
    committed = frame(spark, tiered, lease=False).count()
    everything = frame(spark, tiered, lease=False, kafka_isolation_level="read_uncommitted").count()
    assert everything > committed


def test_a_wrong_option_is_refused_by_name(spark: SparkSession, tiered: Tiered) -> None:
    with pytest.raises(PySparkException, match="startingOffset"):
        frame(spark, tiered, startingOffset="5").collect()


def test_an_audit_finds_damage_on_executors(spark: SparkSession, tiered: Tiered) -> None:
    segments = tiered.segments()
    assert check_with(spark, tiered.store, StoreOptions(), segments) == {}
    path = next(iter(sorted(tiered.folder.rglob("*.log"))))
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        damaged = check_with(spark, tiered.store, StoreOptions(), segments)
        assert len(damaged) == 1
        assert "damaged" in next(iter(damaged.values()))
    finally:
        path.write_bytes(good)


def test_the_command_audits_the_brokers_store(spark: SparkSession, tiered: Tiered) -> None:
    words = ["tier", "audit", "--master", "local[2]", "-b", tiered.broker.bootstrap]
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()][:2] == ["CLASS", "ok"]
    path = next(iter(sorted(tiered.folder.rglob("*.index"))))
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    try:
        done = CliRunner().invoke(program, [*words, "--json"])
        assert done.exit_code == 1
        found = json.loads(done.stdout)
        assert found["classes"]["mismatch"]["segments"] == 1
    finally:
        path.write_bytes(good)
