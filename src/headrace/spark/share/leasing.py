"""One member of a share group that leases records and lets their bytes go: tasks read them again.

Leases are renewed at half their time for as long as they are held, so a batch may take as long as
it needs. A lease that is lost (its connection went, or its time was over) is dropped here and
reported when the batch is to be acknowledged.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.settings import ConsumerSettings
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.delivery import Delivery, Lease
from headrace.client.share.link import NodeLink
from headrace.client.share.member import Member
from headrace.client.share.session import SharedPartition
from headrace.client.share.staged import Outcome
from headrace.client.share.terms import AcquireMode, FetchTerms
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode
from headrace.spark.share.intervals import Interval, merged, outside, overlaps
from headrace.spark.share.journal import Run, Runs, joined, size_of
from headrace.spark.share.options import ShareOptions
from headrace.wire.messages.share_fetch_response import PartitionData

_LOGGER = logging.getLogger("headrace.spark")
_RENEWALS_A_LOCK: Final = 2
_ASSIGNMENT_MS_MAX: Final = 30_000
"""How long a member waits for partitions, which come with a heartbeat, before it says so."""
_CONFIRMATION_MS_MAX: Final = 30_000
CLOSE_TIMEOUT_MS: Final = 5_000

Words = list[tuple[SharedPartition, int, int, AcknowledgeType]]
"""Ranges of offsets, both ends included, and what is said of them."""
Unfinished = dict[SharedPartition, list[Interval]]


class _Held(NamedTuple):
    """Offsets that are leased to us, and when that was last said."""

    first: int
    last: int
    lease: Lease
    since: float


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
        self._held: dict[SharedPartition, list[_Held]] = {}
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
        found = self._take_fresh()
        deadline = now() + (wait_ms + self.cluster.settings.request_timeout_ms) / 1000
        while (missing := records_max - size_of(found)) > 0:
            self._check()
            # Every leader is asked at once, and none knows what the others give.
            share = max(1, missing // max(1, len(self.cluster.view.nodes)))
            delivery.ask(share, 0 if found else wait_ms)
            while not delivery.is_idle and now() < deadline:
                await delivery.wait(deadline)
            more = self._take_fresh()
            for shared, runs in more.items():
                found[shared] = joined([*found.get(shared, ()), *runs])
            if not more or now() >= deadline:
                break
        return found

    async def finish(self, words: Words) -> Unfinished:
        """Acknowledge ranges and wait until brokers have it; give what could not be."""
        self._take_outcomes()
        self._lost = {}
        unfinished: Unfinished = {}
        staged: Unfinished = {}
        for shared, first, last, kind in words:
            taken = self._take_held(shared, first, last)
            for each in taken:
                interval = (each.first, each.last)
                staged.setdefault(shared, []).append(interval)
                # By offset, not by range: so it takes the place of a renewal that waits.
                types = dict.fromkeys(range(each.first, each.last + 1), int(kind))
                self._delivery.acknowledge(each.lease, types)
            missing = outside(first, last, [(each.first, each.last) for each in taken])
            if missing:
                unfinished.setdefault(shared, []).extend(missing)
        self._delivery.send()
        late = await self._confirm(staged)
        for shared, ranges in staged.items():
            failed = ranges if shared.partition in late else self._lost.get(shared, [])
            for first, last in ranges:
                if parts := overlaps(first, last, failed):
                    unfinished.setdefault(shared, []).extend(parts)
        return {shared: merged(ranges) for shared, ranges in unfinished.items()}

    async def release_given(self) -> None:
        """Give back what is held, except for what `acquire` has not given yet."""
        self._hold_acquired()
        words: Words = []
        for shared, held in self._held.items():
            fresh = [(run.first, run.last) for run in self._fresh.get(shared, ())]
            words += [
                (shared, first, last, AcknowledgeType.RELEASE)
                for each in held
                for first, last in outside(each.first, each.last, fresh)
            ]
        await self.finish(words)

    async def close(self) -> None:
        """Give back everything and leave the group."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._delivery.close(CLOSE_TIMEOUT_MS)

    async def _confirm(self, staged: Mapping[SharedPartition, object]) -> set[tuple[str, int]]:
        """Wait for answers; give the partitions that none came of."""
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
        """Renew the leases of which half is over; give when the next one is due."""
        half = self._delivery.lock_ms / _RENEWALS_A_LOCK / 1000
        if not half or not self._can_renew:
            return None
        now = asyncio.get_running_loop().time()
        dues: list[float] = []
        for held in self._held.values():
            for at, each in enumerate(held):
                if now >= each.since + half:
                    types = dict.fromkeys(
                        range(each.first, each.last + 1), int(AcknowledgeType.RENEW)
                    )
                    held[at] = each._replace(since=now)
                    self._delivery.acknowledge(each.lease, types)
                dues.append(held[at].since + half)
        self._delivery.send()
        return min(dues, default=None)

    def _hold_acquired(self) -> None:
        """Hold what came since, also if nobody waits for it any more."""
        now = asyncio.get_running_loop().time()
        arrived, self._delivery.acquired = self._delivery.acquired, []
        for lease, runs in arrived:
            shared = lease.shared
            whole = joined(run._replace(delivery_count=0) for run in runs)
            for run in whole:  # what comes anew was lost, noticed or not
                self._take_held(shared, run.first, run.last)
            older = [
                Run(first, last, run.delivery_count)
                for run in self._fresh.get(shared, ())
                for first, last in outside(run.first, run.last, [each[:2] for each in whole])
            ]
            self._fresh[shared] = joined([*older, *runs])
            held = self._held.setdefault(shared, [])
            held.extend(_Held(run.first, run.last, lease, now) for run in whole)

    def _take_fresh(self) -> Runs:
        """Give what came and was not given yet, as far as it is still held."""
        self._hold_acquired()
        fresh, self._fresh = self._fresh, {}
        found: Runs = {}
        for shared, runs in fresh.items():
            held = [(each.first, each.last) for each in self._held.get(shared, ())]
            kept = [
                Run(first, last, run.delivery_count)
                for run in runs
                for first, last in overlaps(run.first, run.last, held)
            ]
            if kept:
                found[shared] = joined(kept)
        return found

    def _take_held(self, shared: SharedPartition, first: int, last: int) -> list[_Held]:
        """Give what is held of a range, and hold it no more."""
        taken: list[_Held] = []
        left: list[_Held] = []
        for each in self._held.pop(shared, ()):
            inside = overlaps(each.first, each.last, [(first, last)])
            rest = outside(each.first, each.last, [(first, last)]) if inside else [each[:2]]
            taken += [each._replace(first=begin, last=end) for begin, end in inside]
            left += [each._replace(first=begin, last=end) for begin, end in rest]
        if left:
            self._held[shared] = left
        return taken

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
        ranges: list[Interval] = [(first, last) for first, last in acknowledgements.ranges()]
        _LOGGER.warning("partition %s: the lease of %s is lost: %s", shared, ranges, error)
        self._lost.setdefault(shared, []).extend(ranges)
        for first, last in ranges:
            self._take_held(shared, first, last)

    def _check(self) -> None:
        """Raise what nobody but the user can do something about."""
        self._delivery.raise_failure()
        if self._keeper is not None and self._keeper.done():
            self._keeper.result()
