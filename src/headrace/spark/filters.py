"""Spark's pushed-down filters, as bounds on partitions, offsets and times.

A filter that a bound covers exactly is accepted; a filter on time only sets the start, as later
records may have earlier times, so Spark still applies it. Filter classes are recognized by name, so
that this module does not import Spark.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headrace.spark.planning import Range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bounds(msgspec.Struct):
    """What the filters leave of a topic."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int | None = None
    stop: int | None = None
    since_ms: int | None = None

    def admits(self, topic: str, partition: int) -> bool:
        """Return whether any record of a partition may match."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def clip(self, whole: Range) -> Range:
        """Return the part of a range within the bounds on offsets."""
        start = whole.start if self.start is None else max(whole.start, self.start)
        stop = whole.stop if self.stop is None else min(whole.stop, self.stop)
        return msgspec.structs.replace(whole, start=start, stop=max(start, stop))


def take(filters: Iterable[Any], bounds: Bounds) -> list[Any]:
    """Narrow the bounds by the filters; give those that Spark must still check itself."""
    return [each for each in filters if not _take(each, bounds)]


def _take(one: Any, bounds: Bounds) -> bool:
    """Narrow the bounds by one filter; whether they say all that it does."""
    kind = type(one).__name__
    column = ".".join(getattr(one, "attribute", ()))
    if kind == "IsNotNull":
        return column in ("topic", "partition", "offset", "timestamp")
    if kind not in ("EqualTo", "In", *_STEPS) or one.value is None:
        return False
    if column in ("topic", "partition"):
        return _take_choice(kind, column, one.value, bounds)
    if column == "offset" and kind != "In":
        _take_offset(kind, one.value, bounds)
        return True
    if column == "timestamp" and kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
        _take_time(one.value, bounds)
    return False


def _take_choice(kind: str, column: str, value: Any, bounds: Bounds) -> bool:
    if kind not in ("EqualTo", "In"):
        return False
    values = frozenset(value if kind == "In" else (value,))
    if column == "topic":
        bounds.topics = values if bounds.topics is None else values & bounds.topics
    else:
        bounds.partitions = values if bounds.partitions is None else values & bounds.partitions
    return True


_STEPS = {"GreaterThan": 1, "GreaterThanOrEqual": 0, "LessThan": 0, "LessThanOrEqual": 1}


def _take_offset(kind: str, value: int, bounds: Bounds) -> None:
    if kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
        start = value + _STEPS.get(kind, 0)
        bounds.start = start if bounds.start is None else max(bounds.start, start)
    if kind in ("EqualTo", "LessThan", "LessThanOrEqual"):
        stop = value + _STEPS.get(kind, 1)
        bounds.stop = stop if bounds.stop is None else min(bounds.stop, stop)


def _take_time(value: datetime, bounds: Bounds) -> None:
    """Set a start time. One before 1970 is ignored: records without a timestamp have -1."""
    if value.tzinfo is None:
        return
    since_ms = (value - _EPOCH) // timedelta(milliseconds=1)
    if since_ms > 0:
        bounds.since_ms = max(bounds.since_ms or 0, since_ms)
