"""A node under mixed load, for as long as wanted: does its event loop ever stand still?

    python -m tools.soak --minutes 60

Threads of this process are clients of librdkafka: producers (plain, idempotent, transactional),
consumer groups of both protocols whose members come and go, share consumers, an administrator that
creates, alters and deletes topics. Apache Kafka's own tools (producer, consumer and share consumer
performance) run beside them, one after the other, if there is a Java. At the end every record that
was acknowledged must be there, and the node must not have logged a stall; else it exits with 1.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.headrace_process import HeadraceProcess
from tools.jvm.harness import JVM_OPTIONS, jars

TOPICS: Final = ("soak-plain", "soak-idempotent", "soak-transactional", "soak-queue", "soak-jvm")
PARTITIONS: Final = 6
RECORD: Final = b"x" * 200
STALL: Final = re.compile(
    r"the event loop stood still for (\d+) ms \(on a processor \d+ ms, waiting for one (\d+) ms.*"
)
LONGEST_WAIT_SECONDS: Final = 60


class Soak:
    """What the clients share: where the node is, when to end, what was counted."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.is_over = threading.Event()
        self.counts: Counter[str] = Counter()
        self.acknowledged: Counter[str] = Counter()
        self.failures: list[str] = []
        self._lock = threading.Lock()

    def count(self, what: str, number: int = 1) -> None:
        with self._lock:
            self.counts[what] += number

    def on_delivery(self, error: KafkaError | None, message: Any) -> None:
        with self._lock:
            if error is None:
                self.acknowledged[message.topic()] += 1
            else:
                self.counts["produce errors"] += 1

    def run(self, name: str, client: "Callable[[Soak, Random], None]") -> None:
        """Call a client again and again until the end; it ends by itself after some seconds."""
        random = Random(name)
        while not self.is_over.is_set():
            try:
                client(self, random)
            except (KafkaException, subprocess.SubprocessError) as error:
                self.failures.append(f"{name}: {error}")
                self.is_over.wait(1)


def produce_plain(soak: Soak, random: Random) -> None:
    _produce(soak, "soak-plain", random, {"acks": random.choice(["0", "1", "all"])})


def produce_idempotent(soak: Soak, random: Random) -> None:
    codec = random.choice(["none", "lz4", "zstd", "snappy", "gzip"])
    _produce(
        soak, "soak-idempotent", random, {"enable.idempotence": True, "compression.type": codec}
    )


def produce_queue(soak: Soak, random: Random) -> None:
    _produce(soak, "soak-queue", random, {"acks": "all"})


def _produce(soak: Soak, topic: str, random: Random, settings: dict[str, Any]) -> None:
    producer = Producer(
        {"bootstrap.servers": soak.bootstrap, "linger.ms": random.choice([0, 5, 50]), **settings}
    )
    is_counted = settings.get("acks") != "0"
    until = time.monotonic() + random.uniform(5, 20)
    while time.monotonic() < until and not soak.is_over.is_set():
        for _ in range(random.choice([1, 10, 100])):
            producer.produce(topic, RECORD, on_delivery=soak.on_delivery if is_counted else None)
        producer.poll(0)
        soak.is_over.wait(random.choice([0.02, 0.1]))
    producer.flush(LONGEST_WAIT_SECONDS)


def produce_transactions(soak: Soak, random: Random) -> None:
    producer = Producer({"bootstrap.servers": soak.bootstrap, "transactional.id": "soak"})
    producer.init_transactions(LONGEST_WAIT_SECONDS)
    until = time.monotonic() + random.uniform(5, 20)
    while time.monotonic() < until and not soak.is_over.is_set():
        producer.begin_transaction()
        count = random.randint(1, 200)
        for _ in range(count):
            producer.produce("soak-transactional", RECORD)
        if random.random() < 0.3:
            producer.abort_transaction(LONGEST_WAIT_SECONDS)
            soak.count("aborted transactions")
        else:
            producer.commit_transaction(LONGEST_WAIT_SECONDS)
            soak.acknowledged["soak-transactional"] += count


def consume(soak: Soak, random: Random) -> None:
    """A member of one of two groups, for some seconds: each coming and going is a rebalance."""
    protocol = random.choice(["classic", "consumer"])
    settings: dict[str, Any] = {"group.protocol": protocol, "group.id": f"soak-{protocol}"}
    if protocol == "classic":
        settings |= {"session.timeout.ms": 10_000}
    consumer = Consumer(
        {
            "bootstrap.servers": soak.bootstrap,
            "auto.offset.reset": "earliest",
            "log_level": 2,
            **settings,
        }
    )
    consumer.subscribe(list(TOPICS))
    until = time.monotonic() + random.uniform(5, 30)
    while time.monotonic() < until and not soak.is_over.is_set():
        soak.count("consumed", len(consumer.consume(1000, 0.5)))
    consumer.close()
    soak.count(f"members of {protocol} groups")


def share(soak: Soak, random: Random) -> None:
    consumer = ShareConsumer(
        {"bootstrap.servers": soak.bootstrap, "group.id": "soak-share", "log_level": 2}
    )
    consumer.subscribe(["soak-queue"])
    until = time.monotonic() + random.uniform(10, 40)
    while time.monotonic() < until and not soak.is_over.is_set():
        soak.count("shared", len(consumer.poll(0.5) or ()))
    consumer.close()


def administrate(soak: Soak, random: Random) -> None:
    admin = AdminClient({"bootstrap.servers": soak.bootstrap, "log_level": 2})
    names = [f"soak-short-{random.getrandbits(32)}" for _ in range(random.choice([1, 20, 100]))]
    for future in admin.create_topics([NewTopic(name, 3, 1) for name in names]).values():
        future.result()
    producer = Producer({"bootstrap.servers": soak.bootstrap})
    for name in names:
        producer.produce(name, RECORD)
    producer.flush(LONGEST_WAIT_SECONDS)
    entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        for name in names
    ]
    for future in admin.incremental_alter_configs(resources).values():
        future.result()
    for resource in resources:
        for future in admin.describe_configs([resource]).values():
            future.result()
    admin.list_topics(timeout=LONGEST_WAIT_SECONDS)
    admin.list_consumer_groups().result()
    for future in admin.delete_topics(names).values():
        future.result()
    soak.count("topics created and deleted", len(names))
    soak.is_over.wait(random.uniform(0, 2))


def run_tools(soak: Soak, random: Random) -> None:
    """Apache Kafka's performance tools, one after the other; an empty queue is no failure."""
    at = ("--bootstrap-server", soak.bootstrap)
    tool = random.choice(["Producer", "Consumer", "ShareConsumer"])
    if tool == "Producer":
        arguments = ["--topic", "soak-jvm", "--num-records", "200000", "--record-size", "200"]
        arguments += [
            "--throughput",
            "50000",
            "--producer-props",
            f"bootstrap.servers={soak.bootstrap}",
        ]
        acks = random.choice(["1", "all"])
        arguments += [f"acks={acks}"]
    elif tool == "Consumer":
        arguments = [*at, "--topic", "soak-jvm", "--messages", "100000", "--timeout", "5000"]
    else:
        arguments = [*at, "--topic", "soak-queue", "--messages", "20000", "--timeout", "5000"]
        arguments += ["--group", "soak-share"]
    command = ["java", *JVM_OPTIONS, "-Xmx512m", "-cp", f"{jars()}/*"]
    done = subprocess.run(
        [*command, f"org.apache.kafka.tools.{tool}Performance", *arguments],
        capture_output=True,
        text=True,
        timeout=3 * LONGEST_WAIT_SECONDS,
        check=False,
    )
    if done.returncode and tool != "ShareConsumer":
        soak.failures.append(f"{tool}Performance: {done.stdout[-300:]} {done.stderr[-300:]}")
    elif tool == "Producer":
        soak.acknowledged["soak-jvm"] += 200_000
    soak.count(f"{tool}Performance")


CLIENTS: Final[dict[str, tuple[int, Callable[[Soak, Random], None]]]] = {
    "plain producer": (1, produce_plain),
    "idempotent producer": (1, produce_idempotent),
    "producer of a queue": (1, produce_queue),
    "transactional producer": (1, produce_transactions),
    "consumer": (4, consume),
    "share consumer": (2, share),
    "administrator": (1, administrate),
    "tools": (1, run_tools),
}


def committed_records(bootstrap: str, topic: str) -> int:
    """Return how many committed records a topic holds, read with librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "soak-check",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    count, ended = 0, set[int]()
    deadline = time.monotonic() + 10 * LONGEST_WAIT_SECONDS
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1):
            if message.error() is None:
                count += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--stall-ms", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"headrace.loop.stall.warn.ms": str(arguments.stall_ms)}
        node = HeadraceProcess(Path(folder) / "node", settings)
        try:
            return soak_node(node, arguments.minutes * 60, arguments.stall_ms)
        finally:
            node.stop()


def soak_node(node: HeadraceProcess, seconds: float, stall_ms: int) -> int:
    soak = Soak(node.bootstrap)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    topics = [NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]
    for future in admin.create_topics(topics).values():
        future.result()
    threads = [
        threading.Thread(target=soak.run, args=(f"{name} {number}", client), daemon=True)
        for name, (copies, client) in CLIENTS.items()
        for number in range(copies)
        if client is not run_tools or shutil.which("java")
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(60, max(until - time.monotonic(), 0)))
        print(f"{time.strftime('%H:%M:%S')} {dict(soak.counts)}", flush=True)
    soak.is_over.set()
    for thread in threads:
        thread.join(4 * LONGEST_WAIT_SECONDS)
    lost = 0
    for topic in TOPICS:
        found, acknowledged = committed_records(node.bootstrap, topic), soak.acknowledged[topic]
        lost += max(acknowledged - found, 0)
        print(f"{topic}: {acknowledged} acknowledged, {found} found")
    stalls = list(STALL.finditer(node.output.read_text(errors="replace")))
    # A thread that the machine did not let run is the machine's stall, not the node's.
    own = [stall for stall in stalls if int(stall[1]) - int(stall[2]) >= stall_ms]
    print(
        f"{len(stalls)} stalls, {len(own)} of them not for want of a processor, "
        f"{lost} records lost, {len(soak.failures)} failures of clients"
    )
    print("\n".join([*(stall[0] for stall in stalls[:100]), *soak.failures[:20]]))
    return 1 if own or lost else 0


if __name__ == "__main__":
    sys.exit(main())
