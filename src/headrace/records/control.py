"""Control batches: what a log says to its readers between their records.

A control batch holds one record whose key gives its type. The values of metadata-quorum types
(leader change, snapshots, versions, voters) stay bytes here: `wire` has their schemas.
"""

from enum import IntEnum
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from headrace.config import INFLATED_BATCH_MAX_BYTES
from headrace.records.builder import NO_LEADER_EPOCH, BatchBuilder
from headrace.records.compression import ReadableBuffer
from headrace.records.errors import CorruptBatch
from headrace.records.header import BatchHeader
from headrace.records.reader import read_records


class ControlType(IntEnum):
    """The types that Kafka has, by its names."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlRecord(Struct, frozen=True, gc=False):
    """What a control batch says. A type may be newer than `ControlType` and is then skipped."""

    control_type: int
    value: bytes

    @property
    def ends_transaction(self) -> bool:
        return self.control_type in (ControlType.ABORT, ControlType.COMMIT)


def build_control_batch(
    control_type: ControlType,
    value: bytes,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """A control batch of the log itself, such as a leader change with its encoded message."""
    builder = BatchBuilder()
    builder.append(timestamp, _KEY.pack(_KEY_VERSION, control_type), value)
    return builder.build(base_offset=base_offset, leader_epoch=leader_epoch, is_control=True)


def build_end_transaction_marker(
    timestamp: int,
    *,
    is_commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that commits or aborts what a producer wrote since its transaction began."""
    control_type = ControlType.COMMIT if is_commit else ControlType.ABORT
    builder = BatchBuilder()
    builder.append(
        timestamp,
        _KEY.pack(_KEY_VERSION, control_type),
        _MARKER.pack(_MARKER_VERSION, coordinator_epoch),
    )
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_control(
    batch: ReadableBuffer,
    header: BatchHeader | None = None,
    *,
    inflated_bytes_max: int = INFLATED_BATCH_MAX_BYTES.default,
) -> ControlRecord:
    """Read the first record of a control batch; versions newer than ours begin the same way."""
    records = read_records(batch, header, inflated_bytes_max=inflated_bytes_max)
    record = next(records, None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch("a control batch has no record, or its key is too short for a type")
    version, control_type = _KEY.unpack_from(record.key)
    if version < _KEY_VERSION:
        raise CorruptBatch(f"a control batch's key has version {version}")
    return ControlRecord(control_type, record.value or b"")


def coordinator_epoch(record: ControlRecord) -> int:
    """The epoch of the coordinator that wrote a commit or abort marker."""
    if not record.ends_transaction:
        raise CorruptBatch(f"control type {record.control_type} is no end of a transaction")
    if len(record.value) < _MARKER.size:
        raise CorruptBatch(f"a transaction marker of {len(record.value)} bytes")
    version, epoch = _MARKER.unpack_from(record.value)
    if version < _MARKER_VERSION:
        raise CorruptBatch(f"a transaction marker has version {version}")
    return int(epoch)


_KEY: Final = Layout(">hh")
_KEY_VERSION: Final = 0
_MARKER: Final = Layout(">hi")
_MARKER_VERSION: Final = 0
