"""How long to wait after errors in a row: longer each time, with some chance. Pure."""

from typing import NamedTuple


class Backoff(NamedTuple):
    """The wait after the first error, the longest one, and how much it varies."""

    first_ms: int
    most_ms: int
    jitter: float

    def wait_ms(self, errors: int, chance: float) -> float:
        """Return the wait after so many errors in a row; `chance` is from 0 to 1."""
        doubled = min(self.first_ms << min(errors - 1, 32), self.most_ms)
        return doubled * (1 + self.jitter * (2 * chance - 1))
