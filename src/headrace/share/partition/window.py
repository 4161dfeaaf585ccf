"""The offsets between the start and the end of a share partition, as runs with equal state.

A run is split only where states diverge, and merged again with neighbours that have become equal: a
window costs memory for its differences, not for its length. This module makes no decisions about
runs.
"""

from bisect import bisect_right
from collections import deque

from headrace.share.durable import TRANSITIONS, DeliveryState
from headrace.share.partition.changes import Change, Outcome
from headrace.share.partition.types import Cause

# Plain numbers, because members of an IntEnum are slower to get at, and these are in every loop.
AVAILABLE = int(DeliveryState.AVAILABLE)
ACQUIRED = int(DeliveryState.ACQUIRED)
ACKNOWLEDGED = int(DeliveryState.ACKNOWLEDGED)
ARCHIVING = int(DeliveryState.ARCHIVING)
ARCHIVED = int(DeliveryState.ARCHIVED)

PASSED_RUNS_MAX = 1000
"""How many given-up runs are remembered, for inspection."""

IS_COMPLETE = tuple(not TRANSITIONS[state] for state in DeliveryState)
"""By state: whether it is final."""
_MAY_BECOME = tuple(
    tuple(after in TRANSITIONS[before] for after in DeliveryState) for before in DeliveryState
)
"""By state and next state: whether the transition is allowed."""


class Run:
    """Offsets with equal state."""

    __slots__ = (
        "batch_size",
        "cause",
        "change",
        "count",
        "first",
        "is_handed_out",
        "last",
        "member_id",
        "state",
        "until_ms",
    )

    def __init__(self, first: int, last: int, state: int, count: int = 0) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """The delivery count."""
        self.member_id: str | None = None
        """The member that holds it; None while acquired means that the member is gone."""
        self.until_ms = 0
        """When the lock expires, if acquired; when the backoff ends, if available."""
        self.change: Change | None = None
        """The pending write. An acquired run stays acquired until it is durable."""
        self.cause: Cause | None = None
        self.is_handed_out = False
        """If archiving: whether it is being copied to the dead-letter topic."""
        self.batch_size = last - first + 1
        """The size of its first acquisition, which throttling halves."""

    def is_like(self, other: "Run") -> bool:
        """Return whether the two could be merged if they were adjacent."""
        if self.state != other.state or self.count != other.count or self.cause is not other.cause:
            return False
        if self.change is not other.change or self.is_handed_out != other.is_handed_out:
            return False
        return IS_COMPLETE[self.state] or (
            self.until_ms == other.until_ms
            and self.member_id == other.member_id
            and self.batch_size == other.batch_size
        )

    def tail(self, first: int) -> "Run":
        """Split off and return the part from an offset on."""
        tail = Run(first, self.last, self.state, self.count)
        tail.member_id = self.member_id
        tail.until_ms = self.until_ms
        tail.change = self.change
        tail.cause = self.cause
        tail.is_handed_out = self.is_handed_out
        tail.batch_size = self.batch_size
        self.last = first - 1
        return tail


class Window:
    """Runs without gaps, from the start to the end of a share partition."""

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset - 1
        """The last offset; the one before the start if there is none."""
        self.runs: list[Run] = []
        self.complete_count = 0
        """How many offsets are acknowledged or archived."""
        self.deadline_ms: int | None = None
        """No lock or backoff ends before this."""
        self.passed: deque[Run] | None = None
        """Given-up runs that are before the start now; None if there are none yet."""
        self._firsts: list[int] = []
        self._available_from = start_offset
        """No run before this is available."""

    def append(self, run: Run) -> None:
        """Extend the window by a run that starts at its end."""
        assert run.first == self.end_offset + 1, (run.first, self.end_offset)
        self.end_offset = run.last
        if IS_COMPLETE[run.state]:
            self.complete_count += run.last - run.first + 1
        if self.runs and self.runs[-1].is_like(run):
            self.runs[-1].last = run.last
            return
        self.runs.append(run)
        self._firsts.append(run.first)

    def index_of(self, offset: int) -> int:
        """Return the index of the run of an offset."""
        return bisect_right(self._firsts, offset) - 1

    def between(self, first: int, last: int) -> list[Run]:
        """Return the runs of some offsets, split at their bounds."""
        begin = self._cut(max(first, self.start_offset))
        return self.runs[begin : self._cut(last + 1)]

    def overlapping(self, first: int, last: int) -> list[Run]:
        """Return the runs that overlap some offsets."""
        if last < self.start_offset:
            return []
        begin = self.index_of(max(first, self.start_offset))
        return self.runs[begin : self.index_of(last) + 1]

    def set_state(self, run: Run, state: int, cause: Cause | None) -> None:
        """Set a run's state and remove its holder."""
        assert _MAY_BECOME[run.state][state], (run.state, state)
        if IS_COMPLETE[state]:
            self.complete_count += run.last - run.first + 1
        elif run.first < self._available_from:
            self._available_from = run.first
        run.state = state
        run.cause = cause
        run.member_id = None
        run.until_ms = 0
        run.is_handed_out = False

    def rest(self, run: Run, until_ms: int) -> None:
        """Make an available run back off until then."""
        run.until_ms = until_ms
        self.note_deadline(until_ms)

    def note_deadline(self, deadline_ms: int) -> None:
        """Record that a lock or a backoff ends then."""
        if self.deadline_ms is None or deadline_ms < self.deadline_ms:
            self.deadline_ms = deadline_ms

    def settle(self, change: Change, outcomes: list[Outcome]) -> None:
        """Apply a change to its runs, in one pass."""
        if not outcomes or outcomes[-1].last < self.start_offset:
            return
        first, last = max(outcomes[0].first, self.start_offset), outcomes[-1].last
        begin = self.index_of(first)
        end = self.index_of(last) + 1
        settled: list[Run] = []
        following = iter(outcomes)
        outcome = next(following)
        for run in self.runs[begin:end]:
            if run.change is not change:
                settled.append(run)
                continue
            position = run.first
            while position <= run.last:
                while outcome.last < position:
                    outcome = next(following)
                piece = Run(position, min(run.last, outcome.last), ACQUIRED, run.count)
                piece.batch_size = run.batch_size
                self.set_state(piece, outcome.state, outcome.cause)
                position = piece.last + 1
                if settled and settled[-1].is_like(piece):
                    settled[-1].last = piece.last
                else:
                    settled.append(piece)
        self.runs[begin:end] = settled
        self._firsts[begin:end] = [run.first for run in settled]
        self.join(last, last)
        self.join(first, first)

    def join(self, first: int, last: int) -> None:
        """Merge equal adjacent runs among some offsets and their neighbours."""
        begin = max(self.index_of(first) - 1, 0)
        end = self.index_of(last) + 2
        joined: list[Run] = []
        for run in self.runs[begin:end]:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        if len(joined) < len(self.runs[begin:end]):
            self.runs[begin:end] = joined
            self._firsts[begin:end] = [run.first for run in joined]

    def advance(self) -> None:
        """Advance the start over complete runs."""
        passed = 0
        for run in self.runs:
            if not IS_COMPLETE[run.state]:
                break
            self.complete_count -= run.last - run.first + 1
            passed += 1
            if run.state == ARCHIVED:
                self._remember(run)
        if passed:
            self.start_offset = self.runs[passed - 1].last + 1
            del self.runs[:passed]
            del self._firsts[:passed]

    def drop_below(self, offset: int) -> None:
        """Move the start to an offset, dropping everything before it."""
        index = self._cut(offset) if offset <= self.end_offset else len(self.runs)
        for run in self.runs[:index]:
            if IS_COMPLETE[run.state]:
                self.complete_count -= run.last - run.first + 1
            else:
                run = Run(run.first, run.last, ARCHIVED, run.count)  # noqa: PLW2901
                run.cause = Cause.BEHIND_LOG_START
            if run.state == ARCHIVED:
                self._remember(run)
        del self.runs[:index]
        del self._firsts[:index]
        self.end_offset = max(self.end_offset, offset - 1)
        self.start_offset = offset

    def _remember(self, run: Run) -> None:
        if self.passed is None:
            self.passed = deque((run,), PASSED_RUNS_MAX)
            return
        before = self.passed[-1]
        if before.last + 1 == run.first and before.is_like(run):
            before.last = run.last
        else:
            self.passed.append(run)

    def next_available(self, now_ms: int) -> int:
        """Return the first offset that may be acquired, or the one after the end."""
        is_first = True
        begin = self.index_of(max(self._available_from, self.start_offset))
        for index in range(max(begin, 0), len(self.runs)):
            run = self.runs[index]
            if run.state != AVAILABLE:
                continue
            if is_first:
                self._available_from = run.first
                is_first = False
            if run.until_ms <= now_ms:
                return run.first
        if is_first:
            self._available_from = self.end_offset + 1
        return self.end_offset + 1

    def reach(self, offset: int, count: int, now_ms: int) -> int:
        """Return the offset up to which, from `offset` on, so many offsets may be acquired.

        All offsets after the end may be.
        """
        for index in range(self.index_of(offset), len(self.runs)):
            run = self.runs[index]
            if run.state == AVAILABLE and run.until_ms <= now_ms:
                first = max(run.first, offset)
                if run.last - first + 1 >= count:
                    return first + count - 1
                count -= run.last - first + 1
        return self.end_offset + count

    def count_available(self, first: int, last: int, now_ms: int) -> int:
        """Return how many of some offsets may be acquired; all after the end may be."""
        count = max(last - max(first, self.end_offset + 1) + 1, 0)
        for run in self.overlapping(first, min(last, self.end_offset)):
            if run.state == AVAILABLE and run.until_ms <= now_ms:
                count += min(run.last, last) - max(run.first, first) + 1
        return count

    def is_at_rest(self) -> bool:
        """Return whether no run waits for a member, a time or a write."""
        return all(
            run.change is None
            and (IS_COMPLETE[run.state] or (run.state == AVAILABLE and run.until_ms == 0))
            for run in self.runs
        )

    def _cut(self, offset: int) -> int:
        """Split so that a run starts at an offset; return its index, or the count if past end."""
        index = bisect_right(self._firsts, offset) - 1
        if index < 0:
            return 0
        run = self.runs[index]
        if run.first == offset:
            return index
        index += 1
        if run.last >= offset:
            self.runs.insert(index, run.tail(offset))
            self._firsts.insert(index, offset)
        return index
