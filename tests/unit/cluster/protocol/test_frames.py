import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.protocol import (
    MESSAGE_BYTES_MAX,
    FrameReader,
    ProtocolError,
    RequestHeader,
    decode_request,
    frame_parts,
    request_parts,
    requests,
)

HEADER = RequestHeader(correlation_id=42, source="1")


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(b"".join(frame_parts([message])) for message in messages)
    reader, frames, position = FrameReader(), [], 0
    while position < len(stream):
        for cut in cuts:
            frames += reader.feed(stream[position : position + cut])
            position += cut
    assert frames == messages
    assert reader.pending_bytes == 0


def test_bytes_may_be_received_without_a_copy() -> None:
    reader = FrameReader()
    stream = b"".join(frame_parts(request_parts(requests.FetchMetadata(HEADER, None))))
    reader.buffer()[: len(stream)] = stream
    (frame,) = reader.advance(len(stream))
    assert decode_request(frame) == requests.FetchMetadata(HEADER, None)


def test_a_frame_above_the_limit_is_refused_by_its_size_alone() -> None:
    tracemalloc.start()
    try:
        for size in (MESSAGE_BYTES_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1):
            with pytest.raises(
                ProtocolError, match=f"Frame: of {size} bytes is announced, the most is 16777216"
            ):
                FrameReader().feed(size.to_bytes(4, "big"))
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def test_the_size_is_looked_at_as_soon_as_it_is_there() -> None:
    reader = FrameReader(frame_bytes_max=10)
    assert reader.feed(b"\0\0\0\x0a" + b"0123456789") == [b"0123456789"]
    assert reader.feed(b"\0\0\0") == []
    assert reader.pending_bytes == 3
    with pytest.raises(ProtocolError, match="of 11 bytes is announced, the most is 10"):
        reader.feed(b"\x0b")


def test_what_is_announced_takes_no_memory_before_it_comes() -> None:
    reader = FrameReader()
    reader.feed(MESSAGE_BYTES_MAX.to_bytes(4, "big"))
    assert len(reader.buffer()) < 128 * 1024


def test_a_frame_above_the_limit_is_not_written() -> None:
    size = MESSAGE_BYTES_MAX
    assert len(frame_parts([bytes(size - 1), b"1"])) == 3
    with pytest.raises(ProtocolError, match="Frame: of 16777217 bytes, the most is 16777216"):
        frame_parts([bytes(size), b"1"])
