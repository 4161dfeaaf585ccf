"""The offsets that are leased to a member, and what is to be said of them next. Pure.

Everything is ascending and disjoint, so that a batch is settled in one pass over what is held.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.session import SharedPartition
from headrace.spark.share.intervals import Interval, aligned, merged

NEVER: Final = float("inf")
L = TypeVar("L")


class Word(NamedTuple):
    """What is said of a range of offsets, both ends included."""

    first: int
    last: int
    kind: int
    """An `AcknowledgeType`, as the number that goes over the wire."""


Words = Mapping[SharedPartition, Sequence[Word]]
"""What is said of records, ascending in each partition."""


class Held(NamedTuple, Generic[L]):
    """Offsets that are leased to us, and when that was last said."""

    first: int
    last: int
    lease: L
    since: float


class Taken(NamedTuple, Generic[L]):
    """What words come to."""

    missing: list[Interval]
    """What is not held."""
    ranges: list[Interval]
    """Ranges whose lease was lost."""
    types: dict[L, dict[int, int]]
    """What is to be said, by lease and offset."""


class HeldRanges(Generic[L]):
    """What is held of each partition, under which lease."""

    def __init__(self) -> None:
        self._held: dict[SharedPartition, list[Held[L]]] = {}
        self._oldest = NEVER
        """Nothing was last said to be ours before then."""

    def items(self) -> Iterable[tuple[SharedPartition, Sequence[Held[L]]]]:
        return self._held.items()

    def of(self, shared: SharedPartition) -> Sequence[Held[L]]:
        return self._held.get(shared, ())

    def hold(
        self, shared: SharedPartition, ranges: Sequence[Interval], lease: L, now: float
    ) -> None:
        """Add held ranges; a range that is delivered again had been lost, noticed or not."""
        self.drop(shared, ranges)
        held = self._held.setdefault(shared, [])
        held.extend(Held(first, last, lease, now) for first, last in ranges)
        held.sort(key=itemgetter(0))
        self._oldest = min(self._oldest, now)

    def drop(self, shared: SharedPartition, ranges: Sequence[Interval]) -> None:
        """Remove held ranges."""
        left = [
            held if (first, last) == held[:2] else held._replace(first=first, last=last)
            for held, other, first, last in aligned(self._held.pop(shared, ()), ranges)
            if other is None
        ]
        if left:
            self._held[shared] = left

    def take(self, shared: SharedPartition, said: Sequence[Word]) -> Taken[L]:
        """Remove ranges with a final acknowledgement."""
        missing: list[Interval] = []
        ranges: list[Interval] = []
        # By offset, not by range: so it takes the place of a renewal that waits.
        types: dict[L, dict[int, int]] = {}
        for word, held, first, last in aligned(said, self.of(shared)):
            if held is None:
                missing.append((first, last))
                continue
            ranges.append((first, last))
            offsets = types.get(held.lease)
            if offsets is None:
                offsets = types[held.lease] = {}
            if first == last:
                offsets[first] = word.kind
            else:
                offsets.update(dict.fromkeys(range(first, last + 1), word.kind))
        ranges = merged(ranges)
        self.drop(shared, ranges)
        return Taken(missing, ranges, types)

    def renew(self, now: float, age: float) -> Iterator[tuple[L, dict[int, int]]]:
        """Yield what is to be renewed, as it was last said to be ours so long ago."""
        if now < self._oldest + age:
            return
        self._oldest = NEVER
        for ranges in self._held.values():
            types: dict[L, dict[int, int]] = {}
            for at, held in enumerate(ranges):
                if now >= held.since + age:
                    offsets = range(held.first, held.last + 1)
                    renewed = dict.fromkeys(offsets, int(AcknowledgeType.RENEW))
                    types.setdefault(held.lease, {}).update(renewed)
                    ranges[at] = held._replace(since=now)
                self._oldest = min(self._oldest, ranges[at].since)
            yield from types.items()

    def due(self, age: float) -> float | None:
        """Return when something will have been said so long ago; None if nothing is held."""
        return None if self._oldest == NEVER else self._oldest + age
