"""Where the copy of a partition goes on, from what both clusters have of it. Pure.

The end of the target's log is the position: it is durable, it moves with the records themselves,
and nothing else has to agree with it.
"""

from typing import NamedTuple


class Extent(NamedTuple):
    """The offsets of a partition: from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


class GoOn(NamedTuple):
    """Copy from an offset on, which is the target's end."""

    offset: int


class BeginAt(NamedTuple):
    """Start the target's log, which has no records, at an offset."""

    offset: int


class Discard(NamedTuple):
    """Delete the target's records, which the source has no more, and then begin at an offset."""

    end: int
    offset: int


class Halt(NamedTuple):
    """Copy nothing: a person has to decide."""

    reason: str


Step = GoOn | BeginAt | Discard | Halt

AGAIN = "delete the topic in the target to copy it again from the start"


def decide(source: Extent, target: Extent, *, skips_lost: bool) -> Step:
    """Return how the copy of a partition goes on.

    `skips_lost` leaves a gap where the source deleted records before they were copied.
    """
    if target.end > source.end:
        return Halt(
            f"the source ends at {source.end}, the target has records up to {target.end - 1}: the "
            f"source has lost records, so both may differ; {AGAIN}"
        )
    if target.end >= source.start:
        return GoOn(target.end)
    if target.is_empty:
        return BeginAt(source.start)
    if not skips_lost:
        return Halt(
            f"the source has deleted offsets {target.end} to {source.start - 1} before they were "
            "copied: --skip-lost goes on behind them"
        )
    if source.is_empty:
        return Discard(target.end, source.start)
    return GoOn(target.end)


def explain_other_topic(name: str) -> str:
    """Return why a copy cannot go on whose topic is another one at the source now."""
    return (
        f"the source has deleted the topic that was mirrored and created another {name}: delete "
        "the topic in the target to copy the new one, or promote it"
    )


def explain_other(offset: int) -> str:
    """Return why a copy cannot go on whose last batch is not the source's."""
    return (
        f"the target's last batch, at offset {offset}, is not the one that the source has there: "
        f"the source has lost records and taken others since; {AGAIN}"
    )
