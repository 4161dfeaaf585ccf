"""Logs to test with: a small one on a simulated disk, and batches for it."""

from headrace.log.log import Appended, Log
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.control import build_end_transaction_marker
from headrace.records.header import read_headers
from headrace.records.reader import read_records
from headrace.records.record import Record
from headrace.testing.disk import SimulatedDisk

FOLDER = "orders-0"
NOW_MS = 1_700_000_000_000


def open_simulated(
    disk: SimulatedDisk,
    settings: LogSettings | None = None,
    *,
    is_clean: bool = True,
    recovery_point: int = 0,
    start_offset: int = 0,
) -> Log:
    return open_log(
        disk,
        FOLDER,
        settings or LogSettings(),
        is_clean=is_clean,
        recovery_point=recovery_point,
        start_offset=start_offset,
    )


def batch_of(*values: bytes, timestamp: int = NOW_MS, **fields: int) -> memoryview:
    """A batch as a client sends it; `fields` are those of `BatchBuilder.build`."""
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp, b"key", value)
    return memoryview(builder.build(**fields))  # type: ignore[arg-type]


def append(
    log: Log, *values: bytes, leader_epoch: int = 0, timestamp: int = NOW_MS, **fields: int
) -> Appended:
    batch = batch_of(*values, timestamp=timestamp, **fields)
    return log.append(batch, leader_epoch=leader_epoch, now_ms=NOW_MS)


def end_transaction(
    log: Log,
    producer_id: int,
    *,
    is_commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> Appended:
    marker = build_end_transaction_marker(
        NOW_MS,
        is_commit=is_commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
    )
    return log.append_own(memoryview(marker), leader_epoch=leader_epoch)


def records_of(log: Log, offset: int | None = None, bytes_max: int = 10_000) -> list[Record]:
    """Every record from an offset on, read as a consumer does."""
    offset = log.start_offset if offset is None else offset
    records: list[Record] = []
    while True:
        chunk = log.read(offset, bytes_max, up_to=log.end_offset, may_block=True)
        assert chunk is not None
        batches = list(read_headers(chunk))
        if not batches:
            return [record for record in records if record.offset >= log.start_offset]
        for position, header in batches:
            if not header.is_control:
                records += read_records(chunk[position : position + header.size_bytes], header)
        offset = batches[-1][1].next_offset


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in records_of(log)]
