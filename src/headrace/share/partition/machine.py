"""A share partition: the state of every record between its start and its end.

Pure: time, batches read from the log and outcomes of writes are inputs. State to persist comes out
as a `Change`, which is passed back with the outcome. Follows KIP-932 as Apache Kafka 4.3.1 does,
with KIP-1206 (acquire modes), KIP-1222 (renewals) and KIP-1226 (delivery complete count).

The parts: `window` (runs of offsets), `acquisition`, `acknowledgement`, `locks`, `writes` (pending
changes), `dead_letters`, `loading`.
"""

from collections.abc import Callable, Sequence

from headrace.share.durable import DurableState
from headrace.share.partition import dead_letters, locks
from headrace.share.partition.acknowledgement import plan
from headrace.share.partition.acquisition import Acquisition, archive_missing
from headrace.share.partition.changes import Change, Outcome
from headrace.share.partition.loading import load
from headrace.share.partition.types import (
    Acknowledgement,
    Acquired,
    DeadLetter,
    FetchedBatch,
    GivenUp,
    InFlight,
    Limits,
    Wanted,
)
from headrace.share.partition.window import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Window,
)
from headrace.share.partition.writes import Writes

STATE_NAMES = ("available", "acquired", "acknowledged", "archiving", "archived")


class SharePartition:
    """One partition for one group. Empty until it is loaded."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self.state_epoch = 0
        self.leader_epoch = 0
        self._limits = limits
        self._window = Window()
        self._writes = Writes(self._window, state_epoch=0, leader_epoch=0)
        self.has_dead_letters = False
        """False if no dead letter waits to be handed out; otherwise there may be one."""

    def load(self, durable: DurableState, *, leader_epoch: int, start_offset: int) -> None:
        """Load a stored state, from `start_offset` on; raise KafkaError if it is inconsistent.

        This discards the previous state and pending changes.
        """
        window = load(durable, start_offset, self._limits())
        self._window = window
        self.state_epoch = durable.state_epoch
        self.leader_epoch = leader_epoch
        self._writes = Writes(window, state_epoch=self.state_epoch, leader_epoch=leader_epoch)
        self.has_dead_letters = any(run.state == ARCHIVING for run in window.runs)

    @property
    def start_offset(self) -> int:
        """The first offset that is not complete."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """The last offset that was ever acquired or skipped."""
        return self._window.end_offset

    @property
    def delivery_complete_count(self) -> int:
        """How many records from the start on are acknowledged or archived."""
        return self._window.complete_count

    @property
    def in_flight_count(self) -> int:
        """How many offsets the window has, whatever their state."""
        return self._window.end_offset - self._window.start_offset + 1

    def next_fetch_offset(self, now_ms: int) -> int:
        """Return the first offset that could be acquired: inside the window, or after it."""
        return self._window.next_available(now_ms)

    def reach(self, offset: int, count: int, now_ms: int) -> int:
        """Return how far to read from `offset` on to find so many offsets that can be acquired."""
        if offset > self._window.end_offset:
            return offset + count - 1
        return self._window.reach(offset, count, now_ms)

    def count_acquirable(self, first_offset: int, last_offset: int, now_ms: int) -> int:
        """Return how many of some offsets can be acquired."""
        if first_offset > self._window.end_offset:
            return last_offset - first_offset + 1
        return self._window.count_available(first_offset, last_offset, now_ms)

    @property
    def is_at_rest(self) -> bool:
        """Whether the whole state is persisted: nothing is leased, backing off or pending.

        A partition that is reloaded then continues as this one would.
        """
        return not self._writes.are_under_way and self._window.is_at_rest()

    @property
    def run_count(self) -> int:
        """The number of runs to scan."""
        return len(self._window.runs)

    def can_acquire(self, now_ms: int) -> bool:
        """Return whether it is useful to read the log.

        It is not if the window is full and nothing in it is available.
        """
        return self.has_room() or self._window.next_available(now_ms) <= self._window.end_offset

    def has_room(self) -> bool:
        """Return whether the window may be extended."""
        return self.in_flight_count < self._limits().in_flight_max

    def acquire(
        self,
        member_id: str,
        fetched: Sequence[FetchedBatch],
        wanted: Wanted,
        now_ms: int,
        *,
        fetch_offset: int | None = None,
    ) -> list[Acquired]:
        """Lease records of some batches of the log to a member, oldest first.

        The batches follow each other in the log. A lease ends at `now_ms + lock_duration_ms`. It
        increments the delivery count of each record. None of this is persisted.

        `fetch_offset` is what `next_fetch_offset` returned when the read started. Offsets between
        it and the first batch were compacted away and are archived; offsets between two batches
        are leased, as in Kafka, and members acknowledge them as gaps.
        """
        if not fetched:
            return []
        window = self._window
        if fetch_offset is not None and fetch_offset > window.end_offset + 1:
            return []  # read before the partition was reloaded
        archive_missing(window, fetch_offset, fetched[0].first_offset)
        window.advance()
        acquisition = Acquisition(window, wanted, self._limits(), now_ms)
        acquisition.choose(fetched)
        acquired = acquisition.lock(member_id)
        window.advance()
        return acquired

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int
    ) -> Change:
        """Start to apply a member's acknowledgements; on KafkaError none is applied.

        Locks are renewed at once. Everything else takes effect when the change is persisted;
        until then the member cannot acknowledge these records again.
        """
        limits = self._limits()
        outcomes, renewals = plan(self._window, member_id, acknowledgements, limits)
        locks.renew(self._window, renewals, now_ms + limits.lock_duration_ms)
        return self._writes.begin(outcomes)

    def release_member(self, member_id: str, now_ms: int) -> Change | None:
        """Release a member's records: its session or connection is gone.

        None if it holds nothing. Pending writes of its records continue; if one fails, its
        records are released then.
        """
        outcomes = locks.leave(self._window, member_id, self._limits())
        return self._writes.begin(outcomes, is_release=True) if outcomes else None

    def on_log_start(self, log_start_offset: int, now_ms: int) -> Change | None:
        """Forget the records that the log no longer has, leased or not.

        Returns no change: the new start is included in the next write, as in Kafka. Without a next
        write, a reload starts at the log's start.
        """
        window = self._window
        if log_start_offset > window.start_offset:
            window.drop_below(log_start_offset)
            window.advance()
            self._writes.on_start_moved()
        return None

    def next_deadline_ms(self) -> int | None:
        """Return when to call `on_deadline`: no lock or backoff ends earlier. None for never."""
        return self._window.deadline_ms

    def on_deadline(self, now_ms: int) -> Change | None:
        """End the locks and backoffs that have expired.

        Their records can be acquired at once, unless they were delivered too often. None if there
        is nothing to persist, even if records became available.
        """
        outcomes = locks.expire(self._window, now_ms, self._limits())
        return self._note(outcomes) if outcomes else None

    def succeeded(self, change: Change, now_ms: int) -> None:
        """Apply a change: its write is durable, or there was nothing to write."""
        self._writes.succeeded(change, now_ms, self._limits())
        if any(outcome.state == ARCHIVING for outcome in change.outcomes):
            self.has_dead_letters = True

    def failed(self, change: Change, now_ms: int) -> None:
        """Undo a change: its write is not durable, or not known to be.

        Records go back to their holder. If the lock has expired or the member has left, they are
        released or given up. What cannot be undone is written with the next change.
        """
        self._writes.failed(change, now_ms, self._limits())
        self.has_dead_letters = True

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Return the dead letters to copy, each once.

        For each, call `dead_lettered` or `dead_letter_failed`, for all of it or part by part; also
        if the group no longer has a dead-letter topic: then there is nothing to copy, and the
        records are archived.
        """
        if not self.has_dead_letters:
            return ()
        self.has_dead_letters = False
        return dead_letters.hand_out(self._window)

    def dead_lettered(self, letter: DeadLetter, now_ms: int) -> Change:
        """Archive copied records. They stay archived even if that cannot be persisted."""
        return self._note(dead_letters.archive(self._window, letter))

    def dead_letter_failed(self, letter: DeadLetter) -> None:
        """Hand out a dead letter again later."""
        dead_letters.take_back(self._window, letter)
        self.has_dead_letters = True

    def in_flight(self, now_ms: int) -> list[InFlight]:
        """Return the state of every offset of the window, for inspection."""
        return [
            InFlight(
                first_offset=run.first,
                last_offset=run.last,
                state=STATE_NAMES[run.state],
                delivery_count=run.count,
                member_id=run.member_id,
                lock_left_ms=max(run.until_ms - now_ms, 0) if run.state == ACQUIRED else None,
                resting_ms=(
                    run.until_ms - now_ms
                    if run.state == AVAILABLE and run.until_ms > now_ms
                    else None
                ),
                cause=run.cause,
            )
            for run in self._window.runs
        ]

    def archived(self) -> list[GivenUp]:
        """Return the offsets that were given up most recently, in the window and before, and why.

        Those before the window are kept since the partition was loaded, up to a number of runs.
        """
        runs = [*(self._window.passed or ()), *self._window.runs]
        return [
            GivenUp(run.first, run.last, run.count, run.cause)
            for run in runs
            if run.state == ARCHIVED and run.cause is not None
        ]

    def _note(self, outcomes: list[Outcome]) -> Change:
        # The write says what Kafka's does: the start as it was, and what became of the records.
        change = self._writes.note(outcomes)
        self._window.advance()
        return change
