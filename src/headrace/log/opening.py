"""Opening a log: trust it after a clean shutdown, else read again what may be incomplete.

Everything below the recovery point was synced. Damage there is a CorruptLog, and the log does not
open. Beyond it a crash may have torn anything; the log then ends before the damage, and a log line
names the file, the position and what was truncated. If whole batches follow the damage, the
truncated bytes are kept in a separate file, so that nothing is lost silently.
"""

import logging
from contextlib import suppress
from typing import Final

from headrace.log.checkpoints import LEADER_EPOCHS, CorruptCheckpoint, load, parse_epochs
from headrace.log.compaction_files import finish_swaps
from headrace.log.disk import TEMPORARY_SUFFIX, Disk, folder_of
from headrace.log.epochs import LeaderEpochs
from headrace.log.errors import CorruptLog
from headrace.log.log import Log
from headrace.log.producers import ProducerStates
from headrace.log.replay import restore_producers
from headrace.log.segment import DELETED_SUFFIX, INDEX_SUFFIXES, Segment
from headrace.log.settings import LogSettings
from headrace.log.walk import CHUNK_BYTES, NO_END, Fault, Walk, find_good_batch

DAMAGED_SUFFIX: Final = ".damaged"

logger = logging.getLogger(__name__)


def open_log(
    disk: Disk,
    folder: str,
    settings: LogSettings,
    *,
    is_clean: bool,
    recovery_point: int = 0,
    start_offset: int = 0,
    was_compacted: bool = False,
) -> Log:
    """Open the log in a folder, or make one.

    `is_clean` says that the log was closed since it was written; `recovery_point`, `start_offset`
    and whether it was ever compacted are what the checkpoints of its directory have. Between
    `start_offset` and the first file is what is in the tier.
    """
    was_compacted |= settings.is_compacted
    sizes = _tidy(disk, folder)
    segments = [
        Segment(disk, folder, base, sizes=sizes, index_interval_bytes=settings.index_interval_bytes)
        for base in sorted(int(name[:-4]) for name in sizes if name.endswith(".log"))
    ]
    if not segments:
        segments = [_first_segment(disk, folder, settings, start_offset)]
    if is_clean:
        recovery_point = NO_END
    trusted = _count_trusted(segments, sizes, recovery_point)
    epochs = _load_epochs(disk, folder, segments[:trusted])
    rebuilt, doubtful_offset = _recover(
        segments, trusted, epochs, recovery_point, may_have_gaps=was_compacted
    )
    is_restarted = segments[-1].read_end_offset() < start_offset
    if is_restarted:
        segments = [_restart(disk, folder, settings, segments, start_offset)]
    end_offset = segments[-1].read_end_offset()
    if not settings.is_tiered:
        start_offset = max(start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    producers = ProducerStates()
    limit = rebuilt[0].base_offset if rebuilt else end_offset
    restore_producers(producers, disk, folder, segments, limit=limit, unindexed=rebuilt)
    log = Log(
        disk,
        folder,
        settings,
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=min(recovery_point, end_offset),
        epochs=epochs,
        producers=producers,
    )
    log.was_compacted = was_compacted
    log.doubtful_offset = doubtful_offset
    log.has_deleted_files = is_restarted
    # Finished segments are synced soon, as if they had just been: nothing else may come to do so.
    log.wants_flush = log.recovery_point < segments[-1].base_offset
    if rebuilt:
        log.note_epochs_changed()
    return log


def _first_segment(disk: Disk, folder: str, settings: LogSettings, base_offset: int) -> Segment:
    segment = Segment(
        disk, folder, base_offset, sizes={}, index_interval_bytes=settings.index_interval_bytes
    )
    segment.create()
    return segment


def _restart(
    disk: Disk, folder: str, settings: LogSettings, segments: list[Segment], start_offset: int
) -> Segment:
    """Start over at the log's start offset: the log lost records beyond it as well.

    Their offsets, some of which readers have seen, are not reused for other records.
    """
    end_offset = segments[-1].read_end_offset()
    logger.error(
        "%s ends at offset %d, before its start at %d; it continues from there, empty",
        *(folder, end_offset, start_offset),
    )
    for segment in reversed(segments):
        segment.rename(DELETED_SUFFIX)
    first = _first_segment(disk, folder, settings, start_offset)
    disk.sync_folder(folder)
    return first


def _tidy(disk: Disk, folder: str) -> dict[str, int]:
    """Finish or undo what a crash interrupted; give the files that are left."""
    if not disk.exists(folder):
        disk.make_folder(folder)
        disk.sync_folder(folder_of(folder))
    finish_swaps(disk, folder)
    sizes = disk.list(folder)
    for name in list(sizes):
        is_orphan = name.endswith(INDEX_SUFFIXES) and name.partition(".")[0] + ".log" not in sizes
        if is_orphan or name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.remove(f"{folder}/{name}")
            del sizes[name]
    return sizes


# Batches


def _count_trusted(segments: list[Segment], sizes: dict[str, int], recovery_point: int) -> int:
    """Return how many segments, from the first on, need not be read again.

    Those are fully synced, and their indexes look so. Not one that ends at the recovery point: its
    indexes may have been completed, or rewritten by a recovery, after the flush that got there.
    """
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        end_offset = NO_END if is_last else segments[index + 1].base_offset
        is_synced = end_offset < recovery_point or recovery_point == NO_END
        if not is_synced or segment.has_torn_indexes(sizes):
            return index
    return len(segments)


def _recover(
    segments: list[Segment],
    first: int,
    epochs: LeaderEpochs,
    recovery_point: int,
    *,
    may_have_gaps: bool,
) -> tuple[list[Segment], int | None]:
    """Read the segments from `first` on again; return those that were read and are still there.

    And an offset from which on records may be missing before later ones, if there is one: a
    segment that was not synced ends before the next one begins, and compaction may have done that,
    or the crash.
    """
    if first == len(segments):
        return [], None
    doubtful_offset: int | None = None
    epochs.truncate_from_end(segments[first].base_offset)
    for index in range(first, len(segments)):
        later = segments[index + 1 :]
        end_offset = later[0].base_offset if later else NO_END
        walk = Walk(
            segments[index].file,
            next_offset=segments[index].base_offset,
            end_offset=end_offset,
            may_have_gaps=may_have_gaps,
        )
        _rebuild(segments[index], walk, epochs)
        if end_offset <= recovery_point:
            segments[index].sync()  # the next open will trust these indexes
        fault = walk.fault
        if fault is None and later and walk.next_offset < end_offset and not may_have_gaps:
            reason = f"the file ends, and the next begins at offset {end_offset}"
            fault = Fault(walk.position, walk.next_offset, reason)
        if fault is not None:
            _cut(segments, index, fault, recovery_point)
            break
        is_gap = bool(later) and walk.next_offset < end_offset
        if is_gap and end_offset > recovery_point and doubtful_offset is None:
            doubtful_offset = walk.next_offset
    return segments[first:], doubtful_offset


def _rebuild(segment: Segment, walk: Walk, epochs: LeaderEpochs) -> None:
    """Rebuild the indexes of a segment while its batches are read and checked."""
    segment.clear_indexes()
    for _, header in walk:
        segment.note(header.size_bytes, header.last_offset, header.max_timestamp)
        if header.leader_epoch >= 0:
            epochs.assign(header.leader_epoch, header.base_offset)
    segment.index_time()
    segment.write_out()


def _cut(segments: list[Segment], index: int, fault: Fault, recovery_point: int) -> None:
    """End the log before the damage, or CorruptLog if it is in what was synced."""
    segment = segments[index]
    path, position = segment.path(".log"), fault.position
    if fault.next_offset < recovery_point:
        synced = "all" if recovery_point == NO_END else f"offsets below {recovery_point}"
        raise CorruptLog(path, position, f"{fault.reason}; {synced} were synced")
    cut_bytes = segment.file.size - position
    later = segments[index + 1 :]
    if later or find_good_batch(segment.file, position + 1, fault.next_offset) is not None:
        kept = _keep_damaged(segment, position)
        logger.error(
            "%s is damaged at byte %d (%s); the log ends there, at offset %d; the %d bytes after "
            "it are kept in %s, and %d later segments are set aside too",
            *(path, position, fault.reason, fault.next_offset, cut_bytes, kept, len(later)),
        )
    else:
        logger.warning(
            "%s was not whole at byte %d (%s); the log ends there, at offset %d; %d bytes cut off",
            *(path, position, fault.reason, fault.next_offset, cut_bytes),
        )
    # From the end on: a crash in between leaves the same damage to be found again.
    for lost in reversed(later):
        lost.rename(DAMAGED_SUFFIX)
    segment.disk.sync_folder(folder_of(path))
    segment.truncate(position)
    segment.file.sync()
    del segments[index + 1 :]


def _keep_damaged(segment: Segment, position: int) -> str:
    """Copy a file from a position on to one beside it."""
    path = f"{segment.path('.log')}.{position}{DAMAGED_SUFFIX}"
    disk = segment.disk
    with suppress(FileNotFoundError):
        disk.remove(path)
    copy = disk.open(path, create=True)
    while position < segment.file.size:
        chunk = segment.file.read(position, CHUNK_BYTES)
        copy.append(chunk)
        position += len(chunk)
    copy.sync()
    copy.close()
    return path


# State


def _load_epochs(disk: Disk, folder: str, segments: list[Segment]) -> LeaderEpochs:
    """Read the file, or if that cannot be read, the batches of the segments."""
    path = f"{folder}/{LEADER_EPOCHS}"
    try:
        return LeaderEpochs(load(disk, path, parse_epochs))
    except FileNotFoundError:
        pass
    except CorruptCheckpoint as error:
        logger.warning("%s; leader epochs are read from the batches", error.message)
    epochs = LeaderEpochs()
    for segment in segments:
        for _, header in segment.batches():
            if header.leader_epoch >= 0:
                epochs.assign(header.leader_epoch, header.base_offset)
    return epochs
