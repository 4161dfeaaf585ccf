"""The contents of a log's files as rows to print, one function per kind of file."""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct as Layout
from typing import Any

from headrace.cli.whole_numbers import whole_number
from headrace.ids import topic_id_text
from headrace.log.checkpoints import parse_epochs, parse_partition_metadata
from headrace.log.errors import CorruptLog
from headrace.log.producer_snapshots import decode_snapshot
from headrace.log.segment import OFFSET_ENTRY, TIME_ENTRY
from headrace.log.transactions import check_index
from headrace.records.aborted import read_entries
from headrace.records.control import ControlType, read_control
from headrace.records.errors import CorruptBatch
from headrace.records.header import HEADER_BYTES, BatchHeader, check_crc, read_header
from headrace.records.reader import read_records

Row = dict[str, Any]


def describe_batches(view: memoryview, *, with_records: bool) -> Iterator[Row]:
    """Yield each batch of a segment, with its records if wanted; raise CorruptBatch at damage."""
    position = 0
    next_offset = -1
    while position < len(view):
        header = read_header(view, position)
        end = position + header.size_bytes
        if end > len(view):
            raise CorruptBatch(
                f"at {position}: a batch of {header.size_bytes} bytes is cut off after "
                f"{len(view) - position}"
            )
        batch = bytes(view[position:end])
        check_crc(batch, header)
        if header.base_offset < next_offset:
            raise CorruptBatch(
                f"at {position}: offset {header.base_offset}, the batch before ends at "
                f"{next_offset - 1}"
            )
        next_offset = header.next_offset
        yield _batch(header, position)
        if header.is_control:
            yield _control(batch, header)
        elif with_records and header.size_bytes > HEADER_BYTES:
            for record in read_records(batch, header):
                yield {
                    "kind": "record",
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": _readable(record.key),
                    "value": _readable(record.value),
                    "headers": [[name, _readable(value)] for name, value in record.headers],
                }
        position = end


def describe_index(view: memoryview, path: Path) -> Iterator[Row]:
    """Yield the entries of an offset index: the last offset of a batch, and its position."""
    base_offset = _base_offset(path)
    for offset, position in _entries(view, OFFSET_ENTRY, path):
        yield {"kind": "entry", "offset": base_offset + offset, "position": position}


def describe_time_index(view: memoryview, path: Path) -> Iterator[Row]:
    """Yield the entries of a time index: the largest timestamp up to an offset."""
    base_offset = _base_offset(path)
    for timestamp, offset in _entries(view, TIME_ENTRY, path):
        yield {"kind": "entry", "timestamp": timestamp, "offset": base_offset + offset}


def describe_transactions(view: memoryview, path: Path) -> Iterator[Row]:
    """Yield the aborted transactions of a segment."""
    check_index(view, _base_offset(path), str(path))
    for entry in read_entries(view):
        yield {
            "kind": "aborted",
            "producer_id": entry.producer_id,
            "first_offset": entry.first_offset,
            "last_offset": entry.last_offset,
            "last_stable_offset": entry.last_stable_offset,
        }


def describe_snapshot(view: memoryview, path: Path) -> Iterator[Row]:
    """Yield the producers of a snapshot."""
    for state in decode_snapshot(bytes(view), str(path)):
        last = state.batches[-1] if state.batches else None
        yield {
            "kind": "producer",
            "producer_id": state.producer_id,
            "epoch": state.epoch,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_first_offset": state.transaction_first_offset,
        }


def describe_checkpoint(path: Path) -> Iterator[Row]:
    """Yield the lines of `leader-epoch-checkpoint` or `partition.metadata`."""
    text = path.read_text("ascii", errors="replace")
    if path.name == "partition.metadata":
        yield {"kind": "topic", "id": topic_id_text(parse_partition_metadata(text, str(path)))}
        return
    for entry in parse_epochs(text, str(path)):
        yield {"kind": "epoch", "epoch": entry.epoch, "start_offset": entry.start_offset}


def _batch(header: BatchHeader, position: int) -> Row:
    return {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": position,
        "bytes": header.size_bytes,
        "compression": header.compression.name.lower(),
        "timestamp_type": header.timestamp_type.name.lower(),
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": f"{header.crc:08x}",
    }


def _control(batch: bytes, header: BatchHeader) -> Row:
    code = read_control(batch, header).control_type
    known = code in set(ControlType)
    return {
        "kind": "record",
        "offset": header.base_offset,
        "control": ControlType(code).name.lower() if known else code,
    }


def _entries(view: memoryview, layout: Layout, path: Path) -> Iterator[tuple[Any, ...]]:
    if len(view) % layout.size:
        raise CorruptLog(
            str(path), len(view) - len(view) % layout.size, f"an entry has {layout.size} bytes"
        )
    if len(view) == layout.size:
        return layout.iter_unpack(view)
    # A running broker has reserved room after the entries, filled with zeros.
    used_bytes = len(bytes(view).rstrip(b"\0"))
    return layout.iter_unpack(view[: -(-used_bytes // layout.size) * layout.size])


def _base_offset(path: Path) -> int:
    base_offset = whole_number(path.name.partition(".")[0])
    if base_offset is None:
        raise CorruptLog(str(path), 0, "the name of a log's file begins with its first offset")
    return base_offset


def _readable(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
