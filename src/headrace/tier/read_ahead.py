"""Fetching what a sequential reader will want next, further ahead the longer it goes on.

A partition may have several readers at different offsets: each is a stream, known by the chunk
that it read last. A stream that goes on to the next chunk has twice as much fetched ahead as
before, over the ends of segments too. A stream that nobody continued is forgotten when newer ones
take its place.
"""

from collections.abc import Callable
from typing import Final

from headrace.remote.segments import PartitionKey, RemoteSegment
from headrace.tier.chunks import ChunkKey, Chunks

STREAMS_MAX: Final = 4
"""How many readers of a partition are told apart."""

Following = Callable[[RemoteSegment], RemoteSegment | None]
"""Returns the segment that a reader goes on with after another one."""


class _Stream:
    """A reader that goes on from chunk to chunk."""

    __slots__ = ("ahead", "left", "next", "number", "segment", "window")

    def __init__(self, segment: RemoteSegment, number: int) -> None:
        self.segment = segment
        self.number = number
        """The last chunk that was read."""
        self.window = 0
        """How many chunks are fetched ahead."""
        self.ahead: list[ChunkKey] = []
        self.left = 0
        """How many chunks of the window are neither here nor on their way."""
        self.next = segment, number + 1
        """The first of them."""


class ReadAhead:
    """The streams of every partition."""

    def __init__(self, chunks: Chunks, bytes_max: int) -> None:
        self._chunks = chunks
        self._streams: dict[PartitionKey, list[_Stream]] = {}
        self.configure(bytes_max)

    def configure(self, bytes_max: int) -> None:
        """Read ahead up to so many bytes, at least a chunk unless it is 0."""
        chunk_bytes = self._chunks.chunk_bytes
        self._window_max = (bytes_max + chunk_bytes - 1) // chunk_bytes

    def advance(self, segment: RemoteSegment, begin: int, end: int, following: Following) -> None:
        """Note that a reader got some bytes of a segment, and fetch what it will want next."""
        if not self._window_max or begin == end:
            return
        first, last = begin // self._chunks.chunk_bytes, (end - 1) // self._chunks.chunk_bytes
        streams = self._streams.setdefault(segment.key, [])
        stream = next((each for each in streams if self._continues(each, segment, first)), None)
        if stream is None:
            streams.insert(0, _Stream(segment, last))
            if len(streams) > STREAMS_MAX:
                self._chunks.abandon(streams.pop().ahead)
            return
        if stream is not streams[0]:
            streams.remove(stream)
            streams.insert(0, stream)
        if stream.segment.id != segment.id or stream.number != last:
            stream.segment, stream.number = segment, max(last, first)
            self._open(stream, min(max(2 * stream.window, 1), self._window_max))
        elif not stream.window:
            self._open(stream, 1)
        if stream.left:
            self._fetch(stream, following)

    def forget(self, key: PartitionKey) -> None:
        """Forget the readers of a partition."""
        for stream in self._streams.pop(key, ()):
            self._chunks.abandon(stream.ahead)

    def _continues(self, stream: _Stream, segment: RemoteSegment, first: int) -> bool:
        previous = stream.segment
        if previous.id == segment.id:
            return stream.number <= first <= stream.number + 1
        is_at_end = (stream.number + 1) * self._chunks.chunk_bytes >= previous.size_bytes
        return is_at_end and segment.start_offset <= previous.next_offset <= segment.end_offset

    def _open(self, stream: _Stream, window: int) -> None:
        """Fetch a window that begins behind the chunk that was read."""
        stream.window = stream.left = window
        stream.next = stream.segment, stream.number + 1
        stream.ahead = []

    def _fetch(self, stream: _Stream, following: Following) -> None:
        """Fetch what is left of the window, or as much of it as there is room for now."""
        chunk_bytes = self._chunks.chunk_bytes
        while stream.left:
            segment, number = stream.next
            while number * chunk_bytes >= segment.size_bytes:
                after = following(segment)
                if after is None:
                    stream.left = 0
                    return
                segment, number = after, 0
            stream.next = segment, number
            if not self._chunks.begin_ahead(segment, number):
                return
            stream.ahead.append((segment.id, number))
            stream.next = segment, number + 1
            stream.left -= 1
