"""Offsets by timestamp, and by the names that ListOffsets has for some."""

from enum import IntEnum
from typing import Final, NamedTuple

from headrace.ids import NO_TIMESTAMP
from headrace.log.epochs import UNDEFINED_EPOCH
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.records.header import BatchHeader
from headrace.records.reader import read_records


class SpecialTimestamp(IntEnum):
    """What a client may ask for instead of a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class Found(NamedTuple):
    """A record: its timestamp, its offset, and the epoch of the leader that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


NOT_FOUND: Final = Found(-1, -1, -1)


def list_offset(log: Log, timestamp: int, latest_offset: int) -> Found:
    """Answer ListOffsets; all is -1 if there is no such record.

    `latest_offset` is where the asker's isolation lets it read to. Without a tier the log is all
    local, and nothing is tiered.
    """
    match timestamp:
        case SpecialTimestamp.LATEST:
            return _named(latest_offset, log.epochs.latest_epoch)
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            return _named(log.start_offset, log.epochs.epoch_for_offset(log.start_offset))
        case SpecialTimestamp.LATEST_TIERED:
            return NOT_FOUND
        case SpecialTimestamp.MAX_TIMESTAMP:
            found = find_max_timestamp(log)
        case _:
            found = find_timestamp(log, timestamp)
    return NOT_FOUND if found is None or found.offset >= latest_offset else found


def find_timestamp(log: Log, timestamp: int) -> Found | None:
    """Find the first record, at or behind the log's start, that is as late as `timestamp`."""
    for segment in log.segments:
        if segment.largest_timestamp < timestamp:
            continue
        for position, header in segment.find_timestamp(timestamp):
            found = _first_in_batch(segment, position, header, timestamp, log.start_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(log: Log) -> Found | None:
    """Find the first record that has the largest timestamp of all, from the log's start on."""
    first, *later = log.segments
    timestamps = [segment.largest_timestamp for segment in later]
    if log.start_offset > first.base_offset:
        timestamps.append(_largest_from(first, log.start_offset))
    else:
        timestamps.append(first.largest_timestamp)
    largest = max(timestamps)
    return find_timestamp(log, largest) if largest >= 0 else None


def _largest_from(segment: Segment, offset: int) -> int:
    """Give the largest timestamp of a segment's records from an offset on."""
    largest: int = NO_TIMESTAMP
    for position, header in segment.batches(segment.position_of(offset)):
        if header.base_offset >= offset:
            largest = max(largest, header.max_timestamp)
            continue
        batch = segment.file.read(position, header.size_bytes)
        times = [r.timestamp for r in read_records(batch, header) if r.offset >= offset]
        largest = max(largest, *times)
    return largest


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> Found | None:
    batch = segment.file.read(position, header.size_bytes)
    for record in read_records(batch, header):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return Found(record.timestamp, record.offset, header.leader_epoch)
    return None


def _named(offset: int, leader_epoch: int | None) -> Found:
    return Found(NO_TIMESTAMP, offset, UNDEFINED_EPOCH if leader_epoch is None else leader_epoch)
