"""Frames come out of a stream whole, whatever pieces it arrives in."""

import tracemalloc
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import FrameReader, WireError
from headrace.wire.frames import CHUNK_BYTES


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


@given(
    st.lists(st.one_of(st.integers(0, 50), st.integers(0, 200_000)), max_size=8),
    st.lists(st.integers(1, 100_000), min_size=1, max_size=20),
)
def test_frames_do_not_depend_on_how_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream, reader = memoryview(framed(*bodies)), FrameReader()
    frames: list[memoryview] = []
    for cut in cycle(cuts):
        frames += reader.feed(stream[:cut])
        stream = stream[cut:]
        if not stream:
            break
    assert [bytes(frame) for frame in frames] == bodies
    assert reader.pending_bytes == 0


def test_a_frame_is_received_in_place() -> None:
    reader = FrameReader()
    room = reader.buffer()
    room[:9] = framed(b"hello")
    (frame,) = reader.advance(9)
    assert frame.obj is room.obj
    assert not frame.readonly


def test_a_frame_stays_valid_while_others_arrive() -> None:
    reader = FrameReader()
    bodies = [bytes([number]) * 10_000 for number in range(50)]
    frames = [frame for body in bodies for frame in reader.feed(framed(body))]
    assert [bytes(frame) for frame in frames] == bodies


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    assert len(FrameReader(1000).feed(framed(bytes(1000)))[0]) == 1000
    with pytest.raises(WireError, match=r"1001 bytes: the limit is 1000 \(socket.request.max.b"):
        FrameReader(1000).feed((1001).to_bytes(4))


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(WireError, match="a frame of -1 bytes: is negative"):
        FrameReader().feed(b"\xff\xff\xff\xff")


def test_frames_before_a_bad_size_are_not_given_with_it() -> None:
    reader = FrameReader()
    assert [bytes(frame) for frame in reader.feed(framed(b"good"))] == [b"good"]
    with pytest.raises(WireError):
        reader.feed(b"\x80\x00\x00\x00")


def test_memory_follows_what_arrived_and_not_what_is_announced() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader()
        reader.feed((100 * 1024 * 1024).to_bytes(4) + bytes(10))
        assert tracemalloc.get_traced_memory()[1] < 2 * CHUNK_BYTES
        arrived = 14
        while arrived < 4 * 1024 * 1024:
            arrived += len(reader.buffer()[:30_000])
            reader.advance(len(reader.buffer()[:30_000]))
        assert tracemalloc.get_traced_memory()[0] <= 4 * arrived + 2 * CHUNK_BYTES
    finally:
        tracemalloc.stop()


def test_a_peer_of_large_frames_gets_room_for_them_at_once() -> None:
    reader = FrameReader()
    body = bytes(1024 * 1024)
    reader.feed(framed(body))
    reader.feed(framed(body)[:100])
    first = reader.buffer()
    assert len(first) >= len(body) - 100


def test_a_large_frame_is_moved_a_few_times_only_however_large_it_is() -> None:
    reader, moves, moved_bytes = FrameReader(), 0, 0
    size_bytes = 60 * 1024 * 1024
    start = memoryview(size_bytes.to_bytes(4) + bytes(64 * 1024))
    rest, frames = size_bytes + 4, list[memoryview]()
    memory = reader.buffer().obj
    while rest:
        room = reader.buffer()
        if room.obj is not memory:
            memory, moves = room.obj, moves + 1
            moved_bytes += reader.pending_bytes
        part = start[: min(len(room), len(start), rest)]
        room[: len(part)] = part
        frames += reader.advance(len(part))
        rest -= len(part)
        start = memoryview(bytes(64 * 1024))
    assert [len(frame) for frame in frames] == [size_bytes]
    assert moves <= 4
    assert moved_bytes < 8 * 1024 * 1024
