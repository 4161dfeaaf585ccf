"""Snapshots of the image: what a node starts from in place of the log before them.

An image from a snapshot and the entries after it equals one from the whole log, and images that
are equal by the same log have equal snapshots: nodes can compare them by their checksums.
"""

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.metadata.applier import Applier
from headrace.metadata.errors import InvalidSnapshot
from headrace.metadata.image import Image
from headrace.metadata.state import ImageState

MAGIC: Final = b"HRIM"
VERSION: Final = 1


def take_snapshot(applier: Applier) -> bytes:
    """Write the image as of its applied index; MetadataStopped if it is not to be trusted."""
    applier.check_is_running()
    body = msgspec.msgpack.encode(applier.image.state)
    return _HEADER.pack(MAGIC, VERSION, crc32c(body)) + body


def load_snapshot(data: bytes) -> Image:
    """Read what `take_snapshot` wrote; InvalidSnapshot for anything else, whatever the bytes."""
    if len(data) < _HEADER.size:
        raise InvalidSnapshot(f"a metadata snapshot of {len(data)} bytes is cut off")
    magic, version, expected = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise InvalidSnapshot(f"a metadata snapshot begins with {MAGIC!r}, this one with {magic!r}")
    if version != VERSION:
        raise InvalidSnapshot(
            f"a metadata snapshot of version {version}; this software reads {VERSION}"
        )
    body = memoryview(data)[_HEADER.size :]
    if (computed := crc32c(body)) != expected:
        raise InvalidSnapshot(
            f"the metadata snapshot has CRC32C {computed:08x}, its header says {expected:08x}"
        )
    try:
        return Image(_DECODER.decode(body))
    except (ValueError, RecursionError) as error:
        raise InvalidSnapshot(f"the metadata snapshot cannot be read: {error}") from error


_HEADER: Final = struct.Struct(">4sHI")
_DECODER: Final = msgspec.msgpack.Decoder(ImageState)
