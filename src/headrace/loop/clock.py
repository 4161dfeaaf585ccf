"""The wall clock of a node, which a test can move."""

from collections.abc import Callable

from headrace.surroundings import clocks


class Clock:
    """Milliseconds since 1970, for records, retention and sessions.

    Waits use the loop's time, which cannot be moved.
    """

    def __init__(self) -> None:
        self.offset_ms = 0
        self._time_ns = clocks().time_ns
        self.on_moved: list[Callable[[], None]] = []
        """Called when the clock was moved, so that timers can check again."""

    def now_ms(self) -> int:
        return self._time_ns() // 1_000_000 + self.offset_ms

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward, or back with a negative number."""
        self.offset_ms += milliseconds
        for look_again in self.on_moved:
            look_again()
