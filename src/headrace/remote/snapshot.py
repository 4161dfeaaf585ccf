"""Snapshots of one metadata partition: what its events up to an offset have come to. Pure.

    magic "HRTM" | u16 version | u32 CRC32C of the rest | pieces: u32 length, MessagePack

Numbers are big-endian. The first piece says which log, partition and offset it is, and how many
pieces follow. Each of those has some segments of one partition, in whatever state they are. Among
segments that overlap, those that were finished later come later, so that the cache answers as it
did.

Pieces are small: a thread that reads or writes a large snapshot never keeps the loop from running
for longer than a piece takes. Kafka's bytes of the events would take ten times as long to read.

A snapshot only saves time. Whatever is wrong with one, the log has it all.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from headrace.remote.cache import SegmentCache
from headrace.remote.segments import (
    DeleteState,
    InvalidSegment,
    RemoteSegment,
    TierError,
    TopicIdPartition,
)
from headrace.wire.schema import Buffer

MAGIC: Final = b"HRTM"
VERSION: Final = 1
SEGMENTS_PER_PIECE: Final = 256

_HEADER: Final = Struct(">4sHI")
_LENGTH: Final = Struct(">I")


class InvalidSnapshot(TierError):
    """Bytes that are not a snapshot, or are damaged."""


class Head(NamedTuple):
    """What a snapshot is of."""

    log_id: bytes
    """The log whose offsets these are."""
    partition: int
    next_offset: int
    """The offset after the last event that is in it."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Some segments of one partition."""

    partition: TopicIdPartition
    delete_state: DeleteState | None
    segments: list[RemoteSegment]


def pieces_of(cache: SegmentCache) -> list[Piece]:
    """Return what a snapshot of a cache has: quick, so that the rest can be done in a thread."""
    pieces = []
    for known in cache.replay_order():
        segments = list(known.replay_order())
        for start in range(0, max(len(segments), 1), SEGMENTS_PER_PIECE):
            some = segments[start : start + SEGMENTS_PER_PIECE]
            pieces.append(Piece(known.partition, known.delete_state, some))
    return pieces


def encode_snapshot(head: Head, pieces: list[Piece]) -> bytes:
    """Return the bytes of a snapshot."""
    encoder = msgspec.msgpack.Encoder()
    parts = []
    checksum = 0
    for piece in ((*head, len(pieces)), *pieces):
        data = encoder.encode(piece)
        part = _LENGTH.pack(len(data)) + data
        checksum = crc32c(part, checksum)
        parts.append(part)
    return b"".join((_HEADER.pack(MAGIC, VERSION, checksum), *parts))


def decode_snapshot(data: Buffer) -> tuple[Head, SegmentCache]:
    """Read what `encode_snapshot` wrote; InvalidSnapshot for anything else, whatever the bytes."""
    if len(data) < _HEADER.size:
        raise InvalidSnapshot(f"a snapshot of segments of {len(data)} bytes is cut off")
    magic, version, expected = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise InvalidSnapshot(f"a snapshot of segments begins with {MAGIC!r}, not with {magic!r}")
    if version != VERSION:
        raise InvalidSnapshot(f"a snapshot of segments has version {version}, not {VERSION}")
    pieces = list(_cut(memoryview(data)[_HEADER.size :], expected))
    try:
        log_id, partition, next_offset, count = _HEAD_DECODER.decode(pieces[0])
        if count != len(pieces) - 1:
            raise InvalidSnapshot(f"a snapshot has {len(pieces) - 1} pieces, not {count}")
        cache = _restore(map(_DECODER.decode, pieces[1:]))
    except (IndexError, ValueError, RecursionError, InvalidSegment) as error:
        raise InvalidSnapshot(f"a snapshot of segments cannot be read: {error}") from error
    return Head(log_id, partition, next_offset), cache


def _cut(body: memoryview, expected: int) -> Iterator[memoryview]:
    """Yield the pieces; raise if they are not those that were written."""
    at = checksum = 0
    while at < len(body):
        if len(body) < at + _LENGTH.size:
            raise InvalidSnapshot("a snapshot of segments is cut off")
        (length,) = _LENGTH.unpack_from(body, at)
        end = at + _LENGTH.size + length
        if len(body) < end:
            raise InvalidSnapshot("a snapshot of segments is cut off")
        checksum = crc32c(body[at:end], checksum)
        yield body[at + _LENGTH.size : end]
        at = end
    if checksum != expected:
        raise InvalidSnapshot(
            f"a snapshot of segments has CRC32C {checksum:08x}, its header says {expected:08x}"
        )


def _restore(pieces: Iterable[Piece]) -> SegmentCache:
    cache = SegmentCache()
    for piece in pieces:
        for segment in piece.segments:
            cache.restore(segment)
        if piece.delete_state is not None:
            cache.restore_delete_state(piece.partition, piece.delete_state)
    return cache


_HEAD_DECODER: Final = msgspec.msgpack.Decoder(tuple[bytes, int, int, int])
_DECODER: Final = msgspec.msgpack.Decoder(Piece)
