"""Fetched batches made ready for the target: as they are, but for the ids of their producers.

A producer id is unique in one cluster. Were those of the source kept, a producer of the target
with the same id would be taken for it once the topic is promoted, and its records for duplicates.
So a constant is added, and the checksum follows. Pure; works in place.
"""

from struct import Struct as Layout
from typing import Final

import msgspec

from headrace.records.builder import BatchBuilder
from headrace.records.errors import CorruptBatch
from headrace.records.header import (
    BatchHeader,
    check_crc,
    read_headers,
    seal,
)
from headrace.wire.mirror_records import PRODUCER_ID_SHIFT

_PRODUCER_ID: Final = Layout(">q")
_PRODUCER_ID_AT: Final = 43
_PRODUCER_ID_MAX: Final = 2**63 - 1 - PRODUCER_ID_SHIFT


class Adopted(msgspec.Struct, frozen=True):
    """Batches that may be appended behind an offset."""

    records: memoryview
    """Empty if the source has nothing but batches without records there."""
    end_offset: int
    """Where the target's log ends with these batches; where it ended before if there is none."""
    next_offset: int
    """Where the next fetch begins."""
    last_epoch: int
    """The source's leader epoch of the last batch."""
    batch_count: int


class SplitBatch(CorruptBatch):
    """A batch that holds the offset to go on at: the source has other batches than it had."""


def adopt(chunk: memoryview, offset: int, end_offset: int | None = None) -> Adopted | None:
    """Return the batches of a fetch from `offset` on, for the target; None if there is none.

    `end_offset` is where the target's log ends, `offset` if that is not given. The first batch may
    begin between the two: the source's log begins inside of it. Batches without records are left
    out: compaction has emptied them, and kept them for producers of the source. A last batch that
    is cut off is left for the next fetch.

    Raise CorruptBatch for a batch with a wrong checksum, SplitBatch for one that begins before the
    target's end and ends behind `offset`, UnsupportedBatch for a message format before record
    batches.
    """
    pieces: list[tuple[int, int]] = []
    next_offset, epoch, count = offset, -1, 0
    kept_end = offset if end_offset is None else end_offset
    is_any = False
    if chunk.readonly:
        chunk = memoryview(bytearray(chunk))
    for position, header in read_headers(chunk):
        if header.last_offset < offset:
            continue
        if header.base_offset < (next_offset if is_any else min(kept_end, offset)):
            raise SplitBatch(
                f"the source has a batch with offsets {header.base_offset} to {header.last_offset} "
                f"where one that begins at {next_offset} was expected"
            )
        is_any = True
        next_offset, epoch = header.next_offset, header.leader_epoch
        if not header.record_count:
            continue
        end = position + header.size_bytes
        if header.producer_id >= 0:
            shift_producer(chunk[position:end], header)
        if pieces and pieces[-1][1] == position:
            pieces[-1] = (pieces[-1][0], end)
        else:
            pieces.append((position, end))
        kept_end = header.next_offset
        count += 1
    if not is_any:
        return None
    if len(pieces) == 1:
        records = chunk[slice(*pieces[0])]
    else:
        records = memoryview(b"".join(chunk[begin:end] for begin, end in pieces))
    return Adopted(records, kept_end, next_offset, epoch, count)


def shift_producer(batch: memoryview, header: BatchHeader) -> None:
    """Replace the producer id of a whole batch by the one that it has in mirrors."""
    check_crc(batch, header)
    if header.producer_id > _PRODUCER_ID_MAX:
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: producer id {header.producer_id} is that of a "
            "mirror of a mirror, too many times over"
        )
    _PRODUCER_ID.pack_into(batch, _PRODUCER_ID_AT, header.producer_id + PRODUCER_ID_SHIFT)
    seal(batch)


def filler(end_offset: int) -> bytes:
    """Return a batch without records with which a log ends at an offset.

    For a source whose last records compaction removed: the next record gets the same offset.
    """
    return bytes(BatchBuilder().build(base_offset=end_offset - 1, last_offset_delta=0))


class Fingerprint(msgspec.Struct, frozen=True):
    """What tells one batch from another, in the form that it has in a mirror."""

    base_offset: int
    last_offset: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    def may_be(self, other: "Fingerprint") -> bool:
        """Return whether one may be what compaction has left of the other."""
        return (
            self.base_offset == other.base_offset
            and self.last_offset == other.last_offset
            and self.producer_id == other.producer_id
            and self.producer_epoch == other.producer_epoch
            and self.base_sequence == other.base_sequence
        )


def fingerprints(chunk: memoryview) -> list[tuple[int, Fingerprint]]:
    """Return the position and the fingerprint of every whole batch of a mirror."""
    return [
        (
            position,
            Fingerprint(
                header.base_offset,
                header.last_offset,
                header.crc,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            ),
        )
        for position, header in read_headers(chunk)
    ]
