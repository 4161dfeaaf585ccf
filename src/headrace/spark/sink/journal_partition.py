"""One partition of the topic in which sinks keep their journals: read it, append to it.

Every sink of a cluster writes to the same topic, which the first one creates. Streaming queries are
spread over its partitions; batch writes are all in one, so that the next one finds what a dead
driver left.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.client.cluster import MOVED, Cluster
from headrace.client.errors import NotReachable, refusal
from headrace.client.fetched import ConsumedRecord
from headrace.client.retrying import Retries
from headrace.client.topics import NewTopic, TopicPartition, create_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.murmur2 import murmur2
from headrace.spark.sink.decisions import Claim, Decision, History, Stop, Token
from headrace.spark.topic_tail import TopicTail
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.produce_response import ProduceResponse

TOPIC: Final = "__headrace_spark_decisions"
PARTITIONS: Final = 8
"""A sink's partition is chosen among this many, even if the topic gets more later."""
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(15 * 60 * 1000),
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
}
"""A process that starts reads what is not compacted yet, so that it must not become much."""
BATCH_WRITE_PREFIX: Final = "write-"
STREAMS_FROM: Final = 1
"""The first partition with journals of queries; those of batch writes are in the one before."""
_KINDS: Final[dict[str, type[Claim | Decision]]] = {"claim": Claim, "decision": Decision}
_STOP: Final = "stop"
_NO_TOKEN: Final = Token(-1, -1, -1)


def partition_of(name: str) -> int:
    """Return the partition in which the journal of a sink is."""
    if name.startswith(BATCH_WRITE_PREFIX):
        return 0
    return STREAMS_FROM + murmur2(name.encode()) % (PARTITIONS - STREAMS_FROM)


class Entry(msgspec.Struct):
    """The journal of one sink, and when it was last written to, in ms since 1970."""

    history: History
    written_ms: int = 0


class JournalPartition:
    """One partition, as far as it was read. Belongs to one process and one loop."""

    def __init__(self, cluster: Cluster, index: int) -> None:
        self.entries: dict[str, Entry] = {}
        self.stops: dict[str, Stop] = {}
        """By the label of a writer."""
        self._cluster = cluster
        self._partition = TopicPartition(TOPIC, index)
        self._tail = TopicTail(cluster, self._partition, self._take, self._forget)

    def __str__(self) -> str:
        return str(self._partition)

    async def read(self) -> None:
        """Read everything that was written before the call."""
        await self._find_topic()
        await self._tail.read()

    async def append(self, name: str, record: Claim | Decision | Stop) -> int:
        """Write a record of a sink; return the error code if trying again is of no use."""
        if isinstance(record, Stop):
            kind, token = _STOP, _NO_TOKEN
        else:
            kind = next(kind for kind, cls in _KINDS.items() if isinstance(record, cls))
            token = record.token
        return await self._append([(f"{name}/{kind}".encode(), msgspec.json.encode(record))], token)

    async def erase(self, names: Iterable[str]) -> None:
        """Delete the journals of finished sinks."""
        keys = [f"{name}/{kind}".encode() for name in names for kind in _KINDS]
        await self._erase_keys(keys)

    async def erase_stops(self, labels: Iterable[str]) -> None:
        """Delete stops that are no longer needed."""
        await self._erase_keys([f"{label}/{_STOP}".encode() for label in labels])

    async def _erase_keys(self, keys: Sequence[bytes]) -> None:
        if keys:
            await self._append([(key, None) for key in keys], _NO_TOKEN)

    async def _append(self, rows: Sequence[tuple[bytes, bytes | None]], token: Token) -> int:
        await self._find_topic()
        builder = BatchBuilder(Compression.ZSTD)
        for key, value in rows:
            builder.append(time.time_ns() // 1_000_000, key, value)
        batch = builder.build(
            producer_id=token.producer_id,
            producer_epoch=token.producer_epoch,
            base_sequence=token.sequence,
        )
        retries = Retries(self._cluster.settings)
        while True:
            try:
                code = await self._produce(batch)
            except NotReachable:
                self._cluster.suspect(TOPIC)
                if not await retries.pause():
                    raise
                continue
            if code in MOVED:
                self._cluster.suspect(TOPIC)
            is_retriable = code != 0 and refusal(code, None, "").is_retriable
            if not is_retriable or not await retries.pause():
                return code

    async def _produce(self, batch: bytearray) -> int:
        leader = await self._cluster.leader(*self._partition)
        connection = await self._cluster.connection(leader.leader_id)
        row = PartitionProduceData(index=self._partition.partition, records=batch)
        topic = TopicProduceData(
            name=TOPIC, topic_id=self._cluster.view.topic_id(TOPIC), partition_data=[row]
        )
        body = ProduceRequest(
            acks=-1, timeout_ms=self._cluster.settings.request_timeout_ms, topic_data=[topic]
        )
        answer = await connection.request(body, ProduceResponse, patience_ms=body.timeout_ms)
        return answer.responses[0].partition_responses[0].error_code

    def _take(self, record: ConsumedRecord) -> None:
        name, _, kind = (record.key or b"").decode().rpartition("/")
        if kind == _STOP:
            if record.value is None:
                self.stops.pop(name, None)
            else:
                self.stops[name] = msgspec.json.decode(record.value, type=Stop)
                self.stops[name].written_ms = record.timestamp
        elif record.value is None:
            self.entries.pop(name, None)
        elif kind in _KINDS:
            entry = self.entries.setdefault(name, Entry(History()))
            entry.history.apply(msgspec.json.decode(record.value, type=_KINDS[kind]))
            entry.written_ms = record.timestamp

    def _forget(self) -> None:
        self.entries.clear()
        self.stops.clear()

    async def _find_topic(self) -> None:
        """Create the topic if there is none."""
        try:
            topic = await self._cluster.topic(TOPIC)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            await self._create_topic()
            topic = await self._cluster.topic(TOPIC, may_create=True)
        if len(topic.partitions) < PARTITIONS:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {TOPIC!r} has {len(topic.partitions)} partitions, {PARTITIONS} are needed; "
                "delete it while no query writes, and it is created as it has to be",
            )

    async def _create_topic(self) -> None:
        new = NewTopic(TOPIC, PARTITIONS, configs=CONFIGS)
        outcome = (await create_topics(self._cluster, [new], validate_only=False))[TOPIC]
        self._cluster.forget(TOPIC)
        if isinstance(outcome, KafkaError) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(
                outcome.code,
                f"{outcome.message}. The sink keeps its decisions in topic {TOPIC!r}: let it be "
                f"created, or create it with {PARTITIONS} partitions and cleanup.policy=compact",
            )


class JournalPartitions:
    """The partitions of one cluster, as far as they were read. Belongs to one process and loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[int, JournalPartition] = {}

    def at(self, index: int) -> JournalPartition:
        """Return a partition."""
        known = self._known.get(index)
        if known is None:
            known = self._known[index] = JournalPartition(self._cluster, index)
        return known
