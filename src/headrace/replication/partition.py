"""A replica of a partition on this node: its log, its role, and the requests that wait for it.

The role comes from the image. A leader appends and advances the high watermark; a follower copies;
both may be read from. A request that must wait leaves a waiter here, which is notified of every
change with plain calls: no task, no future.
"""

import asyncio
from typing import Final, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Appended, Log
from headrace.loop.counters import TopicCounters
from headrace.metadata.state import NO_LEADER
from headrace.metadata.state import Partition as PartitionRow
from headrace.records.header import CONTROL_BIT, FLAGS_AT, BatchHeader
from headrace.records.validation import validate_batch

ANY_LEADER_EPOCH: Final = -1


class FetchWaiter(Protocol):
    """A fetch that waits for more to read."""

    def on_more(self, partition: "Partition", byte_count: int) -> None:
        """Handle that so many more bytes of a partition can be read."""

    def on_change(self, partition: "Partition") -> None:
        """Handle that a partition's role changed, or that it is gone."""


class ProduceWaiter(Protocol):
    """A produce that waits for replicas or for the disk."""

    def on_progress(self) -> None:
        """Check again whether the wait is over."""


class Partition:
    """One replica of a partition."""

    __slots__ = (
        "_min_insync_configured",
        "_replica_count",
        "counters",
        "fetch_waiters",
        "flushing",
        "index",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "min_insync_replicas",
        "produce_waiters",
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
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.counters = counters
        self.leader: BrokerId = NO_LEADER
        self.leader_epoch = LeaderEpoch(-1)
        self.is_leader = False
        self.isr: tuple[BrokerId, ...] = ()
        self._replica_count = 1
        self._min_insync_configured = 1
        self.min_insync_replicas = 1
        """How many in-sync replicas acks=all needs: never more than there are replicas."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.produce_waiters: dict[ProduceWaiter, None] = {}
        self.flushing: asyncio.Task[None] | None = None

    # Roles

    def become(self, row: PartitionRow, node_id: BrokerId) -> None:
        """Take the role from the image."""
        self.isr = row.isr
        self._replica_count = len(row.replicas)
        self.require_in_sync(self._min_insync_configured)
        if (row.leader, row.leader_epoch) == (self.leader, self.leader_epoch):
            self._advance()
            return
        self.leader, self.leader_epoch = row.leader, row.leader_epoch
        self.is_leader = row.leader == node_id
        if self.is_leader:
            self.log.begin_leader_epoch(row.leader_epoch)
            self._advance()
        self.tell_of_change()

    def stop(self) -> None:
        """Stop serving: the partition moves away or is deleted. Call `tell_of_change` next."""
        self.is_leader = False
        self.leader = NO_LEADER

    def tell_of_change(self) -> None:
        """Wake all waiters of this partition."""
        for fetch in tuple(self.fetch_waiters):
            fetch.on_change(self)
        self._tell_producers()

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
        self.min_insync_replicas = min(min_insync_replicas, self._replica_count)

    # Appending

    def append(self, records: memoryview, now_ms: int, *, needs_replicas: bool) -> Appended:
        """Append a client's batch; raise KafkaError if it is refused.

        `needs_replicas` is acks=all, which needs min.insync.replicas. Raise CostlyBatch if the
        batch must be validated in a thread and then passed to `append_validated`.
        """
        if needs_replicas and len(self.isr) < self.min_insync_replicas:
            raise self._too_few_replicas()
        header, batch = validate_batch(records, self.log.settings.rules, now_ms)
        return self._append(header, batch, now_ms)

    def append_validated(
        self, header: BatchHeader, batch: memoryview, now_ms: int, *, needs_replicas: bool
    ) -> Appended:
        """Append a client's batch that a thread has validated; raise KafkaError if refused."""
        if needs_replicas and len(self.isr) < self.min_insync_replicas:
            raise self._too_few_replicas()
        return self._append(header, batch, now_ms)

    def _append(self, header: BatchHeader, batch: memoryview, now_ms: int) -> Appended:
        appended = self.log.append_validated(
            header, batch, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        if not appended.is_duplicate:
            counters = self.counters
            counters.bytes_in += len(batch)
            counters.messages_in += appended.last_offset - appended.base_offset + 1
            self.on_appended(len(batch))
        return appended

    def _too_few_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.topic}-{self.index} has {len(self.isr)} replicas in sync; "
            f"min.insync.replicas asks for {self.min_insync_replicas}",
        )

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended:
        """Append a batch that this node made; raise KafkaError if it is refused."""
        appended = self.log.append_own(
            batch, leader_epoch=self.leader_epoch, transaction_version=transaction_version
        )
        self.on_appended(len(batch))
        if batch[FLAGS_AT] & CONTROL_BIT:
            # It moves the last stable offset past records that were counted when appended.
            for waiter in tuple(self.fetch_waiters):
                waiter.on_change(self)
        return appended

    def on_appended(self, byte_count: int) -> None:
        """Move the high watermark if nobody else has to have it, and wake readers.

        Where flush.messages is reached that waits for the disk: readers, and coordinators that
        answer by the watermark, are not to see what a crash would take back.
        """
        if len(self.isr) == 1:
            log = self.log
            if log.wants_flush and self.is_flush_awaited:
                self.flush_soon()
                return
            log.advance_high_watermark(log.end_offset)
            if self.fetch_waiters:
                for waiter in tuple(self.fetch_waiters):
                    waiter.on_more(self, byte_count)

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
            self._tell_producers()  # the log has the reason
        finally:
            self.flushing = None

    def on_flushed(self) -> None:
        """Tell everybody who waits for the disk what is on it by now."""
        before = self.log.high_watermark
        self._advance()
        if self.log.high_watermark > before:
            for waiter in tuple(self.fetch_waiters):
                waiter.on_change(self)

    def _tell_producers(self) -> None:
        for waiter in tuple(self.produce_waiters):
            waiter.on_progress()

    def _advance(self) -> None:
        """Move the high watermark as far as the replicas in sync and flush.messages allow."""
        if self.is_leader and len(self.isr) == 1:
            log = self.log
            reached = log.recovery_point if self.is_flush_awaited else log.end_offset
            log.advance_high_watermark(max(reached, log.high_watermark))
            self._tell_producers()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"
