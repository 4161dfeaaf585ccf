"""Queries that are stopped at any moment: nothing stays open, and no row is lost or doubled."""

import os
import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark import session
from headrace.testing.broker import TestBroker
from tests.spark.queries import run
from tests.spark.sink_reads import committed_values, open_transactions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("java"),
]
STOPS = 12
MOMENT_SECONDS_MAX = 4.0
POLL_SECONDS = 0.02
DEADLINE_SECONDS = 120
OPEN_SECONDS_MAX = 10
"""How long a transaction may stay open after a stop, on a machine that may be busy."""


def start(spark: SparkSession, bootstrap: str, folder: Path, *, is_ending: bool) -> StreamingQuery:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    writer = (
        lines.repartition(2)
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", folder.name)
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if is_ending else writer).start()


def wait_until_nothing_is_open(bootstrap: str) -> None:
    until = time.monotonic() + OPEN_SECONDS_MAX
    while left := open_transactions(bootstrap):
        assert time.monotonic() < until, left
        time.sleep(POLL_SECONDS)  # polls, up to the deadline


def test_a_query_that_is_stopped_at_any_moment_leaves_nothing_open(
    headrace: TestBroker, tmp_path: Path
) -> None:
    seed = int(os.environ.get("HEADRACE_TESTS_SEED") or random.randrange(2**32))
    print(f"HEADRACE_TESTS_SEED={seed}")
    choose = random.Random(seed)
    spark = session("local[2]", banner=False)
    for number in range(STOPS):
        folder = tmp_path / f"topic-{number}"
        (folder / "in").mkdir(parents=True)
        headrace.create_topic(folder.name, partitions=2)
        for file in range(8):
            lines = (f"{file} {line}" for line in range(100))
            (folder / "in" / f"{file}.txt").write_text("\n".join(lines))
        query = start(spark, headrace.bootstrap, folder, is_ending=False)
        # The first one when it is about to commit for the first time: Spark starts a process then.
        until = time.monotonic() + (
            choose.uniform(0, MOMENT_SECONDS_MAX) if number else DEADLINE_SECONDS
        )
        while time.monotonic() < until:
            if not number and open_transactions(headrace.bootstrap):
                break
            time.sleep(POLL_SECONDS)  # polls: what is tested is any moment
        query.stop()
        wait_until_nothing_is_open(headrace.bootstrap)
        run(lambda folder=folder: start(spark, headrace.bootstrap, folder, is_ending=True))  # type: ignore[misc]
        expected = sorted(f"{file} {line}".encode() for file in range(8) for line in range(100))
        assert committed_values(headrace.bootstrap, folder.name) == expected
        assert open_transactions(headrace.bootstrap) == []
    spark.stop()
