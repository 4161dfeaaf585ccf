"""A Kafka Streams application to run against a broker: its processes, its input, its output.

The application is `tools/jvm/WordCount.java`. It writes every count that a word passes through, so
what a reader of committed records finds tells more than the last count: a line that was counted
twice, or not at all, shows up as a number that is there twice, or missing.
"""

import os
import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.jvm.harness import HERE, JVM_OPTIONS, compile_java, jars

LINES, COUNTS = "lines", "counts"
PARTITIONS = 3
WORDS = [f"word-{number}" for number in range(40)]
WORDS_A_LINE = 4
DEADLINE_SECONDS = 60
POLL_SECONDS = 0.02
CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}

NODE_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "3000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
"""A broker that gives up on a dead instance, and on its transaction, after three seconds."""

_APPLICATION_SETTINGS = ["commit.interval.ms=100", "producer.transaction.timeout.ms=3000"]
_CLASSIC_SETTINGS = ["consumer.session.timeout.ms=3000", "consumer.heartbeat.interval.ms=300"]


class Instance:
    """One process of the application `name`. Starting is not waited for."""

    def __init__(self, bootstrap: str, name: str, protocol: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._output = folder / "instance.out"
        settings = _APPLICATION_SETTINGS + (_CLASSIC_SETTINGS if protocol == "classic" else [])
        classes = compile_java(HERE / "WordCount.java")
        command = [
            *("java", *JVM_OPTIONS, "-cp", f"{classes}{os.pathsep}{jars()}/*", "WordCount"),
            *(bootstrap, name, protocol, str(folder / "state"), LINES, COUNTS, *settings),
        ]
        with self._output.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=file, stderr=file
            )

    def check(self) -> None:
        """AssertionError, with what it printed, if it ended by itself."""
        status = self._process.poll()
        printed = self._output.read_text(errors="replace")
        assert status is None, f"it ended with {status}:\n{printed[-4000:]}"

    def wait_until_running(self) -> None:
        """Wait until it has its tasks, and their state is restored."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while "RUNNING" not in (lines := self._output.read_text().splitlines()):
            self.check()
            assert time.monotonic() < deadline, f"it is not running: {lines}"
            time.sleep(POLL_SECONDS)  # polls, up to the deadline

    def stop(self) -> None:
        """End it in order: it commits what it has done, and says so."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        status = self._process.wait(DEADLINE_SECONDS)
        assert status == 0, f"it ended with {status}:\n{self._output.read_text()[-4000:]}"

    def kill(self) -> None:
        """End it with SIGKILL, if it runs: its transaction and its membership stay open."""
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)
        if self._process.stdin is not None:
            self._process.stdin.close()


class Input:
    """The lines that were written, each exactly once, whatever the broker did meanwhile."""

    def __init__(self, bootstrap: str) -> None:
        self.words: Counter[str] = Counter()
        self._random = random.Random(7)
        self._producer = Producer(
            {**CLIENT, "bootstrap.servers": bootstrap, "enable.idempotence": True}
        )

    def write(self, lines: int) -> None:
        """Write that many lines more and wait until the broker has them."""
        for _ in range(lines):
            words = self._random.choices(WORDS, k=WORDS_A_LINE)
            self.words.update(words)
            partition = self._random.randrange(PARTITIONS)
            self._producer.produce(LINES, " ".join(words).encode(), partition=partition)
        assert self._producer.flush(DEADLINE_SECONDS) == 0


class Output:
    """What a reader of committed records has found: the counts of each word, in their order."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self.found = 0
        self._ended: set[int] = set()
        self._consumer = Consumer(
            {
                **CLIENT,
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(COUNTS, index, 0) for index in range(PARTITIONS)])

    def wait_for(self, count: int, instances: Iterable[Instance]) -> None:
        """Read on until there are as many counts; the instances must not end meanwhile."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.found < count:
            assert time.monotonic() < deadline, f"{self.found} of {count} counts are committed"
            for instance in instances:
                instance.check()
            self._read()

    def read_to_end(self) -> None:
        """Read all that is committed now."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        self._consumer.assign(self._consumer.position(self._consumer.assignment()))
        self._ended.clear()
        while len(self._ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"no end after {self.found} counts"
            self._read()

    def close(self) -> None:
        self._consumer.close()

    def _read(self) -> None:
        for message in self._consumer.consume(1000, timeout=0.1):
            if message.error() is None:
                self.counts[message.key().decode()].append(int(message.value()))
                self.found += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())


def create_topics(bootstrap: str) -> None:
    """The topics that the application reads and writes; it makes those between by itself."""
    admin = AdminClient({**CLIENT, "bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1) for name in (LINES, COUNTS)]
    for created in admin.create_topics(topics).values():
        created.result(DEADLINE_SECONDS)
