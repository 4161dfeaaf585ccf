"""The frames of a proven connection: a counter, a payload and, where there is a secret, a tag.

    size 4 | counter 8 | payload | tag 16

The tag is HMAC-SHA256, cut to 16 bytes, of counter and payload by a key that only this direction
of this connection has. Counters follow each other without a gap. So a frame that is a copy, comes
out of order, was changed or put in by somebody else is noticed, and ends the connection.
"""

import hmac
from hmac import compare_digest
from hmac import digest as hmac_digest
from struct import Struct as Layout
from typing import Final

from headrace.cluster.protocol import FrameReader
from headrace.cluster.protocol.frames import SIZE_BYTES
from headrace.wire.schema import Buffer

COUNTER: Final = Layout(">Q")
_HEAD: Final = Layout(">IQ")
TAG_BYTES: Final = 16
OVERHEAD_BYTES: Final = COUNTER.size + TAG_BYTES
"""What a frame has beside its payload and size."""
_JOINED_BYTES_MAX: Final = 4096
"""Smaller payloads are copied into one piece: that costs less than writing three."""


class Sealer:
    """Makes the frames of one direction."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self._keyed = None if key is None else hmac.new(key, digestmod="sha256")
        self._counter = 0

    def seal(self, parts: list[Buffer]) -> list[Buffer]:
        """Return the pieces of a frame. They must be sent in the order in which they are sealed."""
        payload_bytes = sum(map(len, parts))
        tag_bytes = 0 if self._key is None else TAG_BYTES
        head = _HEAD.pack(COUNTER.size + payload_bytes + tag_bytes, self._counter)
        self._counter += 1
        if payload_bytes <= _JOINED_BYTES_MAX:
            frame = b"".join((head, *parts))
            if self._key is None:
                return [frame]
            tag = hmac_digest(self._key, memoryview(frame)[SIZE_BYTES:], "sha256")
            return [frame + tag[:TAG_BYTES]]
        if self._keyed is None:
            return [head, *parts]
        hashing = self._keyed.copy()
        hashing.update(head[SIZE_BYTES:])
        for part in parts:
            hashing.update(part)
        return [head, *parts, hashing.digest()[:TAG_BYTES]]


class Opener:
    """Opens the frames of one direction."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self._tag_bytes = 0 if key is None else TAG_BYTES
        self._counter = 0

    def open(self, frame: memoryview) -> memoryview | None:
        """Return the payload of a frame without its size; None if it is not the next of the peer.

        Nothing that follows is the peer's then: close the connection.
        """
        end = len(frame) - self._tag_bytes
        if end < COUNTER.size or COUNTER.unpack_from(frame)[0] != self._counter:
            return None
        if self._key is not None:
            tag = hmac_digest(self._key, frame[:end], "sha256")[:TAG_BYTES]
            if not compare_digest(tag, frame[end:]):
                return None
        self._counter += 1
        return frame[COUNTER.size : end]


def frame_reader(payload_bytes_max: int) -> FrameReader:
    """Return a reader of frames whose payload is bounded."""
    return FrameReader(payload_bytes_max + OVERHEAD_BYTES)
