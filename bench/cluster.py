"""Three nodes against three of Apache Kafka 4.3.1, and one way through the quorum against another.

`python -m bench.cluster --only failover --rounds 3` measures a part:

failover   kill -9 of the controller to the next topic that another node creates
proposals  changes of a topic's configs through a follower, against the same through the leader
idle       what three nodes cost that have 1,000 partitions, at factor 1 and 3, and nothing to do
produce    acks=all at factor 3: MB/s and CPU
sync       one record at a time at factor 3, each when the last one was acknowledged
leader     kill -9 of a partition's leader to the next record that is acknowledged
catch_up   a replica that is added to a partition with gigabytes
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from bench import broker_loads
from bench.broker_clusters import NODES, ThreeNodes, three_headraces, three_kafkas
from bench.measure import Figure, parts_of, report
from headrace.client.connection import Connection
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)

PARTS: Final = ("failover", "proposals", "idle", "produce", "sync", "leader", "catch_up")
ROUNDS: Final = 5
PRODUCE_ROUNDS: Final = 3
REPLICAS: Final = 3
PARTITIONS: Final = 6
BATCH_BYTES: Final = (16 * 1024, 128 * 1024)
CATCH_UP_GIGABYTES: Final = 5
CATCH_UP_BATCH_BYTES: Final = 128 * 1024
CATCH_UP_SECONDS_MAX: Final = 600
LEADER_SECONDS_MAX: Final = 120
IN_FLIGHT: Final = (1, 64)
PROPOSALS: Final = {1: 300, 64: 3000}
PROPOSAL_TURNS: Final = 5
IDLE_PARTITIONS: Final = 1000
IDLE_SETTLE_SECONDS: Final = 15
IDLE_SECONDS: Final = 30
TOPIC_RESOURCE: Final = 2

Run = Callable[[Path], AbstractContextManager[ThreeNodes]]


def main() -> None:
    arguments = _arguments()
    figures: list[Figure] = []
    if "failover" in arguments.only:
        figures.append(_failover(arguments.rounds))
    if "proposals" in arguments.only:
        figures += _proposals()
    if "idle" in arguments.only:
        figures += [*_idle(1, 1.0), *_idle(REPLICAS, 0.5)]
    if "produce" in arguments.only:
        figures += _produce()
    if "sync" in arguments.only:
        figures += _sync()
    if "leader" in arguments.only:
        figures.append(_leader(arguments.rounds))
    if "catch_up" in arguments.only:
        figures.append(_catch_up(arguments.gigabytes))
    report(figures)


def _failover(rounds: int) -> Figure:
    ours, theirs = (_failover_seconds(run, rounds) for run in (three_headraces, three_kafkas))
    own, peer = statistics.median(ours), statistics.median(theirs)
    detail = f"{own:.2f} s, Kafka {peer:.2f} s; worst {max(ours):.2f} s, Kafka {max(theirs):.2f} s"
    return Figure("failover of the controller", own / peer, 0.5, True, detail)


def _failover_seconds(run: Run, rounds: int) -> list[float]:
    seconds = []
    with _three(run) as nodes:
        for number in range(rounds):
            controller = nodes.controller()
            through = next(each for each in NODES if each != controller)
            nodes.create_topic(through, f"before-{number}")
            begin = time.perf_counter()
            nodes.kill(controller)
            nodes.create_topic(through, f"after-{number}")
            seconds.append(time.perf_counter() - begin)
            nodes.start(controller)
    return seconds


def _proposals() -> list[Figure]:
    with _three(three_headraces) as nodes:
        leader = nodes.controller()
        follower = next(number for number in NODES if number != leader)
        nodes.create_topic(leader, "changed")
        figures = []
        for in_flight in IN_FLIGHT:
            rates: dict[int, list[float]] = {leader: [], follower: []}
            for turn in range(PROPOSAL_TURNS + 1):
                for number in (leader, follower):
                    rate = asyncio.run(_changes_a_second(nodes, number, in_flight))
                    if turn:  # the first one warms up
                        rates[number].append(rate)
            local, forwarded = (statistics.median(rates[each]) for each in (leader, follower))
            name = f"forwarded proposals, {in_flight} in flight"
            detail = f"{forwarded:,.0f}/s, local {local:,.0f}/s"
            figures.append(Figure(name, forwarded / local, 0.5, False, detail))
        return figures


async def _changes_a_second(nodes: ThreeNodes, number: int, in_flight: int) -> float:
    """Make changes on connections of their own, as those of one are made one after the other."""
    connections = [await nodes.connect(number) for _ in range(in_flight)]
    left = iter(range(PROPOSALS[in_flight]))
    begin = time.perf_counter()
    try:
        await asyncio.gather(*(_change(each, left) for each in connections))
    finally:
        for connection in connections:
            connection.close()
    return PROPOSALS[in_flight] / (time.perf_counter() - begin)


async def _change(connection: Connection, left: Iterator[int]) -> None:
    for number in left:
        config = AlterableConfig(name="retention.ms", value=str(86_400_000 + number))
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name="changed", configs=[config]
        )
        body = IncrementalAlterConfigsRequest(resources=[resource])
        response = await connection.request(body, IncrementalAlterConfigsResponse)
        assert not response.responses[0].error_code, response.responses[0].error_message


def _idle(replicas: int, cpu_bound: float) -> list[Figure]:
    own_cpu, own_mib = _idle_cost(three_headraces, replicas)
    peer_cpu, peer_mib = _idle_cost(three_kafkas, replicas)
    what = f"idle, {IDLE_PARTITIONS} partitions x {replicas}"
    cpu = f"{own_cpu:.2f} s a minute and node, Kafka {peer_cpu:.2f} s"
    memory = f"{own_mib:.0f} MiB a node, Kafka {peer_mib:.0f} MiB"
    return [
        Figure(f"cpu {what}", own_cpu / peer_cpu, cpu_bound, True, cpu),
        Figure(f"memory {what}", own_mib / peer_mib, 0.2, True, memory),
    ]


def _idle_cost(run: Run, replicas: int) -> tuple[float, float]:
    """Return the CPU seconds per minute and the resident MiB of a node, the mean of three."""
    with _three(run) as nodes:
        nodes.create_topic(NODES[0], "idle", IDLE_PARTITIONS, replicas)
        time.sleep(IDLE_SETTLE_SECONDS)
        before, begin = nodes.cpu_seconds(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        used = nodes.cpu_seconds() - before
        minutes = (time.monotonic() - begin) / 60
        memory = statistics.mean(server.resident_mib() for server in nodes.servers.values())
        return used / minutes / len(NODES), memory


def _produce() -> list[Figure]:
    """Both clusters are up all the time and take turns."""
    figures = []
    with _three(three_headraces) as ours, _three(three_kafkas) as theirs:
        for batch_bytes in BATCH_BYTES:
            rates: tuple[list[float], list[float]] = ([], [])
            costs: tuple[list[float], list[float]] = ([], [])
            for _ in range(PRODUCE_ROUNDS):
                for number, nodes in enumerate((ours, theirs)):
                    topic = broker_loads.create_topic(nodes, PARTITIONS, REPLICAS)
                    done = broker_loads.produce(nodes, topic, batch_bytes=batch_bytes, acks="all")
                    rates[number].append(done.mb_a_second)
                    costs[number].append(done.cpu_seconds / done.gigabytes)
            own, peer = map(statistics.median, rates)
            name = f"acks=all x {REPLICAS}, batches of {batch_bytes // 1024} KiB"
            detail = f"{own:.0f} MB/s, Kafka {peer:.0f} MB/s"
            figures.append(Figure(name, own / peer, 1.2, False, detail))
            own, peer = map(statistics.median, costs)
            detail = f"{own:.1f} s a GB on all nodes, Kafka {peer:.1f} s"
            figures.append(Figure("  cpu", own / peer, 0.6, True, detail))
    return figures


def _sync() -> list[Figure]:
    with _three(three_headraces) as ours, _three(three_kafkas) as theirs:
        taken: tuple[list[broker_loads.Latency], list[broker_loads.Latency]] = ([], [])
        for _ in range(PRODUCE_ROUNDS):
            for number, nodes in enumerate((ours, theirs)):
                taken[number].append(broker_loads.produce_one_by_one(nodes, REPLICAS))
    figures = []
    for name in ("median_us", "p99_us"):
        own, peer = (statistics.median(getattr(each, name) for each in some) for some in taken)
        detail = f"{own:.0f} us, Kafka {peer:.0f} us"
        figures.append(Figure(f"one record x {REPLICAS}, {name}", own / peer, 0.8, True, detail))
    return figures


def _leader(rounds: int) -> Figure:
    ours, theirs = (_leader_seconds(run, rounds) for run in (three_headraces, three_kafkas))
    own, peer = statistics.median(ours), statistics.median(theirs)
    detail = f"{own:.2f} s, Kafka {peer:.2f} s; worst {max(ours):.2f} s, Kafka {max(theirs):.2f} s"
    return Figure("a leader is killed", own / peer, 0.5, True, detail)


def _leader_seconds(run: Run, rounds: int) -> list[float]:
    """Return how long a client with its default settings gets no acknowledgement."""
    seconds = []
    with _three(run) as nodes:
        topic = broker_loads.create_topic(nodes, 1, REPLICAS)
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        for _ in range(rounds):
            _deliver(producer, topic)
            leader = nodes.partition(topic).leader_id
            begin = time.perf_counter()
            nodes.kill(leader)
            _deliver(producer, topic)
            seconds.append(time.perf_counter() - begin)
            nodes.start(leader)
            _wait_for_isr(nodes, topic, REPLICAS)
    return seconds


def _deliver(producer: Producer, topic: str) -> None:
    producer.produce(topic, b"x" * 100, partition=0)
    if producer.flush(LEADER_SECONDS_MAX):
        sys.exit(f"no acknowledgement within {LEADER_SECONDS_MAX} s")


def _catch_up(gigabytes: int) -> Figure:
    own, peer = (_catch_up_rate(run, gigabytes) for run in (three_headraces, three_kafkas))
    detail = f"{own:.0f} MB/s, Kafka {peer:.0f} MB/s, {gigabytes} GB"
    return Figure("catch-up of an empty follower", own / peer, 1.0, False, detail)


def _catch_up_rate(run: Run, gigabytes: int) -> float:
    with _three(run) as nodes:
        topic = broker_loads.create_topic(nodes, 1, 1)
        turns = round(gigabytes * 1e9 / (broker_loads.PRODUCED_RECORDS * broker_loads.RECORD_BYTES))
        for _ in range(max(turns, 1)):
            broker_loads.produce(nodes, topic, batch_bytes=CATCH_UP_BATCH_BYTES, acks="1")
        size = max(turns, 1) * broker_loads.PRODUCED_RECORDS * broker_loads.RECORD_BYTES
        replicas = nodes.partition(topic).replica_nodes
        added = next(number for number in NODES if number not in replicas)
        target = ReassignablePartition(partition_index=0, replicas=[*replicas, added])
        body = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[target])]
        )
        begin = time.perf_counter()
        nodes.ask(nodes.controller(), body, AlterPartitionReassignmentsResponse)
        _wait_for_isr(nodes, topic, len(replicas) + 1)
        return size / 1e6 / (time.perf_counter() - begin)


def _wait_for_isr(nodes: ThreeNodes, topic: str, count: int) -> None:
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while len(nodes.partition(topic).isr_nodes) < count:
        if time.monotonic() > deadline:
            sys.exit(f"no ISR of {count} within {CATCH_UP_SECONDS_MAX} s")
        time.sleep(0.05)


@contextmanager
def _three(run: Run) -> Iterator[ThreeNodes]:
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder,
        run(Path(folder)) as nodes,
    ):
        yield nodes


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=parts_of(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--gigabytes", type=int, default=CATCH_UP_GIGABYTES)
    return parser.parse_args()


if __name__ == "__main__":
    main()
