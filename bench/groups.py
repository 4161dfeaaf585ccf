"""Groups and transactions against Apache Kafka 4.3.1: the same clients, in turn, on this machine.

`python -m bench.groups --only commits,joins --rounds 1` measures a part. Members of groups are made
of bare requests without the pauses of a client, so that the time is the broker's.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.broker_group_members import (
    ClassicMember,
    ConsumerMember,
    heartbeat_many,
    open_connection_to,
)
from bench.broker_servers import Server, run_headrace, run_kafka
from bench.measure import Figure, parts_of, report
from headrace.wire import ApiKey, request_parts
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.request_header import RequestHeader

ROUNDS: Final = 3
PARTS: Final = ("commits", "joins", "transactions", "many")
COMMITTING_PROCESSES: Final = 8
COMMITTING_SECONDS: Final = 3.0
MEMBERS: Final = 50
JOINED_PARTITIONS: Final = 200
JOINS: Final = 9
TRANSACTION_RECORDS: Final = 10
TRANSACTIONAL_PRODUCERS: Final = 4
TRANSACTION_SECONDS: Final = 5.0
MANY_GROUPS: Final = 10_000
CALL_SECONDS_MAX: Final = 60
_COMMIT_VERSION: Final = 9
_NUMBERS: Final = count()

Samples = dict[str, list[float]]


class Bound(NamedTuple):
    """What a ratio of Headrace's figure to Kafka's has to be."""

    bound: float
    is_upper_bound: bool
    unit: str


BOUNDS: Final = {
    "offset commits": Bound(1.0, False, "/s"),
    "50 members join, classic": Bound(1.0, True, "s"),
    "50 members join, consumer": Bound(1.0, True, "s"),
    "transactions of ten records": Bound(0.8, False, "/s"),
}
NOTED: Final = {
    "memory of 10,000 groups": "MiB",
    "cpu of a heartbeat": "us",
}


def main() -> None:
    arguments = _arguments()
    samples: dict[str, Samples] = {"Headrace": defaultdict(list), "Kafka": defaultdict(list)}
    for _ in range(arguments.rounds):
        _round(samples["Headrace"], arguments.only, run_headrace)
        _round(samples["Kafka"], arguments.only, run_kafka)
    ours, theirs = samples["Headrace"], samples["Kafka"]
    for name, unit in NOTED.items():
        if ours[name]:
            mine, peers = statistics.median(ours[name]), statistics.median(theirs[name])
            print(f"groups.{name}: {mine:.4g} {unit}, Kafka {peers:.4g} {unit}", flush=True)
    report(
        [
            Figure(
                f"groups.{name}",
                statistics.median(ours[name]) / statistics.median(theirs[name]),
                bound.bound,
                bound.is_upper_bound,
                f"{statistics.median(ours[name]):.4g} {bound.unit}, "
                f"Kafka {statistics.median(theirs[name]):.4g} {bound.unit}",
            )
            for name, bound in BOUNDS.items()
            if ours[name]
        ]
    )


def _round(
    samples: Samples,
    parts: list[str],
    run: Callable[[Path], AbstractContextManager[Server]],
) -> None:
    os.sync()  # what the last one wrote is not written on this one's time
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        run(Path(folder)) as server,
    ):
        _wake_coordinators(server)
        if "commits" in parts:
            samples["offset commits"].append(commits_a_second(server))
        if "joins" in parts:
            for protocol, join in (("classic", _join_classic), ("consumer", _join_consumer)):
                topic = _create_topic(server, JOINED_PARTITIONS)
                taken = statistics.median(_run(join(server, topic)) for _ in range(JOINS))
                samples[f"50 members join, {protocol}"].append(taken)
        if "transactions" in parts:
            samples["transactions of ten records"].append(transactions_a_second(server))
        if "many" in parts:
            memory, cpu = _run(_many_groups(server))
            samples["memory of 10,000 groups"].append(memory)
            samples["cpu of a heartbeat"].append(cpu * 1e6)


def commits_a_second(server: Server) -> float:
    """Commits of one partition, from processes that each have one in flight and a group."""
    topic = _create_topic(server, 1)
    command = [sys.executable, "-m", "bench.broker_requests"]
    clients = [
        subprocess.Popen(
            [*command, str(server.port), str(COMMITTING_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(COMMITTING_PROCESSES)
    ]
    try:
        for number, client in enumerate(clients):
            _tell(client, _commit(topic, f"group-{number}").hex())
        for client in clients:
            if _line(client) != "ready":
                sys.exit("a client did not get ready")
        for client in clients:
            _tell(client, "go")
        return sum(int(_line(client)) for client in clients) / COMMITTING_SECONDS
    finally:
        for client in clients:
            client.kill()
            client.communicate()


def transactions_a_second(server: Server) -> float:
    """Transactions of ten records, by confluent-kafka producers that each do one at a time."""
    topic = _create_topic(server, TRANSACTIONAL_PRODUCERS)

    def press(number: int) -> int:
        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "transactional.id": f"{topic}-{number}",
                "linger.ms": 0,
                "log_level": 3,
            }
        )
        producer.init_transactions(CALL_SECONDS_MAX)
        done = 0
        begin = time.monotonic()
        warm = begin + TRANSACTION_SECONDS / 5
        while (now := time.monotonic()) < warm + TRANSACTION_SECONDS:
            producer.begin_transaction()
            for _ in range(TRANSACTION_RECORDS):
                producer.produce(topic, b"x" * 100, partition=number)
            producer.commit_transaction(CALL_SECONDS_MAX)
            done += now >= warm
        return done

    with ThreadPoolExecutor(TRANSACTIONAL_PRODUCERS) as threads:
        return sum(threads.map(press, range(TRANSACTIONAL_PRODUCERS))) / TRANSACTION_SECONDS


async def _join_classic(server: Server, topic: str) -> float:
    """Seconds until 50 members share a topic, one of which was there before.

    That one is there because an empty group waits for `group.initial.rebalance.delay.ms` first.
    """
    group = f"classic-{next(_NUMBERS)}"
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(ClassicMember.connected(server.port, group, topic))
            for _ in range(MEMBERS)
        ]
        shares: dict[str, tuple[int, int]] = {}

        def is_done() -> bool:
            generations = {generation for generation, _ in shares.values()}
            total = sum(partitions for _, partitions in shares.values())
            return len(shares) == MEMBERS and len(generations) == 1 and total == JOINED_PARTITIONS

        first = asyncio.create_task(members[0].run(shares, is_done, JOINED_PARTITIONS))
        while members[0].member_id not in shares:
            await asyncio.sleep(0.001)
        begin = time.perf_counter()
        rest = [member.run(shares, is_done, JOINED_PARTITIONS) for member in members[1:]]
        await asyncio.wait_for(asyncio.gather(first, *rest), CALL_SECONDS_MAX)
        return time.perf_counter() - begin


async def _join_consumer(server: Server, topic: str) -> float:
    """Seconds until 50 members of the consumer protocol have all partitions of a topic."""
    group = f"consumer-{next(_NUMBERS)}"
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(ConsumerMember.connected(server.port, group, topic))
            for _ in range(MEMBERS)
        ]
        shares: dict[str, int] = {}

        def is_done() -> bool:
            return len(shares) == MEMBERS and sum(shares.values()) == JOINED_PARTITIONS

        begin = time.perf_counter()
        runs = [member.run(shares, is_done) for member in members]
        await asyncio.wait_for(asyncio.gather(*runs), CALL_SECONDS_MAX)
        return time.perf_counter() - begin


async def _many_groups(server: Server) -> tuple[float, float]:
    """MiB that 10,000 groups of one member take, and the CPU seconds of one heartbeat."""
    topic = _create_topic(server, 1)
    before = server.resident_mib()
    connection = await open_connection_to(server.port)
    try:
        groups = [f"many-{number}" for number in range(MANY_GROUPS)]
        epochs = await heartbeat_many(connection, dict.fromkeys(groups, 0), topic)
        memory = server.resident_mib() - before
        spent = server.cpu_seconds()
        await heartbeat_many(connection, epochs, None)
        return memory, (server.cpu_seconds() - spent) / MANY_GROUPS
    finally:
        connection.close()


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _create_topic(server: Server, partitions: int) -> str:
    name = f"bench-groups-{next(_NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(CALL_SECONDS_MAX)
    return name


def _wake_coordinators(server: Server) -> None:
    """Create and load the internal topics before anything is measured."""
    topic = _create_topic(server, 1)
    settings = {"bootstrap.servers": server.bootstrap, "log_level": 0}
    Producer({**settings, "transactional.id": topic}).init_transactions(CALL_SECONDS_MAX)
    deadline = time.monotonic() + CALL_SECONDS_MAX
    for number in range(COMMITTING_PROCESSES):
        consumer = Consumer({**settings, "group.id": f"group-{number}"})
        while True:
            try:
                consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
                break
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
        consumer.close()


def _commit(topic: str, group: str) -> bytes:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    body = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[row])]
    )
    header = RequestHeader(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, 1, "bench")
    return b"".join(request_parts(header, body))


def _tell(client: "subprocess.Popen[str]", line: str) -> None:
    assert client.stdin is not None
    client.stdin.write(line + "\n")
    client.stdin.flush()


def _line(client: "subprocess.Popen[str]") -> str:
    assert client.stdout is not None
    return client.stdout.readline().strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Groups of Headrace against Apache Kafka's")
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS), help=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
