"""The ends of acquisition locks (KIP-932): by timeout, and because the member is gone."""

from headrace.share.partition.changes import Outcome, Outcomes
from headrace.share.partition.types import Cause, Limits
from headrace.share.partition.window import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Run,
    Window,
)

REST_DOUBLINGS_MAX = 30
"""More do not matter: a rest has a maximum, and a delivery count is not bounded by much."""


def end_of(count: int, cause: Cause, limits: Limits) -> tuple[int, Cause | None]:
    """Return the outcome of a record that was delivered so often and not acknowledged."""
    if count < limits.delivery_count_limit:
        return AVAILABLE, None
    return (ARCHIVING if limits.has_dead_letters else ARCHIVED), cause


def rest_ms(count: int, limits: Limits) -> int:
    """Return the backoff of a record that was released after so many deliveries."""
    doublings = min(max(count - 1, 0), REST_DOUBLINGS_MAX)
    longest_ms = max(limits.release_backoff_max_ms, limits.release_backoff_ms)
    return min(limits.release_backoff_ms << doublings, longest_ms)


def lock(window: Window, run: Run, until_ms: int) -> None:
    """Set when the lock of a run expires."""
    run.until_ms = until_ms
    window.note_deadline(until_ms)


def renew(window: Window, renewals: list[tuple[int, int]], until_ms: int) -> None:
    """Extend the locks of some offsets."""
    for first, last in renewals:
        for run in window.between(first, last):
            lock(window, run, until_ms)
        window.join(first, last)


def expire(window: Window, now_ms: int, limits: Limits) -> list[Outcome]:
    """End the locks that have expired; return the outcomes of their records.

    Records with a pending write are skipped: they are checked again if the write fails.
    """
    if window.deadline_ms is None or now_ms < window.deadline_ms:
        return []
    outcomes = Outcomes()
    window.deadline_ms = None
    touched: list[Run] = []
    for run in window.runs:
        if run.until_ms == 0 or run.change is not None:
            continue
        if run.until_ms > now_ms:
            window.note_deadline(run.until_ms)
            continue
        touched.append(run)
        if run.state == ACQUIRED:
            give_back(window, run, Cause.LOCK_TIMED_OUT, limits, outcomes)
        run.until_ms = 0
    if touched:
        window.join(touched[0].first, touched[-1].last)
    return outcomes.end()


def give_back(window: Window, run: Run, cause: Cause, limits: Limits, outcomes: Outcomes) -> None:
    """Release an acquired run, or give it up if it was delivered too often."""
    state, given_up = end_of(run.count, cause, limits)
    window.set_state(run, state, given_up)
    outcomes.add(run.first, run.last, state, run.count, given_up)


def leave(window: Window, member_id: str, limits: Limits) -> list[Outcome]:
    """Return the outcomes of the records of a member that is gone.

    Records with a pending write can no longer return to it.
    """
    outcomes = Outcomes()
    for run in window.runs:
        if run.member_id != member_id or run.state != ACQUIRED:
            continue
        if run.change is not None:
            run.member_id = None
            continue
        state, cause = end_of(run.count, Cause.EXHAUSTED, limits)
        outcomes.add(run.first, run.last, state, run.count, cause)
    return outcomes.end()
