"""The producer: records in, batches out, an answer for each.

    async with Producer("127.0.0.1:9092", compression="zstd") as producer:
        for line in lines:
            await producer.send("lines", line)      # waits only while memory is full
    # all of them are acknowledged here, or an exception says what is not

By default records are acknowledged by all in-sync replicas, and none is written twice (acks=all,
idempotent). The order of a partition's records is kept whatever has to be sent again.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, Self

from headrace.client.accumulator import Accumulator
from headrace.client.batches import Delivery, Placed
from headrace.client.cluster import Cluster
from headrace.client.metadata import Topic
from headrace.client.partitioner import StickyPartitions, partition_for_key
from headrace.client.sender import Sender
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings, ProducerSettings
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.records.builder import record_bytes_max
from headrace.records.compression import Compression
from headrace.records.record import Headers

Bytes = bytes | str | None
"""A key or a value; text goes out as UTF-8."""
HeadersLike = Mapping[str, Bytes] | Iterable[tuple[str, Bytes]]

ACKS: Final[dict[int | str, int]] = {"all": -1, -1: -1, 0: 0, 1: 1}


class Producer:
    """Sends records to the topics of one cluster."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Cluster = DEFAULT_BOOTSTRAP,
        settings: ClientSettings | None = None,
        *,
        acks: Literal["all", -1, 0, 1] = "all",
        idempotent: bool | None = None,
        compression: str | Compression = Compression.NONE,
        limits: ProducerSettings | None = None,
    ) -> None:
        """Take addresses, or a `Cluster` that somebody else closes.

        `idempotent` is on with acks=all unless turned off; without acks=all it cannot be.
        """
        if acks not in ACKS:
            raise ValueError(f"acks={acks!r}: must be all, 1 or 0")
        if idempotent and ACKS[acks] != -1:
            raise ValueError(f"acks={acks!r}: an idempotent producer needs acks=all")
        limits = limits or ProducerSettings()
        self._is_owner = not isinstance(bootstrap, Cluster)
        self.cluster = bootstrap if isinstance(bootstrap, Cluster) else Cluster(bootstrap, settings)
        self._accumulator = Accumulator(
            batch_bytes=limits.batch_bytes,
            memory_bytes=limits.memory_bytes,
            linger_seconds=limits.linger_ms / 1000,
            compression=parse_compression(compression),
            level=limits.compression_level,
        )
        self._sender = Sender(
            self.cluster,
            self._accumulator,
            acks=ACKS[acks],
            is_idempotent=ACKS[acks] == -1 if idempotent is None else idempotent,
            limits=limits,
        )
        self._sticky = StickyPartitions()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.cluster.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abandon()

    async def send(
        self,
        topic: str,
        value: Bytes,
        key: Bytes = None,
        partition: int | None = None,
        *,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Hand a record over; give what to await for its place, if that is of interest.

        Waits while memory is full and while the topic is unknown. A failure that nobody awaits
        is raised by the next `flush` or by `close`.
        """
        if self._is_closed:
            raise ValueError("this producer is closed")
        known = self.cluster.view.topics.get(topic)
        if known is None or not self.cluster.is_fresh(topic):
            known = await self.cluster.topic(topic, may_create=True)
        fields = (_bytes(key), _bytes(value), _headers(headers) if headers else ())
        record_bytes = record_bytes_max(*fields)
        if partition is None:
            partition = self._choose(known, fields[0], record_bytes)
        elif not 0 <= partition < len(known.partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has partitions 0 to {len(known.partitions) - 1}, "
                f"there is no {partition}",
            )
        if not self._accumulator.has_room(record_bytes):
            await self._sender.wait_for_room(record_bytes)
        timestamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        batch, index, is_news = self._accumulator.append(
            TopicPartition(topic, partition),
            timestamp,
            fields,
            record_bytes,
            self._sender.now(),
        )
        if is_news:
            self._sender.wake()
            await asyncio.sleep(0)  # a loop over `send` must let what is full go out
        return Delivery(batch, index)

    async def deliver(
        self,
        topic: str,
        value: Bytes,
        key: Bytes = None,
        partition: int | None = None,
        *,
        headers: HeadersLike = (),
        timestamp_ms: int | None = None,
    ) -> Placed:
        """Send a record and wait until it is acknowledged; give its place."""
        delivery = await self.send(
            topic, value, key, partition, headers=headers, timestamp_ms=timestamp_ms
        )
        return await delivery

    async def flush(self) -> None:
        """Wait until everything sent so far is acknowledged or has failed.

        Raises the first failure of a record that nobody awaited.
        """
        await self._sender.flush()

    async def close(self) -> None:
        """Flush, then hang up. The producer is closed even if the flush raises."""
        self._is_closed = True
        try:
            await self.flush()
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Hang up without waiting; records that are not acknowledged fail."""
        self._is_closed = True
        await self._sender.stop()
        if self._is_owner:
            await self.cluster.close()

    def _choose(self, topic: Topic, key: bytes | None, record_bytes: int) -> int:
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        current = self._sticky.stay(topic.name, record_bytes)
        if current is not None:
            return current
        nodes = self.cluster.view.nodes
        usable = [row.index for row in topic.partitions if row.leader_id in nodes]
        return self._sticky.move(topic.name, usable or range(len(topic.partitions)), record_bytes)


def parse_compression(name: str | Compression) -> Compression:
    """Read the name of a codec: none, gzip, snappy, lz4 or zstd; ValueError for another."""
    if isinstance(name, Compression):
        return name
    try:
        return Compression[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Compression)
        raise ValueError(f"compression {name!r}: must be one of {names}") from None


def _bytes(data: Bytes) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _headers(headers: HeadersLike) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _bytes(value)) for name, value in pairs)
