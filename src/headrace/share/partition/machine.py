"""A share partition: what its leader knows of every record between its start and its end.

Pure: time, what was read from the log and what became of writes are inputs. What is to be persisted
comes out as a `Change`, which goes back in with the outcome. Follows KIP-932 as Apache Kafka 4.3.1
does it, with KIP-1206 (acquire modes), KIP-1222 (renewals) and KIP-1226 (how much is complete).

The parts: `window` (runs of offsets), `acquisition`, `acknowledgement`, `locks`, `writes` (changes
under way), `dead_letters`, `loading`.
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
    """One partition as one group sees it. Empty until it is loaded."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self.state_epoch = 0
        self.leader_epoch = 0
        self._limits = limits
        self._window = Window()
        self._writes = Writes(self._window, state_epoch=0, leader_epoch=0)
        self.has_dead_letters = False
        """False if none waits to be handed out; looked for otherwise."""

    def load(self, durable: DurableState, *, leader_epoch: int, start_offset: int) -> None:
        """Begin with what was written, from `start_offset` on; KafkaError if that cannot be.

        What was known before, and changes under way, count no more.
        """
        window = load(durable, start_offset, self._limits())
        self._window = window
        self.state_epoch = durable.state_epoch
        self.leader_epoch = leader_epoch
        self._writes = Writes(window, state_epoch=self.state_epoch, leader_epoch=leader_epoch)
        self.has_dead_letters = any(run.state == ARCHIVING for run in window.runs)

    @property
    def start_offset(self) -> int:
        """The first offset that is not complete; all before it are."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """The last offset that was ever acquired, or passed over."""
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
        """Give the first offset that could be acquired: inside the window, or behind it."""
        return self._window.next_available(now_ms)

    def reach(self, offset: int, count: int, now_ms: int) -> int:
        """Return how far to read from `offset` on, to have so many that can be acquired."""
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
        """Whether all there is to know is written: nothing is leased, rests or is under way.

        A partition that is loaded anew then goes on as this one would.
        """
        return not self._writes.are_under_way and self._window.is_at_rest()

    @property
    def run_count(self) -> int:
        """How much there is to look through."""
        return len(self._window.runs)

    def can_acquire(self, now_ms: int) -> bool:
        """Tell whether there is any use in reading the log.

        There is none if the window is full and nothing in it is available.
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

        The batches follow each other in the log. A lease ends at `now_ms + lock_duration_ms`. Each
        record of it was delivered once more. Nothing of this is written.

        `fetch_offset` is what `next_fetch_offset` gave when the read began. What lies between it
        and the first batch is gone from the log, by compaction, and archived; what lies between
        two batches is leased, as Kafka does, and members acknowledge it as gaps.
        """
        if not fetched:
            return []
        window = self._window
        if fetch_offset is not None and fetch_offset > window.end_offset + 1:
            return []  # read before the partition was loaded anew
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
        """Take what a member says of its records; KafkaError: nothing of it is done.

        Locks are renewed at once. All else holds when the change is written, and until then the
        member can say nothing more of these records.
        """
        limits = self._limits()
        outcomes, renewals = plan(self._window, member_id, acknowledgements, limits)
        locks.renew(self._window, renewals, now_ms + limits.lock_duration_ms)
        return self._writes.begin(outcomes)

    def release_member(self, member_id: str, now_ms: int) -> Change | None:
        """Give back what a member holds: its session or connection is gone.

        None if it holds nothing. What is being written of its records goes on; if that fails, they
        are given back then.
        """
        outcomes = locks.leave(self._window, member_id, self._limits())
        return self._writes.begin(outcomes, is_release=True) if outcomes else None

    def on_log_start(self, log_start_offset: int, now_ms: int) -> Change | None:
        """Forget the records that the log no longer has, leased or not.

        Never a change: the start goes along with the next write, as in Kafka. It is loaded again
        from the log's start, should there be none.
        """
        window = self._window
        if log_start_offset > window.start_offset:
            window.drop_below(log_start_offset)
            window.advance()
            self._writes.on_start_moved()
        return None

    def next_deadline_ms(self) -> int | None:
        """Give when to call `on_deadline`: no lock and no rest ends before. None: never."""
        return self._window.deadline_ms

    def on_deadline(self, now_ms: int) -> Change | None:
        """End the locks and rests whose time is over.

        Their records can be acquired at once, unless they were delivered too often. None if there
        is nothing to write, which does not mean that nothing became available.
        """
        outcomes = locks.expire(self._window, now_ms, self._limits())
        return self._note(outcomes) if outcomes else None

    def succeeded(self, change: Change, now_ms: int) -> None:
        """Have a change hold: its write is durable, or there was none to do."""
        self._writes.succeeded(change, now_ms, self._limits())
        if any(outcome.state == ARCHIVING for outcome in change.outcomes):
            self.has_dead_letters = True

    def failed(self, change: Change, now_ms: int) -> None:
        """Take a change back: its write is not durable, or not known to be.

        Records go back to who holds them. If the lock has ended or the member has left, they are
        given back to all, or given up. What cannot be taken back is written with the next change.
        """
        self._writes.failed(change, now_ms, self._limits())
        self.has_dead_letters = True

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Give what is to be copied to the dead letters, each once.

        For each, call `dead_lettered` or `dead_letter_failed`, for all of it or part by part. Also
        if the group has no such topic any more: there is nothing to copy then, and they are
        archived.
        """
        if not self.has_dead_letters:
            return ()
        self.has_dead_letters = False
        return dead_letters.hand_out(self._window)

    def dead_lettered(self, letter: DeadLetter, now_ms: int) -> Change:
        """Archive what was copied. It stays archived even if that cannot be written."""
        return self._note(dead_letters.archive(self._window, letter))

    def dead_letter_failed(self, letter: DeadLetter) -> None:
        """Hand it out again later."""
        dead_letters.take_back(self._window, letter)
        self.has_dead_letters = True

    def in_flight(self, now_ms: int) -> list[InFlight]:
        """Give what is known of every offset of the window, for those who look."""
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
        """Give which offsets were given up last, in the window and before it, and why.

        Those before it are known since the partition was loaded, up to a number of runs.
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
