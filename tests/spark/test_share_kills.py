"""The driver killed at each step of a micro-batch: no record is lost, and none is done twice.

Not twice, because one query alone works on the queue and its sink writes over what a replay has
already written. With more members, what a dead driver had not acknowledged may go to another one.

Kills: 7 steps, forth and back on Headrace and forth on Apache Kafka, and a sample of one: 22. Those
of the sink (`test_sink_kills`) are as many, so that the driver dies 44 times.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headrace.client import Admin, Producer
from headrace.client.share.offsets import ShareStart, describe_share_offsets
from headrace.testing.broker import TestBroker
from tests.jvm.kafka_broker import kafka
from tests.spark.fated_jobs import NEVER, RUN_SECONDS_MAX, run_job
from tests.spark.share_job import A_BATCH, GROUP, STEPS, TOPIC
from tests.spark.share_queues import QUICK, SESSION, create_queue
from tools.jvm import harness

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(20 * RUN_SECONDS_MAX),
    pytest.mark.usefixtures("java"),
]
SAMPLE = "after Spark's commit, before the acceptance"
ONE_NODE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

NO_CONFIGS: Mapping[str, str] = {}


@pytest.fixture
def headrace_settings() -> Mapping[str, str]:
    return QUICK


async def fill_queue(bootstrap: str, records: int, configs: Mapping[str, str]) -> None:
    limit = {"share.delivery.count.limit": "10"}
    await create_queue(bootstrap, TOPIC, GROUP, 2, **limit, **configs)
    async with Producer(bootstrap) as producer:
        for number in range(records):
            await producer.send(TOPIC, str(number), partition=number % 2)


async def lag(bootstrap: str) -> list[int | None]:
    async with Admin(bootstrap) as admin:
        found = await describe_share_offsets(admin.cluster, GROUP)
    return [each.lag for each in found.values() if isinstance(each, ShareStart)]


def check_kills(
    bootstrap: str, folder: Path, steps: Sequence[str], configs: Mapping[str, str] = NO_CONFIGS
) -> None:
    """Run a query that is killed at each step in turn, a batch later each time."""
    records = A_BATCH * (len(steps) + 1)
    asyncio.run(fill_queue(bootstrap, records, configs))
    (folder / "out").mkdir(parents=True)
    for batch, step in enumerate(steps):
        run_job("share_job", bootstrap, folder, batch, step)
    run_job("share_job", bootstrap, folder, len(steps), NEVER)
    files = (folder / "out").glob("*.json")
    seen = [int(value) for file in files for value in json.loads(file.read_text())]
    assert sorted(seen) == list(range(records))
    assert asyncio.run(lag(bootstrap)) == [0, 0]


@pytest.mark.exhaustive
def test_no_record_is_lost_when_the_driver_dies_before_it_accepts(
    headrace: TestBroker, tmp_path: Path
) -> None:
    check_kills(headrace.bootstrap, tmp_path, [SAMPLE], SESSION)


@pytest.mark.exhaustive
@pytest.mark.parametrize("steps", [STEPS, STEPS[::-1]], ids=["forth", "back"])
def test_no_record_is_lost_wherever_the_driver_dies(
    headrace: TestBroker, tmp_path: Path, steps: Sequence[str]
) -> None:
    check_kills(headrace.bootstrap, tmp_path, steps)


@pytest.mark.exhaustive
@pytest.mark.jvm
@pytest.mark.skipif(harness.missing_tools() is not None, reason=harness.missing_tools() or "")
def test_no_record_of_apache_kafka_is_lost_wherever_the_driver_dies(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka", extra=QUICK | ONE_NODE) as bootstrap:
        check_kills(bootstrap, tmp_path / "job", STEPS)
