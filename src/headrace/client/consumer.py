"""The consumer: of assigned partitions, or of those that a group shares among its members.

As a member of a group:

    async with Consumer("127.0.0.1:9092", group="billing", reset=Start.BEGINNING) as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            ...

On your own:

    async with Consumer("127.0.0.1:9092") as consumer:
        await consumer.assign("orders", Start.BEGINNING)
        async for record in consumer:
            ...

Records of a partition come in order; partitions take turns.

Asking for the next record means that you are done with the previous ones: only then are they
committed, and only then may a rebalance revoke their partition. So a record whose processing fails
is delivered again.

Unreadable records raise UnreadableBatch, each time until you decide to skip them:

        except UnreadableBatch as damage:
            if damage.next_offset is not None:
                consumer.seek(damage.partition, damage.next_offset)
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.client.cluster import Cluster
from headrace.client.errors import NotReachable
from headrace.client.fetched import ConsumedRecord
from headrace.client.fetcher import Fetcher
from headrace.client.goodbyes import carry_through
from headrace.client.group.assignors import COOPERATIVE_STICKY, RANGE
from headrace.client.group.holdings import RebalanceCallback, RebalanceCallbacks
from headrace.client.group.subscription import Subscription
from headrace.client.group.terms import (
    AUTO_COMMIT_INTERVAL_MS,
    HEARTBEAT_INTERVAL_MS,
    MAX_POLL_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    GroupTerms,
    Protocol,
)
from headrace.client.groups import CommittedOffset, GroupMetadata
from headrace.client.handout import Handout
from headrace.client.offsets import Start, list_offsets
from headrace.client.outcomes import values_of
from headrace.client.security.settings import SecurityLike
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings, ConsumerSettings
from headrace.client.topics import TopicPartition

if TYPE_CHECKING:
    from headrace.client.group.session import GroupSession

CLOSE_TIMEOUT_MS: Final = 10_000


class Consumer:
    """Reads partitions of the topics of one cluster. Belongs to one task at a time."""

    def __init__(  # noqa: PLR0913  each is a choice that Kafka's clients have
        self,
        bootstrap: str | Sequence[str] | Cluster = DEFAULT_BOOTSTRAP,
        settings: ClientSettings | None = None,
        *,
        security: SecurityLike | None = None,
        group: str | None = None,
        read_committed: bool = False,
        reset: Start | None = None,
        limits: ConsumerSettings | None = None,
        auto_commit: bool = True,
        auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS,
        protocol: Protocol | str = Protocol.AUTO,
        instance_id: str | None = None,
        rack: str | None = None,
        max_poll_interval_ms: int = MAX_POLL_INTERVAL_MS,
        server_assignor: str | None = None,
        assignors: Sequence[str] = (RANGE, COOPERATIVE_STICKY),
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        heartbeat_interval_ms: int = HEARTBEAT_INTERVAL_MS,
    ) -> None:
        """Take addresses, or a `Cluster` that the caller closes.

        `security` is a `ClientSecurity` or settings by Kafka's names.

        `reset` is where to continue if an offset does not exist (any more), or if the group has
        committed none; without it that is an error.

        The rest is for members of a `group`. With `auto_commit`, finished records are committed
        automatically. `protocol` "auto" is KIP-848 if the broker supports it, else "classic", to
        which `assignors`, `session_timeout_ms` and `heartbeat_interval_ms` apply. A member with an
        `instance_id` is static: it may restart without a rebalance. A consumer that does not poll
        within `max_poll_interval_ms` leaves the group until it does.
        """
        self._is_owner = not isinstance(bootstrap, Cluster)
        self.cluster = Cluster.of(bootstrap, settings, security)
        self._is_committed = read_committed
        self._fetcher = Fetcher(
            self.cluster, limits or ConsumerSettings(), is_committed=read_committed, reset=reset
        )
        self._readings = self._fetcher.readings
        self._handout = Handout(self._readings)
        self._group: GroupSession | None = None
        if group is not None:
            # Many consumers have no group: commands, for example, which start often.
            from headrace.client.group import session  # noqa: PLC0415

            terms = GroupTerms(
                group_id=group,
                protocol=Protocol(protocol),
                instance_id=instance_id,
                rack=rack,
                auto_commit=auto_commit,
                auto_commit_interval_ms=auto_commit_interval_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                server_assignor=server_assignor,
                assignors=tuple(assignors),
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=heartbeat_interval_ms,
            )
            self._group = session.GroupSession(
                self.cluster,
                terms,
                self._fetcher,
                self._handout,
                reset=reset,
                is_committed=read_committed,
            )
        self._reader: asyncio.Task[Any] | None = None
        self._is_closed = False
        self._is_out = False
        """Whether the group is left, too: until then a callback may commit."""

    async def __aenter__(self) -> Self:
        await self.cluster.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(CLOSE_TIMEOUT_MS, is_done=error is None)

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group, stop fetching and disconnect.

        That takes at most `timeout_ms`, and two seconds more to leave the group if a broker hangs.
        Before that, automatic commit commits finished records. Those are all that you got, unless
        another task reads, or an exception ends the `async with`: interrupted records are
        delivered again.
        """
        await self._close(timeout_ms, is_done=True)

    async def _close(self, timeout_ms: int, *, is_done: bool) -> None:
        if self._is_closed:
            return
        if self._group is not None:
            self._group.check_not_in_callback("close")
        self._is_closed = True
        self._handout.put_back()  # an iteration ends after its current record
        self._fetcher.wake()
        try:
            if self._group is not None:
                await self._group.close(
                    timeout_ms=timeout_ms, counts_in_hand=is_done and self._is_reader
                )
        finally:
            self._is_out = True
            await carry_through(self._hang_up())

    async def _hang_up(self) -> None:
        await self._fetcher.stop()
        if self._is_owner:
            await self.cluster.close()

    @property
    def _is_reader(self) -> bool:
        """Return whether no other task may be processing records."""
        reader = self._reader
        return reader is None or reader.done() or reader is asyncio.current_task()

    # In a group

    async def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Share topics with the other members of the group; called again, other topics.

        Topics are given by name, or by a `pattern` for the whole name. They may be created later.

        Callbacks, plain or `async`, get lists of partitions, while you wait for records:
        `on_assigned` before the first record, so that it may `seek`; `on_revoked` before another
        member gets them, so that it may `commit`; `on_lost`, or `on_revoked` if that is not given,
        when the member has lost them. The poll raises their exceptions.

        Raise KafkaError or NotReachable if the group cannot be joined.
        """
        self._check_open()
        session = self._session("subscribe")
        subscription = Subscription.of(topics, pattern)
        if not session.is_subscribed and self._readings.partitions:
            raise ValueError(
                "this consumer has partitions that were assigned to it by name: "
                "subscribe another one, or `unsubscribe` it first"
            )
        callbacks = RebalanceCallbacks(on_assigned, on_revoked, on_lost)
        await session.subscribe(subscription, callbacks)

    async def unsubscribe(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Leave the group, or drop the assigned partitions."""
        self._check_open()
        if self._group is not None:
            await self._group.unsubscribe(timeout_ms=timeout_ms, counts_in_hand=self._is_reader)
        self._readings.drop(self._readings.partitions)
        self._fetcher.wake()
        self._handout.finish()

    async def commit(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None
    ) -> None:
        """Commit offsets: that of the next record to read, for each partition.

        Without `offsets`, commit all records returned so far. Raise CommitFailed if this member
        does not own the partitions (any more), NotReachable without a response within the API
        timeout.
        """
        self._check_in()
        await self._session("commit").commit(offsets)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets; None where there is none."""
        self._check_in()
        return await self._session("committed").committed(partitions)

    @property
    def group_metadata(self) -> GroupMetadata:
        """This member's identity in its group, for transactions that commit its offsets."""
        return self._session("group_metadata").metadata

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer currently reads."""
        return self._readings.partitions

    def _session(self, what: str) -> "GroupSession":
        if self._group is None:
            raise ValueError(f"{what} is for members of a group: make the consumer with group=...")
        return self._group

    # On its own

    async def assign(
        self,
        topic: str,
        start: int | Start = Start.BEGINNING,
        partitions: Iterable[int] | None = None,
        *,
        until_end: bool = False,
    ) -> None:
        """Read a topic too: all its partitions or some, from an offset or a `Start`.

        With `until_end` each stops at its current end.
        """
        chosen = await self._choose(topic, partitions)
        for partition in chosen:
            await self.cluster.leader(*partition)
        if isinstance(start, Start):
            positions = await self._look_up(dict.fromkeys(chosen, int(start)))
        else:
            positions = dict.fromkeys(chosen, start)
        ends = await self.ends(chosen) if until_end else {}
        self._assign(positions, ends)

    async def assign_from_time(
        self,
        topic: str,
        timestamp_ms: int,
        partitions: Iterable[int] | None = None,
        *,
        until_end: bool = False,
    ) -> None:
        """Read a topic from the first records of this time or later.

        A partition without such a record is read from its end.
        """
        chosen = await self._choose(topic, partitions)
        ends = await self.ends(chosen)
        positions = await self._look_up_time(dict.fromkeys(chosen, timestamp_ms), ends)
        self._assign(positions, ends if until_end else {})

    async def _choose(self, topic: str, partitions: Iterable[int] | None) -> list[TopicPartition]:
        self._check_open()
        if self._group is not None and self._group.is_subscribed:
            raise ValueError(
                "this consumer has the partitions that its group gives it: "
                "assign to another one, or `unsubscribe` it first"
            )
        known = await self.cluster.topic(topic)
        indexes = range(len(known.partitions)) if partitions is None else partitions
        return [TopicPartition(topic, index) for index in indexes]

    def _assign(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        self._readings.assign(positions, ends)
        self._fetcher.wake()
        if self._group is not None:
            self._group.start_auto_commit()

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Set the ends of assigned partitions: the first offset not to read."""
        self._readings.stop_at(ends)

    # Where it is

    def seek(self, partition: TopicPartition, offset: int | Start) -> None:
        """Continue a partition at another offset, or at its beginning or end."""
        self._check_assigned([partition])
        if not isinstance(offset, Start) and offset < 0:
            raise ValueError(f"offset {offset} of {partition} is negative")
        self._handout.forget(partition)
        if isinstance(offset, Start):
            self._readings.seek(partition, None, int(offset))
        else:
            self._readings.seek(partition, offset)
        self._fetcher.wake()

    async def seek_to_time(
        self, timestamp_ms: int, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Continue at the first records of this time or later, in some partitions or in all.

        A partition without such a record continues at its end.
        """
        chosen = list(self.assignment if partitions is None else partitions)
        self._check_assigned(chosen)
        found = await self._look_up_time(
            dict.fromkeys(chosen, timestamp_ms), await self.ends(chosen)
        )
        for partition, offset in found.items():
            if partition in self._readings:
                self.seek(partition, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`; they stay assigned."""
        self._check_assigned(partitions)
        self._handout.put_back()
        for partition in partitions:
            self._readings.pause(partition)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._check_assigned(partitions)
        for partition in partitions:
            self._readings.resume(partition)
        self._fetcher.wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._readings.paused

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition, as far as known."""
        return self._handout.positions()

    @property
    def lags(self) -> dict[TopicPartition, int]:
        """The lag of each partition, as of its last fetch."""
        ends = self._readings.known_ends()
        positions = self._handout.positions()
        return {
            partition: max(0, ends[partition] - offset)
            for partition, offset in positions.items()
            if partition in ends
        }

    @property
    def is_at_end(self) -> bool:
        """Whether every partition has reached its end."""
        return self._handout.is_empty and self._fetcher.is_at_end

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition not in self._readings:
                raise ValueError(f"partition {partition} is not assigned to this consumer")

    # Records

    async def poll(
        self, timeout_ms: float | None = None, records_max: int | None = None
    ) -> list[ConsumedRecord]:
        """Return the next records, all of one partition, up to `records_max`.

        Empty after `timeout_ms` without any, or at once if every partition is at its end. A
        cancelled poll loses no record.
        """
        if records_max is not None and records_max < 1:
            raise ValueError(f"records_max is {records_max}, and must be at least 1")
        if self._handout.is_empty:
            deadline = None
            if timeout_ms is not None:
                deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
            await self._fill(deadline)
        return self._handout.take(records_max)

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Yield records one by one, forever or up to the ends, or until the consumer is closed.

        Leaving the loop loses nothing: the next one continues after the last record.
        """
        handout = self._handout
        self._check_open()
        while True:
            handout.polled_from = None
            while handout.given < len(handout.ready):
                handout.given += 1
                yield handout.ready[handout.given - 1]
            try:
                await self._fill()
            except (RuntimeError, NotReachable):
                if self._is_closed:
                    return
                raise
            if not handout.ready:
                return

    async def _fill(self, deadline: float | None = None) -> None:
        gate = self._fetcher.gate
        self._check_open()
        if self._group is not None:
            self._group.check_not_in_callback("poll")
        if gate.is_inside:
            raise RuntimeError("another task waits for records of this consumer already")
        self._reader = asyncio.current_task()
        self._handout.finish()
        gate.is_inside = True
        try:
            records = await self._fetcher.next_records(self._check, deadline)
        finally:
            gate.is_inside = False
        self._handout.start(records)

    def _check(self) -> None:
        self._check_open()
        if self._group is not None:
            self._group.check()

    def _check_in(self) -> None:
        if self._is_out:
            raise RuntimeError("this consumer is closed")

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this consumer is closed")

    # Offsets

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current ends of partitions; with read_committed, the last stable offsets."""
        return await self._look_up(dict.fromkeys(partitions, int(Start.END)))

    async def _look_up_time(
        self, times: dict[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        found = await self._look_up(times)
        return {
            partition: offset if offset >= 0 else ends[partition]
            for partition, offset in found.items()
        }

    async def _look_up(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = values_of(await list_offsets(self.cluster, times, is_committed=self._is_committed))
        return {partition: row.offset for partition, row in found.items()}
