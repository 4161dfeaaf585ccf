"""The sizes and checksums of a segment's objects, as its custom metadata has them. Pure.

Kafka carries up to 128 bytes that only the store understands with a segment's description. Ours
say what was written, so that a changed, cut or lost object is noticed without trust in the store.
Segments that Kafka copied have none.

    version 1 | for each kind that was written: kind u8 | size u32 | CRC-32C u32, all big endian
"""

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from headrace.remote.layout import WRITE_ORDER, ObjectKind

VERSION: Final = 1

_ENTRY: Final = Struct(">BII")


class Fingerprint(NamedTuple):
    """What an object of a segment was when it was written."""

    size_bytes: int
    crc32c: int


Fingerprints: TypeAlias = dict[ObjectKind, Fingerprint]


def encode_fingerprints(fingerprints: Fingerprints) -> bytes:
    """Return the custom metadata of a segment: at most 55 bytes."""
    entries = (
        _ENTRY.pack(number, *fingerprints[kind])
        for number, kind in enumerate(WRITE_ORDER)
        if kind in fingerprints
    )
    return bytes((VERSION,)) + b"".join(entries)


def decode_fingerprints(custom_metadata: bytes | None) -> Fingerprints | None:
    """Return what was written, None if the metadata is not ours or of a later version."""
    if not custom_metadata or custom_metadata[0] != VERSION:
        return None
    entries = custom_metadata[1:]
    if len(entries) % _ENTRY.size:
        return None
    found: Fingerprints = {}
    for number, size_bytes, crc in _ENTRY.iter_unpack(entries):
        if number >= len(WRITE_ORDER):
            return None
        found[WRITE_ORDER[number]] = Fingerprint(size_bytes, crc)
    return found
