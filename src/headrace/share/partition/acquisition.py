"""Acquisition of records that were read from the log.

Records that were delivered often are suspect: one of them may be what kills its consumers. They are
acquired separately and in ever smaller ranges, so that a poison record ends up alone.
"""

from collections.abc import Sequence

from headrace.share.partition.locks import lock
from headrace.share.partition.types import Acquired, Cause, FetchedBatch, Limits, Wanted
from headrace.share.partition.window import ACQUIRED, ARCHIVED, AVAILABLE, Run, Window
from headrace.wire.share_types import AcquireMode

SUSPECT_COUNT_MIN = 2


class Acquisition:
    """One member's share of one read of the log.

    Records are first chosen, by walking over the batches in order, and then locked.
    """

    def __init__(self, window: Window, wanted: Wanted, limits: Limits, now_ms: int) -> None:
        self._window = window
        self._limits = limits
        self._now_ms = now_ms
        self._batch_size = wanted.batch_size
        self._is_exact = wanted.mode == AcquireMode.RECORD_LIMIT
        self._left = wanted.max_records
        """How many more records are wanted."""
        self._room = limits.in_flight_max - (window.end_offset - window.start_offset + 1)
        """How many more offsets the window may have."""
        self._known: list[Acquired] = []
        """Chosen offsets inside the window, with their previous delivery count."""
        self._fresh: list[Run] = []
        """Chosen offsets that extend the window."""
        self._end_offset = window.end_offset
        self._fetched_last = -1

    def choose(self, fetched: Sequence[FetchedBatch]) -> None:
        """Choose the wanted records that may be acquired."""
        self._fetched_last = fetched[-1].last_offset
        position = max(fetched[0].first_offset, self._window.start_offset)
        for batch in fetched:
            if batch.last_offset < position:
                continue
            if self._left <= 0:
                break
            if not batch.is_deliverable:
                self._pass_over(position, batch)
            elif not self._take(position, batch.last_offset):
                break
            position = batch.last_offset + 1

    def lock(self, member_id: str) -> list[Acquired]:
        """Lock the chosen records for a member; return them in order."""
        window = self._window
        until_ms = self._now_ms + self._limits.lock_duration_ms
        acquired: list[Acquired] = []
        for first, last, count in self._known:
            for run in window.between(first, last):
                run.state = ACQUIRED
                run.count = count + 1
                run.member_id = member_id
                lock(window, run, until_ms)
            window.join(first, last)
            acquired.append(Acquired(first, last, count + 1))
        for run in self._fresh:
            if run.state == ACQUIRED:
                run.member_id = member_id
                lock(window, run, until_ms)
                acquired.append(Acquired(run.first, run.last, 1))
            window.append(run)
        return acquired

    def _take(self, first: int, last: int) -> bool:
        """Choose from a batch; return whether to continue."""
        known_last = min(last, self._window.end_offset)
        if first <= known_last and not self._take_known(first, known_last):
            return False
        return last <= self._end_offset or self._take_fresh(last)

    def _take_known(self, first: int, last: int) -> bool:
        """Choose available offsets of the window; return whether to continue."""
        for run in self._window.overlapping(first, last):
            if run.state != AVAILABLE or run.until_ms > self._now_ms:
                continue
            begin, end = max(first, run.first), min(last, run.last)
            allowed = self._allowed(run)
            is_suspect = allowed is not None
            if allowed is not None:
                if self._known:
                    return False
                # Not up to the end of this batch of the log: a suspect part may be larger.
                end = min(run.last, begin + allowed - 1, self._fetched_last)
            if self._is_exact:
                end = min(end, begin + self._left - 1)
            self._add(begin, end, run.count)
            if is_suspect or (self._is_exact and self._left <= 0):
                return False
        return True

    def _add(self, first: int, last: int, count: int) -> None:
        self._left -= last - first + 1
        if self._known:
            before = self._known[-1]
            if (
                before.last_offset + 1 == first
                and before.delivery_count == count
                and last - before.first_offset < self._batch_size
            ):
                self._known[-1] = Acquired(before.first_offset, last, count)
                return
        self._known.append(Acquired(first, last, count))

    def _take_fresh(self, last: int) -> bool:
        """Choose a batch, or the rest of one, beyond the window; return whether to continue."""
        if self._room <= 0:
            return False
        first = self._end_offset + 1
        taken_last = last
        if self._is_exact:
            taken_last = min(last, first + min(self._left, self._room) - 1)
        self._left -= taken_last - first + 1
        self._room -= taken_last - first + 1
        before = self._fresh[-1] if self._fresh else None
        if (
            before is not None
            and before.state == ACQUIRED
            and (self._is_exact or before.last - before.first + 1 < self._batch_size)
        ):
            before.last = taken_last
        else:
            before = Run(first, taken_last, ACQUIRED, 1)
            self._fresh.append(before)
        before.batch_size = last - before.first + 1
        if taken_last < last:
            # As in Kafka, which tracks whole batches: the rest is in the window, available to all.
            rest = Run(taken_last + 1, last, AVAILABLE)
            rest.batch_size = before.batch_size
            self._fresh.append(rest)
        self._end_offset = last
        return self._room > 0 and taken_last == last

    def _pass_over(self, first: int, batch: FetchedBatch) -> None:
        """Archive the available offsets of a withheld batch."""
        cause = Cause.GONE if batch.is_control else Cause.ABORTED
        if not batch.is_readable:
            cause = Cause.UNREADABLE
        last = batch.last_offset
        if first <= self._window.end_offset:
            archive(self._window, first, min(last, self._window.end_offset), cause)
        if last > self._end_offset:
            run = Run(self._end_offset + 1, last, ARCHIVED)
            run.cause = cause
            self._fresh.append(run)
            self._room -= last - self._end_offset
            self._end_offset = last

    def _allowed(self, run: Run) -> int | None:
        """Return how much of a run may be acquired at once; None if it is not suspect."""
        limit = self._limits.delivery_count_limit
        suspect_count = max(SUSPECT_COUNT_MIN, (limit + 1) // 2)
        if run.count < suspect_count:
            return None
        if run.count >= limit - 1:
            return 1
        return max(1, run.batch_size >> (run.count - suspect_count + 1))


def archive_missing(window: Window, fetch_offset: int | None, first_offset: int) -> None:
    """Archive offsets that are no longer in the log: a read from `fetch_offset` started after them.

    The current next fetch offset would not do: an earlier offset may have become available since.
    Without `fetch_offset`, only offsets that were never in the window are known to be gone.
    """
    if fetch_offset is not None:
        archive(window, fetch_offset, min(first_offset - 1, window.end_offset), Cause.GONE)
    if first_offset > window.end_offset + 1:
        run = Run(window.end_offset + 1, first_offset - 1, ARCHIVED)
        run.cause = Cause.GONE
        window.append(run)


def archive(window: Window, first: int, last: int, cause: Cause) -> None:
    """Archive the available ones among some offsets of the window."""
    first = max(first, window.start_offset)
    if first > last or not window.runs:
        return
    for run in window.overlapping(first, last):
        if run.state == AVAILABLE:
            for part in window.between(max(first, run.first), min(last, run.last)):
                window.set_state(part, ARCHIVED, cause)
    window.join(first, last)
