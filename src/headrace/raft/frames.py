"""The bytes of the log's files: frames, each of which is one write and one sync.

A frame holds what one Ready has to store: hard state, the entries' position in the log, the
entries. It contains its file and position and a CRC32C, so a frame is either whole or invalid.

As a frame is only written when the previous one is durable, any good frame proves that all bytes
before it were durable. So a fault followed by a good frame is damage; otherwise it is the tail of a
write that was never confirmed (or, indistinguishably, damage to the very last frame).
"""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final, NamedTuple

import msgspec
from crc32c import crc32c

from headrace.raft.entries import Entry, HardState

MAGIC: Final = b"HRr1"
HEADER: Final = Layout(">4sIIQQ")
"""Magic, CRC32C of the rest, bytes of the body, number of the file, position in it."""
_MAGIC_AND_CRC: Final = Layout(">4sI")
_CHECKED_HEADER: Final = Layout(">IQQ")
_CHECKED_FROM: Final = _MAGIC_AND_CRC.size


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """One write: entries after the named one, replacing any there."""

    hard_state: HardState
    """As it is after this frame, so that no older frame is needed for it."""
    previous_index: int
    previous_term: int
    entries: list[Entry]
    is_start: bool = False
    """Whether the log starts here: earlier frames are obsolete."""


class Fault(NamedTuple):
    """Why there is no frame to be had at a position."""

    reason: str
    is_whole: bool = False
    """Whether the checksum is valid: the frame was promised, but newer software wrote it."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame, *, number: int, position: int) -> bytes:
    body = _encoder.encode(frame)
    checked = _CHECKED_HEADER.pack(len(body), number, position) + body
    return _MAGIC_AND_CRC.pack(MAGIC, crc32c(checked)) + checked


class FrameWalk:
    """Iterator over the frames of a file; afterwards `position` is after the last good one.

    `fault` is why it stopped there, None if the file ends.
    """

    def __init__(self, data: bytes, number: int) -> None:
        self.position = 0
        self.fault: Fault | None = None
        self._data = data
        self._number = number

    def __iter__(self) -> Iterator[Frame]:
        while self.position < len(self._data):
            found = read_frame(self._data, self.position, self._number)
            if isinstance(found, Fault):
                self.fault = found
                return
            frame, size = found
            self.position += size
            yield frame

    def good_frame_behind(self) -> int | None:
        """Return the position of a good frame after the fault, or None."""
        at = self._data.find(MAGIC, self.position + 1)
        while at >= 0:
            found = read_frame(self._data, at, self._number)
            if not isinstance(found, Fault) or found.is_whole:
                return at
            at = self._data.find(MAGIC, at + 1)
        return None


def read_frame(data: bytes, position: int, number: int) -> tuple[Frame, int] | Fault:
    """Return the frame at a position and its size in the file, or what is wrong with it."""
    left = len(data) - position
    if left < HEADER.size:
        return Fault(f"{left} bytes, fewer than a header has")
    magic, crc, body_bytes, own_number, own_position = HEADER.unpack_from(data, position)
    size = HEADER.size + body_bytes
    if magic != MAGIC or size > left:
        is_long = magic == MAGIC
        return Fault(f"a frame of {size} bytes, not {left}" if is_long else "no frame begins here")
    if crc32c(memoryview(data)[position + _CHECKED_FROM : position + size]) != crc:
        return Fault("a frame with a wrong checksum")
    if (own_number, own_position) != (number, position):
        return Fault(f"the frame of file {own_number} at byte {own_position}")
    try:
        return _decoder.decode(memoryview(data)[position + HEADER.size : position + size]), size
    except msgspec.MsgspecError as error:
        return Fault(f"a frame that cannot be read: {error}", is_whole=True)
