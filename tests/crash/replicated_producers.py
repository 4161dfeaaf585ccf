"""Idempotent producers of three libraries that never stop, and what they were promised.

Each sends numbers to every partition in turn, as fast as they are acknowledged up to a bound, and
notes which ones were acknowledged and which ones failed. In the end the topic is read:

    with producers(bootstrap, topic, partitions) as load:
        load.wait_for_more(100)
        ...
    load.check(values_by_partition(bootstrap, topic))
"""

import asyncio
import gc
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import aiokafka
import confluent_kafka

from headrace.client import Consumer, Start
from tests.kafka_python import KafkaProducer

PENDING_MAX = 200
PAUSE_SECONDS = 0.002
DEADLINE_SECONDS = 120


class Sender(ABC):
    """One client of a library, in a thread of its own."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        self.name = name
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.acknowledged: list[int] = []
        """The numbers, in the order of their acknowledgements."""
        self.failures: list[str] = []
        self.pending = 0
        self.error: BaseException | None = None
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    @property
    def count(self) -> int:
        return len(self.acknowledged)

    def acknowledged_by_partition(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for number in self.acknowledged:
            found[number % self.partitions].add(number)
        return found

    def note(self, number: int, error: object) -> None:
        self.pending -= 1
        if error is None:
            self.acknowledged.append(number)
        else:
            self.failures.append(f"{number}: {error}")

    def value(self, number: int) -> bytes:
        return f"{self.name} {number}".encode()

    @abstractmethod
    def work(self) -> None:
        """Send until it is over, and wait for the last acknowledgements."""

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error


class Librdkafka(Sender):
    def work(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        number = 0
        while not self.is_over.is_set():
            producer.poll(PAUSE_SECONDS)
            if self.pending < PENDING_MAX:
                self._send(producer, number)
                number += 1
        producer.flush(DEADLINE_SECONDS)

    def _send(self, producer: Any, number: int) -> None:
        self.pending += 1
        producer.produce(
            self.topic,
            self.value(number),
            partition=number % self.partitions,
            on_delivery=lambda error, _: self.note(number, error),
        )


class KafkaPython(Sender):
    def work(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","), acks="all", enable_idempotence=True
        )
        number = 0
        while not self.is_over.wait(PAUSE_SECONDS):
            if self.pending < PENDING_MAX:
                self._send(producer, number)
                number += 1
        producer.flush(DEADLINE_SECONDS)
        producer.close()

    def _send(self, producer: Any, number: int) -> None:
        self.pending += 1
        sent = producer.send(self.topic, self.value(number), partition=number % self.partitions)
        sent.add_callback(lambda _: self.note(number, None))
        sent.add_errback(lambda error: self.note(number, error))


class Aiokafka(Sender):
    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", enable_idempotence=True
        )
        number = 0
        async with producer:
            while not self.is_over.is_set():
                await asyncio.sleep(PAUSE_SECONDS)  # the rate at which it sends
                if self.pending < PENDING_MAX:
                    await self._send(producer, number)
                    number += 1
            await producer.flush()

    async def _send(self, producer: Any, number: int) -> None:
        self.pending += 1
        sent = await producer.send(
            self.topic, self.value(number), partition=number % self.partitions
        )
        sent.add_done_callback(
            lambda done: self.note(number, done.exception() if not done.cancelled() else "ended")
        )


class Load:
    """All producers together."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.senders: list[Sender] = [
            make(make.__name__, bootstrap, topic, partitions)
            for make in (Librdkafka, KafkaPython, Aiokafka)
        ]

    def wait_for_more(self, count: int) -> None:
        """Return when each has so many more acknowledged."""
        wanted = {sender: sender.count + count for sender in self.senders}
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            late = [sender for sender in self.senders if sender.count < wanted[sender]]
            if not late:
                return
            for sender in late:
                assert sender.error is None, f"{sender.name}: {sender.error!r}"
            if time.monotonic() > deadline:
                states = [
                    f"{sender.name}: {sender.count} of {wanted[sender]}, {sender.pending} pending, "
                    f"failures {sender.failures[-3:]}"
                    for sender in late
                ]
                raise AssertionError("; ".join(states))
            time.sleep(0.01)  # polls, up to the deadline

    def failures(self) -> list[str]:
        return [f"{each.name} {failure}" for each in self.senders for failure in each.failures]

    def check(self, found: dict[int, list[bytes]]) -> int:
        """Compare what was promised with what is there; return how many records were promised."""
        promised = 0
        for sender in self.senders:
            assert sender.error is None, f"{sender.name}: {sender.error!r}"
            acknowledged = sender.acknowledged_by_partition()
            for partition in range(sender.partitions):
                prefix = f"{sender.name} ".encode()
                numbers = [
                    int(value.removeprefix(prefix))
                    for value in found[partition]
                    if value.startswith(prefix)
                ]
                lost = acknowledged[partition] - set(numbers)
                assert not lost, f"{sender.name} lost {sorted(lost)[:10]} of partition {partition}"
                wrong = [pair for pair in pairwise(numbers) if pair[0] >= pair[1]]
                assert not wrong, f"{sender.name}: twice or reordered {wrong[:10]} in {partition}"
            promised += sender.count
        return promised


@contextmanager
def producers(bootstrap: str, topic: str, partitions: int) -> Iterator[Load]:
    load = Load(bootstrap, topic, partitions)
    for sender in load.senders:
        sender.start()
    try:
        yield load
    finally:
        for sender in load.senders:
            sender.is_over.set()
        for sender in load.senders:
            sender.join()
        gc.collect()  # what they left open is found here, not in another test


def values_by_partition(
    bootstrap: str,
    topic: str,
    *,
    read_committed: bool = False,
    starts: Mapping[int, int] | None = None,
) -> dict[int, list[bytes]]:
    """Read a topic to its end, from its beginning or from an offset in each partition."""

    async def read() -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = defaultdict(list)
        async with Consumer(bootstrap, read_committed=read_committed) as consumer:
            if starts is None:
                await consumer.assign(topic, Start.BEGINNING, until_end=True)
            for partition, start in (starts or {}).items():
                await consumer.assign(topic, start, [partition], until_end=True)
            async for record in consumer:
                assert record.value is not None
                found[record.partition].append(record.value)
        return found

    return asyncio.run(read())
