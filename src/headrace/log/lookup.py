"""Offsets by timestamp, and by the special timestamps of ListOffsets.

Indexes give the position in a file where the search for a time starts; headers and records from
there on give the offset. The first runs on the loop; the second reads the disk and decompresses,
which may take long, and uses only the file: `find_off_loop` runs it in threads. An unreadable batch
is skipped, with a line in the node's log.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from enum import IntEnum
from functools import partial
from struct import Struct as Layout
from typing import Any, Final, NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import NO_TIMESTAMP
from headrace.log.disk import DiskFile
from headrace.log.epochs import UNDEFINED_EPOCH
from headrace.log.errors import CorruptLog
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.records import scan
from headrace.records.errors import RecordsError
from headrace.records.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, read_header
from headrace.records.reader import find_records

CHUNK_BYTES: Final = 16 * 1024
"""How much is read at once to get from header to header."""
ATTEMPTS_MAX: Final = 3
"""How often a look-up begins again as the log was cut, cleaned or compacted meanwhile."""
REPORTED_MAX: Final = 1000
"""How many unreadable batches are remembered, so as not to be reported again."""

logger = logging.getLogger(__name__)


class SpecialTimestamp(IntEnum):
    """Values that a client may send instead of a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class Found(NamedTuple):
    """A record: its timestamp, its offset, and the epoch of the leader that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


NOT_FOUND: Final = Found(-1, -1, -1)

Work = Callable[[], Any]
"""A part of a look-up that touches nothing but a file."""
Steps = Generator[Work, Any, Found | None]
"""A look-up: it yields work, and is sent what comes of it."""
Run = Callable[[Work], Awaitable[Any]]


def list_offset(log: Log, timestamp: int, latest_offset: int, found: Found | None = None) -> Found:
    """Return what ListOffsets responds; all is -1 if there is no such record.

    `latest_offset` is where the client's isolation lets it read to. `found` is what `find` found
    for a timestamp that is not at the edge of the log.
    """
    match timestamp:
        case SpecialTimestamp.LATEST:
            return _named(latest_offset, log.epochs.latest_epoch)
        case SpecialTimestamp.EARLIEST:
            return _named(log.start_offset, log.epochs.epoch_for_offset(log.start_offset))
        case SpecialTimestamp.EARLIEST_LOCAL:
            offset = log.local_start_offset
            return _named(offset, log.epochs.epoch_for_offset(offset))
        case SpecialTimestamp.LATEST_TIERED:
            offset = log.remote_end_offset - 1
            return NOT_FOUND if offset < 0 else _named(offset, log.epochs.epoch_for_offset(offset))
        case SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return _find_pending_upload(log)
    return NOT_FOUND if found is None or found.offset >= latest_offset else found


def _find_pending_upload(log: Log) -> Found:
    """Return the first offset that is to be copied to the tier, if that is known (KIP-1023)."""
    if not log.settings.is_tiered:
        return NOT_FOUND
    offset = max(log.remote_end_offset, log.start_offset)
    if not log.remote_end_offset and log.local_start_offset > log.start_offset:
        return NOT_FOUND  # something is in the tier, and this node has not read yet what
    return _named(offset, log.epochs.epoch_for_offset(offset))


def find(log: Log, timestamp: int) -> Found | None:
    """Find the first record from the log's start on that is as late, or of the largest timestamp.

    Waits for the disk: on a loop, `find_off_loop` is for that.
    """
    steps = _begin(log, timestamp)
    try:
        work = next(steps)
        while True:
            work = steps.send(work())
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def find_off_loop(log: Log, timestamp: int, run: Run) -> Found | None:
    """Find as `find` does; `run` has a thread do what takes long.

    KafkaError, and the client comes again, if the log changes under it each time.
    """
    for _ in range(ATTEMPTS_MAX):
        cuts, segments = log.cuts, tuple(log.segments)
        steps = _begin(log, timestamp)
        try:
            work = next(steps)
            while True:
                result = await run(work)
                if _has_changed(log, cuts, segments):
                    break
                work = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except (OSError, CorruptLog):
            if not _has_changed(log, cuts, segments):
                raise
    raise KafkaError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"{log.folder} changed during {ATTEMPTS_MAX} look-ups"
    )


def _has_changed(log: Log, cuts: int, segments: tuple[Segment, ...]) -> bool:
    """Return whether a file that was read may no longer be part of the log."""
    return log.cuts != cuts or tuple(log.segments[: len(segments)]) != segments


def _begin(log: Log, timestamp: int) -> Steps:
    if timestamp == SpecialTimestamp.MAX_TIMESTAMP:
        return _find_largest(log)
    return _find_first(log, timestamp)


def _find_first(log: Log, timestamp: int) -> Steps:
    """Find the first record, at or after the log's start, that is as late as `timestamp`."""
    for segment in tuple(log.segments):
        if segment.largest_timestamp < timestamp:
            continue
        index = segment.time_index.find(timestamp - 1)
        entry = segment.time_index[index] if index >= 0 else (0, 0)
        offset = max(segment.base_offset + entry[1], log.start_offset)
        stretch = _stretch(log, segment, offset)
        unreadable: list[str] = []
        work = partial(_first_in, stretch, timestamp, log.start_offset, unreadable)
        found: Found | None = yield work
        for reason in unreadable:
            _report(f"{log.folder}: {reason}")
        if found is not None:
            return found
    return None


def _find_largest(log: Log) -> Steps:
    """Find the first record that has the largest timestamp of all, from the log's start on."""
    first, *later = log.segments
    start_offset = log.start_offset
    largest = max((segment.largest_timestamp for segment in later), default=NO_TIMESTAMP)
    if first.largest_timestamp > largest:
        if first.largest_timestamp_offset >= start_offset:
            found = yield from _find_first(log, first.largest_timestamp)
            if found is not None:
                return found
        # It was deleted: what is largest of the rest, no index says.
        work = partial(_largest_in, _stretch(log, first, start_offset), start_offset)
        largest = max(largest, (yield work))
    return (yield from _find_first(log, largest)) if largest >= 0 else None


class _Stretch(NamedTuple):
    """A part of a segment's file, from the beginning of a batch on."""

    file: DiskFile
    begin: int
    end: int
    inflated_bytes_max: int
    """How large a batch may become that is inflated."""


class _Batch(NamedTuple):
    """What a look-up wants to know of a batch."""

    position: int
    base_offset: int
    size_bytes: int
    last_offset: int
    max_timestamp: int


def _stretch(log: Log, segment: Segment, offset: int) -> _Stretch:
    """Return the part of a segment from the batch with an offset on."""
    inflated_bytes_max = log.settings.rules.inflated_bytes_max
    return _Stretch(segment.file, segment.locate(offset)[0], segment.size_bytes, inflated_bytes_max)


# What follows may run in any thread.


def _first_in(
    stretch: _Stretch, timestamp: int, start_offset: int, unreadable: list[str]
) -> Found | None:
    """Find the first record that is as late; return the unreadable batches too."""
    for batch in _batches(stretch):
        if batch.max_timestamp < timestamp or batch.last_offset < start_offset:
            continue
        data = stretch.file.read(batch.position, batch.size_bytes)
        try:
            found = scan.find_time(
                _measured(data, stretch.inflated_bytes_max), timestamp, start_offset
            )
        except RecordsError as error:
            unreadable.append(
                f"offsets {batch.base_offset} to {batch.last_offset} cannot be read, and look-ups "
                f"by time pass them over: {error.message}"
            )
            continue
        if found is not None:
            return Found(*found, read_header(data).leader_epoch)
    return None


def _largest_in(stretch: _Stretch, start_offset: int) -> int:
    """Return the largest timestamp of the records from an offset on, or NO_TIMESTAMP."""
    largest: int = NO_TIMESTAMP
    for batch in _batches(stretch):
        if batch.max_timestamp <= largest or batch.last_offset < start_offset:
            continue
        if batch.base_offset >= start_offset:
            largest = batch.max_timestamp
            continue
        data = stretch.file.read(batch.position, batch.size_bytes)
        try:
            latest = scan.find_latest(_measured(data, stretch.inflated_bytes_max), start_offset)
        except RecordsError:
            continue  # nobody can read it, whatever its time
        if latest is not None:
            largest = max(largest, latest)
    return largest


def _measured(data: bytes, inflated_bytes_max: int) -> scan.Segment:
    """Return the records of a batch, inflated and checked; RecordsError if they cannot be."""
    segment = find_records(data, 0, read_header(data), inflated_bytes_max)
    scan.measure([segment], False)
    return segment


def _batches(stretch: _Stretch) -> Iterator[_Batch]:
    """Yield the batches of a stretch; CorruptLog where none is."""
    file, position, end, _ = stretch
    chunk, chunk_at = b"", position
    while position + HEADER_BYTES <= end:
        inner = position - chunk_at
        if inner + HEADER_BYTES > len(chunk):
            chunk = file.read(position, min(CHUNK_BYTES, end - position))
            chunk_at, inner = position, 0
            if len(chunk) < HEADER_BYTES:
                raise CorruptLog(file.path, position, "the file ends within a batch")
        base_offset, length, magic, last_delta, max_timestamp = _FIELDS.unpack_from(chunk, inner)
        if magic != MAGIC or length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise CorruptLog(file.path, position, f"magic {magic}, batch length {length}")
        size_bytes = length + LENGTH_PREFIX_BYTES
        yield _Batch(position, base_offset, size_bytes, base_offset + last_delta, max_timestamp)
        position += size_bytes


_FIELDS: Final = Layout(">qi4xb6xi8xq")
"""Fields of a header: base offset, length, magic, last offset delta, largest timestamp."""


def _report(what: str) -> None:
    """Log what was not logged before."""
    if what in _reported:
        return
    if len(_reported) >= REPORTED_MAX:
        _reported.clear()
    _reported.add(what)
    logger.error("%s", what)


_reported: Final[set[str]] = set()


def _named(offset: int, leader_epoch: int | None) -> Found:
    return Found(NO_TIMESTAMP, offset, UNDEFINED_EPOCH if leader_epoch is None else leader_epoch)
