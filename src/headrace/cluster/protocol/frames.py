"""Frames of the node-to-node protocol: four bytes of size, big endian, then a message. No I/O.

The limit holds in both directions and before any memory is taken for a frame. (Seed 002 limits
what a server reads; its client takes any size that a response announces.)
"""

from typing import Final

from headrace.cluster.protocol.errors import ProtocolError
from headrace.cluster.protocol.messages import MESSAGE_BYTES_MAX
from headrace.cluster.protocol.postcard import Buffer
from headrace.wire import frames
from headrace.wire.errors import WireError

SIZE_BYTES: Final = frames.SIZE_BYTES


class FrameReader:
    """The frames of one connection.

    Either receive straight into `buffer()` and report how much came with `advance()`, or `feed()`
    bytes, which copies them. A frame is a view of memory that is never written again: it and the
    views that decoding makes of it stay valid for as long as anyone holds them.
    """

    def __init__(self, frame_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._reader = frames.FrameReader(frame_bytes_max)

    @property
    def pending_bytes(self) -> int:
        """How much of a frame that is not whole yet has arrived, with its size."""
        return self._reader.pending_bytes

    def buffer(self) -> memoryview:
        """Return the memory, never empty, that the next bytes belong in."""
        try:
            return self._reader.buffer()
        except WireError:
            explained = self._too_large()
        raise explained

    def advance(self, count: int) -> list[memoryview]:
        """Return the frames that are whole with `count` more bytes in `buffer()`.

        Raise ProtocolError if a frame is above the limit: then the stream has no next frame, and
        the connection must be closed.
        """
        try:
            return self._reader.advance(count)
        except WireError:
            explained = self._too_large()
        raise explained

    def feed(self, data: Buffer) -> list[memoryview]:
        """Copy bytes in; return the frames that are whole with them."""
        try:
            return self._reader.feed(data)
        except WireError:
            explained = self._too_large()
        raise explained

    def _too_large(self) -> ProtocolError:
        size = int.from_bytes(self._reader.pending()[:SIZE_BYTES], "big")
        return ProtocolError(
            f"of {size} bytes is announced, the most is {self.frame_bytes_max}", message="Frame"
        )


def frame_parts(message: list[Buffer]) -> list[Buffer]:
    """Return the parts of a frame: the size of a message, then the message's own parts."""
    size = sum(map(len, message))
    if size > MESSAGE_BYTES_MAX:
        raise ProtocolError(f"of {size} bytes, the most is {MESSAGE_BYTES_MAX}", message="Frame")
    return [size.to_bytes(SIZE_BYTES, "big"), *message]
