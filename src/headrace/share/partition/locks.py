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
    """Say what a record that was delivered so often, and not dealt with, comes to."""
    if count < limits.delivery_count_limit:
        return AVAILABLE, None
    return (ARCHIVING if limits.has_dead_letters else ARCHIVED), cause


def rest_ms(count: int, limits: Limits) -> int:
    """Say how long a record that was released after so many deliveries rests."""
    doublings = min(max(count - 1, 0), REST_DOUBLINGS_MAX)
    longest_ms = max(limits.release_backoff_max_ms, limits.release_backoff_ms)
    return min(limits.release_backoff_ms << doublings, longest_ms)


def lock(window: Window, run: Run, until_ms: int) -> None:
    """Have the lock of a run end then, and not before."""
    run.until_ms = until_ms
    window.note_deadline(until_ms)


def renew(window: Window, renewals: list[tuple[int, int]], until_ms: int) -> None:
    """Have the locks of some offsets end then."""
    for first, last in renewals:
        for run in window.between(first, last):
            lock(window, run, until_ms)
        window.join(first, last)


def expire(window: Window, now_ms: int, limits: Limits) -> list[Outcome]:
    """End the locks whose time is over; give what became of their records.

    Records of which something is being written are left alone: if it cannot be written, they are
    looked at then.
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
    """Take an acquired run from its member: others may have it, or it was delivered enough."""
    state, given_up = end_of(run.count, cause, limits)
    window.set_state(run, state, given_up)
    outcomes.add(run.first, run.last, state, run.count, given_up)


def leave(window: Window, member_id: str, limits: Limits) -> list[Outcome]:
    """Say what becomes of the records of a member that is gone.

    Those of which something is being written have nobody to go back to any more.
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
