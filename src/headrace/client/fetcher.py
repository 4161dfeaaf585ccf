"""Fetching: a long poll to each leader that has partitions to read, one at a time.

Memory holds at most two responses of a partition: the one being read, and the next one, prefetched
if the broker reported more records. When leaders move or nodes go away, lookups and fetches are
retried forever: a consumer that waits for records does not end because a broker restarts.

A partition may be without a position: `find_positions` looks it up before the first fetch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable, refusal
from headrace.client.fetched import Chunk, ConsumedRecord
from headrace.client.fetches import fetch_request
from headrace.client.offsets import Start, list_offsets
from headrace.client.outcomes import Outcomes, values_of
from headrace.client.readings import Group, Reading, Readings
from headrace.client.retrying import pause_ms
from headrace.client.settings import ConsumerSettings
from headrace.client.steps import StepGate
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import TopicId
from headrace.surroundings import new_random
from headrace.wire import ApiKey
from headrace.wire.messages.fetch_response import FetchResponse, PartitionData

FindPositions = Callable[
    [Mapping[TopicPartition, int | None]], Awaitable[Outcomes[TopicPartition, int]]
]
"""Looks up offsets, by `Start` or timestamp; None means where the reader left off."""

_TOPIC_IDS_FROM: Final = 13
_SLICE_SECONDS: Final = 0.01
"""How long records are handed out before other tasks of the loop get a turn."""


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
        self.gate = StepGate()
        self.readings = Readings()
        """After a change, call `wake`."""
        self.is_endless = False
        """Whether to wait for records even while no partition is assigned."""
        self.find_positions: FindPositions = self._find_starts
        self._cluster = cluster
        self._limits = limits
        self._is_committed = is_committed
        self._reset = reset
        self._random = new_random()
        self._news = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._asked_nodes: set[int] = set()
        self._failed_attempts = 0
        self._failure: Exception | None = None
        self._turn_ends_at = 0.0

    @property
    def is_at_end(self) -> bool:
        return not self.is_endless and self.readings.are_at_end

    def wake(self) -> None:
        """Wake the reader: something changed."""
        self._news.set()

    async def next_records(
        self, check: Callable[[], None], deadline: float | None = None
    ) -> list[ConsumedRecord]:
        """Wait for records of one partition: one batch, or several small ones.

        None come if every partition is at its end, or after the deadline, in loop time. `check` is
        called whenever something happened, and may raise.
        """
        loop, gate = asyncio.get_running_loop(), self.gate
        while True:
            if loop.time() >= self._turn_ends_at:
                await asyncio.sleep(0)
                self._turn_ends_at = loop.time() + _SLICE_SECONDS
            check()
            if gate.is_wanted:
                if not await _in_time(gate.pass_through(), deadline):
                    return []
                continue
            records = self.readings.take()
            if records:
                if self.readings.is_running_out():
                    self._ask(is_prefetch=True)
                return records
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self.is_at_end:
                return []
            self._news.clear()
            self._ask(is_prefetch=False)
            if not await _in_time(self._news.wait(), deadline):
                return []
            self._turn_ends_at = loop.time() + _SLICE_SECONDS

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Requests

    def _ask(self, *, is_prefetch: bool) -> None:
        """Start a request to every leader with partitions to read and no request in flight.

        A prefetch is sent only where more records are known to exist, and does not let the broker
        wait: the current records may be used up first, and then a full fetch must be sent.
        """
        groups: dict[int, Group] = {}
        rich: set[int] = set()
        unplaced: Group = {}
        for partition, reading in self.readings.hungry(is_prefetch=is_prefetch):
            if reading.position is None:
                unplaced[partition] = reading
                continue
            leader = self._cluster.known_leader(*partition)
            if leader is None:
                reading.is_asked = True
                self._start(self._find_leader(partition, reading))
            elif leader.leader_id not in self._asked_nodes and self._is_the_topic(
                partition, reading
            ):
                groups.setdefault(leader.leader_id, {})[partition] = reading
                if reading.has_more:
                    rich.add(leader.leader_id)
        if unplaced and not is_prefetch:
            for reading in unplaced.values():
                reading.is_asked = True
            self._start(self._place(unplaced))
        for node_id, group in groups.items():
            if is_prefetch and node_id not in rich:
                continue
            for reading in group.values():
                reading.is_asked = True
            self._asked_nodes.add(node_id)
            self._start(self._fetch(node_id, group, 0 if is_prefetch else self._limits.max_wait_ms))

    def _is_the_topic(self, partition: TopicPartition, reading: Reading) -> bool:
        """Return whether the topic that has the name now is the one that was assigned."""
        topic_id = reading.topic_id
        return topic_id is None or self._cluster.view.topic_id(partition.topic) == topic_id

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _find_leader(self, partition: TopicPartition, reading: Reading) -> None:
        try:
            await self._cluster.leader(*partition)
        except HeadraceError as error:
            # A group takes a topic away that is gone: until then it may come back, too.
            if self.is_endless:
                await self._settle(error, {partition: reading})
            else:
                self._failure = error
        finally:
            reading.is_asked = False
            self._news.set()

    async def _place(self, group: Group) -> None:
        """Look positions up; what stays without one fails the reader."""
        try:
            found = await self.find_positions(
                {partition: reading.start for partition, reading in group.items()}
            )
            for partition, outcome in found.items():
                reading = group[partition]
                if not self.readings.holds(partition, reading):
                    continue
                if isinstance(outcome, KafkaError):
                    await self._settle(outcome, {partition: reading})
                else:
                    reading.position = outcome
        except Exception as error:
            await self._settle(error, group)
        finally:
            for reading in group.values():
                reading.is_asked = False
            self._news.set()

    async def _find_starts(
        self, starts: Mapping[TopicPartition, int | None]
    ) -> Outcomes[TopicPartition, int]:
        times = {partition: start for partition, start in starts.items() if start is not None}
        found = await list_offsets(self._cluster, times, is_committed=self._is_committed)
        return {
            partition: row if isinstance(row, KafkaError) else row.offset
            for partition, row in found.items()
        }

    async def _fetch(self, node_id: int, group: Group, max_wait_ms: int) -> None:
        try:
            connection = await self._cluster.connection(node_id)
            version = connection.version_of(ApiKey.FETCH)
            for reading in group.values():
                reading.asked_offset = reading.fetch_offset
            body = fetch_request(
                self._cluster,
                group,
                self._limits,
                max_wait_ms=max_wait_ms,
                is_committed=self._is_committed,
            )
            answer = await connection.request(body, FetchResponse, patience_ms=max_wait_ms)
            if answer.error_code:
                raise refusal(answer.error_code, None, f"a fetch from {connection.address}")
            await self._take_answer(answer, group, has_topic_ids=version >= _TOPIC_IDS_FROM)
        except Exception as error:  # whatever it is, whoever waits for records must know
            await self._settle(error, group)
        finally:
            self._asked_nodes.discard(node_id)
            for reading in group.values():
                reading.is_asked = False
            self._news.set()

    async def _take_answer(
        self, answer: FetchResponse, group: Group, *, has_topic_ids: bool
    ) -> None:
        names = self._cluster.view.topic_names
        failed: Group = {}
        failure: KafkaError | None = None
        for topic in answer.responses:
            name = names.get(TopicId(topic.topic_id), "") if has_topic_ids else topic.topic
            for row in topic.partitions:
                partition = TopicPartition(name, row.partition_index)
                reading = group.get(partition)
                if reading is None or not self.readings.holds(partition, reading):
                    continue
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._leave_the_range(partition, reading)
                elif row.error_code:
                    error = refusal(row.error_code, None, f"partition {partition}")
                    failed[partition] = reading
                    if failure is None or not error.is_retriable:
                        failure = error
                else:
                    self._keep(partition, reading, row)
        if failure is not None:
            await self._settle(failure, failed)
        else:
            self._failed_attempts = 0

    def _keep(self, partition: TopicPartition, reading: Reading, row: PartitionData) -> None:
        reading.known_end = row.last_stable_offset if self._is_committed else row.high_watermark
        if not row.records:
            return
        aborted = None
        if self._is_committed:
            rows = row.aborted_transactions or ()
            aborted = [(item.producer_id, item.first_offset) for item in rows]
        chunk = Chunk(
            partition,
            memoryview(row.records),
            reading.asked_offset,
            aborted=aborted,
            inflated_bytes_max=self._limits.inflated_bytes_max,
        )
        self.readings.keep(partition, reading, chunk)

    async def _leave_the_range(self, partition: TopicPartition, reading: Reading) -> None:
        """Start over where the reset says, or say which offsets there are."""
        if reading.chunk is not None or reading.fetch_offset != reading.asked_offset:
            return  # a prefetch: what is here is read first
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

    async def _settle(self, error: Exception, group: Group) -> None:
        """Pause before the next attempt, or pass on what another attempt would not change."""
        if not isinstance(error, NotReachable) and not (
            isinstance(error, KafkaError) and error.is_retriable
        ):
            self._failure = error
            return
        for partition in group:
            self._cluster.suspect(partition.topic)
        pause = pause_ms(self._failed_attempts, self._cluster.settings, self._random)
        self._failed_attempts += 1
        await asyncio.sleep(pause / 1000)


async def _in_time(work: Coroutine[Any, Any, object], deadline: float | None) -> bool:
    """Wait for something; False if the deadline came first."""
    try:
        async with asyncio.timeout_at(deadline):
            await work
    except TimeoutError:
        return False
    return True
