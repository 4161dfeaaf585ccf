"""The log of events on the topic `__remote_log_metadata`, through Headrace's own client.

A node talks to itself and to the other leaders of the topic as any client would: an idempotent
producer that waits for all replicas, and fetches without a consumer group. Partitions are read up
to the high watermark, so an event that a node has seen is there for good.

The number of partitions is that of the topic as it is, whatever the settings say: events are placed
by it. A topic that was deleted and made anew is another log, which is not taken for the one that
was started.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.fetched import UnreadableBatch
from headrace.client.fetcher import Fetcher
from headrace.client.metadata import Topic
from headrace.client.offsets import Start, list_offsets
from headrace.client.outcomes import values_of
from headrace.client.producer import Producer
from headrace.client.settings import ClientSettings, ConsumerSettings
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import REMOTE_METADATA_TOPIC, TopicName
from headrace.tier.event_log import (
    EventBatch,
    LogBounds,
    LoggedEvent,
    LogReplaced,
    PublishFailed,
    PublishRefused,
)

CLIENT_SETTINGS: Final = ClientSettings(
    client_id="headrace-tier", request_timeout_ms=10_000, api_timeout_ms=5_000
)
READ_SETTINGS: Final = ConsumerSettings(
    max_wait_ms=500, max_bytes=8 * 1024 * 1024, partition_max_bytes=512 * 1024
)
LOOK_AGAIN_SECONDS: Final = 1.0
"""How often to look whether a partition was read on without an event."""


class TopicEventLog:
    """Events in the partitions of a topic."""

    def __init__(
        self,
        bootstrap: Callable[[], str],
        create_topic: Callable[[], Awaitable[None]],
        topic: TopicName = REMOTE_METADATA_TOPIC,
        settings: ClientSettings = CLIENT_SETTINGS,
    ) -> None:
        """`bootstrap` returns the address of this node, `create_topic` creates the topic."""
        self._bootstrap = bootstrap
        self._create_topic = create_topic
        self._name = topic
        self._settings = settings
        self._topic: Topic | None = None
        self._cluster: Cluster | None = None
        self._readers: Cluster | None = None
        """Connections of their own: a response waits for those before it, and a fetch for news."""
        self._producer: Producer | None = None
        self._is_replaced = False

    @property
    def log_id(self) -> bytes:
        return self._started.topic_id

    @property
    def partition_count(self) -> int:
        return len(self._started.partitions)

    @property
    def _started(self) -> Topic:
        assert self._topic is not None, "the log of events was not started"
        return self._topic

    async def start(self) -> None:
        """Find the topic, or create it; HeadraceError if that is not possible now."""
        bootstrap = self._bootstrap()
        cluster = Cluster(bootstrap, self._settings)
        readers = Cluster(bootstrap, self._settings)
        try:
            await cluster.connect()
            self._topic = await self._find_topic(cluster)
            await readers.connect()
        except BaseException:
            await cluster.close()
            await readers.close()
            raise
        self._cluster, self._readers = cluster, readers
        self._producer = Producer(cluster)

    async def _find_topic(self, cluster: Cluster) -> Topic:
        try:
            return await cluster.topic(self._name)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        await self._create_topic()
        cluster.forget(self._name)
        return await cluster.topic(self._name)

    async def stop(self) -> None:
        """Hang up; events that are not acknowledged may be in the log or not."""
        if self._producer is not None:
            await self._producer.abandon()
        for cluster in (self._cluster, self._readers):
            if cluster is not None:
                await cluster.close()

    def hang_up(self) -> None:
        """Close connections at once, as a node that is killed does."""
        for cluster in (self._cluster, self._readers):
            if cluster is not None:
                cluster.abandon()

    async def publish(self, partition: int, event: bytes) -> int:
        """Append an event; return its offset when all replicas in sync have it."""
        cluster = self._connected
        assert self._producer is not None, "the log of events was not started"
        try:
            if self._name not in cluster.view.topics:
                await cluster.topic(self._name)  # a producer might have it created, anyhow
            self._check_topic(cluster)
            placed = await self._producer.deliver(self._name, event, partition=partition)
        except KafkaError as error:
            kind = PublishFailed if error.is_retriable else PublishRefused
            raise kind(self._not_acknowledged(partition, error)) from error
        except (ClientError, ValueError) as error:
            raise PublishFailed(self._not_acknowledged(partition, error)) from error
        return placed.offset

    def _not_acknowledged(self, partition: int, error: Exception) -> str:
        return f"an event for {self._name}-{partition} was not acknowledged: {error}"

    async def bounds(self, partition: int) -> LogBounds:
        """Ask the leader of a partition for its start offset and its high watermark."""
        cluster = self._connected
        asked = TopicPartition(self._name, partition)
        starts, ends = await asyncio.gather(
            list_offsets(cluster, {asked: int(Start.BEGINNING)}),
            list_offsets(cluster, {asked: int(Start.END)}),
        )
        self._check_topic(cluster)
        return LogBounds(values_of(starts)[asked].offset, values_of(ends)[asked].offset)

    def subscribe(self) -> "TopicSubscription":
        readers = self._readers
        assert readers is not None, "the log of events was not started"
        return TopicSubscription(readers, self._name, lambda: self._check_topic(readers))

    @property
    def _connected(self) -> Cluster:
        assert self._cluster is not None, "the log of events was not started"
        return self._cluster

    def _check_topic(self, cluster: Cluster) -> None:
        """Raise LogReplaced if the topic is not the one that was found at the start."""
        now = cluster.view.topics.get(self._name)
        if now is not None and now.topic_id != self._started.topic_id:
            self._is_replaced = True
        if self._is_replaced:
            raise LogReplaced(f"the topic {self._name} was deleted and made anew")


class TopicSubscription:
    """Reads partitions of the topic."""

    def __init__(self, cluster: Cluster, topic: TopicName, check_topic: Callable[[], None]) -> None:
        self._check_topic = check_topic
        self._topic = topic
        self._fetcher = Fetcher(cluster, READ_SETTINGS, is_committed=False, reset=Start.BEGINNING)
        self._fetcher.is_endless = True
        self._terms: dict[int, int] = {}
        self._positions: dict[int, int] = {}
        """Where partitions were when it was told last."""
        self._term = 0

    def add(self, partition: int, offset: int) -> int:
        self._term += 1
        self._terms[partition] = self._term
        self._positions[partition] = offset
        self._fetcher.readings.assign({TopicPartition(self._topic, partition): offset}, {})
        self._fetcher.wake()
        return self._term

    def remove(self, partition: int) -> None:
        if self._terms.pop(partition, None) is not None:
            del self._positions[partition]
            self._fetcher.readings.drop([TopicPartition(self._topic, partition)])

    @property
    def assigned(self) -> frozenset[int]:
        return frozenset(self._terms)

    async def next(self) -> EventBatch:
        loop = asyncio.get_running_loop()
        while True:
            deadline = loop.time() + LOOK_AGAIN_SECONDS
            try:
                records = await self._fetcher.next_records(self._check_topic, deadline)
            except UnreadableBatch as damage:
                if (batch := self._give_up(damage)) is not None:
                    return batch
                continue
            index = records[0].partition if records else self._moved()
            if index is None or index not in self._terms:
                continue
            next_offset = self._fetcher.readings.positions()[TopicPartition(self._topic, index)]
            self._positions[index] = next_offset
            events = [LoggedEvent(record.offset, record.value) for record in records]
            return EventBatch(index, self._terms[index], events, next_offset)

    def _moved(self) -> int | None:
        """Return a partition that was read on without an event."""
        for (_, index), position in self._fetcher.readings.positions().items():
            if position > self._positions.get(index, position):
                return index
        return None

    def _give_up(self, damage: UnreadableBatch) -> EventBatch | None:
        """Read a partition no more that is damaged, and say so."""
        index = damage.partition.partition
        if (term := self._terms.get(index)) is None:
            return None
        position = self._positions[index]
        self.remove(index)
        return EventBatch(index, term, (), position, failure=str(damage))

    async def close(self) -> None:
        await self._fetcher.stop()
