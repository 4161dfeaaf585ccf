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
    settings = log.settings
    if delete_dropped(log):
        return DELETED_AT_ONCE_MAX
    if settings.is_tiered:
        return _drop_before_start(log) or _drop_copied(log, now_ms)
    if not settings.is_deleted_by_age:
        return _drop_before_start(log)
    end_offset, failure = _find_expired(
        log, now_ms, settings.retention_ms, settings.retention_bytes, up_to=log.high_watermark
    )
    log.start_offset = max(log.start_offset, end_offset)
    count = _drop_before_start(log)
    if failure is not None:
        raise failure
    return count


def _drop_copied(log: Log, now_ms: int) -> int:
    """Delete segments that have been here for long enough.

    While a topic is copied, those that are in the tier may go, by local.retention; others only if
    headrace.tier.drop.uncopied says so. The log starts where it did. If it is not copied any more,
    those that are not in the tier go by retention, like those of any topic; what is older, in the
    tier, is to go as well, and the log starts behind them.
    """
    settings = log.settings
    if not settings.is_deleted_by_age and not settings.is_copied:
        return 0
    if settings.is_copied:
        _finish_old_segment(log, now_ms)
    up_to = log.high_watermark
    if settings.is_copied and not settings.may_drop_uncopied:
        # What was not synced yet takes with it what only its batches tell: a follower that crashes
        # before its leader epochs are written would not know those of the tier's records.
        up_to = min(up_to, log.remote_end_offset, log.recovery_point)
    end_offset, failure = _find_expired(
        log, now_ms, settings.local_retention_ms, settings.local_retention_bytes, up_to=up_to
    )
    if settings.is_copied and end_offset > log.remote_end_offset:
        _report_uncopied(log, end_offset)
    if not settings.is_copied and end_offset > max(log.remote_end_offset, log.start_offset):
        log.start_offset = end_offset
        count = _drop_before_start(log)
    else:
        count = _drop_before(log, end_offset)
    if failure is not None:
        raise failure
    return count


def _report_uncopied(log: Log, end_offset: int) -> None:
    """Count and log what is lost, as it is neither in the tier nor on this disk from now on."""
    lost = [
        segment
        for index, segment in enumerate(log.segments[:-1])
        if log.remote_end_offset < log.segments[index + 1].base_offset <= end_offset
    ]
    lost_bytes = sum(segment.size_bytes for segment in lost)
    if lost_bytes:
        log.uncopied_bytes_dropped += lost_bytes
        logger.error(
            "%s: %d bytes up to offset %d are deleted without a copy in the tier, which ends at "
            "%d, as headrace.tier.drop.uncopied=true allows",
            *(log.folder, lost_bytes, end_offset, log.remote_end_offset),
        )


def _finish_old_segment(log: Log, now_ms: int) -> None:
    """Roll the active segment if it is too old to be here: only finished ones are copied."""
    segment, retention_ms = log.segments[-1], log.settings.local_retention_ms
    if retention_ms < 0 or not segment.size_bytes or segment.largest_timestamp < 0:
        return
    if now_ms - segment.largest_timestamp > retention_ms:
        with _failing(log):
            log.roll(log.end_offset)


def _find_expired(
    log: Log, now_ms: int, retention_ms: int, retention_bytes: int, *, up_to: int
) -> tuple[int, ReadOnlyLog | None]:
    """Return where the segments that are too old or too many end, none of them beyond `up_to`.

    If the active one is among them, another one takes its place; and the error if it cannot.
    """
    expired_to = log.segments[0].base_offset
    excess_bytes = log.size_bytes - retention_bytes if retention_bytes >= 0 else 0
    for index, segment in enumerate(log.segments[:DELETED_AT_ONCE_MAX]):
        is_last = index + 1 == len(log.segments)
        end_offset = log.end_offset if is_last else log.segments[index + 1].base_offset
        if end_offset > up_to or (is_last and segment.size_bytes == 0):
            break
        # Batches without a timestamp have no age.
        is_old = (
            retention_ms >= 0
            and segment.largest_timestamp >= 0
            and now_ms - segment.largest_timestamp > retention_ms
        )
        is_too_much = retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (is_old or is_too_much or segment.size_bytes == 0):
            break
        if is_last:
            try:
                log.roll(log.end_offset, is_kept=False)
            except OSError as error:
                return expired_to, log.fail(error)
        excess_bytes -= segment.size_bytes
        expired_to = end_offset
    return expired_to, None


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
    """Delete the segments that end at or before the log's start.

    If what is before the first file may be in the tier, they wait until the start is durable: after
    a crash nobody could tell what was deleted from what the tier has lost.
    """
    if log.epochs.truncate_from_start(log.start_offset):
        log.note_epochs_changed()
    if log.settings.is_tiered:
        return _drop_before(log, min(log.start_offset, log.durable_start_offset))
    return _drop_before(log, log.start_offset)


def _drop_before(log: Log, offset: int) -> int:
    """Delete the segments that end at or before an offset."""
    kept = log.segment_index(offset)
    dropped = log.segments[:kept]
    if not dropped:
        return 0
    del log.segments[:kept]
    for segment in dropped:
        segment.close()
        log.dropped.append(segment.base_offset)
    delete_dropped(log)
    logger.info("%s: %d segments below offset %d deleted", log.folder, len(dropped), offset)
    return len(dropped)
