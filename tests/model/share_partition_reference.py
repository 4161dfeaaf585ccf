"""A share partition offset by offset: the rules of KIP-932 with nothing made fast.

Every offset has an entry of its own and every question is answered by looking at all of them. What
is written, and what becomes of it, is told from outside, as it is to the real one.
"""

from dataclasses import dataclass, field
from typing import Final

from headrace.errors import ErrorCode
from headrace.share.partition.types import (
    Acknowledgement,
    AckType,
    Acquired,
    Cause,
    FetchedBatch,
    Limits,
    Wanted,
)
from headrace.wire.share_types import AcquireMode

AVAILABLE: Final = "available"
ACQUIRED: Final = "acquired"
ACKNOWLEDGED: Final = "acknowledged"
ARCHIVING: Final = "archiving"
ARCHIVED: Final = "archived"
COMPLETE: Final = (ACKNOWLEDGED, ARCHIVED)
NUMBERS: Final = {AVAILABLE: 0, ACQUIRED: 1, ACKNOWLEDGED: 2, ARCHIVING: 3, ARCHIVED: 4}
NAMES: Final = {number: name for name, number in NUMBERS.items()}


@dataclass
class Entry:
    """One offset."""

    state: str = AVAILABLE
    count: int = 0
    member: str | None = None
    until: int = 0
    cause: Cause | None = None
    pending: int | None = None
    """The number of the change that is being written of it."""
    handed_out: bool = False
    batch_size: int = 1
    """How many offsets it came into the window with."""


Fate = tuple[str, int, Cause | None]


@dataclass
class Pending:
    """A change that is being written."""

    fates: dict[int, Fate]
    is_applied: bool = False
    is_leaving: bool = False


@dataclass
class Refused(Exception):
    """An acknowledgement that is an error."""

    code: ErrorCode


@dataclass
class Reference:
    """The whole share partition."""

    limits: Limits
    start: int = 0
    end: int = -1
    entries: dict[int, Entry] = field(default_factory=dict)
    pending: dict[int, Pending] = field(default_factory=dict)
    number: int = 0

    # What can be asked

    def complete_count(self) -> int:
        return sum(entry.state in COMPLETE for entry in self.entries.values())

    def completing_count(self) -> int:
        return sum(
            fate[0] in COMPLETE
            for change in self.pending.values()
            if not change.is_applied
            for offset, fate in change.fates.items()
            if offset >= self.start
        )

    def is_free(self, offset: int, now: int) -> bool:
        entry = self.entries[offset]
        return entry.state == AVAILABLE and entry.until <= now

    def next_fetch_offset(self, now: int) -> int:
        free = (offset for offset in sorted(self.entries) if self.is_free(offset, now))
        return next(free, self.end + 1)

    def can_acquire(self, now: int) -> bool:
        is_full = self.end - self.start + 1 >= self.limits.in_flight_max
        return not is_full or self.next_fetch_offset(now) <= self.end

    # Acquiring

    def acquire(
        self, member: str, fetched: list[FetchedBatch], wanted: Wanted, now: int, begun: int
    ) -> dict[int, int]:
        """Give the offsets that the member has now, with their delivery counts."""
        for offset in range(max(begun, self.start), fetched[0].first_offset):
            if offset > self.end:
                self._extend(offset, Entry(ARCHIVED, cause=Cause.GONE))
            elif self.entries[offset].state == AVAILABLE:
                self._end(offset, ARCHIVED, Cause.GONE)
        self._advance()
        chosen = self._choose(fetched, wanted, now)
        for offset in chosen:
            entry = self.entries[offset]
            entry.state, entry.member = ACQUIRED, member
            entry.count += 1
            entry.until = now + self.limits.lock_duration_ms
        counts = {offset: self.entries[offset].count for offset in chosen}
        self._advance()
        return counts

    def _choose(  # noqa: C901, PLR0912
        self, fetched: list[FetchedBatch], wanted: Wanted, now: int
    ) -> list[int]:
        is_exact = wanted.mode == AcquireMode.RECORD_LIMIT
        room = self.limits.in_flight_max - (self.end - self.start + 1)
        position = max(fetched[0].first_offset, self.start)
        old_end = self.end
        known: list[int] = []
        fresh: list[int] = []
        range_begin: int | None = None
        for batch in fetched:
            offsets = range(position, batch.last_offset + 1)
            if not offsets:
                continue
            if len(known) + len(fresh) >= wanted.max_records:
                break
            position = batch.last_offset + 1
            if not batch.is_deliverable:
                cause = Cause.GONE if batch.is_control else Cause.ABORTED
                for offset in offsets:
                    if offset > self.end:
                        self._extend(offset, Entry(ARCHIVED, cause=cause))
                        room -= 1
                        range_begin = None
                    elif self.entries[offset].state == AVAILABLE:
                        self._end(offset, ARCHIVED, cause)
                continue
            for offset in offsets:
                if offset > old_end or not self.is_free(offset, now):
                    continue
                allowed = self._allowed(offset)
                if allowed is not None:
                    if known:
                        return known + fresh
                    if is_exact:
                        allowed = min(allowed, wanted.max_records)
                    return self._like(offset, allowed, fetched[-1].last_offset)
                known.append(offset)
                if is_exact and len(known) == wanted.max_records:
                    return known + fresh
            beyond = [offset for offset in offsets if offset > self.end]
            if not beyond:
                continue
            if room <= 0:
                break
            taken = beyond
            if is_exact:
                taken = beyond[: min(room, wanted.max_records - len(known) - len(fresh))]
            room -= len(taken)
            fresh += taken
            if range_begin is None or not (is_exact or beyond[0] - range_begin < wanted.batch_size):
                range_begin = beyond[0]
            for offset in beyond:
                self._extend(offset, Entry())
            for offset in range(range_begin, self.end + 1):
                self.entries[offset].batch_size = self.end - range_begin + 1
            if room <= 0 or len(taken) < len(beyond):
                break
        return known + fresh

    def _allowed(self, offset: int) -> int | None:
        entry, limit = self.entries[offset], self.limits.delivery_count_limit
        suspect = max(2, -(-limit // 2))
        if entry.count < suspect:
            return None
        if entry.count >= limit - 1:
            return 1
        return max(1, entry.batch_size >> (entry.count - suspect + 1))

    def _like(self, first: int, most: int, last: int) -> list[int]:
        """Give offsets from the first on that share its past, as many as there may be."""
        offsets = [first]
        while len(offsets) < most and offsets[-1] < min(last, self.end):
            if self.entries[offsets[-1] + 1] != self.entries[first]:
                break
            offsets.append(offsets[-1] + 1)
        return offsets

    # Acknowledging

    def acknowledge(self, member: str, acks: list[Acknowledgement], now: int) -> int:
        """Begin a change; give its number."""
        previous = -1
        for ack in acks:
            size = ack.last_offset - ack.first_offset + 1
            is_in_order = ack.first_offset > previous or ack.first_offset == previous >= 0
            if (
                size < 1
                or not is_in_order
                or len(ack.types) not in (1, size)
                or any(kind not in range(5) for kind in ack.types)
            ):
                raise Refused(ErrorCode.INVALID_REQUEST)
            previous = ack.last_offset
        fates: dict[int, Fate] = {}
        renewed: list[int] = []
        for ack in acks:
            if ack.last_offset >= self.start:
                self._acknowledge(member, ack, fates, renewed)
        for offset in renewed:
            self.entries[offset].until = now + self.limits.lock_duration_ms
        return self._begin(Pending(fates))

    def _acknowledge(
        self, member: str, ack: Acknowledgement, fates: dict[int, Fate], renewed: list[int]
    ) -> None:
        if not self.entries:
            raise Refused(ErrorCode.INVALID_RECORD_STATE)
        if ack.last_offset > self.end:
            raise Refused(ErrorCode.INVALID_REQUEST)
        for place, offset in enumerate(range(ack.first_offset, ack.last_offset + 1)):
            if offset < self.start:
                continue
            entry = self.entries[offset]
            if (
                entry.state != ACQUIRED
                or entry.member != member
                or entry.pending is not None
                or offset in fates
                or offset in renewed
            ):
                raise Refused(ErrorCode.INVALID_RECORD_STATE)
            kind = ack.types[place % len(ack.types)]
            if kind != AckType.RENEW:
                fates[offset] = self._fate(kind, entry.count)
            elif self.limits.is_renew_allowed:
                renewed.append(offset)
            else:
                raise Refused(ErrorCode.INVALID_RECORD_STATE)

    def _fate(self, kind: int, count: int) -> Fate:
        given_up = ARCHIVING if self.limits.has_dead_letters else ARCHIVED
        if kind == AckType.ACCEPT:
            return ACKNOWLEDGED, count, None
        if kind == AckType.GAP:
            return ARCHIVED, count, Cause.GONE
        if kind == AckType.REJECT:
            return given_up, count, Cause.REJECTED
        return self._back(count, Cause.EXHAUSTED)

    def _back(self, count: int, cause: Cause) -> Fate:
        if count < self.limits.delivery_count_limit:
            return AVAILABLE, count, None
        return (ARCHIVING if self.limits.has_dead_letters else ARCHIVED), count, cause

    def leave(self, member: str) -> int | None:
        """Give the number of the change; None if the member has nothing."""
        fates: dict[int, Fate] = {}
        for offset, entry in self.entries.items():
            if entry.state == ACQUIRED and entry.member == member:
                if entry.pending is None:
                    fates[offset] = self._back(entry.count, Cause.EXHAUSTED)
                else:
                    entry.member = None
        return self._begin(Pending(fates, is_leaving=True)) if fates else None

    def expire(self, now: int) -> int | None:
        """Give the number of the change; None if no lock ended."""
        fates: dict[int, Fate] = {}
        for offset, entry in self.entries.items():
            if entry.until and entry.until <= now and entry.pending is None:
                if entry.state == ACQUIRED:
                    fates[offset] = self._back(entry.count, Cause.LOCK_TIMED_OUT)
                    self._end(offset, fates[offset][0], fates[offset][2])
                entry.until = 0
        return self._note(fates) if fates else None

    def letters(self) -> dict[int, tuple[int, Cause | None]]:
        """Give what is to be copied."""
        found: dict[int, tuple[int, Cause | None]] = {}
        for offset, entry in self.entries.items():
            if entry.state == ARCHIVING and entry.pending is None and not entry.handed_out:
                entry.handed_out = True
                found[offset] = entry.count, entry.cause
        return found

    def copied(self, first: int, last: int) -> int:
        """Archive what was copied; give the number of the change."""
        fates: dict[int, Fate] = {}
        for offset in range(max(first, self.start), last + 1):
            entry = self.entries[offset]
            if entry.state == ARCHIVING and entry.handed_out:
                fates[offset] = ARCHIVED, entry.count, entry.cause
                self._end(offset, ARCHIVED, entry.cause)
        return self._note(fates)

    def not_copied(self, first: int, last: int) -> None:
        for offset in range(max(first, self.start), last + 1):
            self.entries[offset].handed_out = False

    # What became of a change

    def succeeded(self, number: int, now: int) -> None:
        change = self.pending.pop(number)
        for offset, (state, count, cause) in change.fates.items():
            if offset < self.start or self.entries[offset].pending != number:
                continue
            entry = self.entries[offset]
            entry.pending = None
            if change.is_applied:
                continue
            self._end(offset, state, cause)
            if state == AVAILABLE and self.limits.release_backoff_ms and not change.is_leaving:
                rest = self.limits.release_backoff_ms * 2 ** (count - 1)
                entry.until = now + min(rest, self.limits.release_backoff_max_ms)
        self._advance()

    def failed(self, number: int, now: int) -> None:
        change = self.pending[number]
        if change.is_applied or change.is_leaving:
            self.succeeded(number, now)
            return
        del self.pending[number]
        for offset in change.fates:
            if offset < self.start or self.entries[offset].pending != number:
                continue
            entry = self.entries[offset]
            entry.pending = None
            if entry.member is None:
                state, _, cause = self._back(entry.count, Cause.EXHAUSTED)
                self._end(offset, state, cause)
            elif entry.until <= now:
                state, _, cause = self._back(entry.count, Cause.LOCK_TIMED_OUT)
                self._end(offset, state, cause)
        self._advance()

    def on_log_start(self, offset: int) -> None:
        if offset <= self.start:
            return
        for each in [each for each in self.entries if each < offset]:
            del self.entries[each]
        self.start, self.end = offset, max(self.end, offset - 1)
        self._advance()

    def load(self, start: int, durable: dict[int, tuple[int, int]]) -> None:
        """Begin anew with what was written: (delivery count, number of the state) by offset."""
        self.start, self.end = start, max(durable, default=start - 1)
        self.entries, self.pending = {}, {}
        sizes = _sizes(durable, start, self.end)
        for offset in range(start, self.end + 1):
            count, number = durable.get(offset, (0, 0))
            cause = None
            if NAMES[number] in (ARCHIVING, ARCHIVED):
                is_exhausted = count >= self.limits.delivery_count_limit
                cause = Cause.EXHAUSTED if is_exhausted else Cause.REJECTED
            entry = Entry(NAMES[number], count, cause=cause, batch_size=sizes[offset])
            self.entries[offset] = entry
        self._advance()

    # What is common

    def _extend(self, offset: int, entry: Entry) -> None:
        assert offset == self.end + 1
        self.entries[offset] = entry
        self.end = offset

    def _end(self, offset: int, state: str, cause: Cause | None) -> None:
        entry = self.entries[offset]
        entry.state, entry.cause = state, cause
        entry.member, entry.until = None, 0
        entry.pending, entry.handed_out = None, False

    def _begin(self, change: Pending) -> int:
        self.number += 1
        self.pending[self.number] = change
        for offset, fate in change.fates.items():
            if not change.is_applied or fate[0] == ARCHIVING:
                self.entries[offset].pending = self.number
        return self.number

    def _note(self, fates: dict[int, Fate]) -> int:
        number = self._begin(Pending(fates, is_applied=True))
        self._advance()
        return number

    def _advance(self) -> None:
        while self.start <= self.end and self.entries[self.start].state in COMPLETE:
            del self.entries[self.start]
            self.start += 1


def acquired_offsets(ranges: list[Acquired]) -> dict[int, int]:
    """Give ranges offset by offset."""
    return {
        offset: each.delivery_count
        for each in ranges
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def _sizes(durable: dict[int, tuple[int, int]], start: int, end: int) -> dict[int, int]:
    """Give the length of the run of the same state and count that each offset is in."""
    sizes: dict[int, int] = {}
    run: list[int] = []
    for offset in range(start, end + 2):
        if run and (offset > end or durable.get(offset) != durable.get(run[-1])):
            sizes |= dict.fromkeys(run, len(run))
            run = []
        run.append(offset)
    return sizes
