"""The log of one partition: what is appended stays, at the offset that it was given.

A log is used from one thread, the loop's; only `flush` leaves it for a moment. Work for an append
is constant: the client's own bytes are checked, given their offset in place and written with one
system call. `opening` makes a Log from a folder, `cutting` takes parts of it away, `compaction`
rewrites it.
"""

import asyncio
import errno
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final

from msgspec import Struct

from headrace.ids import NO_TIMESTAMP
from headrace.log import transactions
from headrace.log.cleanable import RELATIVE_OFFSET_MAX
from headrace.log.disk import GONE, Disk
from headrace.log.epochs import LeaderEpochs
from headrace.log.errors import OffsetInTier, OffsetOutOfRange, ReadOnlyLog
from headrace.log.fetch import ColdRead, read_segment
from headrace.log.flushing import Flush, Flusher, LostWrites
from headrace.log.producers import Origin, ProducerStates, RecordedBatch
from headrace.log.replicating import ANY_EPOCH, append_all
from headrace.log.segment import Segment
from headrace.log.settings import LogSettings
from headrace.log.transactions import FirstLook, TransactionIndex
from headrace.records.aborted import AbortedTransaction
from headrace.records.control import ControlRecord, read_control
from headrace.records.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    assign_offset,
    read_header,
)
from headrace.records.validation import validate_batch

NO_LEADER_EPOCH: Final = -1
SPACE_MARGIN_BYTES: Final = 1024 * 1024
"""How much must be free, beyond the current batch, before a full disk is retried."""
_SPACE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
_EMPTY: Final = memoryview(b"")


class Appended(Struct, frozen=True, gc=False):
    """Where a batch is in the log."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """The time that the records were given; NO_TIMESTAMP if they keep their producer's."""
    is_duplicate: bool
    """Whether the batch is a duplicate and nothing was written."""


class Log:
    """Batches from `start_offset` up to, not including, `end_offset`.

    Those below `local_start_offset`, if there are any, are in the tier, and not on this disk.
    """

    def __init__(  # noqa: PLR0913  what `opening` found
        self,
        disk: Disk,
        folder: str,
        settings: LogSettings,
        *,
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.settings = settings
        self.segments = segments
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        """Everything below is on disk, whatever happens to this process or machine."""
        self.high_watermark = start_offset
        self.durable_start_offset = start_offset
        """Where the log starts according to the checkpoint of its directory."""
        self.remote_end_offset = 0
        """Everything below is in the tier, as far as this node knows; 0 without a tier."""
        self.uncopied_bytes_dropped = 0
        """What local retention has deleted that was not in the tier."""
        self.first_dirty_offset = start_offset
        """Compaction has seen everything below."""
        self.was_compacted = settings.is_compacted
        """Whether offsets may be missing because the topic is or was compacted."""
        self.doubtful_offset: int | None = None
        """From here on records may be missing before later ones, after a crash: see `opening`."""
        self.cuts = 0
        """How often the end was cut off, by which a compaction that runs sees that it must stop."""
        self.is_compacting = False
        self.is_being_cut = False
        """Whether files do not match a truncation yet (`truncating`)."""
        self.epochs = epochs
        self.producers = producers
        self.wants_flush = False
        """Whether `flush` is due: a segment was finished, or flush.messages is reached."""
        self.failure: str | None = None
        """Why the log takes no appends, if it does not."""
        self.is_out_of_space = False
        """Whether that is because the disk is full, which may be temporary."""
        self._hold: str | None = None
        self._active = segments[-1]
        self._leader_epoch = NO_LEADER_EPOCH if epochs.latest_epoch is None else epochs.latest_epoch
        self.flusher = Flusher(self)
        self._opened_extent = self._extent()
        self._dirty_since_ms = 0
        self._limit: tuple[Segment | None, int, int, int] = (None, 0, 0, 0)
        """Where an offset, up to which was read last, is in its segment, and after which cut."""
        self.dropped: list[int] = []
        """Base offsets of segments that are not part of the log and whose files are to go."""
        self.has_deleted_files = False
        """Whether there may be renamed files to remove."""
        self.deleted_since_ms: dict[str, int] = {}
        """When each file that awaits its removal was first seen to be deleted."""

    # Offsets

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records must stop: the first transaction still undecided."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.start_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Advance the high watermark: all in-sync replicas have what is below `offset`."""
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)

    @property
    def local_start_offset(self) -> int:
        """The first offset on this disk; the records below are in the tier."""
        start_offset = self.start_offset
        return (
            max(start_offset, self.segments[0].base_offset)
            if self.settings.is_tiered
            else start_offset
        )

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_empty(self) -> bool:
        """Whether no batch is on this disk."""
        return len(self.segments) == 1 and not self.segments[0].size_bytes

    # Appending

    def append(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write what a client produced, or say where it is if it was produced before.

        The bytes are changed in place. KafkaError if they are refused: what `validate_batch` and
        `ProducerStates.check` say, or ReadOnlyLog. CostlyBatch if they are to be validated in a
        thread before `append_validated` takes them.
        """
        header, batch = validate_batch(records, self.settings.rules, now_ms)
        return self.append_validated(header, batch, leader_epoch=leader_epoch, now_ms=now_ms)

    def append_validated(
        self, header: BatchHeader, batch: memoryview, *, leader_epoch: int, now_ms: int
    ) -> Appended:
        """Write what `validate_batch` accepted; KafkaError as `append` raises it."""
        if header.producer_id >= 0:
            repeated = self.producers.check(header, Origin.CLIENT)
            if repeated is not None:
                return _duplicate(repeated)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        assign_offset(batch, base_offset, leader_epoch)
        self._write(batch, base_offset, last_offset, header.max_timestamp, leader_epoch)
        if base_offset == self.recovery_point:
            self._dirty_since_ms = now_ms
        if header.producer_id >= 0:
            self.producers.apply(read_header(batch))
        is_append_time = header.attributes & LOG_APPEND_TIME_BIT
        append_time_ms = header.max_timestamp if is_append_time else NO_TIMESTAMP
        return Appended(base_offset, last_offset, append_time_ms, False)

    def append_own(
        self, batch: memoryview, *, leader_epoch: int, transaction_version: int = 0
    ) -> Appended:
        """Write a batch that this node built: a coordinator's records, or a control batch."""
        header = read_header(batch)
        control = None
        if header.is_control:
            control = read_control(batch, header)
            if control.ends_transaction:
                self.producers.check_marker(header, control, transaction_version)
        elif header.producer_id >= 0:
            self.producers.check(header, Origin.COORDINATOR)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        assign_offset(batch, base_offset, leader_epoch)
        self._write(batch, base_offset, last_offset, header.max_timestamp, leader_epoch)
        self._apply(read_header(batch), control)
        return Appended(base_offset, last_offset, NO_TIMESTAMP, False)

    def append_replicated(self, chunk: memoryview, *, epoch_max: int = ANY_EPOCH) -> int:
        """Write batches that the leader has, at its offsets; return the log's new end.

        A last batch that is cut off is left for the next fetch. Errors are those of
        `replicating.append_part`, which does this in parts.
        """
        return append_all(self, chunk, epoch_max=epoch_max)

    def make_room(self, first: BatchHeader) -> Segment:
        """Return the segment for a batch, a new one if it is due; ReadOnlyLog if the disk fails."""
        try:
            if self.failure is not None:
                self._refuse_or_recover(first.size_bytes)
            segment = self._active
            if self._is_full(segment, first.size_bytes, first.last_offset, first.max_timestamp):
                segment = self.roll(first.base_offset)
        except OSError as error:
            raise self.fail(error) from error
        return segment

    def write_run(
        self,
        data: memoryview,
        run: list[BatchHeader],
        controls: Mapping[int, ControlRecord],
        now_ms: int,
    ) -> None:
        """Write a leader's batches for which there is room; on a failing disk nothing changes.

        `controls` has the control records by the base offset of their batch.
        """
        segment = self._active
        try:
            segment.append_run(data, run)
        except OSError as error:
            raise self.fail(error) from error
        if self.end_offset == self.recovery_point:
            self._dirty_since_ms = now_ms
        next_offset = self.end_offset
        for header in run:
            if header.base_offset != next_offset:
                self.was_compacted = True  # or a crash would find damage in the gap
            if header.leader_epoch != self._leader_epoch:
                self._begin_epoch(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self._apply(header, controls.get(header.base_offset))
            next_offset = header.next_offset
        self._end_at(next_offset)

    def _write(
        self,
        batch: memoryview,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        leader_epoch: int,
    ) -> None:
        """Put a batch with its offsets at the end; on a failing disk nothing changes."""
        try:
            if self.failure is not None:
                self._refuse_or_recover(len(batch))
            segment = self._active
            if self._is_full(segment, len(batch), last_offset, max_timestamp):
                segment = self.roll(base_offset)
            segment.append(batch, last_offset, max_timestamp)
        except OSError as error:
            raise self.fail(error) from error
        if leader_epoch != self._leader_epoch:
            self._begin_epoch(leader_epoch, base_offset)
        self._end_at(last_offset + 1)

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        self._leader_epoch = leader_epoch
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, base_offset)
            self.flusher.are_epochs_dirty = True

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset
        if offset - self.recovery_point >= self.settings.flush_messages:
            self.wants_flush = True

    def _apply(self, header: BatchHeader, control: ControlRecord | None) -> None:
        """Apply a batch in the log to the producers; index what it aborted."""
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producers.apply(header)
        elif control is not None and control.ends_transaction:
            aborted = self.producers.apply_marker(header, control)
            if aborted is not None:
                self._active.transaction_index.append(aborted)

    def _is_full(
        self, segment: Segment, batch_bytes: int, last_offset: int, max_timestamp: int
    ) -> bool:
        size_bytes, settings = segment.size_bytes, self.settings
        if size_bytes == 0:
            return False
        first_timestamp = segment.first_timestamp
        if first_timestamp is None:
            segment.load_timestamps()
            first_timestamp = segment.first_timestamp
        return (
            size_bytes + batch_bytes > settings.segment_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.offset_index.count >= settings.offset_entries_max
            or segment.time_index.count >= settings.time_entries_max
            or (
                first_timestamp is not None
                and first_timestamp >= 0  # a record without a time says nothing of age
                and max_timestamp - first_timestamp > settings.segment_age_ms_max
            )
        )

    def roll(self, base_offset: int, *, is_kept: bool = True) -> Segment:
        """Finish the active segment and begin one at `base_offset`, the end of the log.

        One without batches is begun already. On a failing disk nothing changes (OSError). If the
        segment is not kept, its indexes are left as they are: a full disk may have no room.
        """
        finished = self._active
        if finished.size_bytes == 0:
            return finished
        if is_kept:
            finished.finish()
        segment = Segment(
            self.disk,
            self.folder,
            base_offset,
            sizes={},
            index_interval_bytes=self.settings.index_interval_bytes,
        )
        segment.create()
        self.flusher.note_snapshot(base_offset)
        self.segments.append(segment)
        self._active = segment
        self.wants_flush = True
        return segment

    def reactivate(self, end_offset: int, snapshots_up_to: int) -> None:
        """Go on at `end_offset`, in the last segment that is left.

        Snapshots of producers that are still to be written count only up to an offset.
        """
        self._active = self.segments[-1]
        self.end_offset = end_offset
        self.cuts += 1
        self.recovery_point = min(self.recovery_point, end_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self.high_watermark = min(max(self.high_watermark, self.start_offset), end_offset)
        self.remote_end_offset = min(self.remote_end_offset, end_offset)
        self.flusher.cut(end_offset, snapshots_up_to)

    # Reading

    def read(
        self,
        offset: int,
        bytes_max: int,
        *,
        up_to: int,
        is_first_whole: bool = True,
        may_block: bool = False,
    ) -> memoryview | None:
        """Read the bytes of batches from the one with `offset` on, none that starts at `up_to`.

        Empty at the end of the log. None if they are not in the page cache and the call may not
        wait for the disk: `read_cold` does that. Raise OffsetOutOfRange if the offset is outside
        the log, OffsetInTier if it is not on this disk.
        """
        if not self.start_offset <= offset <= self.end_offset:
            self.check_offset(offset)
        first = bisect_right(self.segments, offset, key=_base_offset) - 1
        if first < 0:
            self.check_local(offset)
            first = 0
        for index in range(first, len(self.segments)):
            segment = self.segments[index]
            if segment.base_offset >= up_to:
                break
            found = read_segment(
                segment,
                offset,
                self._position_in(index, up_to),
                bytes_max=bytes_max,
                is_first_whole=is_first_whole,
                may_block=may_block,
            )
            if found is None or found:
                return found
        return _EMPTY

    def check_offset(self, offset: int) -> None:
        """Raise OffsetOutOfRange if an offset is outside the log."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(self.folder, offset, self.start_offset, self.end_offset)

    def check_local(self, offset: int) -> None:
        """Raise OffsetOutOfRange outside the log, OffsetInTier if an offset is not on this disk."""
        self.check_offset(offset)
        local_start = self.local_start_offset
        if offset < local_start:
            raise OffsetInTier(self.folder, offset, local_start)

    def cold_read(
        self,
        offset: int,
        bytes_max: int,
        *,
        up_to: int,
        is_first_whole: bool = True,
        with_aborted: bool = False,
    ) -> ColdRead:
        """Return the read that `read` would not do without waiting, for a thread to do.

        It is a read of one segment, the first that is not known to have nothing. With
        `with_aborted` the thread also has a first look at the aborted transactions.
        """
        index = self.segment_index(offset)
        while True:
            segment, end_position = self.segments[index], self._position_in(index, up_to)
            index += 1
            if index == len(self.segments) or self.segments[index].base_offset >= up_to:
                break
            found = read_segment(
                segment,
                offset,
                end_position,
                bytes_max=HEADER_BYTES,
                is_first_whole=False,
                may_block=False,
            )
            if found is None or found:
                break
        looks: Sequence[FirstLook] = ()
        if with_aborted:
            first = max(offset, segment.base_offset)
            looks = self._first_looks(offset, self._end_of_read(first, bytes_max, up_to))
        return ColdRead(
            segment,
            offset,
            end_position,
            bytes_max,
            is_first_whole=is_first_whole,
            cuts=self.cuts,
            looks=looks,
        )

    async def read_cold(
        self, offset: int, bytes_max: int, *, up_to: int, is_first_whole: bool = True
    ) -> memoryview:
        """Read like `read`; a thread waits for the disk while the loop continues.

        What it returns is still on this disk then, and so is the index of aborted transactions.
        """
        loop = asyncio.get_running_loop()
        for _ in range(self.settings.cold_read_attempts_max):
            found = self.read(offset, bytes_max, up_to=up_to, is_first_whole=is_first_whole)
            if found is not None:
                return found
            cold = self.cold_read(offset, bytes_max, up_to=up_to, is_first_whole=is_first_whole)
            await loop.run_in_executor(None, cold.run)
            if offset >= self.local_start_offset and (found := cold.result(self.cuts)):
                return found
        found = self.read(
            offset, bytes_max, up_to=up_to, is_first_whole=is_first_whole, may_block=True
        )
        assert found is not None
        return found

    def segment_index(self, offset: int) -> int:
        """Return the index of the segment that has `offset`, or the first if all start later."""
        return max(bisect_right(self.segments, offset, key=_base_offset) - 1, 0)

    def _position_in(self, index: int, up_to: int) -> int:
        """Return the end position of a segment's batches that start before `up_to`."""
        is_last = index + 1 == len(self.segments)
        segment_end = self.end_offset if is_last else self.segments[index + 1].base_offset
        segment = self.segments[index]
        if up_to >= segment_end:
            return segment.size_bytes
        # Many readers stop at the same offset, and finding it takes a walk over batches.
        known = self._limit
        if known[0] is segment and known[1] == up_to and known[2] == self.cuts:
            return known[3]
        position = segment.position_of(up_to)
        self._limit = (segment, up_to, self.cuts, position)
        return position

    def aborted_transactions(self, offset: int, up_to: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that records from `offset` up to `up_to` may be of."""
        found = transactions.search(self._transaction_indexes(offset), offset, up_to)
        assert found is not None
        return found

    def aborted_at_once(self, offset: int, up_to: int) -> list[AbortedTransaction] | None:
        """Return the same, or None if that takes too long for the loop: see `look_first`."""
        indexes = self._transaction_indexes(offset)
        return transactions.search(indexes, offset, up_to, transactions.UNREAD_MAX)

    def aborted_in(self, records: memoryview, offset: int, up_to: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may overlap the result of a read of `offset`.

        A few later ones may be among them: the end of the read is found by the index.
        """
        first = max(offset, int.from_bytes(records[:8]))
        return self.aborted_transactions(offset, self._end_of_read(first, len(records), up_to))

    def aborted_in_at_once(
        self, records: memoryview, offset: int, up_to: int
    ) -> list[AbortedTransaction] | None:
        """Return what `aborted_in` does, or None if that takes too long for the loop."""
        first = max(offset, int.from_bytes(records[:8]))
        return self.aborted_at_once(offset, self._end_of_read(first, len(records), up_to))

    async def look_first(self, offset: int, up_to: int, byte_count: int | None = None) -> None:
        """Read in a thread what `aborted_transactions` would take too long to read on the loop.

        With `byte_count`, of as many bytes from the offset on.
        """
        if byte_count is not None:
            up_to = self._end_of_read(offset, byte_count, up_to)
        loop = asyncio.get_running_loop()
        for look in self._first_looks(offset, up_to):
            with suppress(OSError):  # who asks for aborted transactions finds out again
                await loop.run_in_executor(None, look.run)

    def _first_looks(self, offset: int, up_to: int) -> list[FirstLook]:
        return transactions.first_looks(self._transaction_indexes(offset), up_to)

    def _end_of_read(self, offset: int, byte_count: int, up_to: int) -> int:
        """Return where a read of so many bytes from an offset on ends, or a little later."""
        index = self.segment_index(offset)
        end = self.segments[index].offset_behind(offset, byte_count)
        if end is None and index + 1 < len(self.segments):
            end = self.segments[index + 1].base_offset
        return up_to if end is None else min(end, up_to)

    def _transaction_indexes(self, offset: int) -> "map[TransactionIndex]":
        """Return those of the segments that may have the markers of records from an offset on."""
        return map(_transaction_index, self.segments[self.segment_index(offset) :])

    # Durability

    async def flush(self) -> None:
        """Return when everything appended before the call is on disk.

        Calls during a flush share the next one. Raise ReadOnlyLog if the disk failed.
        """
        await self.flusher.flush()

    async def finish_flush(self) -> None:
        """Wait until no flush is running, whatever its outcome: then files may be removed."""
        await self.flusher.finish()

    def is_flush_due(self, now_ms: int) -> bool:
        """Return whether to call `flush`: `wants_flush` is set, or flush.ms has passed."""
        if self.recovery_point >= self.end_offset:
            return False
        return self.wants_flush or now_ms - self._dirty_since_ms >= self.settings.flush_ms

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were idle for producer.id.expiration.ms; return how many."""
        return self.producers.expire(now_ms, self.settings.producer_id_expiration_ms)

    def close(self) -> None:
        """Make everything durable and give the files back; a clean open trusts what is there.

        OSError if the disk fails: the next open must recover then. A log that is as it was when
        it was opened costs nothing.
        """
        self.begin_close().run()
        self.end_close()

    def begin_close(self) -> Flush:
        """Return the work that makes everything durable, for `end_close` to follow."""
        if self._extent() == self._opened_extent and not self.flusher.are_epochs_dirty:
            return self.flusher.prepare_new_files()
        self._active.finish()
        self.flusher.note_snapshot(self.end_offset)
        self.flusher.are_epochs_dirty = True
        return self.flusher.prepare()

    def end_close(self) -> None:
        """Close the files."""
        if self._extent() != self._opened_extent:
            self.recovery_point = self.end_offset
        for segment in self.segments:
            segment.close()

    def retire(self) -> None:
        """Stop using files: the log is deleted, and its name may soon be reused.

        Code that still uses it, such as a fetch that waited for the disk, gets FileNotFoundError.
        """
        self.failure, self.is_out_of_space = "it was deleted", False
        self.disk = GONE
        for segment in self.segments:
            segment.retire()

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Start a leader epoch of this node at the end of the log.

        It is persisted with the first record: an epoch without records is lost on a reopen.
        """
        self.epochs.assign(leader_epoch, self.end_offset)

    def change_settings(self, settings: LogSettings) -> None:
        """Go by other settings from now on.

        A log that leaves the tier starts where its disk does: a read before that would go on there.
        """
        if self.settings.is_tiered and not settings.is_tiered:
            local_start = min(self.segments[0].base_offset, self.high_watermark)
            self.start_offset = max(self.start_offset, local_start)
        self.settings = settings
        self.was_compacted |= settings.is_compacted

    def note_epochs_changed(self) -> None:
        """Write the epochs with the next flush."""
        self.flusher.are_epochs_dirty = True
        latest = self.epochs.latest_epoch
        self._leader_epoch = NO_LEADER_EPOCH if latest is None else latest

    def _extent(self) -> tuple[int, ...]:
        """Return a value that changes with every append, flush, truncation or removal."""
        return (
            *(self.start_offset, self.end_offset, self.recovery_point),
            *(len(self.segments), self.cuts),
        )

    # A disk that is full or fails

    def fail(self, error: OSError) -> ReadOnlyLog:
        """Refuse further appends; return the error."""
        self.failure = str(error)
        self.is_out_of_space = is_out_of_space(error)
        return ReadOnlyLog(self.folder, self.failure)

    def hold(self, reason: str) -> None:
        """Refuse appends until `release`, if the log takes any."""
        if self.failure is None:
            self.failure = self._hold = reason

    def release(self) -> None:
        """Take appends again after `hold`, if nothing else is in the way."""
        if self.is_held:
            self.failure = None
        self._hold = None

    @property
    def is_held(self) -> bool:
        """Whether the log takes no appends only because of `hold`."""
        return self._hold is not None and self.failure is self._hold

    @property
    def is_writable(self) -> bool:
        """Return whether the disk accepts writes, as far as known; may check the disk."""
        if self.failure is None:
            return True
        return self.is_out_of_space and self.disk.free_bytes() >= SPACE_MARGIN_BYTES

    def _refuse_or_recover(self, batch_bytes: int) -> None:
        """Raise ReadOnlyLog unless the disk was full and has room again."""
        assert self.failure is not None
        needed = batch_bytes + SPACE_MARGIN_BYTES
        if not self.is_out_of_space or self.disk.free_bytes() < needed:
            raise ReadOnlyLog(self.folder, self.failure)
        self._active.cut_torn()
        self.failure = None


def is_out_of_space(error: Exception) -> bool:
    """Return whether the disk was full, and nothing worse: it may pass."""
    is_full = isinstance(error, OSError) and error.errno in _SPACE_ERRORS
    return is_full and not isinstance(error, LostWrites)


_base_offset: Final = attrgetter("base_offset")
_transaction_index: Final = attrgetter("transaction_index")


def _duplicate(batch: RecordedBatch) -> Appended:
    return Appended(batch.base_offset, batch.last_offset, batch.timestamp, True)
