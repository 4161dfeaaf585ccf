"""Executors, Python workers and brokers killed under a stream: nothing is lost, topics are exact.

The driver's own deaths are in `test_sink_kills` and `test_share_kills`. Every run prints its seed,
and HEADRACE_TESTS_SEED plays one again, as far as two machines are ever alike.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headrace.client import Admin, Producer
from headrace.client.configs import Resource, ResourceType
from tests.headrace_process import HeadraceProcess
from tests.spark.lasting_job import A_BATCH, GROUP, OUT, QUEUE, RUN_SECONDS_MAX, TOPIC, TOPICS
from tests.spark.queries import NOT_STARTED
from tests.spark.share_queues import QUICK
from tests.spark.sink_reads import committed_values, open_transactions
from tests.spark.victims import executors, python_workers
from tools.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * RUN_SECONDS_MAX),
    pytest.mark.usefixtures("java"),
]
KILLS = 10
ROUND_RECORDS = 3 * A_BATCH
MOMENT_SECONDS_MAX = 3.0
DEADLINE_SECONDS = 300
POLL_SECONDS = 0.05
OUTAGE_SECONDS = 60.0
PARTITIONS = 2
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
LOCAL = "local[2]"


class Scene:
    """A broker, a job that runs against it, and the rows that it was given so far."""

    def __init__(self, kind: str, master: str, folder: Path) -> None:
        seed = int(os.environ.get("HEADRACE_TESTS_SEED") or random.randrange(2**32))
        print(f"HEADRACE_TESTS_SEED={seed}")
        self.choose = random.Random(seed)
        self.kind = kind
        self.rows = 0
        self.folder = folder
        self._data = folder / "data"
        (folder / "out").mkdir()
        self._port = free_port()
        self.broker = HeadraceProcess(self._data, QUICK, port=self._port)
        asyncio.run(_make(self.bootstrap))
        self.give()
        self._output = folder / "job.out"
        command = [sys.executable, "-m", "tests.spark.lasting_job"]
        with self._output.open("wb") as file:
            self._job = subprocess.Popen(
                [*command, kind, master, self.bootstrap, str(folder)],
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The job's."""
        return self._job.pid

    def give(self, records: int = A_BATCH) -> None:
        """Add rows to the input."""
        asyncio.run(_produce(self.bootstrap, range(self.rows, self.rows + records)))
        self.rows += records

    def work(self) -> None:
        """Let the job get on with more rows, up to any moment."""
        self.give(ROUND_RECORDS)
        self.wait_for_progress()
        until = time.monotonic() + self.choose.uniform(0, MOMENT_SECONDS_MAX)
        while time.monotonic() < until:
            self.check_alive()
            time.sleep(POLL_SECONDS)  # polls: what is tested is any moment

    def wait_for_progress(self) -> None:
        """Wait until a further batch is in Spark's commit log."""
        before = self._batches()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self._batches() <= before:
            assert time.monotonic() < deadline, f"no batch gets done:\n{self.end_of_output()}"
            self.check_alive()
            time.sleep(POLL_SECONDS)  # polls, up to the deadline

    def kill_broker(self, outage_seconds: float = 0.0) -> None:
        """Kill the broker, and start it again at the same address on the same data."""
        self.broker.kill()
        until = time.monotonic() + outage_seconds
        while time.monotonic() < until:
            self.check_alive()
            time.sleep(POLL_SECONDS)  # polls: the outage is what is tested
        self.broker = HeadraceProcess(self._data, QUICK, port=self._port)

    def kill_one(self, find: Callable[[int], list[int]]) -> None:
        """Kill one of the job's processes, as soon as there is one of these."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            assert time.monotonic() < deadline, f"nobody to kill:\n{self.end_of_output()}"
            self.check_alive()
            if found := find(self.pid):
                with suppress(ProcessLookupError):
                    os.kill(self.choose.choice(sorted(found)), signal.SIGKILL)
                    return
            time.sleep(POLL_SECONDS)  # polls, up to the deadline

    def finish(self) -> list[str]:
        """Have the job do what is left; give what its query failed with on the way.

        Without what only says that the machine is busy: see `queries`.
        """
        (self.folder / "enough").touch()
        status = self._job.wait(RUN_SECONDS_MAX)
        assert status == 0, f"the job ended with {status}:\n{self.end_of_output()}"
        failures = self.folder / "failures"
        lines = failures.read_text().splitlines() if failures.exists() else []
        told = [json.loads(line) for line in lines]
        return [each for each in told if NOT_STARTED not in each]

    def check_alive(self) -> None:
        status = self._job.poll()
        assert status is None, f"the job ended with {status}:\n{self.end_of_output()}"

    def check_rows(self) -> None:
        """Each row once in the topic; each row at least once from the queue."""
        expected = sorted(str(number).encode() for number in range(self.rows))
        if self.kind == TOPICS:
            assert committed_values(self.bootstrap, OUT) == expected
            assert open_transactions(self.bootstrap) == []
        else:
            files = (self.folder / "out").glob("*.json")
            seen = {value for file in files for value in json.loads(file.read_text())}
            assert seen == {value.decode() for value in expected}

    def end_of_output(self) -> str:
        return self._output.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._job.pid, signal.SIGKILL)
        self._job.wait(DEADLINE_SECONDS)
        self.broker.kill()

    def _batches(self) -> int:
        commits = (self.folder / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(path.name) for path in commits), default=-1)


async def _make(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, PARTITIONS)
        await admin.create_topic(OUT, PARTITIONS)
        configs = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "10"}
        await admin.alter_configs(Resource(ResourceType.GROUP, GROUP), set=configs)


async def _produce(bootstrap: str, numbers: range) -> None:
    async with Producer(bootstrap) as producer:
        for number in numbers:
            await producer.send(TOPIC, str(number), partition=number % PARTITIONS)


@contextmanager
def scene(kind: str, master: str, folder: Path) -> Iterator[Scene]:
    """Set a job going and wait for its first batch; at the end nothing of it runs."""
    made = Scene(kind, master, folder)
    try:
        made.wait_for_progress()
        yield made
    finally:
        made.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [TOPICS, QUEUE])
def test_a_query_outlives_executors_that_die(kind: str, tmp_path: Path) -> None:
    with scene(kind, LOCAL_CLUSTER, tmp_path) as played:
        for _ in range(KILLS):
            played.work()
            played.kill_one(executors)
        failures = played.finish()
        played.check_rows()
        assert failures == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [TOPICS, QUEUE])
def test_every_row_arrives_when_python_workers_die_and_the_query_is_started_again(
    kind: str, tmp_path: Path
) -> None:
    with scene(kind, LOCAL, tmp_path) as played:
        for _ in range(KILLS):
            played.work()
            played.kill_one(python_workers)
        failures = played.finish()
        played.check_rows()
        assert failures, "no kill was noticed"


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [TOPICS, QUEUE])
def test_a_query_outlives_brokers_that_die(kind: str, tmp_path: Path) -> None:
    with scene(kind, LOCAL, tmp_path) as played:
        for _ in range(KILLS):
            played.work()
            played.kill_broker()
        failures = played.finish()
        played.check_rows()
        assert failures == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [TOPICS, QUEUE])
def test_a_query_outlives_a_broker_that_is_away_for_a_minute(kind: str, tmp_path: Path) -> None:
    with scene(kind, LOCAL, tmp_path) as played:
        played.work()
        played.kill_broker(OUTAGE_SECONDS)
        played.give()
        played.wait_for_progress()
        failures = played.finish()
        played.check_rows()
        assert failures == []


@pytest.mark.exhaustive
def test_each_row_is_seen_once_when_a_broker_and_a_worker_die(tmp_path: Path) -> None:
    with scene(TOPICS, LOCAL, tmp_path) as played:
        played.kill_broker()
        played.give()
        played.kill_one(python_workers)
        played.finish()
        played.check_rows()
