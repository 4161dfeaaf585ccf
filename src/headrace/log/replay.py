"""Restoring the producers' state from a snapshot and the batches after it."""

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress

from headrace.log.disk import Disk
from headrace.log.errors import CorruptLog
from headrace.log.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headrace.log.producer_snapshots import decode_snapshot, snapshot_name
from headrace.log.producers import ProducerState, ProducerStates
from headrace.log.segment import Segment
from headrace.records.control import read_control

logger = logging.getLogger(__name__)


def restore_producers(
    producers: ProducerStates,
    disk: Disk,
    folder: str,
    segments: Sequence[Segment],
    *,
    limit: int,
    unindexed: Collection[Segment] = (),
) -> None:
    """Load the newest readable snapshot up to `limit`, and apply the batches after it.

    Later snapshots are removed, and so are earlier ones at which no segment starts. One from
    before the first segment is useless: the batches after it are gone. Aborted transactions go
    into the indexes of the `unindexed` segments.
    """
    producers.restore(())
    first_base = begin = segments[0].base_offset
    bases = {segment.base_offset for segment in segments}
    is_found = False
    names = [name for name in disk.list(folder) if name.endswith(SNAPSHOT_SUFFIX)]
    for offset in sorted((int(name.removesuffix(SNAPSHOT_SUFFIX)) for name in names), reverse=True):
        path = f"{folder}/{snapshot_name(offset)}"
        if not first_base <= offset <= limit or (is_found and offset not in bases):
            disk.remove(path)
        elif not is_found:
            try:
                producers.restore(decode_snapshot(disk.read(path), path))
                begin, is_found = offset, True
            except CorruptLog as error:
                logger.warning("%s; an older snapshot is taken", error.message)
                disk.remove(path)
    replay(producers, segments, begin, unindexed)


def replay(
    producers: ProducerStates,
    segments: Sequence[Segment],
    offset: int,
    unindexed: Collection[Segment] = (),
) -> None:
    """Apply the batches from `offset` on; aborted transactions go into indexes that are new."""
    for index, segment in enumerate(segments):
        is_before = index + 1 < len(segments) and segments[index + 1].base_offset <= offset
        if not is_before and segment.size_bytes:
            _replay_segment(producers, segment, offset, is_indexed=segment not in unindexed)


def producers_at(
    disk: Disk,
    folder: str,
    segments: Sequence[Segment],
    offset: int,
    given: tuple[int, bytes] | None = None,
) -> list[ProducerState]:
    """Return the producers as they were at `offset`, where these finished segments end.

    Found from the newest readable snapshot on, and nothing changes on the disk. For a thread.
    `given` is a snapshot that is not on the disk, and its offset: nothing before it is read.
    """
    producers, begin = ProducerStates(), segments[0].base_offset
    if given is not None and given[0] <= offset:
        producers.restore(decode_snapshot(given[1], folder))
        begin = given[0]
    names = [name for name in disk.list(folder) if name.endswith(SNAPSHOT_SUFFIX)]
    for known in sorted((int(name.removesuffix(SNAPSHOT_SUFFIX)) for name in names), reverse=True):
        path = f"{folder}/{snapshot_name(known)}"
        if begin <= known <= offset:
            with suppress(CorruptLog, FileNotFoundError):
                producers.restore(decode_snapshot(disk.read(path), path))
                begin = known
                break
    ends = (*(segment.base_offset for segment in segments[1:]), offset)
    for segment, end in zip(segments, ends, strict=True):
        if end > begin and segment.size_bytes:
            _replay_from(producers, segment, 0, begin, is_indexed=True)
    return producers.capture()


def _replay_segment(
    producers: ProducerStates, segment: Segment, offset: int, *, is_indexed: bool
) -> None:
    _replay_from(producers, segment, segment.locate(offset)[0], offset, is_indexed=is_indexed)


def _replay_from(
    producers: ProducerStates, segment: Segment, begin: int, offset: int, *, is_indexed: bool
) -> None:
    for position, header in segment.batches(begin):
        if header.base_offset < offset or header.producer_id < 0:
            continue
        if not header.is_control:
            producers.apply(header)
            continue
        if header.record_count == 0:
            continue
        control = read_control(segment.file.read(position, header.size_bytes), header)
        if control.ends_transaction:
            aborted = producers.apply_marker(header, control)
            if aborted is not None and not is_indexed:
                segment.transaction_index.append(aborted)
