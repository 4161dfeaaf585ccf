"""A share partition that this node leads: the machine, its log, its timer and its waiters.

The machine decides, this module acts: it loads the state, passes changes to the persister and the
outcome to the machine, calls the machine when a lock expires, and wakes fetches when there are
records for them. All of it on the loop, with plain calls.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.coordinator.machine import Reply
from headrace.errors import COORDINATOR_UNAVAILABLE, ErrorCode, KafkaError
from headrace.ids import UNKNOWN_OFFSET, SharePartitionKey
from headrace.loop.turns import TURN_COST_MAX
from headrace.records.aborted import AbortedTransaction
from headrace.replication.partition import Partition
from headrace.replication.remote_log import find_by_time
from headrace.share.breakers import GroupBreaker
from headrace.share.durable import DurableState, StateWrite
from headrace.share.group_configs import ShareGroupConfigs, duration_ms
from headrace.share.partition.changes import Change
from headrace.share.partition.machine import SharePartition
from headrace.share.partition.types import (
    Acknowledgement,
    Acquired,
    DeadLetter,
    FetchedBatch,
    Wanted,
)

if TYPE_CHECKING:
    from headrace.share.led_partitions import SharePartitions

FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
"""Another leader, or another state: the state here is obsolete."""
PASSED_ON: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


LOOK_COST: Final = 8
"""The cost of expiring locks, or releasing a member's records, and persisting that."""
RUNS_SHIFT: Final = 4
"""Scanning this power of two of ranges costs 1 more."""


class ShareWaiter(Protocol):
    """A share fetch that waits for records."""

    def look_again(self, led: "LedSharePartition") -> int:
        """Take the records that a share partition has now; return the cost."""


class TieredRecords(NamedTuple):
    """Whole batches of the tier, from the one with an offset on."""

    offset: int
    records: memoryview
    aborted: Sequence[AbortedTransaction]


class LedSharePartition:
    """One share partition, from loading until this node no longer leads it."""

    __slots__ = (
        "_home",
        "_is_fresh_wake",
        "_is_wake_due",
        "_timer",
        "_timer_ms",
        "_to_wake",
        "breaker",
        "bytes_a_record",
        "configs",
        "error",
        "id",
        "is_active",
        "key",
        "leader_epoch",
        "machine",
        "partition",
        "releasing",
        "tiered",
        "waiters",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        configs: ShareGroupConfigs,
        home: "SharePartitions",
        breaker: GroupBreaker,
    ) -> None:
        self.breaker = breaker
        self.key = key
        self.id = key.topic_id, int(key.partition)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        """The epoch in which this node leads the partition as long as this serves."""
        self.configs = configs
        self.machine = SharePartition(configs.limits)
        self.is_active = False
        self.error: KafkaError | None = None
        """Why it stopped serving; a new instance may have replaced it."""
        self.waiters: dict[ShareWaiter, None] = {}
        """Waiters in order of arrival: the longest waiting is served first."""
        self.bytes_a_record = 0
        """The record size of the last read, as an estimate for the next."""
        self.tiered: TieredRecords | KafkaError | None = None
        """Records of the tier that were read for this share partition last, or why not."""
        self.releasing: set[str] = set()
        """Members whose session is over and whose records are released in a later turn."""
        self._home = home
        self._is_wake_due = False
        self._is_fresh_wake = False
        self._to_wake: deque[ShareWaiter] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # Beginning and end

    def load(self) -> None:
        """Load the state; `is_active` or `error` is set when that is done."""
        self._home.persister.read_state(self.key, self.leader_epoch, self._on_state)

    def _on_state(self, answer: DurableState | KafkaError) -> None:
        if self.error is not None:
            return
        if isinstance(answer, KafkaError):
            self._home.drop(self, told_by_persister(answer))
            return
        if answer.start_offset != UNKNOWN_OFFSET:
            self._begin(answer, answer.start_offset)
            return
        log, reset = self.partition.log, self.configs.now().offset_reset
        back_ms = duration_ms(reset)
        if back_ms is not None:
            self._home.inflating.start(self._begin_some_time_ago(answer, back_ms))
        elif reset == "earliest":
            self._begin(answer, log.start_offset)
        else:
            self._begin_at(answer, log.high_watermark)

    async def _begin_some_time_ago(self, state: DurableState, back_ms: int) -> None:
        """Start with the first record of some time ago, which is looked up off the loop."""
        log, since_ms = self.partition.log, self._home.clock.now_ms() - back_ms
        try:
            found = await find_by_time(
                self._home.replicas.remote, self.partition, since_ms, self._home.inflating.run
            )
        except (KafkaError, OSError) as error:
            if self.error is None:
                code = (
                    error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                )
                self._home.drop(self, KafkaError(code, f"{self.partition.name}: {error}"))
            return
        if self.error is None:
            end_offset = log.high_watermark
            self._begin_at(state, end_offset if found is None else min(found.offset, end_offset))

    def _begin_at(self, state: DurableState, start_offset: int) -> None:
        """Start at an offset that another leader would not find again: store it first.

        Else the records that come before the first acknowledgement would be lost with this leader.
        """

        def on_stored(answer: KafkaError | None) -> None:
            if self.error is not None:
                return
            if answer is None:
                self._begin(state, start_offset)
            else:
                self._home.drop(self, told_by_persister(answer))

        start = StateWrite(state.state_epoch, self.leader_epoch, start_offset, 0, ())
        self._home.persister.write_state(self.key, start, on_stored)

    def _begin(self, state: DurableState, start_offset: int) -> None:
        try:
            self.machine.load(state, leader_epoch=self.leader_epoch, start_offset=start_offset)
        except KafkaError as error:
            self._home.drop(self, error)
            return
        self.is_active = True
        self._after_change()

    def end(self, error: KafkaError) -> None:
        """Stop serving; waiters get the reason."""
        self.error = error
        self.is_active = False
        self.disarm()
        self._home.dead_letters.forget(self)
        self.partition.fetch_waiters.pop(self, None)
        if self.waiters:
            self.wake_soon()

    @property
    def is_idle(self) -> bool:
        """Whether it could be reloaded at any time without a visible effect."""
        return self.is_active and not self.waiters and self.machine.is_at_rest

    # What members do

    def has_records(self, now_ms: int) -> bool:
        """Return whether a fetch would find records."""
        return self.next_offset(now_ms) is not None

    def next_offset(self, now_ms: int) -> int | None:
        """Return where a fetch would start to read; None if it would find nothing."""
        if not self.is_active or self.breaker.is_holding():
            return None
        machine, log = self.machine, self.partition.log
        if log.start_offset > machine.start_offset:
            self._on_log_start(now_ms)
        offset = machine.next_fetch_offset(now_ms)
        if offset < self.up_to and (offset <= machine.end_offset or machine.has_room()):
            return offset
        return None

    @property
    def up_to(self) -> int:
        """The offset at which the group must stop reading."""
        log = self.partition.log
        return log.last_stable_offset if self.configs.now().is_committed else log.high_watermark

    def acquire(
        self,
        member_id: str,
        fetched: Sequence[FetchedBatch],
        wanted: Wanted,
        now_ms: int,
        *,
        fetch_offset: int,
    ) -> list[Acquired]:
        """Lease records that were read from `fetch_offset` on, in this same turn of the loop."""
        if self.releasing and member_id in self.releasing:
            self.release_member(member_id)  # the records of its previous session
        acquired = self.machine.acquire(
            member_id, fetched, wanted, now_ms, fetch_offset=fetch_offset
        )
        if acquired:
            self.breaker.on_acquired(acquired)
        self._arm()
        return acquired

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], reply: Reply[None]
    ) -> None:
        """Apply a member's acknowledgements; reply None once they are durable."""
        if not self.is_active:
            reply(self.error or _not_loaded(self))
            return
        now_ms = self._home.clock.now_ms()
        try:
            change = self.machine.acknowledge(member_id, acknowledgements, now_ms)
        except KafkaError as error:
            reply(error)
            return
        self._persist(change, now_ms, reply)

    def release_member(self, member_id: str) -> None:
        """Release a member's records to the others: its session is over."""
        self.releasing.discard(member_id)
        if self.is_active:
            now_ms = self._home.clock.now_ms()
            self._follow(self.machine.release_member(member_id, now_ms), now_ms)

    def dead_lettered(self, letter: DeadLetter) -> None:
        """Archive records whose letters are sent, or that have none."""
        if self.is_active:
            now_ms = self._home.clock.now_ms()
            self._follow(self.machine.dead_lettered(letter, now_ms), now_ms)

    def _on_log_start(self, now_ms: int) -> None:
        self._follow(self.machine.on_log_start(self.partition.log.start_offset, now_ms), now_ms)

    # Writing

    def _follow(self, change: Change | None, now_ms: int) -> None:
        """Persist a change that no request waits for."""
        if change is None:
            self._after_change()
        else:
            self._persist(change, now_ms, _ignore)

    def _persist(self, change: Change, now_ms: int, reply: Reply[None]) -> None:
        write = change.write
        if write is None:
            self.machine.succeeded(change, now_ms)
            self._count(change)
            self._after_change()
            reply(None)
            return

        def on_written(answer: KafkaError | None) -> None:
            self._on_written(change, answer, reply)

        self._home.persister.write_state(self.key, write, on_written)
        self._after_change()

    def _on_written(self, change: Change, answer: KafkaError | None, reply: Reply[None]) -> None:
        now_ms = self._home.clock.now_ms()
        if answer is None:
            self.machine.succeeded(change, now_ms)
            self._count(change)
        else:
            self.machine.failed(change, now_ms)
            answer_code = answer.code
            answer = told_by_persister(answer)
            if answer_code in FENCED and self.error is None:
                self._home.drop(self, answer)
        reply(answer)
        if self.is_active:
            self._after_change()

    def _count(self, change: Change) -> None:
        self._home.counters.count(change)
        if not change.is_applied:  # acknowledged, or left behind by a member
            self.breaker.count(change)

    # Waiting

    def wait(self, waiter: ShareWaiter) -> None:
        if not self.waiters and self.error is None:
            self.partition.fetch_waiters[self] = None
        self.waiters[waiter] = None

    def stop_waiting(self, waiter: ShareWaiter) -> None:
        self.waiters.pop(waiter, None)
        if not self.waiters:
            self.partition.fetch_waiters.pop(self, None)

    def on_more(self, partition: Partition, byte_count: int) -> None:
        self.wake_soon()

    def on_change(self, partition: Partition) -> None:
        """Wake the waiters: a sync moved the high watermark.

        Changes of the role arrive through `SharePartitions`.
        """
        if partition.is_leader:
            self.wake_soon()

    def wake_soon(self) -> None:
        """Wake the waiters, from the next turn of the loop on."""
        # All changes within this turn of the loop share one wake-up.
        self._is_fresh_wake = True
        if not self._is_wake_due:
            self._is_wake_due = True
            self._home.turns.soon(self._wake)

    def _wake(self) -> int:
        """Serve waiting fetches in order until nothing is left."""
        if self._is_fresh_wake:
            self._is_fresh_wake = False
            self._to_wake = deque(self.waiters)
        to_wake, cost = self._to_wake, 1
        while to_wake:
            if self.error is None and not self.has_records(self._home.clock.now_ms()):
                to_wake.clear()
            elif cost >= TURN_COST_MAX:
                self._home.turns.soon(self._wake)
                return cost
            elif (waiter := to_wake.popleft()) in self.waiters:
                cost += waiter.look_again(self)
        self._is_wake_due = False
        if self._is_fresh_wake and self.waiters:  # more arrived while they were served
            self._is_wake_due = True
            self._home.turns.soon(self._wake)
        return cost

    def _after_change(self) -> None:
        if self.machine.has_dead_letters and self.is_active:
            self._home.dead_letters.look(self)
        if self.waiters:
            self.wake_soon()
        self._arm()

    # Time

    def _arm(self) -> None:
        """Set the timer for the machine's next lock expiry.

        An earlier timer is kept: most locks are released long before they expire.
        """
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        self.disarm()
        self._timer_ms = deadline_ms
        delay_ms = max(deadline_ms - self._home.clock.now_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    def rearm(self) -> None:
        """Reset the timer: the clock was moved."""
        self.disarm()
        if self.is_active:
            self._arm()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        # Locks of many share partitions may expire at the same time.
        self._home.turns.soon(self._look_at_clock)

    def _look_at_clock(self) -> int:
        self._timer = None
        if not self.is_active:
            return 1
        cost = LOOK_COST + (self.machine.run_count >> RUNS_SHIFT)
        now_ms = self._home.clock.now_ms()
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            self._arm()
        else:
            change = self.machine.on_deadline(now_ms)
            if change is not None:
                self._home.counters.lock_timeouts += sum(
                    each.last - each.first + 1 for each in change.outcomes
                )
            self._follow(change, now_ms)
        return cost


def told_by_persister(error: KafkaError) -> KafkaError:
    """Return the client's error for a failed read or write of a state, as Kafka does."""
    if error.code in FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in COORDINATOR_UNAVAILABLE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in PASSED_ON:
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)


def _not_loaded(led: LedSharePartition) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD_STATE,
        f"nothing of {led.partition.name} is acquired: the share partition is being loaded",
    )


def _ignore(_: object) -> None:
    """Drop a reply that no request waits for."""
