"""Frames of a proven connection: nothing but the next frame of the peer gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cluster.protocol import ProtocolError
from headrace.cluster.transport.sealing import Opener, Sealer, frame_reader

KEY = b"k" * 32
PAYLOADS = [b"", b"one", b"two" * 3000, b"three"]


def sealed(key: bytes | None = KEY) -> list[bytes]:
    sealer = Sealer(key)
    return [b"".join(sealer.seal([payload[:2], payload[2:]])) for payload in PAYLOADS]


def opened(frame: bytes, opener: Opener) -> bytes | None:
    payload = opener.open(memoryview(frame)[4:])
    return None if payload is None else bytes(payload)


@pytest.mark.parametrize("key", [KEY, None])
def test_frames_come_out_as_they_went_in(key: bytes | None) -> None:
    reader, opener = frame_reader(10_000), Opener(key)
    frames = reader.feed(b"".join(sealed(key)))
    assert [bytes(opener.open(frame) or b"") for frame in frames] == PAYLOADS


@pytest.mark.parametrize("key", [KEY, None])
def test_copies_gaps_and_other_orders_are_noticed(key: bytes | None) -> None:
    frames = sealed(key)
    opener = Opener(key)
    assert opened(frames[1], opener) is None
    assert opened(frames[0], opener) == b""
    assert opened(frames[0], opener) is None
    assert opened(frames[2], opener) is None


def test_every_flipped_bit_is_noticed() -> None:
    frame = sealed()[1]
    opener = Opener(KEY)
    assert opened(sealed()[0], opener) == b""
    for bit in range(32, len(frame) * 8):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        assert opened(bytes(flipped), opener) is None
    assert opened(frame, opener) == b"one"


def test_another_key_opens_nothing() -> None:
    assert opened(sealed()[0], Opener(b"x" * 32)) is None
    assert opened(sealed(None)[0], Opener(KEY)) is None
    assert opened(sealed(KEY)[0][:20], Opener(KEY)) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_no_frame(data: bytes) -> None:
    assert Opener(KEY).open(memoryview(data)) is None


def test_a_frame_above_the_limit_is_refused_when_it_is_announced() -> None:
    with pytest.raises(ProtocolError, match="the most is"):
        frame_reader(100).feed((1000).to_bytes(4))
