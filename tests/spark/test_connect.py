"""Headrace's formats through Spark Connect: a client without Java, and a server with it."""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.errors import KafkaError
from headrace.testing.broker import TestBroker
from tests.spark.connect_job import (
    GROUP,
    RECORDS,
    REJECTED,
    REJECTED_GROUP,
    STREAMED,
    TOPIC,
    WORKED,
    WRITTEN,
)
from tests.spark.connect_server import connect_server
from tests.spark.share_queues import lag
from tests.spark.sink_reads import committed_values

PROGRAM_SECONDS_MAX = 900
PARTITIONS = 2
DEAD_LETTERS = "dlq.connect"
DEADLINE_SECONDS = 30
NEEDED = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
"""What a client of Spark Connect imports: `pip install 'pyspark[connect]'`."""


def _missing() -> list[str]:
    def is_missing(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is None
        except ModuleNotFoundError:
            return True

    return [name for name in NEEDED if is_missing(name)]


pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.timeout(PROGRAM_SECONDS_MAX + 300),
    pytest.mark.skipif(
        bool(_missing()), reason=f"pip install 'pyspark[connect]': no {', '.join(_missing())}"
    ),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        for topic in (TOPIC, WRITTEN, STREAMED, WORKED):
            running.create_topic(topic, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            values = map(str, range(partition, RECORDS, PARTITIONS))
            running.produce(TOPIC, *values, partition=partition)
        running.run(_configure(running))
        yield running


@pytest.fixture(scope="module")
def report(
    java: None, broker: TestBroker, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the program saw, after it has done everything."""
    folder = tmp_path_factory.mktemp("connect")
    with connect_server(folder) as remote:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.spark.connect_job"),
                *(remote, broker.bootstrap, str(folder)),
            ],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            timeout=PROGRAM_SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_remote_session_has_no_java_of_its_own(report: dict[str, Any]) -> None:
    assert report["client"] == "pyspark.sql.connect.session"
    assert report["pushdown"] == "true"


def test_a_topic_is_read(report: dict[str, Any]) -> None:
    assert report["values"] == list(range(RECORDS))
    assert report["columns"] == ["offset", "value"]
    assert report["filtered"] == [0, 1, 2, 3, 4]


def test_what_is_wrong_is_said_to_the_client(report: dict[str, Any]) -> None:
    assert "did you mean 'startingOffsets'" in report["mistyped"]
    assert "there is no topic 'nowhere'; create it first" in report["missing"]


def test_a_batch_is_written(report: dict[str, Any], broker: TestBroker) -> None:
    assert committed_values(broker.bootstrap, WRITTEN) == _values()


def test_a_topic_is_streamed_into_memory_and_into_a_topic(
    report: dict[str, Any], broker: TestBroker
) -> None:
    assert report["in memory"] == RECORDS
    assert committed_values(broker.bootstrap, STREAMED) == _values()


def test_a_queue_is_worked_off(report: dict[str, Any], broker: TestBroker) -> None:
    assert committed_values(broker.bootstrap, WORKED) == _values()
    assert lag(broker, GROUP) == 0


def test_records_that_code_on_the_server_rejects_are_dead_letters(
    report: dict[str, Any], broker: TestBroker
) -> None:
    expected = sorted(str(number).encode() for number in range(REJECTED * PARTITIONS))
    until = time.monotonic() + DEADLINE_SECONDS
    while (found := _dead_letters(broker)) != expected:
        assert time.monotonic() < until, found
    assert lag(broker, REJECTED_GROUP) == 0


def _values() -> list[bytes]:
    return sorted(str(number).encode() for number in range(RECORDS))


def _dead_letters(broker: TestBroker) -> list[bytes]:
    """The values of all that are there; their topic is made with the first."""
    try:
        return sorted(record.value or b"" for record in broker.consume(DEAD_LETTERS))
    except KafkaError:
        return []


async def _configure(broker: TestBroker) -> None:
    async with Admin(broker.bootstrap) as admin:
        for group, more in (
            (GROUP, {}),
            (REJECTED_GROUP, {"errors.deadletterqueue.topic.name": DEAD_LETTERS}),
        ):
            await admin.alter_configs(
                Resource(ResourceType.GROUP, group),
                set={"share.auto.offset.reset": "earliest", **more},
            )
