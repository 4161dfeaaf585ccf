"""Three nodes against three of Apache Kafka 4.3.1, and one way through the quorum against another.

`python -m bench.cluster --only failover --rounds 3` measures a part:

failover   kill -9 of the controller to the next topic that another node creates
proposals  changes of a topic's configs through a follower, against the same through the leader
idle       what three nodes cost that have 1,000 partitions and nothing to do
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from bench.broker_clusters import NODES, ThreeNodes, three_headraces, three_kafkas
from bench.measure import Figure, parts_of, report
from headrace.client.connection import Connection
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)

PARTS: Final = ("failover", "proposals", "idle")
ROUNDS: Final = 5
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
        figures += _idle()
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


def _idle() -> list[Figure]:
    own_cpu, own_mib = _idle_cost(three_headraces)
    peer_cpu, peer_mib = _idle_cost(three_kafkas)
    what = f"idle, {IDLE_PARTITIONS} partitions"
    cpu = f"{own_cpu:.2f} s a minute and node, Kafka {peer_cpu:.2f} s"
    memory = f"{own_mib:.0f} MiB a node, Kafka {peer_mib:.0f} MiB"
    return [
        Figure(f"cpu {what}", own_cpu / peer_cpu, 1.0, True, cpu),
        Figure(f"memory {what}", own_mib / peer_mib, 0.2, True, memory),
    ]


def _idle_cost(run: Run) -> tuple[float, float]:
    """Return the CPU seconds per minute and the resident MiB of a node, the mean of three."""
    with _three(run) as nodes:
        nodes.create_topic(NODES[0], "idle", IDLE_PARTITIONS)
        time.sleep(IDLE_SETTLE_SECONDS)
        servers = [nodes.servers[number] for number in NODES]
        before = [server.cpu_seconds() for server in servers]
        begin = time.monotonic()
        time.sleep(IDLE_SECONDS)
        used = sum(server.cpu_seconds() for server in servers) - sum(before)
        minutes = (time.monotonic() - begin) / 60
        memory = statistics.mean(server.resident_mib() for server in servers)
        return used / minutes / len(NODES), memory


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
    return parser.parse_args()


if __name__ == "__main__":
    main()
