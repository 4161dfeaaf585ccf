"""Replication throttles (KIP-73): how many bytes per second go to replicas that are behind. Pure.

    throttles = Throttles(rates, now_ms, window_count=11, window_ms=1000)
    throttles.leader.is_exceeded()          # then a leader leaves a throttled partition out
    throttles.leader.record(byte_count)     # what it sent of throttled partitions

A topic names its throttled replicas; a broker has a rate for what it sends as a leader, and one for
what it fetches as a follower. Only replicas that are not in sync are held back, but all bytes of
throttled replicas count, as in Kafka: a throttle never costs a partition its ISR. The rate is
measured over windows, of which the first counts as a whole one.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from headrace.loop.quota import Quota

ALL_PARTITIONS: Final = -1
NONE_THROTTLED: Final[frozenset[int]] = frozenset()
EVERY_REPLICA: Final = "*"


class Rates(NamedTuple):
    """The bytes per second that throttled replicas may have, now."""

    leader: Callable[[], int]
    follower: Callable[[], int]


class Throttle:
    """One direction: what a leader sends, or what a follower fetches."""

    def __init__(
        self,
        rate: Callable[[], int],
        now_ms: Callable[[], int],
        *,
        window_count: int,
        window_ms: int,
    ) -> None:
        self.rate = rate
        self._now_ms = now_ms
        self._quota = Quota(window_count=window_count, window_ms=window_ms)

    def record(self, byte_count: int) -> None:
        """Count bytes of throttled replicas."""
        self._quota.record(byte_count, self._now_ms())

    def is_exceeded(self) -> bool:
        """Return whether more went in the last windows than may."""
        return self.bytes_per_second() > self.rate()

    def bytes_per_second(self) -> float:
        """Return the rate of throttled replicas in the last windows."""
        return self._quota.bytes_per_second(self._now_ms())


class Throttles:
    """The throttles of a node."""

    def __init__(
        self, rates: Rates, now_ms: Callable[[], int], *, window_count: int, window_ms: int
    ) -> None:
        self.leader = Throttle(rates.leader, now_ms, window_count=window_count, window_ms=window_ms)
        self.follower = Throttle(
            rates.follower, now_ms, window_count=window_count, window_ms=window_ms
        )


def throttled_partitions(replicas: Iterable[str], node_id: int) -> frozenset[int]:
    """Return which partitions of a topic are throttled on a node.

    `replicas` are `*` or PARTITION:BROKER each, as a topic's config lists them.
    """
    found = set()
    for each in replicas:
        if each == EVERY_REPLICA:
            return frozenset((ALL_PARTITIONS,))
        partition, _, broker = each.partition(":")
        if int(broker) == node_id:
            found.add(int(partition))
    return frozenset(found)


def is_throttled(partitions: frozenset[int], index: int) -> bool:
    """Return whether a partition is among those of `throttled_partitions`."""
    return bool(partitions) and (index in partitions or ALL_PARTITIONS in partitions)
