"""Queues and transactions whose records are in the tier."""

import asyncio
from collections.abc import Iterator

import pytest

from headrace.client import AcknowledgeType, BlockingShareConsumer, Consumer, Producer, Start
from headrace.testing.broker import TestBroker
from headrace.testing.store import SimulatedStore
from tests.tier.brokers import COUNT, TIERED, VALUES, produce_all, until


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker(store=SimulatedStore()) as running:
        yield running


def move(broker: TestBroker, topic: str) -> None:
    """Wait until all but the last segment of a topic left the disk."""
    partition = broker.node.broker.replicas.find(topic, 0)  # type: ignore[arg-type]
    assert partition is not None
    until(lambda: len(partition.log.segments) == 1, "the move to the tier")
    assert partition.log.local_start_offset > 0


def test_a_queue_delivers_what_is_in_the_tier_once(broker: TestBroker) -> None:
    broker.create_topic("jobs", configs=TIERED)
    broker.configure_group("workers", {"share.auto.offset.reset": "earliest"})
    produce_all(broker, "jobs")
    move(broker, "jobs")
    taken: list[bytes | None] = []
    with BlockingShareConsumer(broker.bootstrap, "workers", ["jobs"]) as consumer:
        while len(taken) < COUNT:
            taken += [record.value for record in consumer.poll(30_000)]
    assert taken == VALUES


def test_released_records_come_again_from_the_tier(broker: TestBroker) -> None:
    broker.create_topic("jobs", configs=TIERED)
    broker.configure_group("workers", {"share.auto.offset.reset": "earliest"})
    produce_all(broker, "jobs")
    move(broker, "jobs")
    with BlockingShareConsumer(broker.bootstrap, "workers", ["jobs"], mode="explicit") as consumer:
        first = consumer.poll(30_000)
        for record in first:
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
        consumer.commit()
    taken: list[bytes | None] = []
    with BlockingShareConsumer(broker.bootstrap, "workers", ["jobs"]) as consumer:
        while len(taken) < COUNT:
            taken += [record.value for record in consumer.poll(30_000)]
    assert sorted(map(bytes, filter(None, taken))) == VALUES


def test_aborted_transactions_stay_invisible_in_the_tier(broker: TestBroker) -> None:
    broker.create_topic("payments", configs=TIERED)
    committed: list[bytes] = []

    async def write() -> None:
        async with Producer(broker.bootstrap, transactional_id="t") as producer:
            for number in range(30):
                is_kept = number % 3 == 0
                try:
                    async with producer.transaction():
                        for part in range(5):
                            value = b"%d/%d" % (number, part)
                            await producer.send("payments", value)
                            if is_kept:
                                committed.append(value)
                        if not is_kept:
                            raise _Abort
                except _Abort:
                    pass

    async def read() -> list[bytes | None]:
        async with Consumer(broker.bootstrap, read_committed=True) as consumer:
            await consumer.assign("payments", Start.BEGINNING)
            async with asyncio.timeout(60):
                return [(await anext(aiter(consumer))).value for _ in committed]

    broker.run(write())
    broker.produce("payments", *[b"x" * 100] * 40)
    move(broker, "payments")
    assert broker.run(read()) == committed
    shown = [record.value for record in broker.consume("payments")]
    assert shown[: len(committed)] == committed


class _Abort(Exception):
    pass
