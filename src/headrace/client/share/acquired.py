"""The acquired records of a ShareFetch response, and the acknowledgement of the rest.

Pure. A broker sends whole batches as they are in its log, and the ranges of offsets that this
member has acquired. A record outside of them belongs to another member. An acquired offset without
a record is a gap, and one whose batch cannot be read is rejected: another attempt would read the
same.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from headrace.client.fetched import ConsumedRecord
from headrace.client.share.acknowledgements import Range
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.records import scan
from headrace.records.header import BatchHeader, check_crc, read_headers
from headrace.records.reader import find_records

_LOGGER = logging.getLogger(__name__)
_offset_of = attrgetter("offset")


class ShareRecord(ConsumedRecord, frozen=True, gc=False):
    """A record that this member has a lock on, and the how many-th attempt at it this is."""

    delivery_count: int = 1


class AcquiredRange(NamedTuple):
    """Offsets that this member may work on, and how often they were delivered by now."""

    first: int
    last: int
    delivery_count: int


class Leftovers(NamedTuple):
    """Acquired offsets that no record can be given for."""

    gaps: list[Range]
    rejected: list[Range]
    released: list[Range]
    """Those whose batch did not come whole."""


class AcquiredChunk:
    """One partition's part of a response, decoded batch by batch on demand."""

    def __init__(
        self,
        partition: TopicPartition,
        records: memoryview,
        acquired: Sequence[AcquiredRange],
        inflated_bytes_max: int,
    ) -> None:
        self.partition = partition
        self.leftovers = Leftovers([], [], [])
        """Findings so far; the code that reports them clears the lists."""
        self.is_first_delivery = all(each.delivery_count <= 1 for each in acquired)
        """Whether all of these records are first deliveries."""
        self._acquired = sorted(acquired)
        self._inflated_bytes_max = inflated_bytes_max
        self._bytes = records
        self._batches: Iterator[tuple[int, BatchHeader]] = read_headers(records)
        self._read_bytes = 0
        self._at = 0
        """The first range at or after the position."""
        self._position = self._acquired[0].first if acquired else 0
        """The first offset that nothing is known of yet."""
        self._ready: list[ShareRecord] = []
        self._is_used_up = False

    @property
    def records_left(self) -> int:
        """How many records may still come: acquired offsets that were not dealt with."""
        ahead = self._acquired[self._at :]
        offsets = sum(last - max(first, self._position) + 1 for first, last, _ in ahead)
        return len(self._ready) + offsets

    def take(self, records_max: int) -> list[ShareRecord]:
        """Return up to `records_max` next records; none at the end."""
        while not self._ready and not self._is_used_up:
            self._ready = self._next_batch()
        if len(self._ready) <= records_max:
            taken, self._ready = self._ready, []
            return taken
        taken = self._ready[:records_max]
        del self._ready[:records_max]
        return taken

    def _next_batch(self) -> list[ShareRecord]:
        try:
            step = next(self._batches, None)
        except HeadraceError as error:  # nobody knows where the next batch would begin
            self._reject(None, error)
            return []
        if step is None:
            self._finish()
            return []
        at, header = step
        self._read_bytes = at + header.size_bytes
        self._pass_over(header.base_offset - 1, self.leftovers.gaps)
        try:
            records = self._records(at, header)
        except HeadraceError as error:
            self._reject(header.last_offset, error)
            return []
        return self._select(records, header)

    def _records(self, at: int, header: BatchHeader) -> list[ShareRecord]:
        """Return the records of a batch, as if each was delivered for the first time."""
        if header.is_control or self._at == len(self._acquired):
            return []
        if header.last_offset < self._position:
            return []
        batch = self._bytes[at : at + header.size_bytes]
        check_crc(batch, header)
        if header.record_count == 0:
            return []
        segment = find_records(batch, 0, header, self._inflated_bytes_max)
        scan.measure([segment], False)
        topic, partition = self.partition
        return scan.build(
            segment, ShareRecord, topic, partition, header.timestamp_type, header.base_offset
        )

    def _select(self, records: list[ShareRecord], header: BatchHeader) -> list[ShareRecord]:
        """Return the records of a batch that are acquired; note which acquired ones it lacks."""
        selected: list[ShareRecord] = []
        for first, last, delivery_count in self._ranges_to(header.last_offset):
            begin = bisect_left(records, first, key=_offset_of)
            end = bisect_right(records, last, key=_offset_of)
            chosen = records if end - begin == len(records) else records[begin:end]
            if len(chosen) != last - first + 1:
                offsets = [record.offset for record in chosen]
                self.leftovers.gaps.extend(holes(offsets, first, last))
            if delivery_count != 1:
                again = msgspec.structs.replace
                chosen = [again(record, delivery_count=delivery_count) for record in chosen]
            selected += chosen
        return selected

    def _ranges_to(self, last_offset: int) -> list[AcquiredRange]:
        """Return the acquired ranges from the position up to an offset, and advance past it."""
        found: list[AcquiredRange] = []
        while self._at < len(self._acquired):
            first, last, delivery_count = self._acquired[self._at]
            begin, end = max(first, self._position), min(last, last_offset)
            if begin <= end:
                found.append(AcquiredRange(begin, end, delivery_count))
                self._position = end + 1
            if last > last_offset:
                break
            self._at += 1
        return found

    def _pass_over(self, last_offset: int, kind: list[Range]) -> None:
        kind.extend(Range(first, last) for first, last, _ in self._ranges_to(last_offset))

    def _finish(self) -> None:
        self._is_used_up = True
        is_whole = self._read_bytes == len(self._bytes)
        kind = self.leftovers.gaps if is_whole else self.leftovers.released
        if self._acquired:
            self._pass_over(self._acquired[-1].last, kind)

    def _reject(self, last_offset: int | None, error: HeadraceError) -> None:
        if last_offset is None:
            self._is_used_up = True
            last_offset = self._acquired[-1].last if self._acquired else -1
        before = len(self.leftovers.rejected)
        self._pass_over(last_offset, self.leftovers.rejected)
        _LOGGER.error(
            "partition %s: offsets %s cannot be read and are rejected: %s",
            self.partition,
            self.leftovers.rejected[before:],
            error,
        )


def runs_of(records: Sequence[ConsumedRecord]) -> list[Range]:
    """Return ascending offsets of records as ranges."""
    if not records:
        return []
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        return [Range(first, last)]
    runs: list[Range] = []
    previous = first
    for record in records:
        if record.offset > previous + 1:
            runs.append(Range(first, previous))
            first = record.offset
        previous = record.offset
    runs.append(Range(first, previous))
    return runs


def holes(offsets: Sequence[int], first: int, last: int) -> list[Range]:
    """Return the ranges between `first` and `last` without any of the ascending offsets."""
    found: list[Range] = []
    position = first
    for offset in offsets:
        if offset > position:
            found.append(Range(position, offset - 1))
        position = offset + 1
    if position <= last:
        found.append(Range(position, last))
    return found
