"""Open a log: trust what was closed cleanly, else read again what may not be whole.

The recovery point is the promise: below it everything was synced. Damage there is a CorruptLog,
and the log does not open. Beyond it a crash may have torn anything; the log then ends before the
damage, and a log line names the file, the position and what was cut. If whole batches lie behind
the damage, the bytes that are cut off are kept in a file beside, so that nothing goes silently.
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
from headrace.log.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headrace.log.producer_snapshots import decode_snapshot
from headrace.log.producers import ProducerStates
from headrace.log.replay import replay
from headrace.log.segment import DELETED_SUFFIX, Segment, file_name
from headrace.log.settings import LogSettings
from headrace.log.walk import CHUNK_BYTES, Fault, Walk, find_good_batch

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
) -> Log:
    """Open the log in a folder, or make one.

    `is_clean` says that the log was closed since it was written; `recovery_point` and
    `start_offset` are what the checkpoints of its directory have.
    """
    sizes = _tidy(disk, folder)
    segments = [
        Segment(disk, folder, base, sizes=sizes, index_interval_bytes=settings.index_interval_bytes)
        for base in sorted(int(name[:-4]) for name in sizes if name.endswith(".log"))
    ]
    if not segments:
        segments = [_first_segment(disk, folder, settings, start_offset)]
    epochs = _load_epochs(disk, folder)
    rebuilt = [] if is_clean else _recover(segments, epochs, recovery_point)
    end_offset = segments[-1].read_end_offset()
    start_offset = min(max(start_offset, segments[0].base_offset), end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    log = Log(
        disk,
        folder,
        settings,
        segments=segments,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=end_offset if is_clean else min(recovery_point, end_offset),
        epochs=epochs,
        producers=_load_producers(disk, folder, segments, end_offset, rebuilt),
    )
    if rebuilt:
        log.note_epochs_changed()
    return log


def _first_segment(disk: Disk, folder: str, settings: LogSettings, base_offset: int) -> Segment:
    segment = Segment(
        disk, folder, base_offset, sizes={}, index_interval_bytes=settings.index_interval_bytes
    )
    segment.create()
    disk.sync_folder(folder)
    return segment


def _tidy(disk: Disk, folder: str) -> dict[str, int]:
    """Finish or undo what a crash interrupted; give the files that are left."""
    if not disk.exists(folder):
        disk.make_folder(folder)
        disk.sync_folder(folder_of(folder))
    finish_swaps(disk, folder)
    sizes = disk.list(folder)
    for name in list(sizes):
        if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.remove(f"{folder}/{name}")
            del sizes[name]
    return sizes


# Batches


def _recover(segments: list[Segment], epochs: LeaderEpochs, recovery_point: int) -> list[Segment]:
    """Read again the segments that were not synced whole; give those that were read."""
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset <= recovery_point:
        first += 1
    for index in range(first, len(segments)):
        fault = _rebuild(segments[index], epochs, segments[index].base_offset)
        if fault is not None:
            _cut(segments, index, fault, recovery_point)
            return segments[first:]
    return segments[first:]


def _rebuild(segment: Segment, epochs: LeaderEpochs, next_offset: int) -> Fault | None:
    """Read and check every batch of a segment, and write its indexes anew."""
    segment.clear_indexes()
    walk = Walk(segment.file, next_offset=next_offset)
    for _, header in walk:
        segment.note(header.size_bytes, header.last_offset, header.max_timestamp)
        if header.leader_epoch >= 0:
            epochs.assign(header.leader_epoch, header.base_offset)
    segment.finish()
    return walk.fault


def _cut(segments: list[Segment], index: int, fault: Fault, recovery_point: int) -> None:
    """End the log before the damage, or CorruptLog if it is in what was synced."""
    segment = segments[index]
    path, position = segment.path(".log"), fault.position
    if fault.next_offset < recovery_point:
        raise CorruptLog(
            path, position, f"{fault.reason}; offsets below {recovery_point} were synced"
        )
    cut_bytes = segment.file.size - position
    later = segments[index + 1 :]
    if later or find_good_batch(segment.file, position + 1, fault.next_offset) is not None:
        kept = _keep_damaged(segment, position)
        logger.error(
            "%s is damaged at byte %d (%s); the log ends there, at offset %d; the %d bytes behind "
            "are in %s, and %d later segments are put aside too",
            *(path, position, fault.reason, fault.next_offset, cut_bytes, kept, len(later)),
        )
    else:
        logger.warning(
            "%s was not whole at byte %d (%s); the log ends there, at offset %d; %d bytes cut off",
            *(path, position, fault.reason, fault.next_offset, cut_bytes),
        )
    segment.truncate(position)
    for lost in later:
        lost.rename(DAMAGED_SUFFIX)
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


def _load_epochs(disk: Disk, folder: str) -> LeaderEpochs:
    try:
        return LeaderEpochs(load(disk, f"{folder}/{LEADER_EPOCHS}", parse_epochs))
    except FileNotFoundError:
        return LeaderEpochs()
    except CorruptCheckpoint as error:
        logger.warning("%s; leader epochs are read from the batches", error.message)
        return LeaderEpochs()


def _load_producers(
    disk: Disk, folder: str, segments: list[Segment], end_offset: int, rebuilt: list[Segment]
) -> ProducerStates:
    """Take the newest snapshot that can be read, and apply the batches behind it."""
    producers = ProducerStates()
    position = segments[0].base_offset
    bases = {segment.base_offset for segment in segments}
    limit = rebuilt[0].base_offset if rebuilt else end_offset
    offsets = sorted(
        int(name[: -len(SNAPSHOT_SUFFIX)])
        for name in disk.list(folder)
        if name.endswith(SNAPSHOT_SUFFIX)
    )
    is_found = False
    for offset in reversed(offsets):
        path = f"{folder}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        if offset > limit or (is_found and offset not in bases):
            disk.remove(path)
        elif not is_found:
            try:
                producers.restore(decode_snapshot(disk.read(path), path))
                position, is_found = offset, True
            except CorruptLog as error:
                logger.warning("%s; an older snapshot is taken", error.message)
                disk.remove(path)
    replay(producers, segments, position, rebuilt)
    return producers
