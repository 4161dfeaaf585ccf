"""The wall clock of a node, which a test may move."""

from collections.abc import Callable

from headrace.surroundings import clocks


class Clock:
    """Milliseconds since 1970: what records, retention and sessions are timed by.

    How long something is waited for is the loop's time, which nobody can move.
    """

    def __init__(self) -> None:
        self.offset_ms = 0
        self._time_ns = clocks().time_ns
        self.on_moved: list[Callable[[], None]] = []
        """Called when the clock was moved: whoever waits for a time of it looks again."""

    def now_ms(self) -> int:
        return self._time_ns() // 1_000_000 + self.offset_ms

    def advance(self, milliseconds: int) -> None:
        """Let time have passed, or with a negative number not yet."""
        self.offset_ms += milliseconds
        for look_again in self.on_moved:
            look_again()
