"""Removing parts of a log: at its end for a new leader, at its start for retention.

Whole segments are removed by renaming their files, which is quick; `find_deleted` and
`remove_files` free the space later, once no reader can use them any more.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.log.compaction_files import delete_segment
from headrace.log.disk import Disk, folder_of
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Log
from headrace.log.segment import DELETED_SUFFIX
from headrace.log.truncating import Cut, begin_restart, begin_truncation

DELETED_AT_ONCE_MAX: Final = 32
"""How many segments lose their files in one turn of the loop."""

logger = logging.getLogger(__name__)


def truncate(log: Log, offset: int) -> bool:
    """End the log before the batch that has `offset`; return whether anything was removed.

    Producers, epochs and indexes are as they were then, and no crash brings back what is gone.
    OffsetOutOfRange below the log's start. ReadOnlyLog if the disk fails: the log is to be opened
    again then. Blocks; see `truncating` for the steps and for the recovery point, which must be in
    the directory's checkpoint before the next append.
    """
    cut = begin_truncation(log, offset)
    if cut is not None:
        _run(cut)
    return cut is not None


def restart_at(log: Log, offset: int) -> None:
    """Empty the log and let it begin at `offset`, as a follower must that fell out of range."""
    _run(begin_restart(log, offset))


def _run(cut: Cut) -> None:
    with _failing(cut.log):
        cut.run()
    cut.finish()


def delete_records(log: Log, offset: int) -> int:
    """Move the start of the log to `offset`, at most its high watermark; return the new start.

    -1 means the high watermark. Raise OFFSET_OUT_OF_RANGE beyond it. Not durable before the next
    checkpoint of the directory. If there are many segments, retention deletes the files later.
    """
    if log.is_being_cut:  # a thread works on its files
        raise ReadOnlyLog(log.folder, str(log.failure))
    if offset == -1:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.folder}: records up to offset {offset} cannot be deleted, "
            f"the high watermark is {log.high_watermark}",
        )
    if offset > log.start_offset:
        log.start_offset = offset
        _drop_before_start(log)
    return log.start_offset


def apply_retention(log: Log, now_ms: int) -> int:
    """Delete the oldest segments that are too old or too many; return how many went.

    At most `DELETED_AT_ONCE_MAX` go, as this is done on the loop: it is to be called again until
    none does. Only what is below the high watermark goes. The active segment goes too; a new one
    takes its place. ReadOnlyLog if the disk fails, or has no room even for that: what could go
    without is gone then.

    Nothing is synced. A crash may bring deleted segments back, from any of them on: the start of
    the log, which a checkpoint has, still holds, and they are deleted again.
    """
    settings, failure = log.settings, None
    if delete_dropped(log):
        return DELETED_AT_ONCE_MAX
    if not settings.is_deleted_by_age:
        return _drop_before_start(log)
    excess_bytes = log.size_bytes - settings.retention_bytes if settings.retention_bytes >= 0 else 0
    for index, segment in enumerate(log.segments[:DELETED_AT_ONCE_MAX]):
        is_last = index + 1 == len(log.segments)
        end_offset = log.end_offset if is_last else log.segments[index + 1].base_offset
        if end_offset > log.high_watermark or (is_last and segment.size_bytes == 0):
            break
        # Batches without a timestamp have no age.
        is_old = (
            settings.retention_ms >= 0
            and segment.largest_timestamp >= 0
            and now_ms - segment.largest_timestamp > settings.retention_ms
        )
        is_too_much = settings.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (is_old or is_too_much or segment.size_bytes == 0):
            break
        if is_last:
            try:
                log.roll(log.end_offset, is_kept=False)
            except OSError as error:
                failure = log.fail(error)
                break
        excess_bytes -= segment.size_bytes
        log.start_offset = max(log.start_offset, end_offset)
    count = _drop_before_start(log)
    if failure is not None:
        raise failure
    return count


def delete_dropped(log: Log) -> bool:
    """Rename files of segments that the log has dropped; return whether any are left to do.

    From the start on, so that a crash in between leaves a log without a hole.
    """
    if not log.dropped:
        return False
    with _failing(log):
        for base_offset in log.dropped[:DELETED_AT_ONCE_MAX]:
            delete_segment(log.disk, log.folder, base_offset)
    del log.dropped[:DELETED_AT_ONCE_MAX]
    log.has_deleted_files = True
    return bool(log.dropped)


def find_deleted(log: Log, now_ms: int) -> list[str]:
    """Return the deleted files whose file.delete.delay.ms has passed since this first saw them.

    May run in a thread.
    """
    log.has_deleted_files = False  # before it is looked: the loop may delete more meanwhile
    paths = [
        f"{log.folder}/{name}"
        for name in log.disk.list(log.folder)
        if name.endswith(DELETED_SUFFIX)
    ]
    seen = {path: log.deleted_since_ms.get(path, now_ms) for path in paths}
    delay_ms = log.settings.file_delete_delay_ms
    due = [path for path, since_ms in seen.items() if now_ms - since_ms >= delay_ms]
    log.deleted_since_ms = {path: since_ms for path, since_ms in seen.items() if path not in due}
    if log.deleted_since_ms:
        log.has_deleted_files = True
    return due


def remove_files(disk: Disk, paths: list[str]) -> None:
    """Free the space of deleted files; may run in a thread, as that takes long for large ones."""
    for path in paths:
        disk.remove(path)
    for folder in {folder_of(path) for path in paths}:
        disk.sync_folder(folder)


@contextmanager
def _failing(log: Log) -> Iterator[None]:
    """Make the log read-only if the disk fails: its files may not match its state then."""
    try:
        yield
    except OSError as error:
        raise log.fail(error) from error


def _drop_before_start(log: Log) -> int:
    """Delete the segments that end at or before the log's start."""
    if log.epochs.truncate_from_start(log.start_offset):
        log.note_epochs_changed()
    kept = log.segment_index(log.start_offset)
    dropped = log.segments[:kept]
    if not dropped:
        return 0
    del log.segments[:kept]
    for segment in dropped:
        segment.close()
        log.dropped.append(segment.base_offset)
    delete_dropped(log)
    logger.info(
        "%s: %d segments below offset %d deleted", log.folder, len(dropped), log.start_offset
    )
    return len(dropped)
