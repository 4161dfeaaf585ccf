"""The driver killed at each step of a micro-batch: no record is lost, and none is done twice.

Not twice, because one query alone works on the queue and its sink writes over what a replay has
already written. With more members, what a dead driver had not acknowledged may go to another one.
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from headrace.client import Admin, Producer
from headrace.client.configs import Resource, ResourceType
from headrace.client.share.offsets import ShareStart, describe_share_offsets
from headrace.spark.java import NoJava, java_home
from headrace.testing.broker import TestBroker
from tests.jvm.kafka_broker import kafka
from tests.spark.share_job import A_BATCH, GROUP, NEVER, RUN_SECONDS_MAX, STEPS, TOPIC
from tests.spark.share_queues import QUICK
from tools.jvm import harness

try:
    java_home()
    NO_JAVA = ""
except NoJava as error:
    NO_JAVA = str(error)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.timeout(20 * RUN_SECONDS_MAX),
    pytest.mark.skipif(bool(NO_JAVA), reason=NO_JAVA),
]
ONE_NODE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


@pytest.fixture
def headrace_settings() -> Mapping[str, str]:
    return QUICK


async def fill_queue(bootstrap: str, records: int) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, 2)
        configs = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
        await admin.alter_configs(Resource(ResourceType.GROUP, GROUP), set=configs)
    async with Producer(bootstrap) as producer:
        for number in range(records):
            await producer.send(TOPIC, str(number), partition=number % 2)


async def lag(bootstrap: str) -> list[int | None]:
    async with Admin(bootstrap) as admin:
        found = await describe_share_offsets(admin.cluster, GROUP)
    return [each.lag for each in found.values() if isinstance(each, ShareStart)]


def run_job(bootstrap: str, folder: Path, batch: int, step: str) -> None:
    job = [sys.executable, "-m", "tests.spark.share_job"]
    done = subprocess.run(
        [*job, bootstrap, str(folder), str(batch), step],
        capture_output=True,
        text=True,
        timeout=2 * RUN_SECONDS_MAX,
        check=False,
    )
    expected = 0 if step == NEVER else -signal.SIGKILL
    assert done.returncode == expected, done.stdout[-2000:] + done.stderr[-4000:]


def check_kills(bootstrap: str, folder: Path, steps: Sequence[str]) -> None:
    """Run a query that is killed at each step in turn, a batch later each time."""
    records = A_BATCH * (len(steps) + 1)
    asyncio.run(fill_queue(bootstrap, records))
    (folder / "out").mkdir(parents=True)
    for batch, step in enumerate(steps):
        run_job(bootstrap, folder, batch, step)
    run_job(bootstrap, folder, len(steps), NEVER)
    files = (folder / "out").glob("*.json")
    seen = [int(value) for file in files for value in json.loads(file.read_text())]
    assert sorted(seen) == list(range(records))
    assert asyncio.run(lag(bootstrap)) == [0, 0]


@pytest.mark.parametrize("steps", [STEPS, STEPS[::-1]], ids=["forth", "back"])
def test_no_record_is_lost_wherever_the_driver_dies(
    headrace: TestBroker, tmp_path: Path, steps: Sequence[str]
) -> None:
    check_kills(headrace.bootstrap, tmp_path, steps)


@pytest.mark.jvm
@pytest.mark.skipif(harness.missing_tools() is not None, reason=harness.missing_tools() or "")
def test_no_record_of_apache_kafka_is_lost_wherever_the_driver_dies(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka", extra=QUICK | ONE_NODE) as bootstrap:
        check_kills(bootstrap, tmp_path / "job", STEPS)
