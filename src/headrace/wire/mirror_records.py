"""Produce with kept offsets: what `headrace mirror` sends to a leader of a mirror topic.

It is Kafka's Produce with `acks=ACKS_KEEP_OFFSETS`, which every other broker refuses with
INVALID_REQUIRED_ACKS. The records of a partition are any number of batches, each with the offsets
that it has at the source, behind a front that says where the sender believes the log to end. The
response has the end of the log in `base_offset`, also where batches were refused, once all in-sync
replicas have what was sent.
"""

from struct import Struct as Layout
from typing import Final, NamedTuple

ACKS_KEEP_OFFSETS: Final = -64
NO_START: Final = -1
SOURCE_BYTES_MAX: Final = 255
PRODUCER_ID_SHIFT: Final = 2**56
"""What a mirror adds to the producer ids of the source: they are not those of the target, whose
producers must not be taken for them. A mirror of a mirror adds it again."""

_FRONT: Final = Layout(">qqB")


class Front(NamedTuple):
    """What comes before the batches of a partition."""

    expected_end: int
    """Where the log ends, as far as the sender knows. A later end means that some of the batches
    are there already; with an earlier one records would be missing, and nothing is appended."""
    start_offset: int
    """Where a log without records is to begin; `NO_START` leaves it where it is."""
    source: str
    """The topic at the source, as the config headrace.mirror.source of the target has it."""


def encode_front(front: Front) -> bytes:
    """Return the bytes before the batches."""
    source = front.source.encode()
    return _FRONT.pack(front.expected_end, front.start_offset, len(source)) + source


def decode_front(records: memoryview) -> tuple[Front, memoryview]:
    """Return the front and the batches behind it; ValueError if there is no front."""
    if len(records) < _FRONT.size:
        raise ValueError(f"{len(records)} bytes, the front of kept offsets has more")
    expected_end, start_offset, size = _FRONT.unpack_from(records)
    following = _FRONT.size + size
    if len(records) < following:
        raise ValueError("the front of kept offsets is cut off")
    source = bytes(records[_FRONT.size : following]).decode()
    return Front(expected_end, start_offset, source), records[following:]
