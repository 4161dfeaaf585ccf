"""Pending changes of a share partition, and their outcomes."""

from headrace.share.durable import StateBatch, StateWrite
from headrace.share.partition.changes import Change, Outcome, Outcomes
from headrace.share.partition.locks import give_back, rest_ms
from headrace.share.partition.types import Cause, Limits
from headrace.share.partition.window import ARCHIVING, AVAILABLE, IS_COMPLETE, Window


class Writes:
    """Pending changes over one window.

    An unknown change (it is finished, or the partition was reloaded since) has no effect.
    """

    def __init__(self, window: Window, *, state_epoch: int, leader_epoch: int) -> None:
        self._window = window
        self._state_epoch = state_epoch
        self._leader_epoch = leader_epoch
        self._under_way: set[Change] = set()
        self._completing_count = 0
        """How many records the pending changes complete if they succeed."""
        self._left_behind: list[StateBatch] = []
        """Changes in effect that could not be persisted yet."""

    @property
    def are_under_way(self) -> bool:
        return bool(self._under_way)

    def begin(self, outcomes: list[Outcome], *, is_release: bool = False) -> Change:
        """Start a change that takes effect once persisted; its records stay acquired until then."""
        change = Change(outcomes, is_applied=False, is_release=is_release)
        for first, last in _stretches(outcomes):
            for run in self._window.between(first, last):
                run.change = change
        change.complete_count = _complete_count(outcomes, self._window.start_offset)
        return self._start(change)

    def note(self, outcomes: list[Outcome]) -> Change:
        """Start to persist a change that is already in effect."""
        change = Change(outcomes, is_applied=True, is_release=False)
        for outcome in outcomes:
            # Not to be copied to the dead letters before it is written that it goes there: a crash
            # between the two would have it delivered again.
            if outcome.state == ARCHIVING:
                for run in self._window.overlapping(outcome.first, outcome.last):
                    run.change = change
        return self._start(change)

    def succeeded(self, change: Change, now_ms: int, limits: Limits) -> None:
        """Apply a durable change."""
        if self._finish(change):
            self._settle(change, now_ms, limits)

    def failed(self, change: Change, now_ms: int, limits: Limits) -> None:
        """Undo a change, as far as that is possible."""
        if not self._finish(change):
            return
        self._left_behind.extend(change.carried)
        if change.is_applied or change.is_release:
            self._settle(change, now_ms, limits)
            self._left_behind.extend(_batch(outcome) for outcome in change.outcomes)
        else:
            self._take_back(change, now_ms, limits)

    def on_start_moved(self) -> None:
        """Stop counting what pending changes would complete before the start."""
        for change in self._under_way:
            if not change.is_applied:
                remaining = _complete_count(change.outcomes, self._window.start_offset)
                self._completing_count += remaining - change.complete_count
                change.complete_count = remaining

    def _start(self, change: Change) -> Change:
        self._under_way.add(change)
        self._completing_count += change.complete_count
        if change.outcomes:
            change.carried = self._take_left_behind()
            batches = [_batch(outcome) for outcome in change.outcomes]
            if change.carried:
                batches = sorted(batches + change.carried)
            change.write = StateWrite(
                state_epoch=self._state_epoch,
                leader_epoch=self._leader_epoch,
                start_offset=self._window.start_offset,
                delivery_complete_count=self._window.complete_count + self._completing_count,
                batches=tuple(batches),
            )
        return change

    def _finish(self, change: Change) -> bool:
        if change not in self._under_way:
            return False
        self._under_way.discard(change)
        self._completing_count -= change.complete_count
        return True

    def _settle(self, change: Change, now_ms: int, limits: Limits) -> None:
        window = self._window
        if change.is_applied:
            for outcome in change.outcomes:
                for run in window.overlapping(outcome.first, outcome.last):
                    if run.change is change:
                        run.change = None
            return
        window.settle(change, change.outcomes)
        if limits.release_backoff_ms and not change.is_release:
            self._rest(change.outcomes, now_ms, limits)
        window.advance()

    def _rest(self, outcomes: list[Outcome], now_ms: int, limits: Limits) -> None:
        for outcome in outcomes:
            if outcome.state == AVAILABLE and outcome.last >= self._window.start_offset:
                until_ms = now_ms + rest_ms(outcome.delivery_count, limits)
                for run in self._window.between(outcome.first, outcome.last):
                    self._window.rest(run, until_ms)
                self._window.join(outcome.first, outcome.last)

    def _take_back(self, change: Change, now_ms: int, limits: Limits) -> None:
        window = self._window
        ended = Outcomes()
        for first, last in _stretches(change.outcomes):
            for run in window.overlapping(first, last):
                if run.change is not change:
                    continue
                run.change = None
                if run.member_id is None:
                    give_back(window, run, Cause.EXHAUSTED, limits, ended)
                elif run.until_ms <= now_ms:
                    give_back(window, run, Cause.LOCK_TIMED_OUT, limits, ended)
                else:
                    # Expiry skipped the lock while the write was pending.
                    window.note_deadline(run.until_ms)
            if last >= window.start_offset:
                window.join(first, last)
        self._left_behind.extend(_batch(outcome) for outcome in ended.end())
        window.advance()

    def _take_left_behind(self) -> list[StateBatch]:
        """Return the unpersisted outcomes that are still valid."""
        window = self._window
        batches: list[StateBatch] = []
        for first, last, state, count in self._left_behind:
            for run in window.overlapping(first, min(last, window.end_offset)):
                if run.state == state and run.count == count:
                    batches.append(
                        StateBatch(max(first, run.first), min(last, run.last), state, count)
                    )
        self._left_behind.clear()
        return batches


def _batch(outcome: Outcome) -> StateBatch:
    return StateBatch._make(outcome[:4])


def _stretches(outcomes: list[Outcome]) -> list[tuple[int, int]]:
    """Return the offsets of outcomes, neighbours merged."""
    stretches: list[tuple[int, int]] = []
    if not outcomes:
        return stretches
    begin, last = outcomes[0].first, outcomes[0].last
    for outcome in outcomes:
        if outcome.first > last + 1:
            stretches.append((begin, last))
            begin = outcome.first
        last = outcome.last
    stretches.append((begin, last))
    return stretches


def _complete_count(outcomes: list[Outcome], start_offset: int) -> int:
    return sum(
        last - max(first, start_offset) + 1
        for first, last, state, _, _ in outcomes
        if IS_COMPLETE[state] and last >= start_offset
    )
