"""Which segments of the tier have the records of a log, by its history of leader epochs. Pure.

A leader that was deposed may have copied records that its successors never had. A record of the
tier is the log's own if the log has its offset in the same leader epoch: each offset has one
epoch, and records of the same offset and epoch are the same, whichever segment has them.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headrace.log.epochs import LeaderEpochs
from headrace.remote.segments import PartitionKey, RemoteSegment, SegmentState
from headrace.tier.ports import RemoteMetadata

_NO_END: Final = 2**63 - 1


class Stretch(NamedTuple):
    """A part of a segment whose records are the log's own."""

    segment: RemoteSegment
    begin_offset: int
    end_offset: int
    """The offset after the last one."""


def find_stretch(
    metadata: RemoteMetadata, key: PartitionKey, epochs: LeaderEpochs, offset: int
) -> Stretch | None:
    """Return the stretch that has an offset, or else the next one; None if there is none.

    The first costs a look-up. The second, where offsets are missing between segments, costs what
    the later epochs have.
    """
    epoch = epochs.epoch_for_offset(offset)
    if epoch is not None:
        segment = metadata.find(key, epoch, offset)
        if segment is not None and (end := own_end(segment, epochs, offset)) > offset:
            return Stretch(segment, offset, end)
    return _find_later(metadata, key, epochs, offset)


def _find_later(
    metadata: RemoteMetadata, key: PartitionKey, epochs: LeaderEpochs, offset: int
) -> Stretch | None:
    for group in _groups(metadata, key, epochs, offset):
        stretch = _first_of(group, epochs, offset)
        if stretch is not None:
            return stretch
    return None


def _groups(
    metadata: RemoteMetadata, key: PartitionKey, epochs: LeaderEpochs, offset: int
) -> Iterator[Sequence[RemoteSegment]]:
    """Yield segments that may have records from an offset on, those with earlier ones first."""
    entries = epochs.entries()
    if not entries or offset < entries[0].start_offset:
        # The log does not know its epochs that far back: those before its first one are its own.
        yield metadata.segments(key)
    for number, entry in enumerate(entries):
        if number + 1 == len(entries) or entries[number + 1].start_offset > offset:
            yield metadata.segments_of(key, entry.epoch)


def _first_of(
    segments: Sequence[RemoteSegment], epochs: LeaderEpochs, offset: int
) -> Stretch | None:
    """Return the stretch with the first own record from an offset on, of finished segments."""
    first: Stretch | None = None
    for segment in segments:
        if first is not None and segment.start_offset >= first.begin_offset:
            break
        if segment.state != SegmentState.COPY_FINISHED or segment.end_offset < offset:
            continue
        stretch = next(_stretches(segment, epochs, offset), None)
        if stretch is not None and (first is None or stretch.begin_offset < first.begin_offset):
            first = stretch
    return first


def late_stretches(
    metadata: RemoteMetadata,
    key: PartitionKey,
    epochs: LeaderEpochs,
    timestamp: int,
    offset: int,
) -> Iterator[Stretch | None]:
    """Yield the stretches from an offset on that may have a record as late as a timestamp.

    None stands for a segment that was passed over. No record is in two stretches.
    """
    for group in _groups(metadata, key, epochs, offset):
        for segment in group:
            if (
                segment.state != SegmentState.COPY_FINISHED
                or segment.end_offset < offset
                or 0 <= segment.max_timestamp_ms < timestamp
            ):
                yield None
                continue
            for stretch in _stretches(segment, epochs, offset):
                yield stretch
                offset = stretch.end_offset


def _stretches(segment: RemoteSegment, epochs: LeaderEpochs, offset: int) -> Iterator[Stretch]:
    """Yield the stretches of a segment from an offset on."""
    begin = max(offset, segment.start_offset)
    begins = [begin, *(each.start_offset for each in segment.epochs if each.start_offset > begin)]
    end = begin
    for begin in begins:
        if begin >= end and (end := own_end(segment, epochs, begin)) > begin:
            yield Stretch(segment, begin, end)


def own_end(segment: RemoteSegment, epochs: LeaderEpochs, offset: int) -> int:
    """Return up to where the records of a segment from an offset on are the log's own.

    That is `offset` if the record there is not, and the offset after the segment if all are. A log
    that knows no epoch at all takes what there is.
    """
    if len(epochs) == 0:
        return segment.next_offset
    own = segment.epochs
    end = offset
    for number, (epoch, start_offset) in enumerate(own):
        is_last = number + 1 == len(own)
        epoch_end = segment.next_offset if is_last else own[number + 1].start_offset
        if epoch_end <= offset:
            continue
        first = max(offset, start_offset)
        known = epochs.epoch_for_offset(first)
        if known is None:
            # Before all that the log knows of: epochs before its first one are its own.
            known = epoch
        ended = epochs.end_offset_for(epoch, _NO_END)
        if known != epoch or ended.epoch != epoch or ended.end_offset <= first:
            return end
        if ended.end_offset < epoch_end:
            return ended.end_offset
        end = epoch_end
    return end
