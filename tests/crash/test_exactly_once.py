"""A copy job and its broker, killed at random: what it wrote is what it read, once each."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.copy_job import transform
from tests.headrace_process import HeadraceProcess

KILLS = int(os.environ.get("HEADRACE_EXACTLY_ONCE_KILLS", "50"))
KILLING_SECONDS = float(os.environ.get("HEADRACE_EXACTLY_ONCE_SECONDS", "40"))
"""No kill begins later than that; the rest of what was to be copied is."""
PARTITIONS = 2
RECORDS_A_KILL = 60
DEADLINE_SECONDS = 60
SOURCE, SINK = "source", "sink"
READER = {
    "group.id": "unused",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "log_level": 0,
}
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class Job:
    """The job's process, which is started again whenever it has ended."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.crash.copy_job", bootstrap, SOURCE, SINK]
        self._output = folder / "job.out"
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._output.open("ab") as file:
            return subprocess.Popen(
                self._command, stdout=file, stderr=file, cwd=Path(__file__).parents[2]
            )

    def keep_running(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)

    def said(self) -> str:
        return self._output.read_text(errors="replace")[-4000:]


class Copied:
    """What a reader of committed records has seen of the sink so far."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[bytes] = []
        self._consumer = Consumer({**READER, "bootstrap.servers": bootstrap})
        self._consumer.assign([TopicPartition(SINK, index, 0) for index in range(PARTITIONS)])

    def wait_for(self, count: int, job: Job) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.values) < count:
            assert time.monotonic() < deadline, (
                f"{len(self.values)} of {count} records were copied:\n{job.said()}"
            )
            job.keep_running()
            for message in self._consumer.consume(1000, timeout=0.05):
                if message.error() is None:
                    self.values.append(message.value())

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(KILLING_SECONDS + 150)
@pytest.mark.parametrize("kills_max", [10, pytest.param(KILLS, marks=pytest.mark.exhaustive)])
def test_committed_output_is_the_input_once_each_however_often_both_are_killed(
    tmp_path: Path, kills_max: int
) -> None:
    choose = random.Random(50)
    node = HeadraceProcess(tmp_path / "data", SETTINGS)
    port, bootstrap = node.port, node.bootstrap
    job = Job(bootstrap, tmp_path)
    copied = None
    try:
        create_topics(bootstrap)
        source = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        copied = Copied(bootstrap)
        end = time.monotonic() + KILLING_SECONDS
        fed = kills = 0
        while kills < kills_max and time.monotonic() < end:
            fed = feed(source, fed)
            copied.wait_for(fed - choose.randrange(RECORDS_A_KILL), job)
            is_job, is_node = choose.choice([(True, False), (False, True), (True, True)])
            if is_node:
                node.kill()
            if is_job:
                job.kill()
            if is_node:
                node = HeadraceProcess(tmp_path / "data", SETTINGS, port=port)
            kills += 1
        print(f"{kills} kills, {fed} records")
        copied.wait_for(fed, job)
        job.kill()
        wanted = sorted(transform(b"%d" % number) for number in range(fed))
        assert sorted(copied.values) == wanted
        assert sorted(read_all(bootstrap)) == wanted
        assert node.stop() == 0
    finally:
        job.kill()
        if copied is not None:
            copied.close()
        node.kill()


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (SOURCE, SINK)]
    for made in admin.create_topics(topics).values():
        made.result(DEADLINE_SECONDS)


def feed(source: Producer, fed: int) -> int:
    """Write more numbers to the source; give how many there are in all."""
    for number in range(fed, fed + RECORDS_A_KILL):
        source.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
    assert source.flush(DEADLINE_SECONDS) == 0
    return fed + RECORDS_A_KILL


def read_all(bootstrap: str) -> list[bytes]:
    """Read the sink from its beginning to where a reader of committed records ends."""
    consumer = Consumer({**READER, "bootstrap.servers": bootstrap, "enable.partition.eof": True})
    consumer.assign([TopicPartition(SINK, index, 0) for index in range(PARTITIONS)])
    found: list[bytes] = []
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"no end after {len(found)} records"
            for message in consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    found.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        return found
    finally:
        consumer.close()
