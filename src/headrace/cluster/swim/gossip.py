"""Claims to be gossiped, piggybacked on other messages.

There is one claim per member: a new one replaces the old. Those that were sent least often go
first, the oldest of them foremost, and each is sent a bounded number of times. The cost of taking
claims is proportional to their number.
"""

from itertools import islice

from headrace.cluster.swim.claims import Claim
from headrace.ids import BrokerId as NodeId


class Gossip:
    def __init__(self) -> None:
        self._levels: list[dict[NodeId, Claim]] = []
        """By how often they were sent."""
        self._level_of: dict[NodeId, int] = {}

    def __len__(self) -> int:
        return len(self._level_of)

    def put(self, claim: Claim) -> None:
        """Begin to spread a claim, in place of what was spread of its member."""
        self.drop(claim.node)
        self._add(claim, 0)

    def drop(self, node: NodeId) -> None:
        """Stop spreading what is said of a member."""
        level = self._level_of.pop(node, None)
        if level is not None:
            del self._levels[level][node]

    def claim_of(self, node: NodeId) -> Claim | None:
        level = self._level_of.get(node)
        return None if level is None else self._levels[level][node]

    def take(self, count_max: int, limit: int) -> list[Claim]:
        """Return up to so many claims to be sent; one that was sent `limit` times is dropped."""
        taken: list[tuple[int, Claim]] = []
        for number, level in enumerate(self._levels):
            left = count_max - len(taken)
            if left <= 0:
                break
            taken += [(number, claim) for claim in islice(level.values(), left)]
        for number, claim in taken:
            self.drop(claim.node)
            if number + 1 < limit:
                self._add(claim, number + 1)
        return [claim for _, claim in taken]

    def _add(self, claim: Claim, level: int) -> None:
        while len(self._levels) <= level:
            self._levels.append({})
        self._levels[level][claim.node] = claim
        self._level_of[claim.node] = level
