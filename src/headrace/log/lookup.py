"""Offsets by timestamp, as ListOffsets asks for them."""

from typing import NamedTuple

from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.records.header import BatchHeader
from headrace.records.reader import read_records


class Found(NamedTuple):
    """A record: its timestamp, its offset, and the epoch of the leader that wrote it."""

    timestamp: int
    offset: int
    leader_epoch: int


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
    """Find the first record that has the largest timestamp of all."""
    largest = max(segment.largest_timestamp for segment in log.segments)
    return find_timestamp(log, largest) if largest >= 0 else None


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> Found | None:
    batch = segment.file.read(position, header.size_bytes)
    for record in read_records(batch, header):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return Found(record.timestamp, record.offset, header.leader_epoch)
    return None
