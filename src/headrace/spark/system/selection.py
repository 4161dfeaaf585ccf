"""What the filters of a query leave of a system frame, so that only that is asked for. Pure.

Spark still applies every filter: a selection may be wider than they are, never narrower. Filter
classes are recognized by name, so that this module does not import Spark.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

CHOICES: Final = frozenset({"group_id", "node", "topic", "transactional_id", "type", "state"})
"""Columns whose equality decides what is asked for."""
INDEX: Final = "index"


class Selection(msgspec.Struct):
    """The values that may occur, by column, and the range of indexes."""

    choices: dict[str, frozenset[Any]] = {}
    first: int = 0
    stop: int | None = None

    def take(self, filters: Iterable[Any]) -> None:
        """Narrow the selection by pushed-down filters."""
        for each in filters:
            self._take(each)

    def values(self, column: str) -> frozenset[Any] | None:
        """Return the values that a column may have; None for any."""
        return self.choices.get(column)

    def admits(self, **values: Any) -> bool:
        """Return whether a row with these values may be asked for."""
        return all(
            name not in self.choices or value in self.choices[name]
            for name, value in values.items()
        )

    def _take(self, one: Any) -> None:
        kind = type(one).__name__
        column = ".".join(getattr(one, "attribute", ())).lower()
        value = getattr(one, "value", None)
        if value is None:
            return
        if column in CHOICES and kind in ("EqualTo", "In"):
            values = frozenset(value if kind == "In" else (value,))
            known = self.choices.get(column)
            self.choices = {
                **self.choices,
                column: values if known is None else values & known,
            }
        elif column == INDEX and isinstance(value, int):
            self._take_index(kind, value)

    def _take_index(self, kind: str, value: int) -> None:
        if kind in ("EqualTo", "GreaterThan", "GreaterThanOrEqual"):
            self.first = max(self.first, value + (kind == "GreaterThan"))
        if kind in ("EqualTo", "LessThan", "LessThanOrEqual"):
            stop = value + (kind != "LessThan")
            self.stop = stop if self.stop is None else min(self.stop, stop)


def chunks(names: Iterable[str], chunk: int, tasks_max: int) -> list[tuple[str, ...]]:
    """Return names in portions of about `chunk`, in at most `tasks_max` portions."""
    ordered = list(names)
    size = max(chunk, -(-len(ordered) // tasks_max), 1)
    return [tuple(ordered[at : at + size]) for at in range(0, len(ordered), size)]
