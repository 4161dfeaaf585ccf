"""A node's awareness of its own health (Lifeguard's local health multiplier).

A node that is slow to read its datagrams thinks that all others are gone. So it counts the evidence
against itself, and waits that much longer before it judges others.
"""


class LocalHealth:
    """A score from 0, well, up to a maximum."""

    __slots__ = ("_score_max", "score")

    def __init__(self, score_max: int) -> None:
        self._score_max = score_max
        self.score = 0

    def change(self, by: int) -> None:
        """Add missed responses, or subtract one for a successful probe."""
        self.score = min(max(self.score + by, 0), self._score_max)

    def scale(self, time_ms: int) -> int:
        """Return how long something takes that takes `time_ms` at a node that is well."""
        return time_ms * (self.score + 1)
