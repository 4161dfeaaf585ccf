"""Changes of a share partition in two steps: started here, final when they are durable.

Acknowledgements take effect once they are persisted. Until then the records stay acquired, so that
undoing is simply forgetting; and a record that the log has lost in the meantime is not affected by
the outcome. Events that happen in any case, such as the expiry of a lock, take effect at once; if
their write fails, they are included in a later one.
"""

from typing import NamedTuple

from headrace.share.durable import StateBatch, StateWrite
from headrace.share.partition.types import Cause


class Outcome(NamedTuple):
    """The outcome of some offsets."""

    first: int
    last: int
    state: int
    delivery_count: int
    cause: Cause | None


class Change:
    """A pending write; the writer passes it back with its outcome."""

    __slots__ = ("carried", "complete_count", "is_applied", "is_release", "outcomes", "write")

    def __init__(self, outcomes: list[Outcome], *, is_applied: bool, is_release: bool) -> None:
        self.outcomes = outcomes
        self.is_applied = is_applied
        """Whether it already took effect, persisted or not."""
        self.is_release = is_release
        """Whether the member is gone, so that the records cannot return to it."""
        self.complete_count = 0
        """How many records it completes beyond those already counted."""
        self.carried: list[StateBatch] = []
        """Outcomes of earlier failed writes."""
        self.write: StateWrite | None = None
        """What to persist; None for nothing: call `succeeded` at once."""


class Outcomes:
    """A builder of outcomes in offset order that merges equal neighbours."""

    __slots__ = ("_cause", "_count", "_first", "_last", "_state", "done")

    def __init__(self) -> None:
        self.done: list[Outcome] = []
        self._first = 0
        self._last = -2
        self._state = -1
        self._count = 0
        self._cause: Cause | None = None

    def add(self, first: int, last: int, state: int, count: int, cause: Cause | None) -> None:
        """Append offsets."""
        if (
            first == self._last + 1
            and state == self._state
            and count == self._count
            and cause is self._cause
        ):
            self._last = last
            return
        self._flush()
        self._first, self._last, self._state = first, last, state
        self._count, self._cause = count, cause

    def end(self) -> list[Outcome]:
        """Return all outcomes."""
        self._flush()
        self._state = -1
        return self.done

    def _flush(self) -> None:
        if self._state >= 0:
            self.done.append(
                Outcome(self._first, self._last, self._state, self._count, self._cause)
            )
