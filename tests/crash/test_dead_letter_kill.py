"""A node that is killed while it sends dead letters: every record that is rejected has one."""

import asyncio
import random
from pathlib import Path

from headrace.client import AcknowledgeType, Admin, Producer, ShareConsumer
from headrace.client.configs import Resource, ResourceType
from headrace.client.consumer import Consumer
from headrace.client.errors import ClientError
from headrace.errors import KafkaError
from tests.headrace_process import HeadraceProcess

KILLS = 3
RECORDS = 2000
PARTITIONS = 2
GROUP, TOPIC, LETTERS = "judges", "orders", "dlq.orders"
DEADLINE_SECONDS = 240
SETTINGS = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "share.coordinator.state.topic.num.partitions": "2",
}

Place = tuple[int, int]


class Judge:
    """A consumer that rejects whatever it gets, and outlives the node."""

    def __init__(self, bootstrap: str) -> None:
        self.confirmed: set[Place] = set()
        """Partition and offset of what the node said it has rejected."""
        self._bootstrap = bootstrap
        self._is_over = False

    def end(self) -> None:
        self._is_over = True

    async def work(self) -> None:
        while not self._is_over:
            try:
                await self._work()
            except (ClientError, KafkaError, OSError):
                await asyncio.sleep(0.05)  # the node is being started again

    async def _work(self) -> None:
        async with ShareConsumer(
            self._bootstrap, GROUP, [TOPIC], mode="explicit", max_poll_records=50
        ) as consumer:
            while not self._is_over:
                records = await consumer.poll(500)
                for record in records:
                    consumer.acknowledge(record, AcknowledgeType.REJECT)
                outcomes = await consumer.commit()
                refused = {each.partition for each, error in outcomes.items() if error is not None}
                self.confirmed |= {
                    (record.partition, record.offset)
                    for record in records
                    if record.partition not in refused
                }


async def prepare(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_configs(
            Resource(ResourceType.GROUP, GROUP),
            set={
                "share.auto.offset.reset": "earliest",
                "errors.deadletterqueue.topic.name": LETTERS,
            },
        )
        await admin.create_topic(TOPIC, partitions=PARTITIONS)
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)


async def letters(bootstrap: str) -> list[Place]:
    """Give where the records come from that the dead-letter topic has now."""
    found: list[Place] = []
    async with Consumer(bootstrap) as consumer:
        await consumer.assign(LETTERS, until_end=True)
        async for record in consumer:
            said = dict(record.headers)
            partition = said["__dlq.errors.partition"] or b""
            found.append((int(partition), int(said["__dlq.errors.offset"] or b"")))
    return found


def test_every_rejected_record_has_a_letter_however_often_the_node_is_killed(
    tmp_path: Path,
) -> None:
    chance = random.Random(8)
    node = HeadraceProcess(tmp_path / "data", SETTINGS)
    port = node.port
    asyncio.run(prepare(node.bootstrap))
    judge = Judge(node.bootstrap)

    async def run() -> list[Place]:
        nonlocal node
        working = asyncio.ensure_future(judge.work())
        async with asyncio.timeout(DEADLINE_SECONDS):
            for kill in range(1, KILLS + 1):
                wanted = RECORDS * kill // (KILLS * 2)
                while len(judge.confirmed) < wanted:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(chance.uniform(0, 0.004))
                await asyncio.to_thread(node.kill)
                node = await asyncio.to_thread(
                    HeadraceProcess, tmp_path / "data", SETTINGS, port=port
                )
            while len(set(found := await letters(node.bootstrap))) < RECORDS:
                await asyncio.sleep(0.2)
        judge.end()
        await working
        return found

    try:
        found = asyncio.run(run())
    finally:
        node.kill()
    assert set(found) == {
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(RECORDS // PARTITIONS)
    }
