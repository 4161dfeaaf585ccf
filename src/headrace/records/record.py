"""One record, as people and clients see it. How it is laid out in bytes is `builder` and `scan`."""

from msgspec import Struct

Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values in the order in which the producer gave them; a name may repeat."""


class Record(Struct, frozen=True, gc=False):
    """A record with its place in the partition. The timestamp is in ms since 1970, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
