"""Transactions over three nodes while each is killed in turn: all of a transaction, or nothing."""

import asyncio
from pathlib import Path

import pytest

from headrace.client import Admin, Consumer, Producer, TransactionAborted
from tests.headrace_process import HeadraceProcess
from tools.ports import free_port

PARTITIONS = 6
SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
}
SECONDS_MAX = 110


def start(folder: Path, number: int, ports: dict[int, tuple[int, int]]) -> HeadraceProcess:
    port, node_port = ports[number]
    settings = {
        **SETTINGS,
        "node.id": str(number),
        "headrace.node.listen": f"127.0.0.1:{node_port}",
    }
    if number > 1:
        settings["headrace.seeds"] = f"127.0.0.1:{ports[1][1]}"
    return HeadraceProcess(folder / str(number), settings, port=port)


@pytest.mark.slow
def test_a_transaction_over_three_nodes_survives_kills_as_a_whole(tmp_path: Path) -> None:
    ports = {number: (free_port(), free_port()) for number in (1, 2, 3)}
    nodes: dict[int, HeadraceProcess] = {}
    bootstrap = ",".join(f"127.0.0.1:{port}" for port, _ in ports.values())
    committed: list[bytes] = []

    async def write(stop: asyncio.Event) -> None:
        number = 0
        async with Producer(bootstrap, transactional_id="payments") as producer:
            while not stop.is_set():
                number += 1
                value = b"%d" % number
                try:
                    async with producer.transaction():
                        for index in range(PARTITIONS):
                            await producer.send("orders", value, partition=index)
                except TransactionAborted:
                    continue
                committed.append(value)

    async def scenario() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic("orders", PARTITIONS, 1)
        stop = asyncio.Event()
        writing = asyncio.create_task(write(stop))
        for victim in (2, 3, 1):
            before = len(committed)
            while len(committed) < before + 5:
                assert not writing.done(), writing.exception()
                await asyncio.sleep(0.01)
            nodes[victim].kill()
            await asyncio.sleep(0.5)
            nodes[victim] = await asyncio.to_thread(start, tmp_path, victim, ports)
        before = len(committed)
        while len(committed) < before + 5:
            assert not writing.done(), writing.exception()
            await asyncio.sleep(0.01)
        stop.set()
        await writing
        found: dict[int, list[bytes | None]] = {index: [] for index in range(PARTITIONS)}
        async with Consumer(bootstrap, read_committed=True) as consumer:
            await consumer.assign("orders")
            while any(committed[-1] not in values for values in found.values()):
                for record in await consumer.poll(1000):
                    found[record.partition].append(record.value)
        assert all(values == committed for values in found.values())

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await scenario()

    try:
        for number in (1, 2, 3):
            nodes[number] = start(tmp_path, number, ports)
        asyncio.run(bounded())
    finally:
        for node in nodes.values():
            node.kill()
