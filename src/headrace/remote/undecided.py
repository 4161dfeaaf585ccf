"""Transactions whose end the tier does not have.

Brokers copy what no open transaction touches. But a transaction that is decided when its first
records are copied may have its marker further on, where only the brokers' disks are. The snapshot
of the producers at the end of a segment says which transactions were open there: a reader that has
nothing but the tier must stop before them, or decide itself.
"""

from struct import Struct as Layout
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.remote.layout import ObjectKind, object_key
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment, TierError
from headrace.remote.store import DamagedObject
from headrace.wire import WireError, decode
from headrace.wire.messages.producer_snapshot import ProducerSnapshot
from headrace.wire.schema import Buffer

VERSION: Final = 1
_HEAD: Final = Layout(">hI")


class OpenTransaction(NamedTuple):
    """A transaction that is not ended at the end of a segment."""

    first_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


async def open_transactions(
    objects: SegmentObjects, segment: RemoteSegment
) -> list[OpenTransaction]:
    """Return the transactions that are open at the end of a segment, oldest first.

    Raise StoreError; a segment whose snapshot is missing or damaged says nothing of them.
    """
    data = await objects.fetch_index(segment, ObjectKind.PRODUCER_SNAPSHOT)
    name = f"{object_key(segment, ObjectKind.PRODUCER_SNAPSHOT)} in {objects.store.url}"
    return sorted(
        OpenTransaction(
            entry.current_txn_first_offset, entry.producer_id, entry.epoch, entry.coordinator_epoch
        )
        for entry in _decode(data, name).producer_entries
        if entry.current_txn_first_offset >= 0
    )


async def stable_end(objects: SegmentObjects, segment: RemoteSegment) -> int:
    """Return where a reader of committed records stops that has nothing beyond a segment."""
    found = await open_transactions(objects, segment)
    return found[0].first_offset if found else segment.next_offset


def _decode(data: Buffer, name: str) -> ProducerSnapshot:
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise DamagedObject(f"{name} has {len(view)} bytes")
    version, crc = _HEAD.unpack_from(view)
    if version != VERSION:
        raise TierError(f"{name} has version {version}; only {VERSION} is read")
    if crc32c(view[_HEAD.size :]) != crc:
        raise DamagedObject(f"{name} does not have its own checksum")
    try:
        return decode(ProducerSnapshot, view[2:], VERSION)
    except WireError as error:
        raise DamagedObject(f"{name}: {error.reason}") from None
