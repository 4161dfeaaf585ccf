"""Several executors: processes that have nothing of the driver's but what they are sent."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from headrace.client import Admin, Producer
from headrace.client.configs import Resource, ResourceType
from headrace.client.topics import TopicPartition
from headrace.testing.broker import TestBroker
from tests.spark.cluster_job import (
    A_BATCH,
    GROUP,
    OWN_SESSION,
    QUEUE_GROUP,
    RECORDS,
    RUN_SECONDS_MAX,
    SPOILED,
    STREAMED,
    TOPIC,
    WRITTEN,
)
from tests.spark.reads import committed
from tests.spark.share_queues import QUICK, lag
from tests.spark.sink_reads import committed_values, open_transactions
from tests.spark.spark_processes import standalone_cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.timeout(3 * RUN_SECONDS_MAX),
    pytest.mark.usefixtures("java"),
]
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
PARTITIONS = 2


@pytest.fixture
def headrace_settings() -> Mapping[str, str]:
    return QUICK


async def fill(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, PARTITIONS)
        for name in (WRITTEN, STREAMED, SPOILED, OWN_SESSION):
            await admin.create_topic(name, PARTITIONS)
        group = Resource(ResourceType.GROUP, QUEUE_GROUP)
        await admin.alter_configs(group, set={"share.auto.offset.reset": "earliest"})
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(TOPIC, str(number), partition=number % PARTITIONS)


def run_job(master: str, bootstrap: str, folder: Path) -> Mapping[str, list[str]]:
    """Run the program on a cluster; give what it collected."""
    folder.mkdir()
    job = [sys.executable, "-m", "tests.spark.cluster_job", master, bootstrap, str(folder)]
    done = subprocess.run(
        job,
        capture_output=True,
        text=True,
        timeout=2 * RUN_SECONDS_MAX,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    report: dict[str, list[str]] = json.loads((folder / "report.json").read_text())
    return report


def check(values: Iterable[str], numbers: Iterable[int]) -> None:
    """Each row once, and from more than one executor."""
    rows = [value.split() for value in values]
    assert sorted(int(number) for number, _ in rows) == list(numbers)
    assert len({executor for _, executor in rows}) == 2


def check_cluster(broker: TestBroker, master: str, folder: Path) -> None:
    bootstrap = broker.bootstrap
    asyncio.run(fill(bootstrap))
    report = run_job(master, bootstrap, folder)
    for step in ("read", "queue", "own session"):
        check(report[step], range(RECORDS))
    for topic in (WRITTEN, STREAMED, OWN_SESSION):
        check((value.decode() for value in committed_values(bootstrap, topic)), range(RECORDS))
    # Nothing of the batch write that failed, and the micro-batch before the one that did.
    check((value.decode() for value in committed_values(bootstrap, SPOILED)), range(A_BATCH))
    assert open_transactions(bootstrap) == []
    ends = {TopicPartition(TOPIC, index): RECORDS // PARTITIONS for index in range(PARTITIONS)}
    assert committed(broker, f"{GROUP}-{STREAMED}") == ends
    assert lag(broker, QUEUE_GROUP) == 0


def test_a_cluster_in_one_machine_reads_and_writes_in_all_executors(
    headrace: TestBroker, tmp_path: Path
) -> None:
    check_cluster(headrace, LOCAL_CLUSTER, tmp_path / "job")


def test_a_standalone_cluster_reads_and_writes_in_all_executors(
    headrace: TestBroker, tmp_path: Path
) -> None:
    with standalone_cluster(tmp_path / "cluster") as master:
        check_cluster(headrace, master, tmp_path / "job")
