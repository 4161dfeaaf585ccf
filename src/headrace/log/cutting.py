"""Taking parts of a log away: at its end for a new leader, at its start for retention.

Whole segments go by renaming their files, which is quick; `find_deleted` and `remove_files` free
the space later, once nobody can be reading them any more.
"""

import logging

from headrace.errors import ErrorCode, KafkaError
from headrace.log.compaction_files import delete_segment
from headrace.log.disk import Disk, folder_of
from headrace.log.errors import OffsetOutOfRange
from headrace.log.log import Log
from headrace.log.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headrace.log.producer_snapshots import decode_snapshot
from headrace.log.replay import replay
from headrace.log.segment import DELETED_SUFFIX, Segment, file_name

logger = logging.getLogger(__name__)


def truncate(log: Log, offset: int) -> bool:
    """End the log before the batch that has `offset`; say whether anything went.

    Producers, epochs and indexes are as they were then. OffsetOutOfRange below the log's start.
    """
    if offset >= log.end_offset:
        return False
    if offset < log.start_offset:
        raise OffsetOutOfRange(log.folder, offset, log.start_offset, log.end_offset)
    index = log.segment_index(offset)
    _delete(log, log.segments[index + 1 :])
    del log.segments[index + 1 :]
    segment = log.segments[index]
    segment.truncate(segment.position_of(offset))
    end_offset = segment.read_end_offset()
    segment.transaction_index.truncate_to(end_offset)
    _end_at(log, max(end_offset, min(offset, log.start_offset)))
    return True


def restart_at(log: Log, offset: int) -> None:
    """Empty the log and let it begin at `offset`, as a follower must that fell out of range."""
    _delete(log, log.segments)
    log.segments.clear()
    segment = Segment(
        log.disk,
        log.folder,
        offset,
        sizes={},
        index_interval_bytes=log.settings.index_interval_bytes,
    )
    segment.create()
    log.segments.append(segment)
    log.start_offset = offset
    _end_at(log, offset)


def delete_records(log: Log, offset: int) -> int:
    """Let the log begin at `offset`, at most its high watermark; give the new start.

    -1 stands for the high watermark. OFFSET_OUT_OF_RANGE beyond it.
    """
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
    """Delete the oldest segments that are too old or too many; give how many went.

    Only what is below the high watermark goes. The active segment goes too if it is too old; a
    new one takes its place.
    """
    settings = log.settings
    if not settings.is_deleted_by_age:
        return _drop_before_start(log)
    excess_bytes = log.size_bytes - settings.retention_bytes if settings.retention_bytes >= 0 else 0
    count = 0
    for index, segment in enumerate(log.segments):
        is_last = index + 1 == len(log.segments)
        end_offset = log.end_offset if is_last else log.segments[index + 1].base_offset
        is_old = (
            settings.retention_ms >= 0
            and segment.size_bytes > 0
            and now_ms - segment.largest_timestamp > settings.retention_ms
        )
        is_too_much = not is_last and excess_bytes >= segment.size_bytes > 0
        if end_offset > log.high_watermark or not (is_old or is_too_much):
            break
        if is_last:
            log.roll(log.end_offset)
        excess_bytes -= segment.size_bytes
        count += 1
        log.start_offset = max(log.start_offset, end_offset)
    return count and _drop_before_start(log)


def find_deleted(log: Log, now_ms: int) -> list[str]:
    """Give the deleted files whose file.delete.delay.ms has passed since this first saw them."""
    paths = [
        f"{log.folder}/{name}"
        for name in log.disk.list(log.folder)
        if name.endswith(DELETED_SUFFIX)
    ]
    seen = {path: log.deleted_since_ms.get(path, now_ms) for path in paths}
    delay_ms = log.settings.file_delete_delay_ms
    due = [path for path, since_ms in seen.items() if now_ms - since_ms >= delay_ms]
    log.deleted_since_ms = {path: since_ms for path, since_ms in seen.items() if path not in due}
    return due


def remove_files(disk: Disk, paths: list[str]) -> None:
    """Free the space of deleted files; may run in a thread, as that takes long for large ones."""
    for path in paths:
        disk.remove(path)
    for folder in {folder_of(path) for path in paths}:
        disk.sync_folder(folder)


def _drop_before_start(log: Log) -> int:
    """Delete the segments that end at or before the log's start."""
    kept = log.segment_index(log.start_offset)
    dropped = log.segments[:kept]
    if not dropped:
        return 0
    _delete(log, dropped)
    del log.segments[:kept]
    if log.epochs.truncate_from_start(log.start_offset):
        log.note_epochs_changed()
    logger.info(
        "%s: %d segments below offset %d deleted", log.folder, len(dropped), log.start_offset
    )
    return len(dropped)


def _delete(log: Log, segments: list[Segment]) -> None:
    """Rename the files of segments, for good: no crash brings back what the log goes on without."""
    for segment in segments:
        segment.close()
        delete_segment(log.disk, log.folder, segment.base_offset)
    if segments:
        log.disk.sync_folder(log.folder)


def _end_at(log: Log, end_offset: int) -> None:
    """Take back what the log knew of offsets that are gone."""
    log.reactivate(end_offset)
    if log.epochs.truncate_from_end(end_offset):
        log.note_epochs_changed()
    _restore_producers(log, end_offset)


def _restore_producers(log: Log, end_offset: int) -> None:
    """Go back to the newest snapshot before the end, and on from there."""
    offsets = []
    for name in log.disk.list(log.folder):
        if name.endswith(SNAPSHOT_SUFFIX):
            offset = int(name[: -len(SNAPSHOT_SUFFIX)])
            if offset <= end_offset:
                offsets.append(offset)
            else:
                log.disk.remove(f"{log.folder}/{name}")
    begin = log.segments[0].base_offset
    log.producers.restore(())
    if offsets:
        begin = max(offsets)
        path = f"{log.folder}/{file_name(begin, SNAPSHOT_SUFFIX)}"
        log.producers.restore(decode_snapshot(log.disk.read(path), path))
    replay(log.producers, log.segments, begin)
    log.producers.on_high_watermark_updated(log.high_watermark)
