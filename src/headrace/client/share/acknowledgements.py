"""What a member says about records that it was given, as ranges (KIP-932).

Pure. Offsets that follow each other become one batch of a request, whatever was said about them, so
that a thousand records which were all accepted are one range with one type.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from headrace.client.topics import TopicPartition
from headrace.errors import KafkaError


class AcknowledgeType(IntEnum):
    """What became of a record."""

    ACCEPT = 1
    """Done: it is not delivered again."""
    RELEASE = 2
    """Not done: it is delivered again, to any member, up to the group's delivery limit."""
    REJECT = 3
    """Rejected: it is not delivered again."""
    RENEW = 4
    """In progress: the lock starts over, and the record must be acknowledged again (KIP-1222)."""


GAP: Final = 0
"""The type of an offset that was acquired and has no record: a marker, or what was compacted."""


class Range(NamedTuple):
    """Offsets that follow each other, both ends included."""

    first: int
    last: int


class AcknowledgedRange(NamedTuple):
    """One batch of a request: a single type for all of its offsets, or one for each."""

    first: int
    last: int
    types: list[int]


class Acknowledged(msgspec.Struct, frozen=True):
    """What became of the acknowledgements of one partition, as a callback gets it."""

    partition: TopicPartition
    ranges: tuple[Range, ...]
    """The offsets, oldest first."""
    error: KafkaError | None
    """None: the broker has it. Otherwise the records will be delivered again, to any member."""

    @property
    def offsets(self) -> Iterator[int]:
        """Every offset, oldest first."""
        for first, last in self.ranges:
            yield from range(first, last + 1)


class Acknowledgements:
    """Acknowledgements of one partition that are still to be sent."""

    __slots__ = ("_batches", "_ranges", "_types", "has_renewals")

    def __init__(self) -> None:
        self.has_renewals = False
        self._types: dict[int, int] = {}
        self._ranges: list[tuple[int, int, int]] = []
        self._batches: list[AcknowledgedRange] | None = None
        """What `batches` gave, as long as nothing is added."""

    def __bool__(self) -> bool:
        return bool(self._types or self._ranges)

    def add(self, types: dict[int, int]) -> None:
        """Add types by offset; they replace earlier ones."""
        self._batches = None
        if self.has_renewals:
            self._types.update(types)
            self._look_for_renewals()
            return
        self.has_renewals = AcknowledgeType.RENEW in types.values()
        if self._types:
            self._types.update(types)
        else:
            self._types = types

    def add_ranges(self, ranges: Iterable[tuple[int, int]], kind: int) -> None:
        """Add ranges of one type that have no earlier types."""
        self._ranges.extend((first, last, kind) for first, last in ranges)
        self._batches = None

    def put_before(self, older: "Acknowledgements") -> None:
        """Add acknowledgements to retry; newer ones take precedence."""
        self._types = {**older._each(), **self._each()}
        self._ranges = []
        self._batches = None
        self._look_for_renewals()

    def renewals(self) -> list[int]:
        """Return the offsets to renew."""
        if not self.has_renewals:
            return []
        return [offset for offset, kind in self._types.items() if kind == AcknowledgeType.RENEW]

    def parted(self) -> "tuple[Acknowledgements, Acknowledgements]":
        """Return the final acknowledgements and the renewals."""
        kept = Acknowledgements()
        if not self.has_renewals:
            return self, kept
        final = Acknowledgements()
        final._ranges = self._ranges
        types: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for offset, kind in self._types.items():
            types[kind == AcknowledgeType.RENEW][offset] = kind
        final._types, kept._types = types
        kept.has_renewals = True
        return final, kept

    def without_renewals(self) -> "Acknowledgements":
        """Return a copy in which renewals are releases."""
        changed = Acknowledgements()
        changed._ranges = self._ranges
        changed._types = {
            offset: AcknowledgeType.RELEASE if kind == AcknowledgeType.RENEW else kind
            for offset, kind in self._types.items()
        }
        return changed

    def batches(self) -> list[AcknowledgedRange]:
        """Return the batches of a request: ascending, without overlap, as few as possible."""
        if self._batches is not None:
            return self._batches
        runs = [AcknowledgedRange(first, last, [kind]) for first, last, kind in self._ranges]
        runs.extend(_runs(self._types))
        runs.sort()
        self._batches = _joined(runs)
        return self._batches

    def ranges(self) -> tuple[Range, ...]:
        """Return the offset ranges."""
        return tuple(Range(first, last) for first, last, _ in self.batches())

    def _look_for_renewals(self) -> None:
        self.has_renewals = AcknowledgeType.RENEW in self._types.values()

    def _each(self) -> dict[int, int]:
        types = {
            offset: kind for first, last, kind in self._ranges for offset in range(first, last + 1)
        }
        types.update(self._types)
        return types


def _runs(types: dict[int, int]) -> Iterator[AcknowledgedRange]:
    """Cut offsets where one is missing."""
    if not types:
        return
    offsets = sorted(types)
    start = 0
    if offsets[-1] - offsets[0] + 1 != len(offsets):
        for index in range(1, len(offsets)):
            if offsets[index] != offsets[index - 1] + 1:
                yield _run(offsets[start:index], types)
                start = index
    yield _run(offsets[start:], types)


def _run(offsets: list[int], types: dict[int, int]) -> AcknowledgedRange:
    kinds = [types[offset] for offset in offsets]
    if kinds.count(kinds[0]) == len(kinds):
        del kinds[1:]
    return AcknowledgedRange(offsets[0], offsets[-1], kinds)


def _joined(runs: list[AcknowledgedRange]) -> list[AcknowledgedRange]:
    """Join neighbours that say one and the same of all their offsets."""
    joined: list[AcknowledgedRange] = []
    for run in runs:
        if joined:
            before = joined[-1]
            if before.last + 1 == run.first and len(run.types) == 1 and before.types == run.types:
                joined[-1] = AcknowledgedRange(before.first, run.last, run.types)
                continue
        joined.append(run)
    return joined
