"""What is done to a share group while its broker is measured."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from itertools import count
from typing import Final

from confluent_kafka import Producer

from bench.broker_loads import create_topic
from bench.broker_servers import CLIENT_HEAP, Server, java
from bench.broker_share_windows import PARTITIONS, WINDOW_RECORDS
from headrace.client import Admin
from headrace.client.configs import Resource, ResourceType

RECORD_BYTES: Final = 100
SMALL_RECORD_BYTES: Final = 10
PERFORMANCE_PARTITIONS: Final = 6
PERFORMANCE_RECORDS: Final = 1_000_000
WORKERS: Final = 8
WORKER_SECONDS: Final = 5.0
ACCEPTED_RECORDS_MAX: Final = 200_000
"""More than the workers can accept in their time."""
READ_RECORDS: Final = 400_000
FIRST_RECORDS_MAX: Final = 20_000
"""What a consumer that reads may have before it is ready, and still hold at its end."""
QUEUED_RECORDS_MAX: Final = 100_000
LOAD_SECONDS_MAX: Final = 180
LONG_LOCKS: Final = {"share.record.lock.duration.ms": "60000"}
NO_CONFIGS: Final[dict[str, str]] = {}
_GROUPS: Final = count()


def performance_topic(server: Server) -> str:
    return _filled_topic(server, PERFORMANCE_PARTITIONS, PERFORMANCE_RECORDS)


def records_a_second(server: Server, topic: str) -> tuple[float, float]:
    """What Kafka's share consumer performance tool reads, and the broker's CPU us for a record."""
    before = server.cpu_seconds()
    done = subprocess.run(
        java(
            CLIENT_HEAP,
            "org.apache.kafka.tools.ShareConsumerPerformance",
            *("--bootstrap-server", server.bootstrap, "--topic", topic, "--hide-header"),
            *("--group", _new_group(server), "--num-records", str(PERFORMANCE_RECORDS)),
            *("--timeout", str(LOAD_SECONDS_MAX * 1000)),
        ),
        capture_output=True,
        text=True,
        timeout=LOAD_SECONDS_MAX,
        check=False,
    )
    spent = server.cpu_seconds() - before
    columns = done.stdout.strip().split(", ")
    if done.returncode != 0 or int(columns[5]) < PERFORMANCE_RECORDS:
        sys.exit(f"the performance tool did not read the topic:\n{done.stdout}{done.stderr}")
    return float(columns[4]), spent / PERFORMANCE_RECORDS * 1e6


def accepts_a_second(server: Server) -> tuple[float, float]:
    """Records that 8 workers accept one by one, and the broker's CPU us for one of them."""
    # Each worker can have a partition, as what four of them take at once fills a window.
    topic = _filled_topic(server, WORKERS, ACCEPTED_RECORDS_MAX)
    group = _new_group(server, LONG_LOCKS)
    arguments = (server.bootstrap, group, topic, str(ACCEPTED_RECORDS_MAX), str(WORKER_SECONDS))
    workers = [_start("accept", *arguments) for _ in range(WORKERS)]
    try:
        _await_ready(workers)
        before = server.cpu_seconds()
        done = _let_go(workers)
        total = sum(records for records, _ in done)
        spent = server.cpu_seconds() - before
        return sum(records / taken for records, taken in done), spent / total * 1e6
    finally:
        _end(workers)


def read_a_second(server: Server, kind: str, topic: str) -> float:
    """Records that one consumer reads, of kind `headrace` or `confluent`, once it has begun."""
    group = _new_group(server)
    worker = _start(kind, server.bootstrap, group, topic, str(READ_RECORDS), "0")
    try:
        _await_ready([worker])
        [(records, taken)] = _let_go([worker])
        return records / taken
    finally:
        _end([worker])


def reading_topic(server: Server) -> str:
    return _filled_topic(server, 1, READ_RECORDS + FIRST_RECORDS_MAX)


def windowed_group(server: Server) -> tuple[str, str]:
    """Return a group with long locks, and a topic whose partitions all have a full window."""
    records = PARTITIONS * WINDOW_RECORDS
    topic = _filled_topic(server, PARTITIONS, records, record_bytes=SMALL_RECORD_BYTES)
    return _new_group(server, LONG_LOCKS), topic


def _filled_topic(
    server: Server, partitions: int, records: int, *, record_bytes: int = RECORD_BYTES
) -> str:
    """Create a topic of small records, in batches of the default size."""
    topic = create_topic(server, partitions)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "batch.size": 16_384,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 3,
        }
    )
    value = b"x" * record_bytes
    batch = list[dict[str, bytes]]([{"value": value}] * (records // partitions))
    rest = records - records // partitions * partitions
    for partition in range(partitions):
        more = rest if partition == 0 else 0
        producer.produce_batch(topic, batch + batch[:more], partition=partition)
        if len(producer) > QUEUED_RECORDS_MAX and producer.flush(LOAD_SECONDS_MAX):
            sys.exit("a topic was not filled in time")
    if producer.flush(LOAD_SECONDS_MAX):
        sys.exit("a topic was not filled in time")
    return topic


def _new_group(server: Server, configs: Mapping[str, str] = NO_CONFIGS) -> str:
    """Name a group that reads topics from their beginning."""
    name = f"bench-share-{next(_GROUPS)}"

    async def set_up() -> None:
        async with Admin(server.bootstrap) as admin:
            values = {"share.auto.offset.reset": "earliest", **configs}
            await admin.alter_configs(Resource(ResourceType.GROUP, name), set=values)

    asyncio.run(set_up())
    return name


def _start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bench.broker_share_workers", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _await_ready(workers: "list[subprocess.Popen[str]]") -> None:
    for worker in workers:
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != "ready":
            sys.exit("a worker did not get ready")


def _let_go(workers: "list[subprocess.Popen[str]]") -> list[tuple[int, float]]:
    """Start them; give how many records each had, and in how many seconds."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    done = list[tuple[int, float]]()
    for worker in workers:
        assert worker.stdout is not None
        words = worker.stdout.readline().split()
        if len(words) != 2:
            sys.exit("a worker did not reach its end")
        done.append((int(words[0]), float(words[1])))
    return done


def _end(workers: "list[subprocess.Popen[str]]") -> None:
    for worker in workers:
        worker.kill()
        worker.communicate()
