"""Frames from a stream of bytes: four bytes of size, then that many bytes. No I/O here.

A connection receives directly into `buffer()` and reports the count with `advance()`; a frame is a
memoryview of that memory. Memory of a returned frame is never written again, so frames stay valid
as long as they are referenced, and need no copy.

A peer's announced size is not trusted: memory grows with what has arrived, at most four times
that, except that a peer that has sent a megabyte of a frame, or a frame of that size before, gets
all of it at once. The kernel provides that memory page by page, as it is written.
"""

from mmap import mmap
from struct import Struct as Layout
from typing import Final

from headrace.config import SOCKET_REQUEST_MAX_BYTES
from headrace.wire.errors import WireError
from headrace.wire.schema import Buffer

SIZE_BYTES: Final = 4
CHUNK_BYTES: Final = 64 * 1024
_GROWTH_FACTOR: Final = 4
_FILLED_BYTES_MAX: Final = 4 * 1024 * 1024
_COPIED_BYTES_MAX: Final = 1024 * 1024
"""A peer that has sent this much of a frame gets memory for all of it."""
_SIZE: Final = Layout(">i")


class FrameReader:
    """The frames of one connection."""

    def __init__(self, frame_bytes_max: int = SOCKET_REQUEST_MAX_BYTES.default) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._memory = memoryview(b"")
        self._start = 0
        """Where the frame that is not whole yet begins, with its size."""
        self._end = 0
        """Where the next byte goes."""
        self._largest_frame_bytes = 0

    @property
    def pending_bytes(self) -> int:
        """How much of a frame that is not whole yet has arrived."""
        return self._end - self._start

    def pending(self) -> memoryview:
        """Return the received part of an incomplete frame, its size included."""
        return self._memory[self._start : self._end]

    def buffer(self) -> memoryview:
        """Return the memory, never empty, for the next bytes."""
        if self._end == len(self._memory):
            self._make_room()
        return self._memory[self._end :]

    def advance(self, count: int) -> list[memoryview]:
        """Record `count` bytes in `buffer()`; return the frames that they complete.

        Raise WireError if a size is negative or above the limit; then the stream has no next frame
        and the connection must be closed.
        """
        self._end += count
        frames: list[memoryview] = []
        while self._end - self._start >= SIZE_BYTES:
            begin = self._start + SIZE_BYTES
            end = begin + self._announced_bytes()
            if end > self._end:
                break
            frames.append(self._memory[begin:end])
            self._largest_frame_bytes = max(self._largest_frame_bytes, end - begin)
            self._start = end
        return frames

    def feed(self, data: Buffer) -> list[memoryview]:
        """Copy bytes in; give the frames that they complete."""
        frames: list[memoryview] = []
        rest = memoryview(data)
        while rest:
            room = self.buffer()[: len(rest)]
            room[:] = rest[: len(room)]
            frames += self.advance(len(room))
            rest = rest[len(room) :]
        return frames

    def _announced_bytes(self) -> int:
        size: int = _SIZE.unpack_from(self._memory, self._start)[0]
        if not 0 <= size <= self.frame_bytes_max:
            limit = f"the limit is {self.frame_bytes_max} (socket.request.max.bytes)"
            reason = "is negative" if size < 0 else limit
            raise WireError(f"a frame of {size} bytes: {reason}", message="Frame", position=0)
        return size

    def _make_room(self) -> None:
        """Move what is pending to new memory that has room for the rest, as far as it is due."""
        pending = self.pending_bytes
        due = max(CHUNK_BYTES, _GROWTH_FACTOR * pending, self._largest_frame_bytes + SIZE_BYTES)
        if pending >= SIZE_BYTES:
            announced = SIZE_BYTES + self._announced_bytes()
            if pending >= _COPIED_BYTES_MAX:
                due = announced  # copying more than once takes long, and it means it by now
            due = min(due, max(CHUNK_BYTES, announced))
        # A bytearray is filled with zeros, which takes long for a large one.
        memory = memoryview(bytearray(due) if due <= _FILLED_BYTES_MAX else mmap(-1, due))
        memory[:pending] = self._memory[self._start : self._end]
        self._memory, self._start, self._end = memory, 0, pending
