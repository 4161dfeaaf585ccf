"""The share consumer: records of a queue that several members work on together (KIP-932).

    async with ShareConsumer("127.0.0.1:9092", "billing", ["orders"]) as consumer:
        async for record in consumer:
            charge(record.value)

Each record is delivered to one member at a time, under a lock. In implicit mode asking for more
accepts all previous records. In explicit mode each record is acknowledged before the next poll:

    async with ShareConsumer(bootstrap, "billing", ["orders"], mode="explicit") as consumer:
        for record in await consumer.poll(1000):
            consumer.acknowledge(record, AcknowledgeType.REJECT if is_odd(record) else ACCEPT)
        await consumer.commit()

A record that is not acknowledged when its lock expires is delivered again, as often as the group
allows.

In implicit mode, if a consumer polls again within a tenth of a second, the records of its next two
polls are prefetched, unless any of its current ones was delivered before: a record that is released
unread has lost one of its attempts. With `AcquireMode.RECORD_LIMIT` nothing is prefetched.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from enum import Enum
from types import TracebackType
from typing import Final, Self

from headrace.client.cluster import Cluster
from headrace.client.security.settings import SecurityLike
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings
from headrace.client.share.acknowledgements import Acknowledged, AcknowledgeType
from headrace.client.share.acquired import ShareRecord, runs_of
from headrace.client.share.delivery import Delivery, Lease, Portion
from headrace.client.share.held import HeldRecords
from headrace.client.share.member import Member
from headrace.client.share.terms import FetchTerms, ShareSettings, share_settings
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.share_types import AcquireMode

POLL_RECORDS_MAX: Final = 500
CLOSE_TIMEOUT_MS: Final = 30_000
QUICK_SECONDS_MAX: Final = 0.1
"""How soon a consumer comes back that the next records are fetched for ahead of time."""
POLLS_AHEAD: Final = 2
"""For how many polls they are then fetched at once."""


class AcknowledgementMode(Enum):
    """How records are acknowledged."""

    IMPLICIT = "implicit"
    """The next poll, commit or close: it accepts everything that the last poll gave."""
    EXPLICIT = "explicit"
    """The user, of every record, before the next poll."""


class ShareConsumer:
    """One member of a share group. Belongs to one task at a time."""

    def __init__(  # noqa: PLR0913  each is a choice that Kafka's clients have
        self,
        bootstrap: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        group: str = "",
        topics: Iterable[str] = (),
        *,
        mode: AcknowledgementMode | str = AcknowledgementMode.IMPLICIT,
        max_poll_records: int = POLL_RECORDS_MAX,
        acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        rack: str | None = None,
        settings: ShareSettings | ClientSettings | None = None,
        security: SecurityLike | None = None,
    ) -> None:
        """Take addresses, a group and topics, which may be created later.

        `security` is a `ClientSecurity` or settings by Kafka's names.
        """
        if not group:
            raise ValueError("a share consumer belongs to a group: name one")
        if isinstance(topics, str):
            topics = [topics]
        self.mode = AcknowledgementMode(mode)
        self._is_explicit = self.mode is AcknowledgementMode.EXPLICIT
        self._member = Member(group, topics, rack)
        if not self._member.topics:
            raise ValueError(f"group {group!r}: name at least one topic")
        if max_poll_records < 1:
            raise ValueError(f"max_poll_records is {max_poll_records}, and must be at least 1")
        self._records_max = max_poll_records
        settings = share_settings(settings, security)
        self._limits, self._settings = settings.limits, settings.client
        terms = FetchTerms(
            group_id=group,
            member_id=self._member.member_id,
            acquire_mode=acquire_mode,
            limits=self._limits,
            settings=self._settings,
        )
        self._delivery = Delivery(Cluster(bootstrap, self._settings), self._member, terms)
        self.on_acknowledged: Callable[[Acknowledged], None] | None = None
        """Called with the outcomes of acknowledgements, partition by partition, inside `poll`,
        `commit` and `close`. It must not be async."""
        self._may_fetch_ahead = (
            not self._is_explicit and acquire_mode is AcquireMode.BATCH_OPTIMIZED
        )
        self._returned_at = float("-inf")
        """When the last poll gave records, in loop time."""
        self._polled: list[Portion] = []
        """What the last poll gave, in implicit mode."""
        self._held = HeldRecords()
        """What is still to be acknowledged, in explicit mode."""
        self._ready: list[ShareRecord] = []
        self._given = 0
        """How many of them an iteration has given out."""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._is_explicit:
            # Nobody said that these are done: what an exception interrupted is tried again.
            self._polled, self._ready, self._given = [], [], 0
        await self.close()

    # What it is

    @property
    def group(self) -> str:
        """The share group's name."""
        return self._member.group_id

    @property
    def member_id(self) -> str:
        """What the group knows this consumer by."""
        return self._member.member_id

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member is to read from now."""
        return frozenset(shared.partition for shared in self._delivery.assigned)

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long a record is locked for this member; None before a broker has said so."""
        return self._delivery.lock_ms or None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read other topics from now on."""
        self._delivery.subscribe([topics] if isinstance(topics, str) else topics)

    # Life

    async def start(self) -> None:
        """Join the group; KafkaError or NotReachable says why not. `async with` does it."""
        try:
            await self._delivery.start()
            self._delivery.watch_topics()
        except BaseException:
            self._is_closed = True
            await self._delivery.close(0)
            raise

    async def close(self, timeout_ms: int = CLOSE_TIMEOUT_MS) -> None:
        """Send what is acknowledged, give back the rest at once, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stage()
        await self._delivery.close(timeout_ms)
        self._report()

    # Records

    async def poll(self, timeout_ms: float | None = None) -> list[ShareRecord]:
        """Return the next records, up to `max_poll_records`; none after `timeout_ms`.

        In implicit mode this accepts the records of the previous poll. In explicit mode it raises
        `RuntimeError` while one of those is not acknowledged, and returns a record again whose
        lock was renewed.
        """
        if self._given < len(self._ready):
            left = self._ready[self._given :]
            self._given = len(self._ready)
            return left
        self._check_open()
        self._held.check_acknowledged()
        self._stage()
        loop = asyncio.get_running_loop()
        now = loop.time()
        is_quick = self._may_fetch_ahead and now - self._returned_at < QUICK_SECONDS_MAX
        deadline = None if timeout_ms is None else now + timeout_ms / 1000
        self._ready = await self._next_records(deadline, is_quick=is_quick)
        self._returned_at = loop.time()
        self._given = len(self._ready)
        return self._ready.copy()  # whatever the user does to theirs

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Yield records one by one, forever.

        Leaving the loop loses nothing: the next one continues after the last record, and records
        that were not yielded are not accepted.
        """
        while True:
            while self._given < len(self._ready):
                self._given += 1
                yield self._ready[self._given - 1]
            await self.poll()
            self._given = 0

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Acknowledge a record of the last poll; sent by the next poll or commit.

        A repeated call before that replaces the type.
        """
        if self._is_closed or not self._is_explicit:
            self._check_explicit()
        self._held.acknowledge((record.topic, record.partition), record.offset, kind)

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        kind: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Do the same for a record that is known by its place only."""
        self._check_explicit()
        self._held.acknowledge((topic, partition), offset, kind)

    async def commit(
        self, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send acknowledgements and wait until brokers have them; give an outcome a partition.

        Those that `commit_async` and `poll` sent and that are not confirmed yet are waited for too.
        After `timeout_ms`, the settings' API timeout if it is not given, what is left is a
        REQUEST_TIMED_OUT: it may or may not have been taken.
        """
        self._check_open()
        self._stage()
        self._delivery.send()
        if timeout_ms is None:
            timeout_ms = self._settings.api_timeout_ms
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        while True:
            for done in self._report():
                outcomes[done.partition] = outcomes.get(done.partition) or done.error
            left = self._delivery.unconfirmed
            if not left:
                return outcomes
            if not await self._delivery.wait(deadline):
                break
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"not confirmed within {timeout_ms:.0f} ms")
        return {**outcomes, **dict.fromkeys(left, error)}

    def commit_async(self) -> None:
        """Send acknowledgements without waiting; `on_acknowledged` gets the outcomes."""
        self._check_open()
        self._stage()
        self._delivery.send()

    # Inside

    async def _next_records(self, deadline: float | None, *, is_quick: bool) -> list[ShareRecord]:
        delivery, loop = self._delivery, asyncio.get_running_loop()
        while True:
            self._report()
            delivery.raise_failure()
            if self._held.has_renewals:
                # What is kept comes first: a fetch beside it could not say that it is.
                delivery.send()
                if renewed := self._held.take_renewed():
                    return renewed
            elif portions := delivery.take(self._records_max):
                # What is given back unread has lost an attempt, perhaps its last: none is fetched
                # behind records that somebody had before, and could not deal with.
                may_ask = is_quick and delivery.has_first_deliveries_only
                if may_ask and delivery.records_left < self._records_max:
                    # What is acknowledged goes along.
                    delivery.ask(POLLS_AHEAD * self._records_max, 0)
                delivery.send()
                return self._keep(portions)
            else:
                max_wait_ms = self._limits.max_wait_ms
                if deadline is not None:
                    left_ms = max(0, int((deadline - loop.time()) * 1000))
                    max_wait_ms = min(max_wait_ms, left_ms)
                delivery.ask(self._records_max, max_wait_ms)
            if not await delivery.wait(deadline):
                delivery.send()
                return []

    def _keep(self, portions: list[Portion]) -> list[ShareRecord]:
        if self._is_explicit:
            self._held.add(portions)
        else:
            self._polled = portions
        if len(portions) == 1:
            return portions[0].records
        return [record for portion in portions for record in portion.records]

    def _stage(self) -> None:
        """Hand over what is acknowledged: by the user, or by their asking for more."""
        for lease, types in self._held.take_acknowledged():
            self._delivery.acknowledge(lease, types)
        if not self._polled:
            return
        polled, self._polled = self._polled, []
        left = self._ready[self._given :]
        if not left:
            for portion in polled:
                self._accept(portion.lease, portion.records)
            return
        unseen = {(record.topic, record.partition, record.offset) for record in left}
        for lease, records, since in polled:
            seen: list[ShareRecord] = []
            rest: list[ShareRecord] = []
            for row in records:
                is_unseen = (row.topic, row.partition, row.offset) in unseen
                (rest if is_unseen else seen).append(row)
            self._accept(lease, seen)
            if rest:
                self._polled.append(Portion(lease, rest, since))

    def _accept(self, lease: Lease, records: list[ShareRecord]) -> None:
        if records:
            self._delivery.acknowledge_ranges(lease, runs_of(records), AcknowledgeType.ACCEPT)

    def _report(self) -> list[Acknowledged]:
        """Report outcomes of acknowledgements to the user; return them too."""
        reported: list[Acknowledged] = []
        outcomes = self._delivery.outcomes
        while outcomes:
            shared, acknowledgements, error = outcomes.popleft()
            self._held.settle_renewals(shared.partition, acknowledgements.renewals(), error)
            done = Acknowledged(shared.partition, acknowledgements.ranges(), error)
            reported.append(done)
            if self.on_acknowledged is not None:
                self.on_acknowledged(done)
        return reported

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this consumer is closed")

    def _check_explicit(self) -> None:
        self._check_open()
        if not self._is_explicit:
            raise RuntimeError(
                "in implicit mode records are accepted by asking for more; "
                'make the consumer with mode="explicit" to acknowledge them'
            )
