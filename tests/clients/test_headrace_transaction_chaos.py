"""Transactions under everything at once: faults, restarts, cancellations, closes; by seed.

Whatever happens, a transaction is seen whole or not at all, what was said to be committed is seen,
and what was said to be aborted is not.
"""

import asyncio
from collections import defaultdict
from enum import Enum
from random import Random

import pytest

from headrace.client import (
    Admin,
    ClientError,
    ClientSettings,
    Consumer,
    ErrorCode,
    KafkaError,
    NotReachable,
    Producer,
    ProducerFenced,
    ProducerSettings,
    Start,
    TopicPartition,
    TransactionAborted,
)
from headrace.client.transactional.states import State
from headrace.testing.broker import TestBroker

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 100
ROUNDS = 40
HANG_SECONDS = 40
QUICK = ClientSettings(retry_backoff_ms=5, retry_backoff_max_ms=20, request_timeout_ms=2000)
SMALL = ProducerSettings(batch_bytes=2000, memory_bytes=6000, delivery_timeout_ms=5000)
APIS = (
    "Produce",
    "EndTxn",
    "AddPartitionsToTxn",
    "Metadata",
    "FindCoordinator",
    "TxnOffsetCommit",
    "InitProducerId",
)
CODES = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class Outcome(Enum):
    """What the user of a transaction was told."""

    COMMITTED = 1
    ABORTED = 2
    UNKNOWN = 3


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_transaction_is_whole_or_nothing(seed: int) -> None:
    async def work(broker: TestBroker) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            if seed % 2:
                async with Admin(broker.bootstrap) as admin:
                    await admin.update_features({"transaction.version": 1}, may_downgrade=True)
            outcomes = await Chaos(broker, seed).run()
            ends = set(outcomes.values())
            assert Outcome.COMMITTED in ends, "the seed is too hard"
            assert len(ends) > 1, "the seed is too kind"
            seen = await seen_records(broker)
        for number, rows in seen.items():
            ((_, size), *_) = rows
            assert sorted(index for index, _ in rows) == list(range(size)), f"a part of {number}"
        committed = {each for each, row in outcomes.items() if row is Outcome.COMMITTED}
        aborted = {each for each, row in outcomes.items() if row is Outcome.ABORTED}
        assert committed <= seen.keys()
        assert not aborted & seen.keys()

    with TestBroker() as broker:
        broker.create_topic("t", 3)
        asyncio.run(work(broker))


class Chaos:
    """A producer that is mistreated."""

    def __init__(self, broker: TestBroker, seed: int) -> None:
        self._broker = broker
        self._bootstrap = broker.bootstrap
        self._random = Random(seed)
        self._producer: Producer | None = None

    async def run(self) -> dict[int, Outcome]:
        """Return what was said of each transaction; nothing is open then."""
        outcomes = {}
        for number in range(ROUNDS):
            self._plan_a_fault()
            if number % 13 == 12:
                restart = asyncio.create_task(asyncio.to_thread(self._restart))
                outcomes[number] = await self._round(number)
                await restart
            else:
                outcomes[number] = await self._round(number)
        self._broker.faults.clear()
        producer = await self._usable_producer()
        await producer.close()
        return outcomes

    def _plan_a_fault(self) -> None:
        random, faults = self._random, self._broker.faults
        api = random.choice(APIS)
        kind = random.random()
        if kind < 0.3:
            faults.delay(api, random.randint(5, 120), times=1)
        elif kind < 0.5:
            faults.close_connection(api, times=1)
        elif kind < 0.7:
            faults.fail(api, random.choice(CODES), times=1)

    def _restart(self) -> None:
        if self._random.random() < 0.5:
            self._broker.crash()
        else:
            self._broker.stop()
        self._broker.start()

    async def _round(self, number: int) -> Outcome:
        random, producer = self._random, await self._usable_producer()
        task = asyncio.create_task(self._transact(producer, number))
        kind = random.random()
        if kind < 0.3:
            await asyncio.sleep(random.uniform(0, 0.08))
            task.cancel()
        elif kind < 0.36:
            await asyncio.sleep(random.uniform(0, 0.05))
            await (producer.close() if random.random() < 0.5 else producer.abandon())
        await asyncio.wait({task}, timeout=HANG_SECONDS)
        assert task.done(), f"transaction {number} hangs"
        if task.cancelled():
            return Outcome.UNKNOWN
        error = task.exception()
        if error is None:
            return Outcome.COMMITTED
        assert isinstance(error, LookupError | ClientError | KafkaError | ValueError), repr(error)
        is_told = isinstance(error, LookupError | TransactionAborted) or (
            isinstance(error, KafkaError) and not isinstance(error, ProducerFenced)
        )
        return Outcome.ABORTED if is_told else Outcome.UNKNOWN

    async def _transact(self, producer: Producer, number: int) -> None:
        random = self._random
        size = random.randint(1, 30)
        async with producer.transaction() as transaction:
            for index in range(size):
                value = f"{number}:{index}:{size}:" + "x" * random.randint(0, 300)
                await producer.send("t", value, partition=random.randint(0, 2))
                if random.random() < 0.1:
                    await producer.flush()
                if random.random() < 0.02:
                    raise LookupError
                if random.random() < 0.02:
                    producer.cluster.forget("t")
            if random.random() < 0.3:
                await transaction.send_offsets({TopicPartition("t", 0): number}, "group")

    async def _usable_producer(self) -> Producer:
        """Return the producer, or a new one if the last one is no good any more."""
        old = self._producer
        if old is not None and old._transactions is not None and not old._is_closed:
            if old._transactions.states.state is not State.BROKEN:
                return old
            await old.abandon()
        while True:
            new = Producer(self._bootstrap, QUICK, limits=SMALL, transactional_id="id")
            try:
                self._producer = await new.__aenter__()
            except (NotReachable, KafkaError):
                await asyncio.sleep(0.02)  # polls, up to the deadline of the test
            else:
                return self._producer


async def seen_records(broker: TestBroker) -> dict[int, list[tuple[int, int]]]:
    """Return index and size of the records that readers of committed ones see, by transaction."""
    async with Admin(broker.bootstrap) as admin:
        ends = {TopicPartition("t", index): Start.END for index in range(3)}
        while await admin.list_offsets(ends, is_committed=True) != await admin.list_offsets(ends):
            await asyncio.sleep(0.02)  # polls, up to the deadline of the test
    seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
    async with Consumer(broker.bootstrap, read_committed=True) as consumer:
        await consumer.assign("t", Start.BEGINNING, until_end=True)
        async for record in consumer:
            number, index, size, _ = (record.value or b"").split(b":")
            seen[int(number)].append((int(index), int(size)))
    return seen
