"""Placement of new partitions' replicas. Pure: no image, no randomness.

Leaders rotate over the brokers that are up. Each other replica goes to the host and the rack that
have the fewest of the partition, and there to the broker that got the fewest so far. So a partition
survives the loss of as many machines and racks as possible, and every broker gets its share of a
topic.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId


class Candidate(NamedTuple):
    """A broker that may hold replicas."""

    broker_id: BrokerId
    rack: str | None = None
    is_up: bool = True
    """Whether it is up. One that is not may hold a replica, but starts outside the ISR."""
    host: str = ""
    """Its machine, which several brokers may share."""


def assign_replicas(
    candidates: Sequence[Candidate], *, partitions: int, replication_factor: int, start: int = 0
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of each new partition, the leader first.

    `start` selects the first leader; use a different one for each topic, or the first brokers
    lead all single-partition topics. Brokers that are not up are used only if the others are too
    few. Raise KafkaError if there are not enough brokers, or none is up.
    """
    return Placement(candidates, replication_factor, start).place(partitions)


class Placement:
    """Places the replicas of one topic like `assign_replicas`, a few partitions at a time."""

    def __init__(
        self, candidates: Sequence[Candidate], replication_factor: int, start: int
    ) -> None:
        if not 0 < replication_factor <= len(candidates):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor}, but {_count_text(len(candidates))} "
                "registered: use fewer replicas or start more brokers",
            )
        self._ring = _interleaved(candidates)
        self._leaders = [each for each in self._ring if each.is_up]
        if not self._leaders:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"none of {len(candidates)} registered brokers is up: start one",
            )
        self._factor = replication_factor
        self._next = start
        self._loads = dict.fromkeys((each.broker_id for each in self._ring), 0)

    def place(self, partitions: int) -> list[tuple[BrokerId, ...]]:
        """Return the replicas of the next partitions."""
        first, self._next = self._next, self._next + partitions
        leaders = (self._leaders[index % len(self._leaders)] for index in range(first, self._next))
        if self._factor == 1:
            return [(leader.broker_id,) for leader in leaders]
        return [self._place_one(leader) for leader in leaders]

    def _place_one(self, leader: Candidate) -> tuple[BrokerId, ...]:
        loads, chosen = self._loads, [leader]
        racks, hosts = Counter((leader.rack,)), Counter((leader.host,))
        while len(chosen) < self._factor:
            following = min(
                (each for each in self._ring if each not in chosen),
                key=lambda each: (
                    not each.is_up,
                    hosts[each.host],
                    racks[each.rack],
                    loads[each.broker_id],
                ),
            )
            chosen.append(following)
            racks[following.rack] += 1
            hosts[following.host] += 1
        for each in chosen:
            loads[each.broker_id] += 1
        return tuple(each.broker_id for each in chosen)


def _interleaved(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Order brokers so that neighbours are in different racks as far as possible.

    Leaders then rotate over racks, and the loss of one rack does not hit a run of partitions.
    """
    racks: dict[str | None, list[Candidate]] = {}
    for each in sorted(candidates):
        racks.setdefault(each.rack, []).append(each)
    ring: list[Candidate] = []
    for position in range(max(map(len, racks.values()), default=0)):
        ring += [rack[position] for rack in racks.values() if position < len(rack)]
    return ring


def _count_text(brokers: int) -> str:
    return "1 broker is" if brokers == 1 else f"{brokers} brokers are"
