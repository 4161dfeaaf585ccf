"""The offsets between the start and the end of a share partition, as runs of one fate.

A run is split only where a part of it meets another fate, and joined again with neighbours that
it no longer differs from: a window costs what differs in it, not what it spans. What may happen
to a run is not decided here.
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
"""How much is remembered of what was given up, for those who ask why."""

IS_COMPLETE = tuple(not TRANSITIONS[state] for state in DeliveryState)
"""By state: whether nothing more can happen to a record."""
_MAY_BECOME = tuple(
    tuple(after in TRANSITIONS[before] for after in DeliveryState) for before in DeliveryState
)
"""By state, and the state after it."""


class Run:
    """Offsets that share everything that is known of them."""

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
        """How often it was delivered."""
        self.member_id: str | None = None
        """Who holds it; None while it is acquired: who held it is gone."""
        self.until_ms = 0
        """When the lock ends, if acquired; when the rest ends, if available."""
        self.change: Change | None = None
        """What is being written of it. An acquired run stays acquired until that is durable."""
        self.cause: Cause | None = None
        self.is_handed_out = False
        """If archiving: whether somebody is copying it to the dead letters."""
        self.batch_size = last - first + 1
        """How many offsets it was first acquired with, which is what throttling halves."""

    def is_like(self, other: "Run") -> bool:
        """Tell whether the two could be one if they were next to each other."""
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
        """Cut off, and give, what begins at an offset."""
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
    """Runs without holes between them, from the start to the end of a share partition."""

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset - 1
        """The last offset; the one before the start if there is none."""
        self.runs: list[Run] = []
        self.complete_count = 0
        """How many offsets are acknowledged or archived."""
        self.deadline_ms: int | None = None
        """No lock and no rest ends before this."""
        self.passed: deque[Run] | None = None
        """What was given up, and is before the start now; None: nothing yet."""
        self._firsts: list[int] = []
        self._available_from = start_offset
        """No run before this is available."""

    def append(self, run: Run) -> None:
        """Extend the window by a run, which begins where it ended."""
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
        """Give the index of the run that an offset of the window is in."""
        return bisect_right(self._firsts, offset) - 1

    def between(self, first: int, last: int) -> list[Run]:
        """Give the runs of some offsets, split so that they have no others."""
        begin = self._cut(max(first, self.start_offset))
        return self.runs[begin : self._cut(last + 1)]

    def overlapping(self, first: int, last: int) -> list[Run]:
        """Give the runs that have any of some offsets."""
        if last < self.start_offset:
            return []
        begin = self.index_of(max(first, self.start_offset))
        return self.runs[begin : self.index_of(last) + 1]

    def set_state(self, run: Run, state: int, cause: Cause | None) -> None:
        """Move a run out of the hands of whoever had it."""
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
        """Keep an available run from being acquired until then."""
        run.until_ms = until_ms
        self.note_deadline(until_ms)

    def note_deadline(self, deadline_ms: int) -> None:
        """Take notice of a lock or a rest that ends then."""
        if self.deadline_ms is None or deadline_ms < self.deadline_ms:
            self.deadline_ms = deadline_ms

    def settle(self, change: Change, outcomes: list[Outcome]) -> None:
        """Have the runs that a change is about end as it says, in one pass."""
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
        """Make runs that differ no more one, among those of some offsets and next to them."""
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
        """Move the start over what is complete."""
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
        """Begin at an offset, whatever becomes of those before it."""
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
        """Give the first offset that may be acquired, or the one behind the end."""
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
        """Return the offset by which so many, from `offset` on, may be acquired.

        All that lie behind the end may be.
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
        """Return how many of some offsets may be acquired; all behind the end may be."""
        count = max(last - max(first, self.end_offset + 1) + 1, 0)
        for run in self.overlapping(first, min(last, self.end_offset)):
            if run.state == AVAILABLE and run.until_ms <= now_ms:
                count += min(run.last, last) - max(run.first, first) + 1
        return count

    def is_at_rest(self) -> bool:
        """Return whether nothing here waits for anything: no member, no time, no write."""
        return all(
            run.change is None
            and (IS_COMPLETE[run.state] or (run.state == AVAILABLE and run.until_ms == 0))
            for run in self.runs
        )

    def _cut(self, offset: int) -> int:
        """Have a run begin at an offset; give its index, or how many there are if behind."""
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
