"""Our own producer when it is told to stop: nobody hangs, nobody is cancelled who was not."""

import asyncio
from itertools import pairwise

import pytest

from headrace.client import (
    Admin,
    ClientError,
    ClientSettings,
    Cluster,
    KafkaError,
    Producer,
    ProducerSettings,
)
from headrace.client.batches import Delivery, Placed
from headrace.testing.broker import TestBroker
from tests.clients.awaiting import run

DEADLINE_SECONDS = 60
SMALL = ProducerSettings(memory_bytes=1000)


async def wait(delivery: Delivery) -> Placed:
    return await delivery


async def until_waiting(producer: Producer) -> None:
    while not producer._sender._entering:
        await asyncio.sleep(0.005)  # polls, up to the deadline of `run`


def test_a_send_that_waits_for_memory_fails_when_the_producer_is_abandoned(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("t")

    async def work() -> None:
        producer = Producer(headrace.bootstrap, limits=SMALL)
        await producer.deliver("t", "x")
        headrace.faults.drop("Produce")

        async def fill() -> None:
            for _ in range(100):
                await producer.send("t", "y" * 300)

        filling = asyncio.create_task(fill())
        await until_waiting(producer)
        await producer.abandon()
        with pytest.raises(ClientError, match="closed before"):
            await filling
        with pytest.raises(ValueError, match="closed"):
            await producer.send("t", "z")

    run(work())


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_send_that_looks_its_topic_up_fails_and_its_task_is_not_cancelled(
    headrace: TestBroker, is_shared: bool
) -> None:
    headrace.create_topic("t")

    async def work() -> None:
        cluster = Cluster(headrace.bootstrap, ClientSettings())
        await cluster.connect()
        producer = Producer(cluster if is_shared else headrace.bootstrap)
        await producer.__aenter__()
        headrace.faults.delay("Metadata", 20_000)
        sending = asyncio.create_task(producer.send("t", "x"))
        await until_waiting(producer)
        await producer.abandon()
        await asyncio.wait({sending})
        assert not sending.cancelled()
        assert isinstance(sending.exception(), ClientError)
        await cluster.close()

    run(work())


def test_a_look_up_that_a_close_ends_does_not_cancel_who_waits_for_it(
    headrace: TestBroker,
) -> None:
    async def work() -> None:
        cluster = Cluster(headrace.bootstrap)
        await cluster.connect()
        headrace.faults.delay("Metadata", 20_000)
        looking = asyncio.create_task(cluster.topic("t"))
        await asyncio.sleep(0)
        await cluster.close()
        await asyncio.wait({looking})
        assert not looking.cancelled()
        assert isinstance(looking.exception(), ClientError)

    run(work())


def test_a_cancelled_send_is_cancelled(headrace: TestBroker) -> None:
    async def work() -> None:
        async with Producer(headrace.bootstrap) as producer:
            headrace.faults.delay("Metadata", 20_000)
            sending = asyncio.create_task(producer.send("t", "x"))
            await until_waiting(producer)
            sending.cancel()
            await asyncio.wait({sending})
            assert sending.cancelled()

    run(work())


def test_a_flush_that_waits_hears_of_records_that_were_given_up(headrace: TestBroker) -> None:
    headrace.create_topic("t")

    async def work() -> None:
        producer = Producer(headrace.bootstrap)
        await producer.deliver("t", "x")
        headrace.faults.drop("Produce")
        delivery = await producer.send("t", "y")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        await producer.abandon()
        with pytest.raises(ClientError, match="closed before the record was acknowledged"):
            await flushing
        with pytest.raises(ClientError, match="closed before the record was acknowledged"):
            await delivery

    run(work())


def test_a_producer_that_is_closed_twice_stays_closed(headrace: TestBroker) -> None:
    headrace.create_topic("t")

    async def work() -> None:
        producer = Producer(headrace.bootstrap)
        await producer.send("t", "x")
        await producer.close()
        await producer.close()
        await producer.abandon()
        assert [record.value for record in await asyncio.to_thread(headrace.consume, "t")] == [b"x"]

    run(work())


def test_a_topic_that_has_grown_takes_records_in_its_new_partitions(headrace: TestBroker) -> None:
    headrace.create_topic("t")

    async def work() -> None:
        async with Producer(headrace.bootstrap) as producer, Admin(headrace.bootstrap) as admin:
            await producer.deliver("t", "x")
            await admin.add_partitions("t", 3)
            assert (await producer.deliver("t", "y", partition=2)).partition == 2
            with pytest.raises(KafkaError, match="there is no 3"):
                await producer.send("t", "z", partition=3)
            with pytest.raises(KafkaError, match="there is no -1"):
                await producer.send("t", "z", partition=-1)

    run(work())


def test_a_record_that_is_too_large_fails_alone(headrace: TestBroker) -> None:
    headrace.create_topic("t", configs={"max.message.bytes": "1000"})

    async def work() -> list[object]:
        limits = ProducerSettings(linger_ms=60_000)
        async with Producer(headrace.bootstrap, limits=limits) as producer:
            values = ("one", "x" * 3000, "two", "three")
            deliveries = [await producer.send("t", value) for value in values]
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await producer.flush()
            return await asyncio.gather(*map(wait, deliveries), return_exceptions=True)

    outcomes = run(work())
    assert isinstance(outcomes[1], KafkaError)
    assert [getattr(each, "offset", None) for each in outcomes] == [0, None, 1, 2]
    assert [record.value for record in headrace.consume("t")] == [b"one", b"two", b"three"]


def test_a_failure_is_raised_by_flush_though_that_of_another_record_was_told(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("t", configs={"max.message.bytes": "1000"})

    async def work() -> None:
        async with Producer(headrace.bootstrap, limits=ProducerSettings(linger_ms=100)) as producer:
            await producer.send("t", "x" * 3000)
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await producer.deliver("t", "y" * 3000)
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                await producer.flush()
            await producer.flush()

    run(work())


def test_a_failure_that_is_awaited_late_is_not_raised_by_the_end_of_the_block(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("t", 2, configs={"max.message.bytes": "1000"})

    async def work() -> None:
        async with Producer(headrace.bootstrap) as producer:
            deliveries = [
                await producer.send("t", "x" * 3000, partition=number % 2) for number in range(4)
            ]
            for delivery in deliveries:
                for _ in range(2):
                    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
                        await delivery

    run(work())


def test_a_loop_over_small_records_lets_others_have_their_turn(headrace: TestBroker) -> None:
    headrace.create_topic("t")

    async def work() -> int:
        turns: list[int] = []
        count = 0

        async def take_turns() -> None:
            while True:
                turns.append(count)
                await asyncio.sleep(0)

        limits = ProducerSettings(batch_bytes=1 << 20, linger_ms=60_000)
        async with Producer(headrace.bootstrap, limits=limits) as producer:
            await producer.send("t", "")
            other = asyncio.create_task(take_turns())
            for count in range(10_000):  # noqa: B007  read by the other task
                await producer.send("t", "")
            other.cancel()
        return max(later - turn for turn, later in pairwise(turns))

    assert run(work()) <= 1100
