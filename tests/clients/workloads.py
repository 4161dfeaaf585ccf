"""One workload, three clients: what each does with its own calls, behind the same few names."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka

from headrace.client import CommittedOffset, Consumer, Producer, Start, TopicPartition

DEADLINE_SECONDS = 60
POLL_SECONDS = 0.5
T = TypeVar("T")


class Read(NamedTuple):
    """A record as every client shows it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Sent(NamedTuple):
    """A record to produce."""

    key: bytes
    value: bytes
    timestamp: int
    headers: tuple[tuple[str, bytes], ...] = ()


class Client(Protocol):
    """What a workload needs of a client."""

    async def produce(self, topic: str, records: Sequence[Sent]) -> None:
        """Produce records, acknowledged by all."""

    async def read_group(self, topic: str, group: str, count: int) -> list[Read]:
        """Join a group, read so many records, commit behind them and leave."""

    async def read_committed(self, topic: str, partitions: int) -> list[Read]:
        """Read all partitions from the beginning, up to where committed records end."""

    async def transact(
        self, topic: str, ends: Sequence[tuple[Sequence[Sent], bool]], transactional_id: str
    ) -> None:
        """Produce in transactions, each of which is committed or aborted."""

    async def copy(
        self, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        """Copy records of one partition, with the group's offset, in one transaction."""


class Headrace:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def produce(self, topic: str, records: Sequence[Sent]) -> None:
        async with Producer(self._bootstrap) as producer:
            await self._send(producer, topic, records)

    @staticmethod
    async def _send(producer: Producer, topic: str, records: Sequence[Sent]) -> None:
        for key, value, timestamp, headers in records:
            await producer.send(topic, value, key, headers=headers, timestamp_ms=timestamp)

    async def read_group(self, topic: str, group: str, count: int) -> list[Read]:
        found: list[Read] = []
        async with Consumer(
            self._bootstrap, group=group, reset=Start.BEGINNING, auto_commit=False
        ) as consumer:
            await consumer.subscribe([topic])
            while len(found) < count:
                found += map(_of_headrace, await consumer.poll(records_max=count - len(found)))
            await consumer.commit()
        return found

    async def read_committed(self, topic: str, partitions: int) -> list[Read]:
        async with Consumer(self._bootstrap, read_committed=True) as consumer:
            await consumer.assign(topic, Start.BEGINNING, until_end=True)
            return [_of_headrace(record) async for record in consumer]

    async def transact(
        self, topic: str, ends: Sequence[tuple[Sequence[Sent], bool]], transactional_id: str
    ) -> None:
        async with Producer(self._bootstrap, transactional_id=transactional_id) as producer:
            for records, is_commit in ends:
                try:
                    async with producer.transaction():
                        await self._send(producer, topic, records)
                        await producer.flush()
                        if not is_commit:
                            raise _Abort
                except _Abort:
                    pass

    async def copy(
        self, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        records = (await self.read_committed(source, 1))[:count]
        async with (
            Producer(self._bootstrap, transactional_id=transactional_id) as producer,
            producer.transaction() as transaction,
        ):
            await self._send(producer, target, [_again(record) for record in records])
            end = CommittedOffset(records[-1].offset + 1)
            await transaction.send_offsets({TopicPartition(source, 0): end}, group)


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def produce(self, topic: str, records: Sequence[Sent]) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all")
        async with producer:
            await self._send(producer, topic, records)

    @staticmethod
    async def _send(producer: Any, topic: str, records: Sequence[Sent]) -> None:
        for key, value, timestamp, headers in records:
            await producer.send(topic, value, key, timestamp_ms=timestamp, headers=list(headers))

    @asynccontextmanager
    async def _consumer(self, *topics: str, **options: Any) -> AsyncIterator[Any]:
        consumer = aiokafka.AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        )
        async with consumer:
            yield consumer

    async def read_group(self, topic: str, group: str, count: int) -> list[Read]:
        found: list[Read] = []
        async with self._consumer(topic, group_id=group) as consumer:
            while len(found) < count:
                rows = await consumer.getmany(timeout_ms=500, max_records=count - len(found))
                found += [_of_aiokafka(row) for batch in rows.values() for row in batch]
            await consumer.commit()
        return found

    async def read_committed(self, topic: str, partitions: int) -> list[Read]:
        found: list[Read] = []
        async with self._consumer(isolation_level="read_committed") as consumer:
            places = [aiokafka.TopicPartition(topic, each) for each in range(partitions)]
            consumer.assign(places)
            for place, end in (await consumer.end_offsets(places)).items():
                while await consumer.position(place) < end:
                    rows = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
                    found += [_of_aiokafka(row) for batch in rows.values() for row in batch]
        return found

    async def transact(
        self, topic: str, ends: Sequence[tuple[Sequence[Sent], bool]], transactional_id: str
    ) -> None:
        async with self._transactional(transactional_id) as producer:
            for records, is_commit in ends:
                await producer.begin_transaction()
                await self._send(producer, topic, records)
                await producer.flush()
                await (producer.commit_transaction() if is_commit else producer.abort_transaction())

    def _transactional(self, transactional_id: str) -> Any:
        return aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=transactional_id
        )

    async def copy(
        self, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        records = (await self.read_committed(source, 1))[:count]
        async with self._transactional(transactional_id) as producer, producer.transaction():
            await self._send(producer, target, [_again(record) for record in records])
            end = {aiokafka.TopicPartition(source, 0): records[-1].offset + 1}
            await producer.send_offsets_to_transaction(end, group)


class Confluent:
    """librdkafka, which blocks: each workload runs in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _producer(self, **options: str) -> Any:
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "partitioner": "murmur2_random",
                **options,
            }
        )

    @staticmethod
    def _send(producer: Any, topic: str, records: Sequence[Sent]) -> None:
        for key, value, timestamp, headers in records:
            producer.produce(topic, value, key, timestamp=timestamp, headers=list(headers))
        assert producer.flush(DEADLINE_SECONDS) == 0

    def _consumer(self, group: str, **options: Any) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **options,
            }
        )

    async def produce(self, topic: str, records: Sequence[Sent]) -> None:
        await _blocking(lambda: self._send(self._producer(), topic, records))

    async def read_group(self, topic: str, group: str, count: int) -> list[Read]:
        def read() -> list[Read]:
            found: list[Read] = []
            consumer = self._consumer(group, **{"group.protocol": "consumer"})
            consumer.subscribe([topic])
            while len(found) < count:
                found += map(_of_confluent, consumer.consume(count - len(found), POLL_SECONDS))
            consumer.commit(asynchronous=False)
            consumer.close()
            return found

        return await _blocking(read)

    async def read_committed(self, topic: str, partitions: int) -> list[Read]:
        def read() -> list[Read]:
            found: list[Read] = []
            options = {"isolation.level": "read_committed", "enable.partition.eof": True}
            consumer = self._consumer("unused", **options)
            rows = [confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)]
            consumer.assign(rows)
            ended: set[int] = set()
            while len(ended) < partitions:
                for record in consumer.consume(1000, POLL_SECONDS):
                    if record.error() is None:
                        found.append(_of_confluent(record))
                    else:
                        assert record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                        ended.add(record.partition())
            consumer.close()
            return found

        return await _blocking(read)

    async def transact(
        self, topic: str, ends: Sequence[tuple[Sequence[Sent], bool]], transactional_id: str
    ) -> None:
        def transact() -> None:
            producer = self._producer(**{"transactional.id": transactional_id})
            producer.init_transactions(DEADLINE_SECONDS)
            for records, is_commit in ends:
                producer.begin_transaction()
                self._send(producer, topic, records)
                (producer.commit_transaction if is_commit else producer.abort_transaction)()

        await _blocking(transact)

    async def copy(
        self, source: str, target: str, group: str, transactional_id: str, count: int
    ) -> None:
        records = (await self.read_committed(source, 1))[:count]

        def copy() -> None:
            producer = self._producer(**{"transactional.id": transactional_id})
            producer.init_transactions(DEADLINE_SECONDS)
            producer.begin_transaction()
            self._send(producer, target, [_again(record) for record in records])
            consumer = self._consumer(group)
            end = confluent_kafka.TopicPartition(source, 0, records[-1].offset + 1)
            producer.send_offsets_to_transaction([end], consumer.consumer_group_metadata())
            producer.commit_transaction()
            consumer.close()

        await _blocking(copy)


CLIENTS: Mapping[str, Callable[[str], Client]] = {
    "headrace": Headrace,
    "aiokafka": Aiokafka,
    "confluent": Confluent,
}


class _Abort(Exception):
    """The user's own reason."""


async def _blocking(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)


def _again(record: Read) -> Sent:
    assert record.key is not None
    assert record.value is not None
    return Sent(record.key, record.value, record.timestamp)


def _of_headrace(row: Any) -> Read:
    return Read(row.partition, row.offset, row.key, row.value, row.headers, row.timestamp)


def _of_aiokafka(row: Any) -> Read:
    return Read(row.partition, row.offset, row.key, row.value, tuple(row.headers), row.timestamp)


def _of_confluent(row: Any) -> Read:
    assert row.error() is None, row.error()
    headers = tuple(row.headers() or ())
    return Read(row.partition(), row.offset(), row.key(), row.value(), headers, row.timestamp()[1])
