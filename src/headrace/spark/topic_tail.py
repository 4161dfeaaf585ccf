"""Reading on in a topic of our own: what sources and sinks write down for others to find."""

import asyncio
from collections.abc import Callable
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.consumer import Consumer
from headrace.client.fetched import ConsumedRecord
from headrace.client.offsets import Start, list_offsets
from headrace.client.outcomes import values_of
from headrace.client.settings import ConsumerSettings
from headrace.client.topics import TopicPartition

_LIMITS: Final = ConsumerSettings(max_wait_ms=0, partition_max_bytes=8 * 1024 * 1024)


class TopicTail:
    """One partition, as far as it was read, so that a look is one request unless there is news."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        take: Callable[[ConsumedRecord], None],
        forget: Callable[[], None],
    ) -> None:
        """`take` gets the records in order; `forget` is called if they start over."""
        self._cluster = cluster
        self._partition = partition
        self._take = take
        self._forget = forget
        self._topic_id: bytes | None = None
        self._position = 0

    async def read(self) -> None:
        """Read everything that was written before the call; raise KafkaError without the topic."""
        topic_id = (await self._cluster.topic(self._partition.topic)).topic_id
        found = await list_offsets(self._cluster, {self._partition: int(Start.END)})
        end = values_of(found)[self._partition].offset
        if self._topic_id not in (None, topic_id) or end < self._position:
            self._position = 0
            self._forget()
        self._topic_id = topic_id
        if end > self._position:
            async with asyncio.timeout(self._cluster.settings.api_timeout_ms / 1000):
                await self._read_until(end)

    async def _read_until(self, end: int) -> None:
        topic, index = self._partition
        async with Consumer(self._cluster, reset=Start.BEGINNING, limits=_LIMITS) as consumer:
            await consumer.assign(topic, self._position, [index])
            consumer.stop_at({self._partition: end})
            while records := await consumer.poll():
                for record in records:
                    self._take(record)
        self._position = end
