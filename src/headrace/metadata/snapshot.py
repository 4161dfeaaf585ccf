"""Snapshots of the image, from which a node starts instead of the earlier log.

An image from a snapshot and the entries after it equals one from the whole log, and images that
are equal by the same log have equal snapshots: nodes can compare them by their checksums.

During a rolling upgrade, older nodes get snapshots from newer ones. Skipping unknown fields would
lose them, so a snapshot states the minimum version of its reader, and older readers refuse it:

- A new field of the state is listed in `SINCE`, with a new version. While it is unused, it has its
  default and is not in the snapshot, and every node can read that.
- A field that nothing depends on, a hint, has a name that starts with `HINT`. A node that does not
  know it skips it; it is lost with the next snapshot of such a node.
- What is new in the entries behind it, and in the rows, is new at a level of the cluster
  (`levels`): `LEVELS_SINCE` has the version for each.
- A row is an array, in which nothing can be omitted. If one grows, no older node can read any
  snapshot: raise `ROWS_SINCE`. A new field of the state, by the key of the row, is better.
"""

import struct
from typing import Final

import msgspec
from crc32c import crc32c

from headrace.metadata.applier import Applier
from headrace.metadata.errors import InvalidSnapshot
from headrace.metadata.features import HEADRACE_VERSION
from headrace.metadata.image import Image
from headrace.metadata.state import ImageState

MAGIC: Final = b"HRIM"
VERSION: Final = 2
"""The latest that this software reads, and the highest of those below."""
ROWS_SINCE: Final = 1
"""The version that knows the rows as they are."""
SINCE: Final[dict[str, int]] = {}
"""Fields of the state that version 1 did not have, and the version that knows them."""
LEVELS_SINCE: Final[dict[int, int]] = {1: 2}
"""Levels of the cluster, and the version that knows what nodes write at them."""
HINT: Final = "~"


def take_snapshot(applier: Applier) -> bytes:
    """Write the image as of its applied index; MetadataStopped if it is not to be trusted."""
    applier.check_is_running()
    state = applier.image.state
    body = msgspec.msgpack.encode(state)
    return _HEADER.pack(MAGIC, _version_to_read(state), crc32c(body)) + body


def load_snapshot(data: bytes) -> Image:
    """Read what `take_snapshot` wrote; InvalidSnapshot for anything else, whatever the bytes."""
    if len(data) < _HEADER.size:
        raise InvalidSnapshot(f"a metadata snapshot of {len(data)} bytes is cut off")
    magic, version, expected = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise InvalidSnapshot(f"a metadata snapshot begins with {MAGIC!r}, this one with {magic!r}")
    body = memoryview(data)[_HEADER.size :]
    if (computed := crc32c(body)) != expected:
        raise InvalidSnapshot(
            f"the metadata snapshot has CRC32C {computed:08x}, its header says {expected:08x}"
        )
    if not 1 <= version <= VERSION:
        raise InvalidSnapshot(
            f"the metadata snapshot needs software that reads version {version}, and this reads up "
            f"to {VERSION}: upgrade this node"
        )
    try:
        return Image(_decode(body))
    except (ValueError, RecursionError) as error:
        raise InvalidSnapshot(f"the metadata snapshot cannot be read: {error}") from error


def _version_to_read(state: ImageState) -> int:
    """Return the version that a reader of a state must at least know."""
    unused = type(state)()
    used = (since for name, since in SINCE.items() if getattr(state, name) != getattr(unused, name))
    level = state.features.get(HEADRACE_VERSION, 0)
    reached = (since for each, since in LEVELS_SINCE.items() if level >= each)
    return max((ROWS_SINCE, *used, *reached))


def _decode(body: memoryview) -> ImageState:
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError:
        fields = _FIELDS.decode(body)
        known = set(ImageState.__struct_encode_fields__)
        unknown = sorted(fields.keys() - known)
        if not unknown:
            raise
        facts = [name for name in unknown if not name.startswith(HINT)]
        if facts:
            raise InvalidSnapshot(
                f"the metadata snapshot has {', '.join(facts)}, which this software does not know: "
                "upgrade this node"
            ) from None
        return _DECODER.decode(
            msgspec.msgpack.encode({name: fields[name] for name in fields if name in known})
        )


_HEADER: Final = struct.Struct(">4sHI")
_DECODER: Final = msgspec.msgpack.Decoder(ImageState)
_FIELDS: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
