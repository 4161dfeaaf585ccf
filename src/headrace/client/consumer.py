"""The consumer: partitions that you name, from where you say, to an end if you want one.

    async with Consumer("127.0.0.1:9092") as consumer:
        await consumer.assign("orders", Start.BEGINNING)
        async for record in consumer:
            ...

It knows no groups: nobody else decides what it reads, and it commits nothing. Records of a
partition come in order; partitions take turns.

What nobody can read raises UnreadableBatch, each time until you decide to go on without it:

        except UnreadableBatch as damage:
            if damage.next_offset is not None:
                consumer.seek(damage.partition, damage.next_offset)
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from headrace.client.cluster import Cluster
from headrace.client.fetched import ConsumedRecord
from headrace.client.fetcher import Fetcher
from headrace.client.offsets import Start, list_offsets
from headrace.client.outcomes import values_of
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings, ConsumerSettings
from headrace.client.topics import TopicPartition


class Consumer:
    """Reads partitions of the topics of one cluster."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Cluster = DEFAULT_BOOTSTRAP,
        settings: ClientSettings | None = None,
        *,
        read_committed: bool = False,
        reset: Start | None = None,
        limits: ConsumerSettings | None = None,
    ) -> None:
        """Take addresses, or a `Cluster` that somebody else closes.

        `reset` is where to go on if an offset does not exist (any more); without it that is an
        error.
        """
        self._is_owner = not isinstance(bootstrap, Cluster)
        self.cluster = bootstrap if isinstance(bootstrap, Cluster) else Cluster(bootstrap, settings)
        self._is_committed = read_committed
        self._fetcher = Fetcher(
            self.cluster, limits or ConsumerSettings(), is_committed=read_committed, reset=reset
        )
        self._ready: list[ConsumedRecord] = []
        self._given = 0
        """How many of them were given out."""

    async def __aenter__(self) -> Self:
        await self.cluster.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop fetching and hang up."""
        await self._fetcher.stop()
        if self._is_owner:
            await self.cluster.close()

    async def assign(
        self,
        topic: str,
        start: int | Start = Start.BEGINNING,
        partitions: Iterable[int] | None = None,
        *,
        until_end: bool = False,
    ) -> None:
        """Read a topic too: all its partitions or some, from an offset or a `Start`.

        With `until_end` each stops at the end that it has now.
        """
        known = await self.cluster.topic(topic)
        indexes = range(len(known.partitions)) if partitions is None else list(partitions)
        chosen = [TopicPartition(topic, index) for index in indexes]
        for partition in chosen:
            await self.cluster.leader(*partition)
        if isinstance(start, Start):
            positions = await self._look_up(dict.fromkeys(chosen, int(start)))
        else:
            positions = dict.fromkeys(chosen, start)
        ends = await self.ends(chosen) if until_end else {}
        self._fetcher.assign(positions, ends)

    async def assign_from_time(
        self,
        topic: str,
        timestamp_ms: int,
        partitions: Iterable[int] | None = None,
        *,
        until_end: bool = False,
    ) -> None:
        """Read a topic from the first records on that are of this time or later.

        A partition without such a record is read from its end.
        """
        known = await self.cluster.topic(topic)
        indexes = range(len(known.partitions)) if partitions is None else list(partitions)
        chosen = [TopicPartition(topic, index) for index in indexes]
        ends = await self.ends(chosen)
        found = await self._look_up(dict.fromkeys(chosen, timestamp_ms))
        positions = {
            partition: offset if offset >= 0 else ends[partition]
            for partition, offset in found.items()
        }
        self._fetcher.assign(positions, ends if until_end else {})

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on with an assigned partition at another offset."""
        left = self._ready[self._given :]
        self._ready = [row for row in left if (row.topic, row.partition) != partition]
        self._given = 0
        self._fetcher.seek(partition, offset)

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Give assigned partitions an end: the first offset that is not wanted."""
        self._fetcher.stop_at(ends)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition."""
        positions = self._fetcher.positions()
        for record in reversed(self._ready[self._given :]):
            positions[TopicPartition(record.topic, record.partition)] = record.offset
        return positions

    @property
    def is_at_end(self) -> bool:
        """Whether every partition is at the end that it was given."""
        return self._given == len(self._ready) and self._fetcher.is_at_end

    async def poll(
        self, timeout_ms: float | None = None, records_max: int | None = None
    ) -> list[ConsumedRecord]:
        """Give the next records: a batch of them, or as many of it as are wanted.

        Empty after `timeout_ms` without any, or at once if every partition is at its end.
        """
        if self._given == len(self._ready):
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self._fill()
            except TimeoutError:
                return []
        end = len(self._ready) if records_max is None else self._given + records_max
        records = self._ready[self._given : end]
        self._given += len(records)
        return records

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Give records one by one, for ever or up to the ends.

        Leaving the loop in the middle loses nothing: the next one goes on behind the last record.
        """
        while True:
            while self._given < len(self._ready):
                self._given += 1
                yield self._ready[self._given - 1]
            await self._fill()
            if not self._ready:
                return

    async def _fill(self) -> None:
        self._ready = await self._fetcher.next_records()
        self._given = 0

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Look up where partitions end now: for a reader of committed records, the stable end."""
        return await self._look_up(dict.fromkeys(partitions, int(Start.END)))

    async def _look_up(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = values_of(await list_offsets(self.cluster, times, is_committed=self._is_committed))
        return {partition: row.offset for partition, row in found.items()}
