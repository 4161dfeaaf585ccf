"""Compaction of one log: the latest record of each key is kept, and offsets do not change.

    compacted = await compact(log, now_ms)

A pass reads the dirty part of the log and records the latest offset of each key, as many as its
memory holds; then it rewrites every segment up to there without superseded records (`cleaning` has
the rules), and replaces the old files with the new ones (`compaction_files`).

Reading, filtering, writing and syncing run in a thread, a chunk at a time; between two chunks the
pass checks on the loop that the log is still the one that it started with. Only renames run on the
loop. In the meantime the log may be

- appended to, rolled, read and flushed: the active segment is not touched, old segments are read
  until the new one replaces them, and a thread that is reading one then continues in the renamed
  file;
- truncated or emptied, or lose segments to retention: the pass notices, removes its files and
  raises CompactionAbandoned. Segments that it has already swapped stay;
- closed or deleted once the pass was cancelled and awaited: then no thread works for it any more.

A superseded record is dropped only when its successor is durable: a pass starts with a flush.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from headrace import config
from headrace.config import LOG_CLEANER_DEDUPE_BUFFER_SIZE
from headrace.errors import HeadraceError
from headrace.ids import NO_TIMESTAMP
from headrace.log.cleanable import Cleanable, SegmentFacts, group, plan
from headrace.log.cleaning import Sieve, TransactionWalk, last_batches
from headrace.log.compaction_files import (
    CLEANED_SUFFIX,
    discard_cleaned,
    finish_swap,
    offer_swap,
)
from headrace.log.errors import CorruptLog
from headrace.log.log import Log
from headrace.log.offset_map import OffsetMap
from headrace.log.rewriting import Result, Slices, fill, rewrite
from headrace.log.segment import Segment, file_name

MAP_BYTES_MIN: Final = 64 * 1024
MAP_BYTES_PER_DIRTY_BYTE: Final = 4
"""Enough for a key in every eight bytes. More than this is never taken, however much is allowed:
the pages of a large table cost more to clear than a small log to read."""


class Compacted(NamedTuple):
    """What a pass did."""

    first_dirty_offset: int
    """Everything below was seen; the next pass continues here."""
    bytes_read: int = 0
    bytes_written: int = 0
    records_kept: int = 0
    records_dropped: int = 0


class CompactionAbandoned(HeadraceError):
    """The log lost segments that a pass was working on; another pass may begin at once."""


async def compact(
    log: Log, now_ms: int, *, map_bytes: int = LOG_CLEANER_DEDUPE_BUFFER_SIZE.default
) -> Compacted:
    """Make one pass over a log, and advance `log.first_dirty_offset` past what it has seen.

    `cleanable.choose` decides whether one is due. When the map is full the pass ends, and the rest
    stays dirty. On an error (OSError, CorruptLog, CompactionAbandoned) the new files are removed
    and the current segment is unchanged. One pass at a time for each log.
    """
    if log.is_compacting:
        raise CompactionAbandoned(f"{log.folder} is being compacted already")
    log.is_compacting = True
    try:
        if log.recovery_point < plan_log(log, now_ms).end_offset:
            await log.flush()
        return await _Pass(log, now_ms, map_bytes).run()
    finally:
        log.is_compacting = False


class _Pass:
    """One pass, on the loop but for its slices."""

    def __init__(self, log: Log, now_ms: int, map_bytes: int) -> None:
        cleanable = plan_log(log, now_ms)
        self._log = log
        self._cuts = log.cuts
        self._begin_offset = cleanable.first_dirty_offset
        self._end_offset = min(cleanable.end_offset, log.recovery_point)
        self._segments = [
            segment for segment in log.segments[:-1] if segment.base_offset < self._end_offset
        ]
        self._aborted = (
            log.aborted_transactions(self._segments[0].base_offset, self._end_offset)
            if self._segments
            else []
        )
        self._last_batches = last_batches(log.producers)
        self._now_ms = now_ms
        self._map_bytes = min(
            map_bytes, max(MAP_BYTES_MIN, MAP_BYTES_PER_DIRTY_BYTE * cleanable.dirty_bytes)
        )

    async def run(self) -> Compacted:
        log = self._log
        if self._end_offset <= self._begin_offset:
            return Compacted(self._begin_offset)
        offsets = OffsetMap(self._map_bytes)
        begin_offset, end_offset = self._begin_offset, self._end_offset
        inflated_bytes_max = log.settings.rules.inflated_bytes_max
        self._end_offset = await self._drive(
            fill(
                offsets,
                self._segments,
                self._aborted,
                begin_offset,
                end_offset,
                inflated_bytes_max=inflated_bytes_max,
            )
        )
        sieve = Sieve(
            offsets,
            end_offset=self._end_offset,
            transactions=TransactionWalk(self._aborted),
            last_batches=self._last_batches,
            now_ms=self._now_ms,
            delete_retention_ms=log.settings.delete_retention_ms,
            inflated_bytes_max=inflated_bytes_max,
        )
        for run in self._groups():
            await self._replace(run, sieve)
        await _in_thread(partial(log.disk.sync_folder, log.folder))
        self._check_cuts()
        log.first_dirty_offset = self._end_offset
        tally = sieve.tally
        return Compacted(
            self._end_offset,
            tally.bytes_read,
            tally.bytes_written,
            tally.records_kept,
            tally.records_dropped,
        )

    def _groups(self) -> list[list[Segment]]:
        """Part the segments up to the end into those that become one."""
        by_offset = {
            segment.base_offset: segment
            for segment in self._segments
            if segment.base_offset < self._end_offset
        }
        ends = [segment.base_offset for segment in self._log.segments]
        behind = next(end for end in ends if end > max(by_offset))
        every = [_facts(segment) for segment in by_offset.values()]
        return [
            [by_offset[part.base_offset] for part in run]
            for run in group(every, self._log.settings, behind)
        ]

    async def _replace(self, old: list[Segment], sieve: Sieve) -> None:
        """Rewrite some segments as one, and replace them with it."""
        log = self._log
        base_offset = old[0].base_offset
        discard = partial(discard_cleaned, log.disk, log.folder, base_offset)
        new = Segment(
            log.disk,
            log.folder,
            base_offset,
            sizes={},
            index_interval_bytes=log.settings.index_interval_bytes,
            ending=CLEANED_SUFFIX,
        )
        try:
            await self._drive(rewrite(old, new, sieve))
            index = self._find(old)
            offer_swap(log.disk, log.folder, base_offset)
        except BaseException:
            await _in_thread(discard)
            raise
        self._take_over(index, old, new)

    def _take_over(self, index: int, old: list[Segment], new: Segment) -> None:
        """Install the new segment in the log; on the loop, without yielding."""
        log = self._log
        try:
            finish_swap(
                log.disk, log.folder, new.base_offset, [segment.base_offset for segment in old]
            )
        except OSError as error:
            raise log.fail(error) from error
        log.has_deleted_files = True
        new.close()
        taken = Segment(
            log.disk,
            log.folder,
            new.base_offset,
            sizes={
                file_name(new.base_offset, ".log"): new.size_bytes,
                file_name(new.base_offset, ".index"): new.offset_index.size_bytes,
                file_name(new.base_offset, ".timeindex"): new.time_index.size_bytes,
            },
            index_interval_bytes=log.settings.index_interval_bytes,
        )
        log.segments = [*log.segments[:index], taken, *log.segments[index + len(old) :]]

    # The log meanwhile

    async def _drive(self, slices: Slices[Result]) -> Result:
        """Do the slices one by one in a thread, for as long as the log is whole."""
        while True:
            try:
                done = await _in_thread(partial(_advance, slices))
            except (OSError, CorruptLog):
                self._check_whole()  # what the thread saw may be a file that was just cut
                raise
            self._check_whole()
            if done is not None:
                return done[0]

    def _check_whole(self) -> None:
        self._check_cuts()
        if self._segments[0].base_offset < self._log.segments[0].base_offset:
            raise CompactionAbandoned(f"{self._log.folder} lost its first segments meanwhile")

    def _check_cuts(self) -> None:
        if self._log.cuts != self._cuts:
            raise CompactionAbandoned(f"{self._log.folder} was truncated meanwhile")

    def _find(self, old: list[Segment]) -> int:
        """Return the index of the segments that `_check_whole` found in the log."""
        index = self._log.segments.index(old[0])
        assert self._log.segments[index : index + len(old)] == old
        return index


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run work in a thread; a cancellation waits until the thread is done."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()  # nobody asks for it any more
        raise


def _advance(slices: Slices[Result]) -> tuple[Result] | None:
    """Do one slice; give the result in a tuple if it was the last."""
    try:
        next(slices)
    except StopIteration as stop:
        return (stop.value,)
    return None


def plan_log(log: Log, now_ms: int) -> Cleanable:
    """Return what may be compacted of a log now."""
    settings = log.settings
    has_lag = (
        settings.min_compaction_lag_ms > 0
        or settings.max_compaction_lag_ms < config.MAX_COMPACTION_LAG_MS.default
    )
    return plan(
        [_facts(segment, with_times=has_lag) for segment in log.segments],
        settings,
        start_offset=log.start_offset,
        checkpoint=log.first_dirty_offset,
        stable_offset=log.last_stable_offset,
        now_ms=now_ms,
    )


def _facts(segment: Segment, *, with_times: bool = False) -> SegmentFacts:
    """Describe a segment; its times, which take reading from the disk, only if asked for."""
    first_timestamp: int = NO_TIMESTAMP
    largest_timestamp: int = NO_TIMESTAMP
    if with_times and segment.size_bytes:
        largest_timestamp = segment.largest_timestamp
        first_timestamp = segment.first_timestamp or next(segment.batches())[1].max_timestamp
    return SegmentFacts(
        segment.base_offset,
        segment.size_bytes,
        max(segment.offset_index.size_bytes, segment.time_index.size_bytes),
        first_timestamp,
        largest_timestamp,
    )
