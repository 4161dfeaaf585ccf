"""Changes of a share partition in two steps: begun here, final when they are durable.

What a member says of its records holds once it is written. Until then they stay acquired, so that
taking it back is no more than forgetting it; and a record that went away meanwhile, because the log
begins behind it, is not touched by the answer. What happens whether it can be written or not, such
as the end of a lock, is done at once; if the write fails, it goes along with a later one.
"""

from typing import NamedTuple

from headrace.share.durable import StateBatch, StateWrite
from headrace.share.partition.types import Cause


class Outcome(NamedTuple):
    """What some offsets come to."""

    first: int
    last: int
    state: int
    delivery_count: int
    cause: Cause | None


class Change:
    """What is being written; whoever writes it hands it back and says how that went."""

    __slots__ = ("carried", "complete_count", "is_applied", "is_release", "outcomes", "write")

    def __init__(self, outcomes: list[Outcome], *, is_applied: bool, is_release: bool) -> None:
        self.outcomes = outcomes
        self.is_applied = is_applied
        """Whether it stays, written or not, and is done already."""
        self.is_release = is_release
        """Whether the member is gone, so that there is nobody to give the records back to."""
        self.complete_count = 0
        """How many records it completes that are not counted yet."""
        self.carried: list[StateBatch] = []
        """What earlier writes left behind."""
        self.write: StateWrite | None = None
        """What to persist; None: nothing, and `succeeded` is to be called at once."""


class Outcomes:
    """Outcomes in the making: in order of offsets, neighbours that are alike as one."""

    __slots__ = ("_cause", "_count", "_first", "_last", "_state", "done")

    def __init__(self) -> None:
        self.done: list[Outcome] = []
        self._first = 0
        self._last = -2
        self._state = -1
        self._count = 0
        self._cause: Cause | None = None

    def add(self, first: int, last: int, state: int, count: int, cause: Cause | None) -> None:
        """Put offsets behind those that are there."""
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
        """Give all of them."""
        self._flush()
        self._state = -1
        return self.done

    def _flush(self) -> None:
        if self._state >= 0:
            self.done.append(
                Outcome(self._first, self._last, self._state, self._count, self._cause)
            )
