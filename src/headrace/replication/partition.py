"""A replica of a partition on this node: its log, its role, and the requests that wait for it.

The role comes from the image. A leader appends and advances the high watermark; a follower copies;
both may be read from. A request that must wait leaves a waiter here, which is notified of every
change with plain calls: no task, no future.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.log.cutting import delete_records
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Appended, Log
from headrace.loop.counters import TopicCounters
from headrace.loop.turns import ANSWER_COST
from headrace.metadata.state import NO_LEADER
from headrace.metadata.state import Partition as PartitionRow
from headrace.records.header import CONTROL_BIT, FLAGS_AT, BatchHeader
from headrace.records.validation import validate_batch
from headrace.replication.in_sync import InSync, IsrChange, Position

ANY_LEADER_EPOCH: Final = -1
ANY_BYTES: Final = 2**62
"""As much as any reader waits for."""
TOLD_AT_ONCE: Final = 16
"""How many produces hear of progress in the same turn of the loop; each may send a response."""

logger = logging.getLogger(__name__)


class FetchWaiter(Protocol):
    """A fetch that waits for more to read."""

    def on_more(self, partition: "Partition", byte_count: int) -> None:
        """Handle that so many more bytes of a partition can be read."""

    def on_change(self, partition: "Partition") -> None:
        """Handle that a partition's role changed, or that it is gone."""


class FollowerSession(FetchWaiter, Protocol):
    """What a follower fetches, and the fetch that waits."""

    def on_isr(self, partition: "Partition") -> None:
        """Handle that replicas left the ISR of a partition."""


class ProduceWaiter(Protocol):
    """Something that waits for replicas or for the disk."""

    def on_progress(self) -> None:
        """Check again whether the wait is over."""


class Surroundings(Protocol):
    """What a leader asks about its followers, and where its ISR changes."""

    led: "dict[Partition, None]"
    """The partitions that have followers here."""

    @property
    def lag_ms_max(self) -> int: ...

    def now_ms(self) -> int: ...

    def epoch_of(self, node: BrokerId) -> int | None:
        """Return the epoch of a broker that may be in sync, None if it may not."""

    def registered_epoch(self, node: BrokerId) -> int | None:
        """Return the epoch of a registered broker, whatever its state."""

    def propose(self, partition: "Partition", change: IsrChange) -> None: ...

    def soon(self, work: Callable[[], int]) -> None:
        """Do a piece of work, which returns its cost, in a later turn (`loop.turns`)."""


class Partition:
    """One replica of a partition."""

    __slots__ = (
        "_around",
        "_min_insync_configured",
        "_unread_bytes",
        "_untold",
        "adding",
        "counters",
        "fetch_waiters",
        "flushing",
        "followers",
        "in_sync",
        "index",
        "is_follower_throttled",
        "is_leader",
        "is_leader_throttled",
        "is_moving",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "min_insync_replicas",
        "partition_epoch",
        "produce_waiters",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: TopicName,
        index: PartitionIndex,
        topic_id: TopicId,
        log: Log,
        counters: TopicCounters,
        *,
        around: Surroundings,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.counters = counters
        self._around = around
        self.leader: BrokerId = NO_LEADER
        self.leader_epoch = LeaderEpoch(-1)
        self.is_leader = False
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()
        """As the metadata log has it."""
        self.adding: tuple[BrokerId, ...] = ()
        """Replicas that a reassignment adds."""
        self.is_moving = False
        self.in_sync: InSync | None = None
        """The followers, if this node leads and there are any."""
        self._min_insync_configured = 1
        self.min_insync_replicas = 1
        """How many in-sync replicas acks=all needs: never more than there are replicas."""
        self.is_leader_throttled = False
        """Whether what this node sends to replicas that are behind has a limit (KIP-73)."""
        self.is_follower_throttled = False
        """Whether what this node fetches of it while it is behind has a limit."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        """Consumers, which may read up to the high watermark."""
        self.followers: dict[FollowerSession, None] = {}
        """Sessions of followers, which read up to the end."""
        self.produce_waiters: dict[ProduceWaiter, int | None] = {}
        """Each with the high watermark that it waits for; None is told of every step."""
        self._unread_bytes = 0
        """What was appended since the high watermark moved."""
        self._untold: deque[ProduceWaiter] | None = None
        """Waiters that hear of progress in later turns, if there were too many for one."""
        self.flushing: asyncio.Task[None] | None = None

    # Roles

    def become(
        self, row: PartitionRow, node_id: BrokerId, min_insync_replicas: int | None = None
    ) -> None:
        """Take the role from the image, with the min.insync.replicas that holds there."""
        if min_insync_replicas is not None:
            self._min_insync_configured = min_insync_replicas
        self.isr, self.replicas, self.adding = row.isr, row.replicas, row.adding
        self.is_moving = bool(row.adding or row.removing)
        self.partition_epoch = row.partition_epoch
        self._limit_in_sync()
        if (row.leader, row.leader_epoch) == (self.leader, self.leader_epoch):
            if self.in_sync is not None:
                has_left = not set(self.in_sync.isr) <= set(row.isr)
                self.in_sync.altered(row)
                if has_left:
                    for follower in self.followers:
                        follower.on_isr(self)
            elif self.is_leader and len(row.replicas) > 1:
                self.in_sync = self._begin_in_sync(row)
            self._advance()
            return
        self.leader, self.leader_epoch = row.leader, row.leader_epoch
        self.is_leader = row.leader == node_id
        self._leave_followers()
        if self.is_leader:
            self.log.begin_leader_epoch(row.leader_epoch)
            if len(row.replicas) > 1:
                self.in_sync = self._begin_in_sync(row)
            self._advance()
        self.tell_of_change()

    def _begin_in_sync(self, row: PartitionRow) -> InSync:
        self._around.led[self] = None
        return InSync(
            row.leader, row, start_offset=self.log.end_offset, now_ms=self._around.now_ms()
        )

    def stop(self) -> None:
        """Stop serving: the partition moves away or is deleted. Call `tell_of_change` next."""
        self.is_leader = False
        self.leader = NO_LEADER
        self._leave_followers()

    def _leave_followers(self) -> None:
        self.in_sync = None
        self._around.led.pop(self, None)

    def tell_of_change(self) -> None:
        """Wake all waiters of this partition."""
        for fetch in (*self.fetch_waiters, *self.followers):
            fetch.on_change(self)
        self._tell(tuple(self.produce_waiters))

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare a client's leader epoch with the current one."""
        if current_leader_epoch in (ANY_LEADER_EPOCH, self.leader_epoch):
            return ErrorCode.NONE
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def require_in_sync(self, min_insync_replicas: int) -> None:
        """Set min.insync.replicas; it counts for acks=all up to the number of replicas."""
        self._min_insync_configured = min_insync_replicas
        before = self.min_insync_replicas
        self._limit_in_sync()
        if self.min_insync_replicas < before:
            self._advance()

    def _limit_in_sync(self) -> None:
        self.min_insync_replicas = min(self._min_insync_configured, max(len(self.replicas), 1))

    @property
    def has_enough_replicas(self) -> bool:
        """Whether as many replicas are in sync as acks=all needs."""
        return len(self.isr) >= self.min_insync_replicas

    # Followers

    def check_follower(self, node: BrokerId, broker_epoch: int) -> ErrorCode:
        """Return whether a node may fetch from here as a follower, in a life of it."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if node not in self.replicas or node == self.leader:
            return ErrorCode.UNKNOWN_LEADER_EPOCH  # it may know of a change that is on its way here
        registered = self._around.registered_epoch(node)
        if registered is None or broker_epoch < registered:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def on_fetched(
        self, node: BrokerId, broker_epoch: int, offset: int, log_start_offset: int
    ) -> None:
        """Note a follower's fetch, which is in range and does not diverge.

        It has every record below the offset that it asks for, so more may be committed, and it may
        be in sync.
        """
        in_sync, around = self.in_sync, self._around
        if in_sync is None:
            return
        before = in_sync.position_of(node)
        position = Position(broker_epoch, offset, log_start_offset)
        in_sync.fetched(node, position, end_offset=self.log.end_offset, now_ms=around.now_ms())
        if node not in in_sync.isr and in_sync.pending is None:
            change = in_sync.plan_join(node, self.log.high_watermark, around.epoch_of)
            if change is not None:
                around.propose(self, change)
        if position != before:
            self._advance()

    def on_unchanged(self, node: BrokerId, fetched_ms: int) -> None:
        """Note that until now nothing was new for a follower, whose last fetch was then."""
        if self.in_sync is not None:
            self.in_sync.unchanged(node, fetched_ms)

    def on_start_moved(self) -> None:
        """Tell followers that the log start offset has moved."""
        for follower in tuple(self.followers):
            follower.on_change(self)

    def on_adopted(self) -> None:
        """Go on as the leader of a log that begins elsewhere now, behind what is in the tier."""
        self.log.begin_leader_epoch(self.leader_epoch)
        self._advance()
        self.on_start_moved()

    def drop_lagging(self) -> None:
        """Ask for a smaller ISR if followers have been behind for too long."""
        in_sync, around = self.in_sync, self._around
        if in_sync is not None and len(in_sync.isr) > 1:
            change = in_sync.plan_shrink(
                self.log.end_offset, around.now_ms(), around.lag_ms_max, around.epoch_of
            )
            if change is not None:
                around.propose(self, change)
        if in_sync is not None:
            self._advance()  # one that was about to join may not be any more

    def give_up(self) -> None:
        """Ask that another replica leads: this one's disk is full, or fails.

        Not while its log is being cut or held, as that is over soon.
        """
        is_passing = self.log.is_being_cut or self.log.is_held
        if self.in_sync is not None and not is_passing:
            change = self.in_sync.plan_resignation(self.replicas, self._around.epoch_of)
            if change is not None:
                logger.warning(
                    "%s cannot be written (%s): node %s is to lead it",
                    *(self.name, self.log.failure, change.leader),
                )
                self._around.propose(self, change)

    def is_pending(self, change: IsrChange) -> bool:
        """Return whether a change of the ISR that was asked for is still to be decided."""
        in_sync = self.in_sync
        return (
            in_sync is not None
            and in_sync.pending == change.isr
            and self.leader_epoch == change.leader_epoch
            and self.partition_epoch == change.partition_epoch
        )

    def refuse_isr(self, change: IsrChange) -> None:
        """Take back a change of the ISR that the metadata log has refused."""
        if self.in_sync is not None and self.leader_epoch == change.leader_epoch:
            self.in_sync.refused(change)
            self._advance()

    @property
    def low_watermark(self) -> int:
        """Below this no replica in sync has records any more."""
        start_offset = self.log.start_offset
        return start_offset if self.in_sync is None else self.in_sync.low_watermark(start_offset)

    def follow(self, high_watermark: int, log_start_offset: int) -> None:
        """Take the leader's high watermark and start of the log, as a follower."""
        log = self.log
        reached = min(high_watermark, log.end_offset)
        if reached > log.high_watermark:
            log.advance_high_watermark(reached)
            for waiter in tuple(self.fetch_waiters):
                waiter.on_change(self)
        if log_start_offset > log.start_offset:
            delete_records(log, min(log_start_offset, log.high_watermark))
        elif (
            0 <= log_start_offset < log.start_offset
            and log.settings.is_tiered
            and log.epochs.epoch_for_offset(log_start_offset) is not None
        ):
            # What is before our first file is in the tier. Not so if this log has forgotten its
            # leader epochs there, as records were deleted: leading, it could not copy or read it.
            log.start_offset = log_start_offset

    # Appending

    def append(self, records: memoryview, now_ms: int, *, needs_replicas: bool) -> Appended:
        """Append a client's batch; raise KafkaError if it is refused.

        `needs_replicas` is acks=all, which needs min.insync.replicas. Raise CostlyBatch if the
        batch must be validated in a thread and then passed to `append_validated`.
        """
        if needs_replicas and len(self.isr) < self.min_insync_replicas:
            raise self.too_few_replicas()
        header, batch = validate_batch(records, self.log.settings.rules, now_ms)
        return self._append(header, batch, now_ms)

    def append_validated(
        self, header: BatchHeader, batch: memoryview, now_ms: int, *, needs_replicas: bool
    ) -> Appended:
        """Append a client's batch that a thread has validated; raise KafkaError if refused."""
        if needs_replicas and len(self.isr) < self.min_insync_replicas:
            raise self.too_few_replicas()
        return self._append(header, batch, now_ms)

    def _append(self, header: BatchHeader, batch: memoryview, now_ms: int) -> Appended:
        if self.log.settings.mirror_source is not None:
            raise self.is_mirror()
        try:
            appended = self.log.append_validated(
                header, batch, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        except ReadOnlyLog:
            self.give_up()
            raise
        if not appended.is_duplicate:
            counters = self.counters
            counters.bytes_in += len(batch)
            counters.messages_in += appended.last_offset - appended.base_offset + 1
            self.on_appended(len(batch))
        return appended

    def too_few_replicas(self, code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> KafkaError:
        return KafkaError(
            code,
            f"{self.topic}-{self.index} has {len(self.isr)} replicas in sync; "
            f"min.insync.replicas asks for {self.min_insync_replicas}",
        )

    def is_mirror(self) -> KafkaError:
        """Return why a mirror takes records of nobody but its mirror."""
        return KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {self.topic} is a mirror of {self.log.settings.mirror_source}, and only its "
            "mirror writes to it: `headrace mirror promote` makes it a topic of its own",
        )

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended:
        """Append a batch that this node made; raise KafkaError if it is refused."""
        if len(self.isr) < self.min_insync_replicas:
            raise self.too_few_replicas()
        if self.log.settings.mirror_source is not None:
            raise self.is_mirror()
        try:
            appended = self.log.append_own(
                batch, leader_epoch=self.leader_epoch, transaction_version=transaction_version
            )
        except ReadOnlyLog:
            self.give_up()
            raise
        self.on_appended(len(batch))
        if batch[FLAGS_AT] & CONTROL_BIT:
            self.on_transactions_ended()
        return appended

    def on_transactions_ended(self) -> None:
        """Wake readers: a marker moves the last stable offset past records counted before."""
        self._unread_bytes = ANY_BYTES
        for waiter in tuple(self.fetch_waiters):
            waiter.on_change(self)

    def on_appended(self, byte_count: int) -> None:
        """Move the high watermark if nobody else has to have it, and wake readers.

        Where flush.messages is reached that waits for the disk: readers, and coordinators that
        answer by the watermark, are not to see what a crash would take back.
        """
        log = self.log
        if self.in_sync is not None:
            self._unread_bytes += byte_count
            for follower in self.followers:
                follower.on_more(self, byte_count)
        if log.wants_flush and self.is_flush_awaited:
            self.flush_soon()
        elif self.in_sync is None:
            log.advance_high_watermark(log.end_offset)
            if self.fetch_waiters:
                for waiter in tuple(self.fetch_waiters):
                    waiter.on_more(self, byte_count)
        elif len(self.isr) == 1:
            self._advance()

    @property
    def is_flush_awaited(self) -> bool:
        """Whether flush.messages is reached, so that produce responses wait for a sync."""
        log = self.log
        return log.end_offset - log.recovery_point >= log.settings.flush_messages

    def flush_soon(self) -> None:
        """Sync the whole log in a thread, and notify the waiters."""
        if self.flushing is None:
            self.flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        log = self.log
        try:
            while log.recovery_point < log.end_offset and (
                self.produce_waiters or self.is_flush_awaited
            ):
                await log.flush()
                self.on_flushed()
        except ReadOnlyLog:
            self.give_up()
            self._tell_producers()  # the log has the reason
        finally:
            self.flushing = None

    def on_flushed(self) -> None:
        """Tell everything that waits for the disk what is on it by now."""
        before = self.log.high_watermark
        self._advance()
        if self.log.high_watermark > before:
            for waiter in tuple(self.fetch_waiters):
                waiter.on_change(self)

    def _tell_producers(self) -> None:
        if self.produce_waiters:
            reached = self.log.high_watermark
            self._tell(
                [
                    waiter
                    for waiter, offset in self.produce_waiters.items()
                    if offset is None or offset <= reached
                ]
            )

    def _tell(self, waiters: Sequence[ProduceWaiter]) -> None:
        """Ask waiters to check whether they are done, some now and the others in later turns."""
        for waiter in waiters[:TOLD_AT_ONCE]:
            waiter.on_progress()
        if len(waiters) > TOLD_AT_ONCE:
            rest = waiters[TOLD_AT_ONCE:]
            if self._untold is None:
                self._untold = deque(rest)
                self._around.soon(self._tell_some)
            else:
                self._untold = deque(dict.fromkeys((*self._untold, *rest)))

    def _tell_some(self) -> int:
        untold = self._untold
        assert untold is not None
        for _ in range(min(len(untold), TOLD_AT_ONCE)):
            waiter = untold.popleft()
            if waiter in self.produce_waiters:
                waiter.on_progress()
        if self._untold:
            self._around.soon(self._tell_some)
        else:
            self._untold = None
        return TOLD_AT_ONCE * ANSWER_COST

    def _advance(self) -> None:
        """Move the high watermark as far as the replicas in sync and flush.messages allow."""
        if not self.is_leader:
            return
        log, in_sync, around = self.log, self.in_sync, self._around
        reached = log.recovery_point if self.is_flush_awaited else log.end_offset
        if in_sync is None:
            log.advance_high_watermark(max(reached, log.high_watermark))
        elif len(self.isr) >= self.min_insync_replicas:
            reached = in_sync.high_watermark(
                reached, around.now_ms(), around.lag_ms_max, around.epoch_of
            )
            if reached > log.high_watermark:
                log.advance_high_watermark(reached)
                byte_count, self._unread_bytes = self._unread_bytes, 0
                for waiter in tuple(self.fetch_waiters):
                    waiter.on_more(self, byte_count)
        self._tell_producers()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"
