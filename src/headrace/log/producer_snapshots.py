"""The `.snapshot` file: a partition's producers at an offset of its log.

A log that is opened or truncated replays only the batches after it. It has only the last batch of
each producer, as in Kafka: a retry of an older one is then out of order.
"""

from collections.abc import Iterable
from struct import Struct as Layout
from typing import Final

from crc32c import crc32c

from headrace.log.errors import CorruptLog
from headrace.log.producers import ProducerState, RecordedBatch
from headrace.records.builder import NO_SEQUENCE
from headrace.wire import WireError, decode, encode
from headrace.wire.messages.producer_snapshot import ProducerEntry, ProducerSnapshot
from headrace.wire.schema import Buffer

VERSION: Final = 1
SUFFIX: Final = ".snapshot"
NO_OFFSET: Final = -1


def snapshot_name(offset: int) -> str:
    """Name the snapshot of the producers as they were when the log ended at `offset`."""
    return f"{offset:020d}{SUFFIX}"


def encode_snapshot(states: Iterable[ProducerState]) -> bytes:
    message = ProducerSnapshot(producer_entries=[_entry(state) for state in states])
    body = encode(message, VERSION)[_CRC.size :]
    return _VERSION.pack(VERSION) + _CRC.pack(crc32c(body)) + body


def decode_snapshot(data: Buffer, path: str) -> list[ProducerState]:
    """Read what `encode_snapshot` wrote; CorruptLog names `path` if it is anything else."""
    view = memoryview(data)
    if len(view) < _BODY_AT:
        raise CorruptLog(path, 0, f"a snapshot of {len(view)} bytes")
    (version,) = _VERSION.unpack_from(view)
    if version != VERSION:
        raise CorruptLog(path, 0, f"a snapshot of version {version}, not {VERSION}")
    (expected,) = _CRC.unpack_from(view, _VERSION.size)
    computed = crc32c(view[_BODY_AT:])
    if computed != expected:
        raise CorruptLog(
            path, _VERSION.size, f"CRC32C is {computed:08x}, the snapshot says {expected:08x}"
        )
    try:
        message = decode(ProducerSnapshot, view[_VERSION.size :], VERSION)
    except WireError as error:
        raise CorruptLog(path, _VERSION.size + (error.position or 0), error.reason) from error
    return [_state(entry) for entry in message.producer_entries]


def _entry(state: ProducerState) -> ProducerEntry:
    batch = state.batches[-1] if state.batches else _NO_BATCH
    first_offset = state.transaction_first_offset
    return ProducerEntry(
        producer_id=state.producer_id,
        epoch=state.epoch,
        last_sequence=batch.last_sequence,
        last_offset=batch.last_offset,
        offset_delta=batch.offset_delta,
        timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_first_offset=NO_OFFSET if first_offset is None else first_offset,
    )


def _state(entry: ProducerEntry) -> ProducerState:
    batches = []
    if entry.last_offset >= 0:
        batches.append(
            RecordedBatch(
                entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp
            )
        )
    first_offset = entry.current_txn_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        epoch=entry.epoch,
        coordinator_epoch=entry.coordinator_epoch,
        last_timestamp=entry.timestamp,
        transaction_first_offset=first_offset if first_offset >= 0 else None,
        batches=batches,
    )


_NO_BATCH: Final = RecordedBatch(NO_SEQUENCE, NO_OFFSET, 0, -1)
_VERSION: Final = Layout(">h")
_CRC: Final = Layout(">I")
_BODY_AT: Final = _VERSION.size + _CRC.size
