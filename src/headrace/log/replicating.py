"""Appending what the leader of a partition sent: its bytes at its offsets, many batches per write.

    position = append_part(log, chunk, 0, epoch_max=7, now_ms=now)
    while position < end: ...                       # with a turn of the loop in between

A chunk is what a fetch returned: batches one after the other, the last one perhaps cut off. Only
headers are read; each batch is compared with its checksum. Batches that go to the same segment are
written with one system call, and indexed one by one as if they had come alone.
"""

from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from headrace.config import INT32_MAX
from headrace.log.cleanable import RELATIVE_OFFSET_MAX
from headrace.log.errors import LaterEpoch
from headrace.records.control import ControlRecord, read_control
from headrace.records.errors import CorruptBatch, RecordsError
from headrace.records.header import (
    CHECKSUMMED_FROM,
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
    malformed,
)

if TYPE_CHECKING:
    from headrace.log.log import Log

ANY_EPOCH: Final = INT32_MAX
PART_BYTES_MAX: Final = 4 * 1024 * 1024
"""How many bytes of a chunk are appended in one turn of the loop, unless one batch is larger."""
RUN_BYTES_MAX: Final = 1024 * 1024
"""How much is written with one system call: writes of 4 MiB took ten times as long per byte."""
PART_BATCHES_MAX: Final = 1000
"""How many batches of a chunk are appended in one turn of the loop."""


def append_part(
    log: "Log",
    chunk: memoryview,
    begin: int,
    *,
    epoch_max: int = ANY_EPOCH,
    now_ms: int = 0,
) -> int:
    """Append batches from position `begin` of a leader's chunk on; return the position after them.

    As many as one turn of the loop has time for; `begin` comes back if no whole batch is left.

    Raise CorruptBatch for a batch with a wrong checksum or with offsets that go back, LaterEpoch
    for one with a leader epoch above `epoch_max`: the node that sent it has lost the partition
    since it was asked (KAFKA-18723). What comes before such a batch is appended. ReadOnlyLog if
    the disk is full or failing; batches before the failed write are appended.
    """
    position, end = begin, len(chunk)
    part_end = begin + PART_BYTES_MAX
    next_offset = log.end_offset
    run: list[BatchHeader] = []
    controls: dict[int, ControlRecord] = {}
    run_begin = begin
    room: _Room | None = None
    fault: RecordsError | LaterEpoch | None = None
    for _ in range(PART_BATCHES_MAX):
        if end - position < HEADER_BYTES:
            break
        header = BatchHeader(*HEADER.unpack_from(chunk, position))
        following = position + header.batch_length + LENGTH_PREFIX_BYTES
        if following > end or (following > part_end and position > begin):
            break
        try:
            fault = _fault_of(log, chunk[position:following], header, next_offset, epoch_max)
            if fault is None and header.attributes & CONTROL_BIT and header.record_count > 0:
                # A marker that compaction has emptied says nothing, and is not read.
                controls[header.base_offset] = read_control(chunk[position:following], header)
        except RecordsError as error:
            fault = error
        if fault is not None:
            break
        if room is None or not room.takes(header):
            if run:
                log.write_run(chunk[run_begin:position], run, controls, now_ms)
                run, run_begin = [], position
            room = _Room(log, header)
        run.append(header)
        position = following
        next_offset = header.base_offset + header.last_offset_delta + 1
    if run:
        log.write_run(chunk[run_begin:position], run, controls, now_ms)
    if fault is not None:
        raise fault
    return position


def append_all(log: "Log", chunk: memoryview, *, epoch_max: int = ANY_EPOCH) -> int:
    """Append every whole batch of a leader's chunk; return the log's new end.

    For callers that have the time; errors are those of `append_part`.
    """
    position = -1
    following = 0
    while following > position:
        position = following
        following = append_part(log, chunk, position, epoch_max=epoch_max)
    return log.end_offset


def _fault_of(
    log: "Log", batch: memoryview, header: BatchHeader, next_offset: int, epoch_max: int
) -> RecordsError | LaterEpoch | None:
    """Return why a whole batch cannot be appended at `next_offset`, or None."""
    if header.magic != MAGIC or len(batch) < HEADER_BYTES:
        return malformed(header)
    if crc32c(batch[CHECKSUMMED_FROM:]) != header.crc:
        check_crc(batch, header)  # which raises
    if header.leader_epoch > epoch_max:
        return LaterEpoch(log.folder, header.leader_epoch, epoch_max)
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        return CorruptBatch(
            f"the leader sent offsets {header.base_offset} to {header.last_offset}; "
            f"{log.folder} ends at {next_offset}"
        )
    return None


class _Room:
    """What the active segment takes without being rolled, counted down.

    Never more than `Log.is_full` allows: index entries are counted as one per batch, the most that
    there can be. When it is used up, `is_full` decides about the next batch.
    """

    __slots__ = ("_batches_left", "_bytes_left", "_last_offset_max", "_timestamp_max")

    def __init__(self, log: "Log", first: BatchHeader) -> None:
        """Count the room from a batch on; the segment is rolled if it does not take that one."""
        segment = log.make_room(first)
        if first.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            raise CorruptBatch(
                f"the leader sent offset {first.last_offset}; {log.folder} ends at "
                f"{log.end_offset}, too far before it for one segment"
            )
        settings = log.settings
        first_timestamp = first.max_timestamp if segment.size_bytes == 0 else None
        if first_timestamp is None:
            first_timestamp = segment.first_timestamp
        room_bytes = settings.segment_bytes - segment.size_bytes
        self._bytes_left = min(room_bytes, RUN_BYTES_MAX) - first.size_bytes
        self._last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        self._batches_left = (
            min(
                settings.offset_entries_max - segment.offset_index.count,
                settings.time_entries_max - segment.time_index.count,
            )
            - 1
        )
        self._timestamp_max: int | None = None
        if first_timestamp is not None and first_timestamp >= 0:
            self._timestamp_max = first_timestamp + settings.segment_age_ms_max

    def takes(self, header: BatchHeader) -> bool:
        self._batches_left -= 1
        self._bytes_left -= header.batch_length + LENGTH_PREFIX_BYTES
        return (
            self._batches_left > 0
            and self._bytes_left >= 0
            and header.base_offset + header.last_offset_delta <= self._last_offset_max
            and (self._timestamp_max is None or header.max_timestamp <= self._timestamp_max)
        )
