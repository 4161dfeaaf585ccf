"""Frames that are cut, bent and inflated: the named error or a message, and bounded memory."""

import tracemalloc
from contextlib import suppress
from random import Random

import pytest

from headrace.wire import WireError, decode, encode, message_type
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.primitives import write_varint
from tests.message_values import MESSAGE_NAMES, Rolled, make_message, versions_of

FRAMES = 70_000
SMALL_CHANGE_BYTES = 64 * 1024


def mutate(frame: bytes, random: Random) -> bytes:
    """Bend a frame: flip bits, cut it, write a large length somewhere, repeat or insert a part."""
    data = bytearray(frame)
    for _ in range(random.choice((1, 1, 2, 5))):
        position = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0 if position < len(data):
                data[position] ^= 1 << random.randrange(8)
            case 1:
                del data[position:]
            case 2:
                data[position : position + 5] = b"\xff\xff\xff\xff\x07"
            case 3:
                data[position : position + 4] = random.choice((b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
            case 4:
                data[position:position] = data[position : position + random.randrange(1, 30)]
            case _:
                data[position:position] = random.randbytes(random.randrange(1, 9))
    return bytes(data)


@pytest.mark.slow
def test_hostile_frames_give_a_message_or_the_named_error() -> None:
    random = Random(20261115)
    choices = Rolled(random)
    refusals = []
    for _ in range(FRAMES // 10):
        name = random.choice(MESSAGE_NAMES)
        message, version = message_type(name), random.choice(versions_of(name))
        frame = encode(make_message(message, version, choices), version)
        for _ in range(10):
            try:
                decode(message, mutate(frame, random), version)
            except WireError as error:
                refusals.append((error, name, version))
    assert len(refusals) > FRAMES // 2
    for refusal, name, version in refusals:
        assert (refusal.message, refusal.version) == (name, version)
        assert refusal.position is not None
        assert refusal.reason


def test_hostile_frames_take_little_memory() -> None:
    random = Random(4)
    choices = Rolled(random)
    cases = []
    for name in MESSAGE_NAMES:
        message, version = message_type(name), random.choice(versions_of(name))
        frame = encode(make_message(message, version, choices), version)
        decode(message, frame, version)  # compiles the codec
        cases += [(message, mutate(frame, random), version) for _ in range(8)]
    tracemalloc.start()
    try:
        for message, frame, version in cases:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with suppress(WireError):
                decode(message, frame, version)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak <= 4 * len(frame) + SMALL_CHANGE_BYTES, (message, len(frame), peak)
    finally:
        tracemalloc.stop()


def test_a_frame_of_the_smallest_elements_is_refused_before_it_fills_the_memory() -> None:
    topics = 2_000_000
    frame = write_varint(topics + 1) + b"\x01\x00" * topics + bytes(4)
    decode(MetadataRequest, encode(MetadataRequest(topics=[]), 9), 9)  # compiled now, not below
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=r"topics .*2000000 elements would take more memory"):
            decode(MetadataRequest, frame, 9)
        assert tracemalloc.get_traced_memory()[1] < SMALL_CHANGE_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_unknown_tags_count_against_the_memory_too() -> None:
    tags = 700_000
    section = b"".join(write_varint(tag) + b"\x00" for tag in range(tags))
    frame = b"\x01\x01" + write_varint(tags) + section
    with pytest.raises(WireError, match=r"tags .*elements would take more memory"):
        decode(ApiVersionsRequest, frame, 3)


def test_a_commit_of_a_hundred_thousand_offsets_is_within_the_limits() -> None:
    partitions = [OffsetCommitRequestPartition(n, n << 20, n, "note") for n in range(100_000)]
    request = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic("t", partitions=partitions)]
    )
    assert decode(OffsetCommitRequest, encode(request, 9), 9) == request
