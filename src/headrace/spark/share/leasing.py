"""One member of a share group that leases records and lets their bytes go: tasks read them again.

Leases are renewed at half their time for as long as they are held, so a batch may take as long as
it needs. A lease that is lost (its connection went, or its time was over) is dropped here and
reported when the batch is to be acknowledged.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.settings import ConsumerSettings
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.delivery import Delivery, Lease
from headrace.client.share.link import NodeLink
from headrace.client.share.member import Member
from headrace.client.share.session import SharedPartition
from headrace.client.share.staged import Outcome
from headrace.client.share.terms import FetchTerms
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode
from headrace.spark.share.held import HeldRanges, Word, Words
from headrace.spark.share.intervals import Interval, aligned, merged, outside, overlaps
from headrace.spark.share.journal import Run, Runs, joined, newest, size_of
from headrace.spark.share.options import ShareOptions
from headrace.wire.messages.share_fetch_response import PartitionData
from headrace.wire.share_types import AcquireMode

_LOGGER = logging.getLogger("headrace.spark")
_RENEWALS_A_LOCK: Final = 2
_ASSIGNMENT_MS_MAX: Final = 30_000
"""How long a member waits for partitions, which come with a heartbeat, before it says so."""
_CONFIRMATION_MS_MAX: Final = 30_000
CLOSE_TIMEOUT_MS: Final = 5_000
_NAMED_MAX: Final = 3
"""How many ranges a message names."""

Unfinished = dict[SharedPartition, list[Interval]]


class _Acquisition(Delivery):
    """A delivery that keeps which offsets came, and not their records."""

    def __init__(self, cluster: Cluster, member: Member, terms: FetchTerms) -> None:
        super().__init__(cluster, member, terms)
        self.acquired: list[tuple[Lease, list[Run]]] = []

    def on_acquired(
        self, link: NodeLink, shared: SharedPartition, row: PartitionData, lock_ms: int
    ) -> None:
        runs = [
            Run(each.first_offset, each.last_offset, each.delivery_count)
            for each in row.acquired_records
        ]
        self.acquired.append((Lease(link, link.life, shared), runs))
        self.lock_ms = lock_ms


class Leases:
    """What is leased to this member. Belongs to one loop."""

    def __init__(self, options: ShareOptions) -> None:
        self.cluster = Cluster(options.connecting.bootstrap, options.connecting)
        self._group, self._topics = options.group, options.topics
        member = Member(options.group, options.topics, None)
        is_exact = options.trigger_records_max is not None
        terms = FetchTerms(
            group_id=options.group,
            member_id=member.member_id,
            acquire_mode=AcquireMode.RECORD_LIMIT if is_exact else AcquireMode.BATCH_OPTIMIZED,
            limits=ConsumerSettings(),
            settings=options.connecting,
        )
        self._delivery = _Acquisition(self.cluster, member, terms)
        self._held: HeldRanges[Lease] = HeldRanges()
        self._fresh: Runs = {}
        """What is held and was not given yet."""
        self._lost: Unfinished = {}
        self._can_renew = True
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the group; HeadraceError says why not."""
        await self.cluster.connect()
        for topic in self._topics:
            await self.cluster.topic(topic)
        await self._delivery.start()
        self._keeper = asyncio.create_task(self._keep())

    @property
    def assigned(self) -> set[TopicPartition]:
        """The partitions that this member may lease records of now."""
        return {shared.partition for shared in self._delivery.assigned}

    async def acquire(self, records_max: int, wait_ms: int) -> Runs:
        """Lease up to about so many records; wait for the first of them, if there are none."""
        now = asyncio.get_running_loop().time
        delivery = self._delivery
        deadline = now() + _ASSIGNMENT_MS_MAX / 1000
        while not delivery.assigned and now() < deadline:
            self._check()
            await delivery.wait(deadline)
        if not delivery.assigned:
            _LOGGER.warning("group %r gives us no partition to read from", self._group)
        rounds = [self._take_fresh()]
        count = size_of(rounds[0])
        deadline = now() + (wait_ms + self.cluster.settings.request_timeout_ms) / 1000
        while (missing := records_max - count) > 0:
            self._check()
            # Every leader is asked at once, and none knows what the others give.
            share = max(1, missing // max(1, len(self.cluster.view.nodes)))
            delivery.ask(share, 0 if count else wait_ms)
            while not delivery.is_idle and now() < deadline:
                await delivery.wait(deadline)
            more = self._take_fresh()
            rounds.append(more)
            count += size_of(more)
            if not more or now() >= deadline:
                break
        partitions = dict.fromkeys(shared for each in rounds for shared in each)
        return {
            shared: newest([each[shared] for each in rounds if shared in each])
            for shared in partitions
        }

    async def finish(self, words: Words) -> Unfinished:
        """Acknowledge ranges and wait until brokers have it; return what could not be."""
        self._take_outcomes()
        self._lost = {}
        unfinished: Unfinished = {}
        staged: Unfinished = {}
        for shared, said in words.items():
            taken = self._held.take(shared, said)
            for lease, types in taken.types.items():
                self._delivery.acknowledge(lease, types)
            if taken.missing:
                unfinished[shared] = taken.missing
            if taken.ranges:
                staged[shared] = taken.ranges
            self._delivery.send()
            await asyncio.sleep(0)  # leases of other partitions may be due
        late = await self._confirm(staged)
        for shared, ranges in staged.items():
            is_late = shared.partition in late
            failed = ranges if is_late else overlaps(ranges, merged(self._lost.get(shared, ())))
            if failed:
                unfinished.setdefault(shared, []).extend(failed)
        return {shared: merged(ranges) for shared, ranges in unfinished.items()}

    async def release_given(self) -> None:
        """Release held records, except those that `acquire` has not returned yet."""
        self._hold_acquired()
        words = {
            shared: [
                Word(first, last, int(AcknowledgeType.RELEASE))
                for first, last in outside(held, self._fresh.get(shared, ()))
            ]
            for shared, held in self._held.items()
        }
        await self.finish({shared: said for shared, said in words.items() if said})

    async def close(self) -> None:
        """Release everything and leave the group."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._delivery.close(CLOSE_TIMEOUT_MS)

    async def _confirm(self, staged: Mapping[SharedPartition, object]) -> set[tuple[str, int]]:
        """Wait for confirmations; return the partitions without one."""
        loop, delivery = asyncio.get_running_loop(), self._delivery
        deadline = loop.time() + _CONFIRMATION_MS_MAX / 1000
        partitions = {shared.partition for shared in staged}
        while late := partitions & delivery.unconfirmed:
            if loop.time() >= deadline:
                break
            await delivery.wait(deadline)
        self._take_outcomes()
        return set(late)

    async def _keep(self) -> None:
        """Renew what is held, until cancelled."""
        while True:
            self._take_outcomes()
            self._hold_acquired()
            await self._delivery.wait(self._renew())

    def _renew(self) -> float | None:
        """Renew the leases of which half is over; return when the next one is due."""
        half = self._delivery.lock_ms / _RENEWALS_A_LOCK / 1000
        if not half or not self._can_renew:
            return None
        for lease, types in self._held.renew(asyncio.get_running_loop().time(), half):
            self._delivery.acknowledge(lease, types)
        self._delivery.send()
        return self._held.due(half)

    def _hold_acquired(self) -> None:
        """Hold records acquired since, even if no caller waits any more."""
        now = asyncio.get_running_loop().time()
        arrived, self._delivery.acquired = self._delivery.acquired, []
        for lease, runs in arrived:
            shared = lease.shared
            whole = merged(runs)
            older = [
                Run(first, last, run.delivery_count)
                for run, again, first, last in aligned(self._fresh.get(shared, ()), whole)
                if again is None
            ]
            self._fresh[shared] = joined([*older, *runs])
            self._held.hold(shared, whole, lease, now)

    def _take_fresh(self) -> Runs:
        """Return what came and was not given yet, as far as it is still held."""
        self._hold_acquired()
        fresh, self._fresh = self._fresh, {}
        found: Runs = {}
        for shared, runs in fresh.items():
            kept = [
                Run(first, last, run.delivery_count)
                for run, held, first, last in aligned(runs, self._held.of(shared))
                if held is not None
            ]
            if kept:
                found[shared] = joined(kept)
        return found

    def _take_outcomes(self) -> None:
        outcomes = self._delivery.outcomes
        while outcomes:
            self._take_outcome(outcomes.popleft())

    def _take_outcome(self, outcome: Outcome) -> None:
        shared, acknowledgements, error = outcome
        if error is None:
            return
        if acknowledgements.has_renewals and error.code == ErrorCode.UNSUPPORTED_VERSION:
            self._can_renew = False
            _LOGGER.warning(
                "%s: a batch that takes longer than %d ms is delivered again",
                error.message,
                self._delivery.lock_ms,
            )
            return
        ranges = merged(acknowledgements.ranges())
        _LOGGER.warning("partition %s: the lease of %s is lost: %s", shared, _named(ranges), error)
        self._lost.setdefault(shared, []).extend(ranges)
        self._held.drop(shared, ranges)

    def _check(self) -> None:
        """Raise errors that only the user can fix."""
        self._delivery.raise_failure()
        if self._keeper is not None and self._keeper.done():
            self._keeper.result()


def _named(ranges: Sequence[Interval]) -> str:
    """Return some ranges as text, and how many there are beside them."""
    names = [f"{first} to {last}" for first, last in ranges[:_NAMED_MAX]]
    more = len(ranges) - len(names)
    return ", ".join(names) + (f" and {more} more ranges" if more else "")
