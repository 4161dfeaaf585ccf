"""Records from the leaders of the assigned partitions, and acknowledgements back to them.

Consumer and worker are built on this: it has the membership, one link per node, the unread
responses and the unreported outcomes. Nothing is fetched before it is requested: records that wait
here are locked for all other members.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from headrace.client.addresses import Address
from headrace.client.cluster import Cluster
from headrace.client.goodbyes import carry_through
from headrace.client.share.acknowledgements import GAP, AcknowledgeType, Range
from headrace.client.share.acquired import AcquiredChunk, AcquiredRange, ShareRecord
from headrace.client.share.leaders import ShareLeaders
from headrace.client.share.link import NodeLink
from headrace.client.share.member import Member
from headrace.client.share.membership import Membership
from headrace.client.share.session import SharedPartition
from headrace.client.share.staged import Outcome
from headrace.client.share.subscription import warn_of_missing
from headrace.client.share.terms import FetchTerms
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.wire.messages.share_fetch_response import PartitionData

_TICK_MS_MAX: Final = 1000
"""The longest wait before everything is checked again."""
_TURN_MS_MAX: Final = 200
"""How long a fetch waits while another node waits for its turn."""


class Lease(NamedTuple):
    """Where records were acquired, and so where they are acknowledged."""

    link: NodeLink
    life: int
    shared: SharedPartition


class Portion(NamedTuple):
    """Records of one partition, by ascending offset."""

    lease: Lease
    records: list[ShareRecord]
    since: float
    """When they were requested, in loop time: no lock of them is older."""


class _Arrived(NamedTuple):
    """One partition's part of a response."""

    lease: Lease
    chunk: AcquiredChunk
    since: float
    """When it was requested."""
    until: float
    """When the locks end."""


def shares_of(links: Sequence[NodeLink], records_max: int) -> dict[NodeLink, int]:
    """Divide a number of records among nodes: one for each, the rest where records were."""
    shares = dict.fromkeys(links, 1)
    rest = records_max - len(links)
    favoured = [link for link in links if link.has_given] or links
    for at, link in enumerate(favoured):
        shares[link] += rest // len(favoured) + (at < rest % len(favoured))
    return shares


class Delivery:
    """The share of a group's records that comes to one member."""

    def __init__(self, cluster: Cluster, member: Member, terms: FetchTerms) -> None:
        self.outcomes: deque[Outcome] = deque()
        """Outcomes of acknowledgements; the code that reports them clears it."""
        self.assigned: frozenset[SharedPartition] = frozenset()
        self.lock_ms = 0
        """How long a lock lasts; 0 before a broker said so."""
        self._took_first_deliveries = True
        """Whether all records taken last are first deliveries."""
        self._cluster = cluster
        self._terms = terms
        self._leaders = ShareLeaders(cluster, self.on_news)
        self._membership = Membership(
            cluster, member, on_assignment=self._on_assignment, on_failure=self._on_end
        )
        self._links: dict[int, NodeLink] = {}
        self._arrived: deque[_Arrived] = deque()
        self._news = asyncio.Event()
        self._resolving: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._failure: HeadraceError | None = None
        self._end: HeadraceError | None = None

    # For consumers

    async def start(self) -> None:
        """Join the group; HeadraceError says why not."""
        await self._cluster.connect()
        await self._membership.join()

    def subscribe(self, topics: Iterable[str]) -> None:
        self._membership.subscribe(topics)
        self.watch_topics()

    def watch_topics(self) -> None:
        """Warn from now on of topics that we want and that do not exist."""
        if self._watching is not None:
            self._watching.cancel()
        member = self._membership.member
        self._watching = asyncio.create_task(
            warn_of_missing(self._cluster, member.group_id, lambda: member.topics)
        )

    def raise_failure(self) -> None:
        """Raise what only the caller can do something about, once; the end of it all, always."""
        failure, self._failure = self._failure, None
        if failure is not None or self._end is not None:
            raise failure or self._end or AssertionError

    def ask(self, records_max: int, max_wait_ms: int) -> None:
        """Fetch from every leader of an assigned partition without a request in flight."""
        for link, wanted in self._wanted().items():
            link.fetch(wanted, records_max, max_wait_ms)

    def share_out(self, records_max: int, max_wait_ms: int) -> None:
        """Fetch that many records in all, from the same nodes.

        Each node is asked for one; the rest goes to those that had records before. With fewer
        records than nodes they take turns, with shorter waits.
        """
        if self._arrived:
            return
        wanted = self._wanted()
        left = records_max - sum(link.records_asked for link in wanted)
        idle = [link for link, partitions in wanted.items() if link.is_idle and partitions]
        idle.sort(key=lambda link: link.asked_at)
        if len(idle) > left:
            max_wait_ms = min(max_wait_ms, _TURN_MS_MAX)
        asked = idle[: max(0, left)]
        for link, share in shares_of(asked, left).items():
            link.fetch(wanted[link], share, max_wait_ms)
        for link, partitions in wanted.items():
            if not partitions:
                link.fetch(partitions, 1, 0)  # so that the broker forgets what it led

    def _wanted(self) -> dict[NodeLink, set[SharedPartition]]:
        """Return the partitions to ask each node for; a node may have lost all it had."""
        groups: dict[int, set[SharedPartition]] = {node_id: set() for node_id in self._links}
        for shared in sorted(self.assigned):
            node_id = self._leaders.leader_of(shared)
            if node_id is not None:
                groups.setdefault(node_id, set()).add(shared)
        return {
            self._links.get(node_id) or self._new_link(node_id): wanted
            for node_id, wanted in groups.items()
        }

    def _new_link(self, node_id: int) -> NodeLink:
        link = self._links[node_id] = NodeLink(node_id, self._terms, self)
        return link

    @property
    def records_left(self) -> int:
        """The number of records that were not taken yet."""
        return sum(arrived.chunk.records_left for arrived in self._arrived)

    @property
    def has_first_deliveries_only(self) -> bool:
        """Whether all records, those taken last and those here, are first deliveries."""
        return self._took_first_deliveries and all(
            arrived.chunk.is_first_delivery for arrived in self._arrived
        )

    def take(self, records_max: int) -> list[Portion]:
        """Return up to that many of the records here. No partition is in two portions."""
        portions: dict[tuple[str, int], Portion] = {}
        self._took_first_deliveries = True
        now = asyncio.get_running_loop().time()
        while self._arrived and records_max > 0:
            lease, chunk, since, until = self._arrived[0]
            if now >= until or not lease.link.has_locks_of(lease.life):
                # Somebody else may have them by now; whoever they come to, they come again.
                self._arrived.popleft()
                continue
            portion = portions.get(chunk.partition)
            if portion is not None and portion.lease != lease:
                break
            records = chunk.take(records_max)
            self._report_leftovers(lease, chunk)
            if not records:
                self._arrived.popleft()
                continue
            records_max -= len(records)
            self._took_first_deliveries &= chunk.is_first_delivery
            if portion is None:
                portions[chunk.partition] = Portion(lease, records, since)
            else:
                portion.records.extend(records)
                if since < portion.since:
                    portions[chunk.partition] = portion._replace(since=since)
        return list(portions.values())

    def take_renewable(self) -> list[Portion]:
        """Return all records here, if their nodes can renew locks for as long as they wait."""
        if all(arrived.lease.link.can_renew for arrived in self._arrived):
            return self.take(self.records_left)
        return []

    def acknowledge(self, lease: Lease, types: dict[int, int]) -> None:
        """Queue acknowledgements of records; `send` sends them."""
        lease.link.stage(lease.life, lease.shared, lambda staged: staged.add(types))

    def acknowledge_ranges(
        self, lease: Lease, ranges: Iterable[tuple[int, int]], kind: int
    ) -> None:
        """Queue one acknowledgement for all records of some ranges."""
        lease.link.stage(lease.life, lease.shared, lambda staged: staged.add_ranges(ranges, kind))

    def send(self) -> None:
        """Send queued acknowledgements as soon as the previous request has its response."""
        for link in self._links.values():
            link.send()

    @property
    def unconfirmed(self) -> set[TopicPartition]:
        """The partitions with acknowledgements that no broker has confirmed."""
        links = self._links.values()
        return {shared.partition for link in links for shared in link.unconfirmed}

    @property
    def is_idle(self) -> bool:
        """Whether every request has its response."""
        return all(link.is_idle for link in self._links.values())

    async def wait(self, deadline: float | None) -> bool:
        """Wait for anything to happen; False if the deadline, in loop time, came first."""
        now = asyncio.get_running_loop().time()
        tick = now + _TICK_MS_MAX / 1000
        if deadline is not None and deadline <= now:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout_at(tick if deadline is None else min(deadline, tick)):
                await self._news.wait()
            return True
        return deadline is None or tick < deadline

    async def close(self, timeout_ms: int) -> None:
        """Send queued acknowledgements, end every session, leave the group and disconnect.

        After `timeout_ms`, or if this is cancelled, sessions end with their connections. The
        member leaves the group in any case, and no task remains.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                closing = [link.close() for link in self._links.values()]
                for failure in filter(None, await asyncio.gather(*closing, return_exceptions=True)):
                    raise failure  # a defect, which kept no other node from being told
        except TimeoutError:
            pass
        finally:
            tasks = [link.hang_up() for link in self._links.values()]
            tasks += [self._resolving, self._watching, *self._leaders.stop()]
            for task in filter(None, tasks):
                task.cancel()
            await carry_through(self._leave(filter(None, tasks)))

    async def _leave(self, ending: "Iterable[asyncio.Task[None]]") -> None:
        try:
            await self._membership.leave()
            await asyncio.gather(*ending, return_exceptions=True)
        finally:
            await self._cluster.close()

    # What links and the membership tell

    def address_of(self, node_id: int) -> Address | None:
        return self._leaders.address_of(node_id)

    def on_acquired(
        self, link: NodeLink, shared: SharedPartition, row: PartitionData, lock_ms: int
    ) -> None:
        acquired = [
            AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
            for each in row.acquired_records
        ]
        records = memoryview(row.records or b"")
        chunk = AcquiredChunk(
            shared.partition, records, acquired, self._terms.limits.inflated_bytes_max
        )
        until = asyncio.get_running_loop().time() + lock_ms / 1000
        lease = Lease(link, link.life, shared)
        self._arrived.append(_Arrived(lease, chunk, link.asked_at, until))
        self.lock_ms = lock_ms

    def on_acknowledged(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.on_news()

    def on_moved(self, shared: SharedPartition, leader: tuple[int, int]) -> None:
        self._leaders.note_move(shared, *leader)

    def on_endpoints(self, endpoints: Iterable[tuple[int, str, int]]) -> None:
        self._leaders.note_endpoints(endpoints)

    def on_failure(self, error: HeadraceError) -> None:
        self._failure = error
        self.on_news()

    def on_news(self) -> None:
        waiting, self._news = self._news, asyncio.Event()
        waiting.set()

    def _on_end(self, error: HeadraceError) -> None:
        self._end = error
        self.assigned = frozenset()
        self.on_news()

    def _on_assignment(self) -> None:
        member = self._membership.member
        self.assigned = self._leaders.resolved(member.assignment)
        self.on_news()
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None
        if len(self.assigned) < sum(map(len, member.assignment.values())):
            self._resolving = asyncio.create_task(self._resolve(member))
        is_watching = self._watching is not None and not self._watching.done()
        if not is_watching and not self._has_all_of(member.topics):
            self.watch_topics()  # one may be gone

    def _has_all_of(self, topics: Iterable[str]) -> bool:
        return {shared.topic for shared in self.assigned}.issuperset(topics)

    async def _resolve(self, member: Member) -> None:
        self.assigned = await self._leaders.resolve(member.assignment, member.topics)
        self.on_news()

    def _report_leftovers(self, lease: Lease, chunk: AcquiredChunk) -> None:
        kinds: Mapping[int, list[Range]] = {
            GAP: chunk.leftovers.gaps,
            AcknowledgeType.REJECT: chunk.leftovers.rejected,
            AcknowledgeType.RELEASE: chunk.leftovers.released,
        }
        for kind, ranges in kinds.items():
            if ranges:
                self.acknowledge_ranges(lease, list(ranges), kind)
                ranges.clear()
