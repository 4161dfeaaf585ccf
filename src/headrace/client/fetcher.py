"""Fetching: a long poll to each leader that has partitions to read, one at a time.

A partition is asked about again only when what came of it was read, so memory holds one answer's
worth of each. Leaders that move and nodes that go are looked up and asked again, for ever: a reader
that waits for records does not end because a broker restarts.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable, refusal
from headrace.client.fetched import Chunk, ConsumedRecord
from headrace.client.offsets import (
    CONSUMER_REPLICA_ID,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Start,
    list_offsets,
)
from headrace.client.outcomes import values_of
from headrace.client.retrying import pause_ms
from headrace.client.settings import ConsumerSettings
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import TopicId
from headrace.wire import ApiKey
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse, PartitionData

_TOPIC_IDS_FROM = 13


class _Reading(msgspec.Struct):
    """One assigned partition."""

    position: int
    end: int | None = None
    is_asked: bool = False
    """Whether a request about it is on its way."""
    chunk: Chunk | None = None
    """What came and was not read yet."""

    @property
    def is_at_end(self) -> bool:
        return self.end is not None and self.position >= self.end


class Fetcher:
    """Records of the partitions that were assigned."""

    def __init__(
        self,
        cluster: Cluster,
        limits: ConsumerSettings,
        *,
        is_committed: bool,
        reset: Start | None,
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._is_committed = is_committed
        self._reset = reset
        self._random = Random()
        self._readings: dict[TopicPartition, _Reading] = {}
        self._arrived: deque[TopicPartition] = deque()
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked_nodes: set[int] = set()
        self._failed_attempts = 0
        self._failure: Exception | None = None

    @property
    def is_at_end(self) -> bool:
        return all(reading.is_at_end for reading in self._readings.values())

    def positions(self) -> dict[TopicPartition, int]:
        return {partition: reading.position for partition, reading in self._readings.items()}

    def assign(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Read these partitions too."""
        for partition, position in positions.items():
            self._readings[partition] = _Reading(position, ends.get(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at another offset; what is on its way of the old one is dropped."""
        old = self._readings[partition]
        self._readings[partition] = _Reading(offset, old.end)

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        for partition, end in ends.items():
            self._readings[partition].end = end

    async def next_records(self) -> list[ConsumedRecord]:
        """Wait for records, those of one batch; none if every partition is at its end."""
        while True:
            records = self._take()
            if records or self.is_at_end:
                return records
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            self._news.clear()
            self._ask()
            await self._news.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self) -> list[ConsumedRecord]:
        """Read from what arrived until there are records; ask for more of what is used up."""
        while self._arrived:
            partition = self._arrived[0]
            reading = self._readings.get(partition)
            if reading is None or reading.chunk is None:
                self._arrived.popleft()
                continue
            try:
                records = reading.chunk.next_batch()
            except HeadraceError:
                # Read again next time: what is damaged is never passed over in silence.
                reading.chunk = None
                raise
            if records is None or reading.is_at_end:
                reading.chunk = None
                self._arrived.popleft()
                self._ask()
                continue
            reading.position = reading.chunk.position
            if reading.end is not None and records and records[-1].offset >= reading.end:
                records = [record for record in records if record.offset < reading.end]
            if records:
                return records
        return []

    def _ask(self) -> None:
        """Start a request to every leader that has partitions to read and none on its way."""
        groups: dict[int, dict[TopicPartition, _Reading]] = {}
        lost: list[TopicPartition] = []
        for partition, reading in self._readings.items():
            if reading.is_asked or reading.chunk is not None or reading.is_at_end:
                continue
            leader = self._cluster.known_leader(*partition)
            if leader is None:
                lost.append(partition)
            elif leader.leader_id not in self._asked_nodes:
                groups.setdefault(leader.leader_id, {})[partition] = reading
        for partition in lost:
            self._readings[partition].is_asked = True
            self._start(self._find_leader(partition, self._readings[partition]))
        for node_id, group in groups.items():
            for reading in group.values():
                reading.is_asked = True
            self._asked_nodes.add(node_id)
            self._start(self._fetch(node_id, group))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_leader(self, partition: TopicPartition, reading: _Reading) -> None:
        try:
            await self._cluster.leader(*partition)
        except HeadraceError as error:
            self._failure = error
        finally:
            reading.is_asked = False
            self._news.set()

    async def _fetch(self, node_id: int, group: dict[TopicPartition, _Reading]) -> None:
        try:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(ApiKey.FETCH)
            answer = await connection.request(
                self._request(group), FetchResponse, patience_ms=self._limits.max_wait_ms
            )
            if answer.error_code:
                raise refusal(answer.error_code, None, f"a fetch from {connection.address}")
            await self._take_answer(answer, group, has_topic_ids=version >= _TOPIC_IDS_FROM)
            self._failed_attempts = 0
        except Exception as error:  # whatever it is, whoever waits for records must know
            await self._settle(error, group)
        finally:
            self._asked_nodes.discard(node_id)
            for reading in group.values():
                reading.is_asked = False
            self._news.set()

    def _request(self, group: dict[TopicPartition, _Reading]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for partition, reading in group.items():
            leader = self._cluster.known_leader(*partition)
            topics.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=-1 if leader is None else leader.leader_epoch,
                    fetch_offset=reading.position,
                    partition_max_bytes=self._limits.partition_max_bytes,
                )
            )
        return FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=self._limits.max_wait_ms,
            min_bytes=self._limits.min_bytes,
            max_bytes=self._limits.max_bytes,
            isolation_level=READ_COMMITTED if self._is_committed else READ_UNCOMMITTED,
            topics=[
                FetchTopic(topic=name, topic_id=self._cluster.view.topic_id(name), partitions=rows)
                for name, rows in topics.items()
            ],
        )

    async def _take_answer(
        self,
        answer: FetchResponse,
        group: dict[TopicPartition, _Reading],
        *,
        has_topic_ids: bool,
    ) -> None:
        names = self._cluster.view.topic_names
        for topic in answer.responses:
            name = names.get(TopicId(topic.topic_id), "") if has_topic_ids else topic.topic
            for row in topic.partitions:
                partition = TopicPartition(name, row.partition_index)
                reading = group.get(partition)
                if reading is None or self._readings.get(partition) is not reading:
                    continue
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._leave_the_range(partition, reading, row)
                elif row.error_code:
                    error = refusal(row.error_code, None, f"partition {partition}")
                    await self._settle(error, {partition: reading})
                elif row.records:
                    self._keep(partition, reading, row)

    def _keep(self, partition: TopicPartition, reading: _Reading, row: PartitionData) -> None:
        aborted = None
        if self._is_committed:
            rows = row.aborted_transactions or ()
            aborted = [(item.producer_id, item.first_offset) for item in rows]
        reading.chunk = Chunk(
            partition,
            memoryview(row.records or b""),
            reading.position,
            aborted=aborted,
            inflated_bytes_max=self._limits.inflated_bytes_max,
        )
        self._arrived.append(partition)

    async def _leave_the_range(
        self, partition: TopicPartition, reading: _Reading, row: PartitionData
    ) -> None:
        """Start over where the reset says, or say which offsets there are."""
        both = await list_offsets(self._cluster, {partition: int(Start.BEGINNING)})
        first = values_of(both)[partition].offset
        last = values_of(await list_offsets(self._cluster, {partition: int(Start.END)}))[partition]
        if self._reset is not None:
            reading.position = first if self._reset is Start.BEGINNING else last.offset
            return
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {partition} has offsets {first} to {last.offset}, not {reading.position}",
        )

    async def _settle(self, error: Exception, group: dict[TopicPartition, _Reading]) -> None:
        """Pause before the next attempt, or pass on what another attempt would not change."""
        if not isinstance(error, NotReachable) and not (
            isinstance(error, KafkaError) and error.is_retriable
        ):
            self._failure = error
            return
        for partition in group:
            self._cluster.forget(partition.topic)
        pause = pause_ms(self._failed_attempts, self._cluster.settings, self._random)
        self._failed_attempts += 1
        await asyncio.sleep(pause / 1000)
