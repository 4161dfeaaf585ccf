"""Logs of keys and values to compact, and what a reader finds in them."""

import asyncio
from typing import Any

from headrace.log.compaction import Compacted, compact
from headrace.log.log import Appended, Log
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression
from headrace.records.header import BatchHeader, read_headers
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import NOW_MS, open_simulated, records_of

DELETE_RETENTION_MS = 1000
SETTINGS = LogSettings(is_compacted=True, delete_retention_ms=DELETE_RETENTION_MS)

Pair = tuple[bytes | None, bytes | None]


def open_compacted(disk: SimulatedDisk | None = None, settings: LogSettings = SETTINGS) -> Log:
    return open_simulated(disk or SimulatedDisk(), settings)


def put(
    log: Log,
    *pairs: Pair,
    timestamp: int = NOW_MS,
    codec: Compression = Compression.NONE,
    **fields: Any,
) -> Appended:
    """Append a batch of keys and values; a value of None is a tombstone."""
    builder = BatchBuilder(codec)
    for key, value in pairs:
        builder.append(timestamp, key, value)
    return log.append(memoryview(builder.build(**fields)), leader_epoch=0, now_ms=NOW_MS)


def roll(log: Log) -> None:
    """Let everything so far be open to compaction."""
    log.roll(log.end_offset)
    log.advance_high_watermark(log.end_offset)


def run(log: Log, now_ms: int = NOW_MS, **options: Any) -> Compacted:
    return asyncio.run(compact(log, now_ms, **options))


def table_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record."""
    return [(record.offset, record.key, record.value) for record in records_of(log)]


def headers_of(log: Log) -> list[BatchHeader]:
    return [
        header
        for segment in log.segments
        for _, header in read_headers(segment.file.read(0, segment.size_bytes))
    ]
