"""The shell around a KIP-848 member: heartbeats, and partitions that change hands.

Two tasks. One sends heartbeats, whatever happens. The other gives up and takes partitions as the
coordinator wants, while the reader waits for records; then a heartbeat says what we have.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from headrace.client.errors import ClientError, NotReachable
from headrace.client.goodbyes import say_goodbye
from headrace.client.group.background import Background
from headrace.client.group.holdings import Holdings
from headrace.client.group.link import CoordinatorLink
from headrace.client.group.member import ConsumerMember, Standing, TopicIdPartition
from headrace.client.group.offsets import CommitFailed
from headrace.client.group.subscription import Subscription
from headrace.client.groups import GroupMetadata
from headrace.client.retrying import Retries, pause_ms
from headrace.client.share.member import Next
from headrace.client.steps import StepGate
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.ids import TopicId
from headrace.surroundings import new_random
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse

_LOGGER = logging.getLogger(__name__)
_IDLE_BEATS_MAX: Final = 16


class ConsumerMembership:
    """Keeps a member in its group."""

    def __init__(
        self,
        link: CoordinatorLink,
        member: ConsumerMember,
        holdings: Holdings,
        gate: StepGate,
        *,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`on_failure` is called with the error that ends the membership for good."""
        self.member = member
        self._link = link
        self._cluster = link.cluster
        self._holdings = holdings
        self._gate = gate
        self._random = new_random()
        self._failures = 0
        self._idle_beats = 0
        self._is_due = asyncio.Event()
        self._is_unsettled = asyncio.Event()
        self._names: dict[TopicIdPartition, TopicPartition] = {}
        """What we have, by name."""
        self._last_known = GroupMetadata(member.group_id)
        self._background = Background(on_failure)

    @property
    def metadata(self) -> GroupMetadata:
        """Our current or last identity: the coordinator refuses former members."""
        member = self.member
        if member.standing is Standing.MEMBER:
            self._last_known = GroupMetadata(
                member.group_id, member.epoch, member.member_id, member.instance_id
            )
        return self._last_known

    def identify(self) -> GroupMetadata:
        """Return the identity to commit with; raise CommitFailed if we are not in the group."""
        if self.member.standing is not Standing.MEMBER:
            raise CommitFailed(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"we are not in group {self.member.group_id!r} now; poll to join it again",
            )
        return self.metadata

    @property
    def is_in(self) -> bool:
        return self.member.standing in (Standing.JOINING, Standing.MEMBER)

    @property
    def is_lost(self) -> bool:
        return self.member.standing is Standing.LOST

    @property
    def runs_here(self) -> bool:
        """Return whether the caller is a rebalance callback."""
        return self._background.runs_here

    async def join(self, subscription: Subscription) -> None:
        """Enter the group; HeadraceError if that is refused.

        A coordinator that is not there yet is waited for, and so is the session of a static member
        that died under our instance id: up to the API timeout.
        """
        member, retries = self.member, Retries(self._cluster.settings)
        member.subscribe(subscription)
        while True:
            try:
                await self._beat()
            except KafkaError as error:
                if error.code != ErrorCode.UNRELEASED_INSTANCE_ID:
                    raise
                _LOGGER.warning("%s", error)
                if not await retries.pause():
                    raise
            if member.standing is Standing.MEMBER:
                break
            if not await retries.pause():
                raise NotReachable(f"no coordinator took us into group {member.group_id!r} in time")
        self._background.start([self._send_heartbeats, self._reconcile_for_ever])

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe to other topics; the next heartbeat is sent at once."""
        self.member.subscribe(subscription)
        self._is_due.set()

    def hurry(self) -> None:
        """Send a heartbeat now."""
        self._is_due.set()

    async def step_out(self) -> None:
        """Leave the group until the next poll."""
        self.member.step_out()
        self._is_unsettled.set()
        await self._say_goodbye()

    async def stop(self) -> None:
        """Stop the tasks. No callback may be running."""
        await self._background.stop()

    async def leave(self) -> None:
        """Leave the group, if its coordinator can be reached."""
        if self.is_in:
            await self._say_goodbye()
        self.member.leave()

    async def _say_goodbye(self) -> None:
        async def say() -> int:
            answer = await self._link.request(self.member.leaving(), ConsumerGroupHeartbeatResponse)
            return answer.error_code

        await say_goodbye(say, self._link.forget, self._cluster.settings)

    # Heartbeats

    async def _send_heartbeats(self) -> None:
        pause = self._interval()
        while True:
            if not self.member.is_due:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause if self.is_in else None):
                        await self._is_due.wait()
            self._is_due.clear()
            if self.is_in:
                pause = await self._beat()

    async def _beat(self) -> float:
        """Send one heartbeat; return the seconds until the next."""
        member = self.member
        body = member.heartbeat()
        try:
            answer = await self._link.request(body, ConsumerGroupHeartbeatResponse)
        except NotReachable as error:
            _LOGGER.debug("no heartbeat of group %r: %s", member.group_id, error)
            member.miss()
            return await self._pause_after_loss()
        except KafkaError as error:
            member.miss()
            if not error.is_retriable:
                raise
            return await self._pause_after_loss()
        following = member.take(body, answer)
        if member.is_unsettled:
            self._is_unsettled.set()
        if following is Next.AFTER_FINDING:
            return await self._pause_after_loss()
        if following is Next.AFTER_PAUSE:
            return await self._pause()
        self._failures = 0
        return self._interval() if following is Next.AFTER_INTERVAL else 0

    def _interval(self) -> float:
        """Return the pause after a heartbeat that went well, in seconds.

        A coordinator may assign a moment after the join, and reports it in its next response. A
        member without partitions asks sooner, with a growing pause: so a new member is not idle
        for a whole interval.
        """
        wanted = self.member.interval_ms / 1000
        if self.member.target:
            self._idle_beats = 0
            return wanted
        sooner = self._cluster.settings.retry_backoff_ms / 1000 * 2.0**self._idle_beats
        self._idle_beats = min(self._idle_beats + 1, _IDLE_BEATS_MAX)
        return min(wanted, sooner)

    async def _pause_after_loss(self) -> float:
        self._link.forget()
        with suppress(ClientError):
            await self._cluster.refresh()
        return await self._pause()

    async def _pause(self) -> float:
        """Wait a little; return zero more to wait: a heartbeat may be due already."""
        self._failures += 1
        await asyncio.sleep(
            pause_ms(self._failures - 1, self._cluster.settings, self._random) / 1000
        )
        self._is_due.set()
        return 0

    # Partitions

    async def _reconcile_for_ever(self) -> None:
        attempt = 0
        while True:
            await self._is_unsettled.wait()
            self._is_unsettled.clear()
            if self.member.standing is Standing.LOST:
                await self._give_up()
            elif self.member.is_unsettled:
                await self._reconcile()
            if not self.member.is_unsettled:
                attempt = 0
                continue
            # A topic whose name nobody knows yet, or something new meanwhile.
            self._is_unsettled.set()
            await asyncio.sleep(pause_ms(attempt, self._cluster.settings, self._random) / 1000)
            attempt += 1

    async def _give_up(self) -> None:
        async with self._gate.hold():
            if self.member.standing is not Standing.LOST:
                return
            if self._holdings.partitions:
                _LOGGER.info("group %r removed this member; it rejoins", self.member.group_id)
            await self._holdings.lose()
            self._names.clear()
            self.member.give_up()
        self._is_due.set()

    async def _reconcile(self) -> None:
        member = self.member
        await self._learn_names(row.topic_id for row in member.target or ())
        if not self._changes(member):
            return
        async with self._gate.hold():
            if not member.is_unsettled or member.standing is not Standing.MEMBER:
                return
            assert member.target is not None, "unsettled without a target"
            target = member.target
            gone = sorted(member.owned - target)
            await self._holdings.revoke([self._names[row] for row in gone])
            for row in gone:
                del self._names[row]
            member.own(member.owned.difference(gone))
            if member.standing is not Standing.MEMBER:
                return  # put out meanwhile
            new = self._named(target - member.owned)
            self._names.update(new)
            member.own(member.owned | new.keys())
            await self._holdings.take({name: row.topic_id for row, name in new.items()})
        self._is_due.set()

    def _changes(self, member: ConsumerMember) -> bool:
        if member.standing is not Standing.MEMBER or member.target is None:
            return False
        return bool(member.owned - member.target or self._named(member.target - member.owned))

    def _named(self, rows: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, TopicPartition]:
        """Name those partitions whose topic is known."""
        names = self._cluster.view.topic_names
        return {
            row: TopicPartition(names[row.topic_id], row.partition)
            for row in sorted(rows)
            if row.topic_id in names
        }

    async def _learn_names(self, topic_ids: Iterable[TopicId]) -> None:
        """Ask for topics that we know by their id only."""
        unknown = set(topic_ids) - self._cluster.view.topic_names.keys()
        if not unknown:
            return
        rows = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(unknown)]
        with suppress(HeadraceError):
            answer = await self._cluster.ask(
                MetadataRequest(topics=rows, allow_auto_topic_creation=False), MetadataResponse
            )
            answer.topics = [row for row in answer.topics if not row.error_code and row.name]
            self._cluster.view.learn(answer)
