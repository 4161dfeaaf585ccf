"""Removing the end of a log for a new leader: prepared on the loop, done in a thread.

    cut = begin_truncation(log, offset)     # on the loop: readers see the shorter log at once
    cut.run()                               # in any thread: renames, cuts, syncs, reads producers
    cut.finish()                            # on the loop: the log takes appends again

Between the first and the last step the log refuses appends and syncs: its files do not match it
yet. `run` may be repeated after an OSError. A crash at any point leaves the log as it was, or cut.

The recovery point goes back with the end. It must be in the directory's checkpoint before the next
append (`LogFolder.finish_cut` does so before `finish`): after a crash, damage below the old one
would count as damage to what was synced. `cutting` has the forms that block.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.log.checkpoints import LEADER_EPOCHS, format_epochs
from headrace.log.cleanable import RELATIVE_OFFSET_MAX
from headrace.log.compaction_files import delete_segment
from headrace.log.disk import DiskFile
from headrace.log.epochs import EpochStart
from headrace.log.errors import OffsetOutOfRange, ReadOnlyLog
from headrace.log.flushing import LostWrites
from headrace.log.log import Log
from headrace.log.producer_snapshots import encode_snapshot, snapshot_name
from headrace.log.producers import ProducerState, ProducerStates
from headrace.log.replay import restore_producers
from headrace.log.segment import Segment
from headrace.records.header import BatchHeader, check_crc, read_headers

NO_SNAPSHOT: Final = -1


class History(NamedTuple):
    """What is known of the records before a log's first file: they are in the tier."""

    start_offset: int
    """Where the log starts, tier included."""
    next_offset: int
    """Where it goes on: the first offset that is not in the tier, or has to be here as well."""
    epochs: Sequence[EpochStart]
    producers: Sequence[ProducerState]


class Cut:
    """The removal of a log's end that is under way."""

    def __init__(
        self, log: Log, removed: list[int], *, keeps: DiskFile | None, snapshots_up_to: int
    ) -> None:
        """Take a log whose state is cut already.

        `removed` are the base offsets of segments that are not part of it any more, `keeps` the
        file of the last segment if that loses only its end; None if it is a new one.
        """
        self.log = log
        self._removed = removed
        self._keeps = keeps
        self._size_bytes = log.segments[-1].size_bytes
        self._snapshots_up_to = snapshots_up_to
        self._history: list[tuple[str, bytes]] = []
        self._producers = ProducerStates()
        self._largest = (-1, -1)
        self._reason = "it is being truncated"
        self._former = log.failure, log.is_out_of_space
        log.failure, log.is_out_of_space = self._reason, False
        log.is_being_cut = True

    def take_history(self, history: History) -> None:
        """Prepare what `run` writes about the records before the log's first file."""
        log = self.log
        self._snapshots_up_to = log.end_offset
        snapshot = f"{log.folder}/{snapshot_name(log.end_offset)}"
        self._history = [
            (f"{log.folder}/{LEADER_EPOCHS}", format_epochs(log.epochs.entries()).encode()),
            (snapshot, encode_snapshot(history.producers)),
        ]

    def run(self) -> None:
        """Make the files match, durably; raise OSError if the disk fails or is full."""
        log, segment = self.log, self.log.segments[-1]
        disk, folder = log.disk, log.folder
        # From the end on, so that a crash in between leaves a log without a hole.
        for base_offset in reversed(self._removed):
            delete_segment(disk, folder, base_offset)
        if self._removed:
            log.has_deleted_files = True
            disk.sync_folder(folder)
            self._removed = []
        if self._keeps is None:
            if not disk.exists(segment.path(".log")):
                disk.open(segment.path(".log"), create=True).close()
            disk.sync_folder(folder)
        else:
            self._keeps.truncate(self._size_bytes)
            try:
                self._keeps.sync()
            except OSError as error:
                raise LostWrites(*error.args, error.filename) from error
        for path, data in self._history:
            disk.replace(path, data)
        self._producers = ProducerStates()
        restore_producers(self._producers, disk, folder, log.segments, limit=self._snapshots_up_to)
        self._largest = segment.measure_timestamps()

    def finish(self) -> None:
        """Take over what `run` found; the log is as it was when it had this end."""
        log = self.log
        log.segments[-1].take_timestamps(*self._largest)
        log.producers.take_over(self._producers)
        log.producers.on_high_watermark_updated(log.high_watermark)
        log.is_being_cut = False
        if log.failure is self._reason:
            log.failure, log.is_out_of_space = self._former


def begin_truncation(log: Log, offset: int) -> Cut | None:
    """End a log before the batch that has `offset`; None if it ends there or before already.

    Epochs and indexes are as they were then; producers are after `Cut.finish`. Raise
    OffsetOutOfRange below the log's local start, ReadOnlyLog if the disk fails: the log is to be
    opened again then.
    """
    if offset >= log.end_offset:
        # An epoch that this node began as leader and appended nothing in is not the new leader's.
        if log.epochs.truncate_from_end(log.end_offset):
            log.note_epochs_changed()
        return None
    if offset < log.local_start_offset:
        raise OffsetOutOfRange(log.folder, offset, log.local_start_offset, log.end_offset)
    _check_writable(log)
    try:
        index = log.segment_index(offset)
        segment = log.segments[index]
        position, end_offset = segment.place_before(offset)
        if end_offset < log.start_offset:
            return begin_restart(log, log.start_offset)
        file = segment.file
        removed = log.segments[index + 1 :]
        del log.segments[index + 1 :]
        for each in removed:
            each.close()
        segment.forget_from(position, end_offset)
    except OSError as error:
        raise log.fail(error) from error
    log.reactivate(end_offset, end_offset)
    if log.epochs.truncate_from_end(end_offset):
        log.note_epochs_changed()
    return Cut(
        log,
        [each.base_offset for each in removed],
        keeps=file,
        snapshots_up_to=end_offset,
    )


def begin_restart(log: Log, offset: int, *, start_offset: int | None = None) -> Cut:
    """Empty a log and let it begin at `offset`, as a follower must that fell out of range.

    Its start offset may be a later one, within the first batch to come; or an earlier one, if what
    is before `offset` is in the tier.
    """
    _check_writable(log)
    removed = log.dropped + [segment.base_offset for segment in log.segments]
    for segment in log.segments:
        segment.close()
    log.dropped = []
    log.segments[:] = [
        Segment(
            log.disk,
            log.folder,
            offset,
            sizes={},
            index_interval_bytes=log.settings.index_interval_bytes,
        )
    ]
    log.start_offset = offset
    log.reactivate(offset, NO_SNAPSHOT)
    # All of them: with one that ended before, the leader would hear of a record that is not here.
    if log.epochs.clear():
        log.note_epochs_changed()
    if start_offset is not None:
        log.start_offset = start_offset
    return Cut(log, removed, keeps=None, snapshots_up_to=NO_SNAPSHOT)


def begin_behind(log: Log, history: History) -> Cut:
    """Empty a log and let it go on behind what is in the tier, as if it had had those records."""
    cut = begin_restart(log, history.next_offset, start_offset=history.start_offset)
    for entry in history.epochs:
        log.epochs.assign(*entry)
    log.note_epochs_changed()
    cut.take_history(history)
    return cut


def begin_for(log: Log, chunk: memoryview) -> Cut | None:
    """Move an empty log to the start of the leader's first batch; None if that is not needed.

    Records were deleted up to an offset inside it, and batches come whole (KAFKA-6975); or it is
    so far beyond the log that one segment cannot have both. The log keeps its start offset. Raise
    CorruptBatch, without a change, if the batch's checksum is wrong.
    """
    if log.start_offset != log.end_offset:
        return None
    position, first = next(read_headers(chunk), (0, None))
    if first is None or not _is_elsewhere(log, first):
        return None
    check_crc(chunk[position : position + first.size_bytes], first)
    return begin_restart(log, first.base_offset, start_offset=log.start_offset)


def _is_elsewhere(log: Log, first: BatchHeader) -> bool:
    if first.base_offset < log.end_offset:
        return first.last_offset >= log.end_offset
    return first.last_offset - log.segments[0].base_offset > RELATIVE_OFFSET_MAX


def _check_writable(log: Log) -> None:
    if log.failure is not None and not log.is_out_of_space:
        raise ReadOnlyLog(log.folder, log.failure)
