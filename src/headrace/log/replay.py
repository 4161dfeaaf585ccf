"""Bring the producers' state up to date from batches that are in the log."""

from collections.abc import Collection, Sequence

from headrace.log.producers import ProducerStates
from headrace.log.segment import Segment
from headrace.records.control import ControlType, read_control


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


def _replay_segment(
    producers: ProducerStates, segment: Segment, offset: int, *, is_indexed: bool
) -> None:
    for position, header in segment.batches(segment.locate(offset)[0]):
        if header.base_offset < offset or header.producer_id < 0:
            continue
        if not header.is_control:
            producers.apply(header)
            continue
        if header.record_count == 0:
            continue
        control = read_control(segment.file.read(position, header.size_bytes), header)
        if control.control_type in (ControlType.ABORT, ControlType.COMMIT):
            aborted = producers.apply_marker(header, control)
            if aborted is not None and not is_indexed:
                segment.transaction_index.append(aborted)
