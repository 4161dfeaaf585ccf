"""Topics and records in one line each, for tests."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from headrace.client import Admin, Consumer, Producer, Start
from headrace.client.configs import Resource, ResourceType
from headrace.client.fetched import ConsumedRecord
from headrace.client.producer import HeadersLike
from headrace.client.topics import BROKERS_DEFAULT

T = TypeVar("T")
Value = bytes | str | None
Row = Value | tuple[Value, Value]
"""A value, or a key with its value."""


class Conveniences(ABC):
    """What a test does with a broker or a cluster, from any thread."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The address for clients, as `host:port`."""

    @abstractmethod
    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop of another thread and return its result."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        replicas: int = BROKERS_DEFAULT,
    ) -> str:
        """Create a topic, ready to use on return; return its name.

        `replicas` is the replication factor, by default that of the broker.
        """
        self.run(self._create_topic(name, partitions, configs or {}, replicas))
        return name

    def produce(
        self,
        topic: str,
        *rows: Row,
        partition: int | None = None,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> list[int]:
        """Append records, acknowledged when this returns; return their offsets.

        A record is a value or a pair of key and value, text or bytes. All of them have the same
        headers, pairs or a mapping, and the same timestamp, which is now if it is not given.
        """
        headers = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        return self.run(self._produce(topic, rows, partition, headers, timestamp_ms))

    def consume(self, topic: str, start: int | None = None) -> list[ConsumedRecord]:
        """Return a topic's current records, partition by partition, from an offset or the start.

        Committed records only: neither those of aborted transactions, nor anything after the
        first record of an open one.
        """
        records = self.run(self._consume(topic, Start.BEGINNING if start is None else start))
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        """Set configs of a group by Kafka's names, such as `share.auto.offset.reset`.

        The group need not exist yet.
        """
        self.run(self._configure_group(group, configs))

    async def _configure_group(self, group: str, configs: Mapping[str, str]) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.alter_configs(Resource(ResourceType.GROUP, group), set=configs)

    async def _create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], replicas: int
    ) -> None:
        async with Admin(self.bootstrap) as admin:
            await admin.create_topic(name, partitions, configs=configs, replication_factor=replicas)

    async def _produce(
        self,
        topic: str,
        rows: Iterable[Row],
        partition: int | None,
        headers: HeadersLike,
        timestamp_ms: int | None,
    ) -> list[int]:
        async with Producer(self.bootstrap) as producer:
            deliveries = []
            for row in rows:
                key, value = row if isinstance(row, tuple) else (None, row)
                delivery = await producer.send(
                    topic, value, key, partition, headers=headers, timestamp_ms=timestamp_ms
                )
                deliveries.append(delivery)
            return [(await delivery).offset for delivery in deliveries]

    async def _consume(self, topic: str, start: int | Start) -> list[ConsumedRecord]:
        async with Consumer(self.bootstrap, read_committed=True) as consumer:
            await consumer.assign(topic, start, until_end=True)
            return [record async for record in consumer]
