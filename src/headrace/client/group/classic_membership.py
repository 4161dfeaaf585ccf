"""The shell around a classic member: heartbeats, rebalances, and topics that come and grow.

There are three tasks. One sends heartbeats. One joins when needed: it revokes partitions while the
reader waits for records, joins, distributes partitions if we lead, and takes our assignment. One
watches the metadata: in this protocol only members notice that a topic was created or grew.

Joining waits for all other members, so commits use a separate connection.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headrace.client.errors import ClientError, NotReachable
from headrace.client.goodbyes import say_goodbye
from headrace.client.group.assignors import ASSIGNORS, Assigned
from headrace.client.group.background import Background
from headrace.client.group.classic_member import NO_GENERATION, ClassicMember, Stage
from headrace.client.group.holdings import Holdings
from headrace.client.group.link import CoordinatorLink
from headrace.client.group.offsets import CommitFailed
from headrace.client.group.subscription import Subscription
from headrace.client.groups import GroupMetadata
from headrace.client.retrying import pause_ms
from headrace.client.share.member import Next
from headrace.client.steps import StepGate
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.surroundings import new_random
from headrace.wire import ApiKey
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.messages.sync_group_response import SyncGroupResponse

_LOGGER = logging.getLogger(__name__)
_MISSING_TOPIC_SECONDS: Final = 1.0
"""How often to look for a topic that does not exist."""


class ClassicMembership:
    """Keeps a member in its group."""

    def __init__(
        self,
        link: CoordinatorLink,
        member: ClassicMember,
        holdings: Holdings,
        gate: StepGate,
        *,
        heartbeat_interval_ms: int,
        rebalance_timeout_ms: int,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`on_failure` is called with the error that ends the membership for good.

        `link` is for commits and for leaving; joining uses its own link.
        """
        self.member = member
        self._goodbyes = link
        self._link = CoordinatorLink(link.cluster, link.group_id)
        self._cluster = link.cluster
        self._holdings = holdings
        self._gate = gate
        self._heartbeat_seconds = heartbeat_interval_ms / 1000
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._random = new_random()
        self._failures = 0
        self._is_needed = asyncio.Event()
        self._is_out = False
        """Whether we left until the next poll."""
        self._subscription = Subscription()
        self._counts: dict[str, int] = {}
        """How many partitions topics had when we distributed them."""
        self._last_known = GroupMetadata(member.group_id)
        self._background = Background(on_failure)

    @property
    def metadata(self) -> GroupMetadata:
        """Our current or last identity: the coordinator refuses former members."""
        member = self.member
        if member.generation != NO_GENERATION:
            self._last_known = GroupMetadata(
                member.group_id, member.generation, member.member_id, member.instance_id
            )
        return self._last_known

    def identify(self) -> GroupMetadata:
        """Return the identity to commit with; raise CommitFailed if we are not in the group."""
        if self.member.generation == NO_GENERATION:
            raise CommitFailed(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"we are not in group {self.member.group_id!r} now; poll to join it again",
            )
        return self.metadata

    @property
    def is_in(self) -> bool:
        return self.member.stage is not Stage.OUTSIDE and not self._is_out

    @property
    def is_lost(self) -> bool:
        return self.member.is_lost

    @property
    def runs_here(self) -> bool:
        """Return whether the caller is a rebalance callback."""
        return self._background.runs_here

    async def join(self, subscription: Subscription) -> None:
        """Begin to enter the group. That takes as long as other members need for their part."""
        await self._link.connection()
        self.subscribe(subscription)
        self._background.start([self._send_heartbeats, self._rebalance_for_ever, self._watch])

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to other topics; the group learns of it when we rejoin."""
        self._subscription = subscription
        if subscription.pattern is None:
            self.member.subscribe(subscription.topics)
        else:
            self.member.rejoin()  # which looks for topics that match
        self._is_needed.set()

    def hurry(self) -> None:
        """Do nothing: generations change by joining only."""

    async def step_out(self) -> None:
        """Leave the group until the next poll."""
        self._is_out = True
        await self._say_goodbye("the consumer did not poll in time")
        self.member.lose()
        self._is_needed.set()

    async def stop(self) -> None:
        """Stop the tasks. No callback may be running."""
        await self._background.stop()
        self._link.close()

    async def leave(self) -> None:
        """Leave the group, if its coordinator can be reached."""
        if self.is_in:
            await self._say_goodbye("the consumer is closed")
        self.member.leave()

    async def _say_goodbye(self, reason: str) -> None:
        async def say() -> int:
            connection = await self._goodbyes.connection()
            body = self.member.leaving(connection.version_of(ApiKey.LEAVE_GROUP), reason)
            if body is None:
                return ErrorCode.NONE
            return (await connection.request(body, LeaveGroupResponse)).error_code

        await say_goodbye(say, self._goodbyes.forget, self._cluster.settings)

    # Heartbeats

    async def _send_heartbeats(self) -> None:
        pause = self._heartbeat_seconds
        while True:
            await asyncio.sleep(pause)
            pause = self._heartbeat_seconds
            if self.member.stage is not Stage.STABLE:
                continue
            body = self.member.heartbeat()
            try:
                answer = await self._link.request(body, HeartbeatResponse)
            except NotReachable:
                self._link.forget()
                pause = min(pause, self._next_pause())
                continue
            except KafkaError as error:
                if not error.is_retriable:
                    raise
                continue
            self._failures = 0
            following = self.member.take_heartbeat(body, answer)
            if following is Next.AFTER_FINDING:
                self._link.forget()
                pause = min(pause, self._next_pause())
            if self.member.needs_join:
                self._is_needed.set()

    # Rebalances

    async def _rebalance_for_ever(self) -> None:
        while True:
            await self._is_needed.wait()
            self._is_needed.clear()
            while self.member.needs_join:
                await self._rebalance()

    async def _rebalance(self) -> None:
        member = self.member
        if member.is_lost or self._is_out:
            await self._give_up()
        elif member.owned and not member.is_cooperative:
            async with self._gate.hold():
                if not member.is_lost:
                    await self._holdings.revoke(sorted(member.owned))
                    member.own(())
            if member.is_lost:
                return
        try:
            following = await self._join()
        except NotReachable as error:
            _LOGGER.debug("cannot join group %r: %s", member.group_id, error)
            following = Next.AFTER_FINDING
        except KafkaError as error:
            if not error.is_retriable:
                raise
            following = Next.AFTER_PAUSE
        if following is None:
            self._failures = 0
            return
        member.needs_join = True
        if following is Next.AFTER_FINDING:
            self._link.forget()
            with suppress(ClientError):
                await self._cluster.refresh()
        if following is not Next.AT_ONCE:
            await asyncio.sleep(self._next_pause())

    async def _give_up(self) -> None:
        async with self._gate.hold():
            if self.member.is_lost:
                _LOGGER.info("group %r removed this member; it rejoins", self.member.group_id)
                await self._holdings.lose()
                self.member.give_up()
            self._is_out = False

    async def _join(self) -> Next | None:
        """Join a generation and take our assignment; or return when to retry."""
        member, patience_ms = self.member, self._rebalance_timeout_ms
        if self._subscription.pattern is not None:
            topics = await self._cluster.list_topics()
            member.subscribe(self._subscription.matching(topics))
        joined = await self._link.request(member.join(), JoinGroupResponse, patience_ms=patience_ms)
        following = member.take_join(joined)
        if following is not None:
            return following
        assigned = await self._distribute() if member.is_leader else {}
        synced = await self._link.request(
            member.sync(assigned), SyncGroupResponse, patience_ms=patience_ms
        )
        part = member.take_sync(synced)
        if isinstance(part, Next):
            return part
        await self._take(part)
        return None

    async def _distribute(self) -> Assigned:
        """Assign all partitions of all subscribed topics; large groups take a while."""
        member = self.member
        wanted = sorted(frozenset[str]().union(*(row.topics for row in member.members.values())))
        self._counts = await self._partition_counts(wanted)
        if member.leads_without_assigning:
            return {}
        assignor = ASSIGNORS[member.assignor]
        return await asyncio.to_thread(assignor, dict(member.members), self._counts)

    async def _partition_counts(self, topics: list[str]) -> dict[str, int]:
        if topics:
            await self._cluster.refresh(topics)
        known = self._cluster.view.topics
        return {name: len(known[name].partitions) if name in known else 0 for name in topics}

    async def _take(self, part: frozenset[TopicPartition]) -> None:
        member, generation = self.member, self.member.generation
        if part == member.owned:
            return
        async with self._gate.hold():
            if member.generation != generation or member.needs_join:
                return  # the group went on while the reader was busy
            gone = member.owned - part
            await self._holdings.revoke(sorted(gone))
            member.own(member.owned - gone)
            if member.generation != generation:
                return
            new = part - member.owned
            member.own(member.owned | new)
            await self._holdings.take(dict.fromkeys(sorted(new)))
        if gone and member.is_cooperative:
            member.rejoin()  # so that others get what we gave up

    # Topics

    async def _watch(self) -> None:
        while True:
            is_missing = self._subscription.pattern is None and 0 in self._counts.values()
            max_age = self._cluster.settings.metadata_max_age_ms / 1000
            await asyncio.sleep(min(max_age, _MISSING_TOPIC_SECONDS) if is_missing else max_age)
            with suppress(HeadraceError):
                await self._look_around()

    async def _look_around(self) -> None:
        """Join again if there are other topics to read, or if ours grew."""
        member = self.member
        if member.stage is not Stage.STABLE or member.needs_join:
            return
        if self._subscription.pattern is not None:
            topics = await self._cluster.list_topics()
            member.subscribe(self._subscription.matching(topics))
        if member.is_leader and self._counts:
            counts = await self._partition_counts(list(self._counts))
            if counts != self._counts:
                member.rejoin()
        if member.needs_join:
            self._is_needed.set()

    def _next_pause(self) -> float:
        self._failures += 1
        return pause_ms(self._failures - 1, self._cluster.settings, self._random) / 1000
