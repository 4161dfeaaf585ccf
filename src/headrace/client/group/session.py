"""A consumer as a member of its group: subscribing, committing, leaving.

    subscribe -> a membership, which brings partitions -> commits -> unsubscribe or close

What it composes does the work: see the package.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from headrace.client.cluster import Cluster
from headrace.client.errors import UnsupportedApi
from headrace.client.fetcher import Fetcher
from headrace.client.goodbyes import carry_through
from headrace.client.group.background import Background
from headrace.client.group.classic_member import ClassicMember
from headrace.client.group.classic_membership import ClassicMembership
from headrace.client.group.holdings import Holdings, RebalanceCallbacks
from headrace.client.group.link import CoordinatorLink
from headrace.client.group.member import ConsumerMember
from headrace.client.group.membership import ConsumerMembership
from headrace.client.group.offsets import GroupOffsets
from headrace.client.group.subscription import Subscription
from headrace.client.group.terms import GroupTerms, Protocol
from headrace.client.groups import CommittedOffset, GroupMetadata
from headrace.client.handout import Handout
from headrace.client.offsets import Start, list_offsets
from headrace.client.outcomes import Outcomes
from headrace.client.share.member import new_member_id
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.wire import ApiKey

_LOGGER = logging.getLogger(__name__)
_REGEX_FROM: Final = 1
"""The version of ConsumerGroupHeartbeat in which members choose their id, and may send a regex."""
_AUTO_COMMIT_MS_MAX: Final = 5_000
"""The timeout of an automatic commit; the next one is as good."""
_WATCH_SECONDS_MAX: Final = 1.0


class GroupSession:
    """What a consumer does in a group."""

    def __init__(
        self,
        cluster: Cluster,
        terms: GroupTerms,
        fetcher: Fetcher,
        handout: Handout,
        *,
        reset: Start | None,
        is_committed: bool,
    ) -> None:
        self.terms = terms
        self.failure: Exception | None = None
        """What ended the membership for good."""
        self._cluster = cluster
        self._fetcher = fetcher
        self._handout = handout
        self._reset = reset
        self._is_committed = is_committed
        self._link = CoordinatorLink(cluster, terms.group_id)
        self._offsets = GroupOffsets(self._link, self._identify)
        self._offsets.on_stale = self._hurry
        self._holdings = Holdings(fetcher, commit=self._commit_done_of, on_error=self._note_error)
        self._membership: ConsumerMembership | ClassicMembership | None = None
        self._callback_errors: list[Exception] = []
        self._joining: asyncio.Task[ConsumerMembership | ClassicMembership] | None = None
        self._background = Background(self._note_failure)
        self._is_committing = False
        fetcher.find_positions = self.find_positions
        fetcher.gate.on_wanted = handout.put_back

    # What it is

    @property
    def metadata(self) -> GroupMetadata:
        if self._membership is None:
            return GroupMetadata(self.terms.group_id)
        return self._membership.metadata

    @property
    def is_subscribed(self) -> bool:
        return self._membership is not None or self._joining is not None

    def check(self) -> None:
        """Raise what went wrong in the background: for good, or once in a callback."""
        if self._callback_errors:
            raise self._callback_errors.pop(0)
        if self.failure is not None:
            raise self.failure

    def check_not_in_callback(self, what: str) -> None:
        """Raise RuntimeError in a callback: it would wait for its own end."""
        if self._membership is not None and self._membership.runs_here:
            raise RuntimeError(f"{what} cannot be called in a rebalance callback")

    # Membership

    async def subscribe(self, subscription: Subscription, callbacks: RebalanceCallbacks) -> None:
        """Join the group, or want other topics."""
        self._holdings.callbacks = callbacks
        if self._membership is not None:
            self._membership.subscribe(subscription)
            return
        if self._joining is not None:
            raise RuntimeError("another task subscribes this consumer already")
        self._fetcher.is_endless = True
        self.failure = None
        joining = self._joining = asyncio.create_task(self._join(subscription))
        try:
            self._membership = await joining
        except BaseException as error:
            self._fetcher.is_endless = False
            if joining.done() and not joining.cancelled() and joining.exception() is None:
                await carry_through(self._leave(joining.result()))  # it was in already
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and not (task and task.cancelling()):
                raise RuntimeError("unsubscribed, or closed, while joining the group") from None
            raise
        finally:
            self._joining = None
        self._offsets.is_member_named = isinstance(self._membership, ConsumerMembership)
        self._background.start([self._watch_reader])
        self.start_auto_commit()

    async def unsubscribe(self, *, timeout_ms: int, counts_in_hand: bool = True) -> None:
        """Commit if that is wanted, give up all partitions and leave the group.

        `counts_in_hand` says that the user is done with the records they have.
        """
        self.check_not_in_callback("unsubscribe and close")
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        membership = self._membership
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._fetcher.gate.wait_open()
                if membership is not None:
                    await membership.stop()
                await self._background.stop()
                if counts_in_hand:
                    self._handout.finish()
                await self._give_up(membership)
        except TimeoutError:
            _LOGGER.warning(
                "group %r: could not leave in good order within %d ms",
                self.terms.group_id,
                timeout_ms,
            )
        finally:
            self._membership = None
            self._offsets.is_member_named = False
            self._fetcher.is_endless = False
            self._fetcher.wake()
            await carry_through(self._leave(membership))

    async def _leave(self, membership: ConsumerMembership | ClassicMembership | None) -> None:
        """Stop what runs in the background, and leave the group."""
        await self._background.stop()
        self._is_committing = False
        if membership is not None:
            await membership.stop()
            self._holdings.clear()
            await membership.leave()

    async def close(self, *, timeout_ms: int, counts_in_hand: bool) -> None:
        """Leave the group and close the connection."""
        try:
            await self.unsubscribe(timeout_ms=timeout_ms, counts_in_hand=counts_in_hand)
        finally:
            self._link.close()
            for error in self._callback_errors:  # no poll will raise them
                _LOGGER.warning(
                    "group %r: a rebalance callback failed", self.terms.group_id, exc_info=error
                )

    async def _give_up(self, membership: ConsumerMembership | ClassicMembership | None) -> None:
        if membership is None:
            await self._commit_done_of(self._fetcher.readings.partitions)
        elif membership.is_lost:
            await self._holdings.lose()
        else:
            await self._holdings.revoke(list(self._holdings.partitions))

    async def _join(self, subscription: Subscription) -> ConsumerMembership | ClassicMembership:
        if await self._speaks_848():
            membership = self._new_membership()
            try:
                await membership.join(subscription)
                return membership
            except BaseException as error:
                await carry_through(membership.leave())  # it may be in, though we do not know
                if not self._may_fall_back(error):
                    raise
        classic = self._new_classic_membership()
        await classic.join(subscription)
        return classic

    def _may_fall_back(self, error: BaseException) -> bool:
        return (
            self.terms.protocol is Protocol.AUTO
            and isinstance(error, KafkaError)
            and error.code == ErrorCode.UNSUPPORTED_VERSION
        )

    async def _speaks_848(self) -> bool:
        if self.terms.protocol is Protocol.CLASSIC:
            return False
        connection = await self._link.connection()
        try:
            version = connection.version_of(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        except UnsupportedApi:
            version = -1
        if version < _REGEX_FROM and self.terms.protocol is Protocol.CONSUMER:
            raise UnsupportedApi(
                f"{connection.address} has no KIP-848 groups that this client could join; "
                'join with protocol="classic"'
            )
        return version >= _REGEX_FROM

    def _new_membership(self) -> ConsumerMembership:
        terms = self.terms
        member = ConsumerMember(
            terms.group_id,
            new_member_id(),
            instance_id=terms.instance_id,
            rack=terms.rack,
            rebalance_timeout_ms=terms.max_poll_interval_ms,
            assignor=terms.server_assignor,
        )
        return ConsumerMembership(
            self._link,
            member,
            self._holdings,
            self._fetcher.gate,
            on_failure=self._note_failure,
        )

    def _new_classic_membership(self) -> ClassicMembership:
        terms = self.terms
        member = ClassicMember(
            terms.group_id,
            instance_id=terms.instance_id,
            rack=terms.rack,
            session_timeout_ms=terms.session_timeout_ms,
            rebalance_timeout_ms=terms.max_poll_interval_ms,
            assignors=terms.assignors,
        )
        return ClassicMembership(
            self._link,
            member,
            self._holdings,
            self._fetcher.gate,
            heartbeat_interval_ms=terms.heartbeat_interval_ms,
            rebalance_timeout_ms=terms.max_poll_interval_ms,
            on_failure=self._note_failure,
        )

    async def _watch_reader(self) -> None:
        """Leave the group while the user does not poll, so that others get the partitions."""
        gate, loop = self._fetcher.gate, asyncio.get_running_loop()
        patience = self.terms.max_poll_interval_ms / 1000
        seen, since = self._handout.progress, loop.time()
        while True:
            await asyncio.sleep(min(_WATCH_SECONDS_MAX, patience / 4))
            membership, progress = self._membership, self._handout.progress
            if gate.is_inside or progress != seen or membership is None or not membership.is_in:
                seen, since = progress, loop.time()
            elif loop.time() - since >= patience:
                _LOGGER.warning(
                    "group %r: this consumer was not polled within max_poll_interval_ms=%d; it "
                    "leaves the group and rejoins with the next poll. Raise the limit, or do "
                    "less between two polls",
                    self.terms.group_id,
                    self.terms.max_poll_interval_ms,
                )
                await membership.step_out()

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None
    ) -> None:
        """Commit these offsets, or everything that was handed out."""
        wanted = self._handout.positions() if offsets is None else offsets
        rows = {
            partition: CommittedOffset(offset) if isinstance(offset, int) else offset
            for partition, offset in wanted.items()
        }
        if self._membership is not None:
            self._offsets.check_ours(rows.keys(), self._holdings.partitions)
        await self._offsets.commit(rows, topic_ids=self._holdings.partitions)
        self._note_committed(rows)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        return await self._offsets.committed(partitions)

    def start_auto_commit(self) -> None:
        """Commit now and then what the user is done with, if that is wanted."""
        if self.terms.auto_commit and not self._is_committing:
            self._is_committing = True
            self._background.start([self._commit_for_ever])

    async def find_positions(
        self, starts: Mapping[TopicPartition, int | None]
    ) -> Outcomes[TopicPartition, int]:
        """Look up where to begin: at the commit, or where `reset` says if there is none."""
        outcomes: Outcomes[TopicPartition, int] = {}
        times = {partition: start for partition, start in starts.items() if start is not None}
        found = await self._offsets.committed(
            partition for partition, start in starts.items() if start is None
        )
        for partition, committed in found.items():
            if committed is not None:
                outcomes[partition] = self._holdings.committed[partition] = committed.offset
            elif self._reset is not None:
                times[partition] = int(self._reset)
            else:
                outcomes[partition] = KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"group {self.terms.group_id!r} has no committed offset in partition "
                    f"{partition}: seek it, or make the consumer with reset=Start.BEGINNING or "
                    "reset=Start.END",
                )
        rows = await list_offsets(self._cluster, times, is_committed=self._is_committed)
        for partition, row in rows.items():
            outcomes[partition] = row if isinstance(row, KafkaError) else row.offset
        return outcomes

    async def _commit_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.terms.auto_commit_interval_ms / 1000)
            await self._commit_done_of(self._fetcher.readings.partitions)

    async def _commit_done_of(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what the user is done with, if that is to happen by itself. Never fails."""
        if not self.terms.auto_commit:
            return
        rows = {
            partition: CommittedOffset(offset)
            for partition, offset in self._handout.done().items()
            if partition in partitions and self._holdings.committed.get(partition) != offset
        }
        if not rows:
            return
        try:
            await self._offsets.commit(
                rows, timeout_ms=_AUTO_COMMIT_MS_MAX, topic_ids=self._holdings.partitions
            )
        except HeadraceError as error:
            # What went to another while the commit waited was committed when we gave it up.
            is_news = self._membership is None or rows.keys() <= self._holdings.partitions.keys()
            level = logging.WARNING if is_news else logging.DEBUG
            _LOGGER.log(level, "group %r: automatic commit: %s", self.terms.group_id, error)
        else:
            self._note_committed(rows)

    def _note_committed(self, rows: Mapping[TopicPartition, CommittedOffset]) -> None:
        for partition, row in rows.items():
            self._holdings.committed[partition] = row.offset

    def _identify(self) -> GroupMetadata:
        if self._membership is None:
            return GroupMetadata(self.terms.group_id)
        return self._membership.identify()

    def _hurry(self) -> None:
        if self._membership is not None:
            self._membership.hurry()

    # What the background tells

    def _note_failure(self, error: Exception) -> None:
        self.failure = error
        self._fetcher.wake()

    def _note_error(self, error: Exception) -> None:
        self._callback_errors.append(error)
        self._fetcher.wake()
