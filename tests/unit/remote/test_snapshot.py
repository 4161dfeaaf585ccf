"""Snapshots of the cache: what they keep, and that damage is noticed wherever it is."""

import contextlib

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.remote.cache import SegmentCache
from headrace.remote.segments import DeleteState, SegmentState
from headrace.remote.snapshot import (
    SEGMENTS_PER_PIECE,
    Head,
    InvalidSnapshot,
    Piece,
    decode_snapshot,
    encode_snapshot,
    pieces_of,
)
from tests.unit.remote.segments import ORDERS, delete, partition, segment, update

KEY = ORDERS.key


def full_cache() -> SegmentCache:
    """Return a cache with segments in every state, overlaps, and a deletion that has begun."""
    cache = SegmentCache()
    states: list[list[SegmentState]] = [
        [],
        [SegmentState.COPY_FINISHED],
        [SegmentState.DELETE_STARTED],
        [SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED],
    ]
    for number, steps in enumerate(states):
        one = segment(number + 1, number * 100, number * 100 + 99)
        cache.apply(one)
        for step in steps:
            cache.apply(update(one, step, custom_metadata=b"custom"))
    for number, (start, end) in enumerate([(0, 100), (101, 200), (0, 150)]):
        one = segment(number + 11, start, end, of=partition(1))
        cache.apply(one)
    for number in (12, 11, 13):  # the order in which they are finished decides
        one = segment(number, 0, 0, of=partition(1))
        cache.apply(update(one, SegmentState.COPY_FINISHED))
    cache.apply(segment(21, 0, 9, of=partition(2)))
    cache.apply(delete(partition(2), DeleteState.MARKED))
    cache.apply(delete(partition(3), DeleteState.MARKED))
    return cache


HEAD = Head(b"sixteen bytes id", 31, 4711)


def snapshot_of(cache: SegmentCache) -> bytes:
    return encode_snapshot(HEAD, pieces_of(cache))


def assert_same(copy: SegmentCache, cache: SegmentCache) -> None:
    assert list(copy.partitions()) == list(cache.partitions())
    assert copy.segment_count == cache.segment_count
    for known in cache.partitions():
        key = known.key
        assert copy.segments(key) == cache.segments(key)
        assert copy.delete_state(key) == cache.delete_state(key)
        assert copy.unreferenced(key) == cache.unreferenced(key)
        for offset in range(0, 300, 10):
            assert copy.find(key, 0, offset) == cache.find(key, 0, offset)


def test_a_cache_comes_back_as_it_was() -> None:
    cache = full_cache()
    head, copy = decode_snapshot(snapshot_of(cache))
    assert head == HEAD
    assert_same(copy, cache)


def test_a_partition_of_many_pieces_comes_back_as_it_was() -> None:
    cache = SegmentCache()
    for number in range(2 * SEGMENTS_PER_PIECE + 1):
        state = SegmentState.COPY_FINISHED
        cache.restore(segment(number + 1, number * 10, number * 10 + 9, state=state))
    cache.apply(delete(ORDERS, DeleteState.MARKED))
    assert len(pieces_of(cache)) == 3
    assert_same(decode_snapshot(snapshot_of(cache))[1], cache)


def test_an_empty_cache_has_a_snapshot() -> None:
    head, copy = decode_snapshot(snapshot_of(SegmentCache()))
    assert head == HEAD
    assert list(copy.partitions()) == []


def test_every_flipped_bit_is_noticed() -> None:
    data = snapshot_of(full_cache())
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(InvalidSnapshot):
            decode_snapshot(bytes(damaged))


def test_a_snapshot_that_is_cut_off_or_has_more_is_refused() -> None:
    data = snapshot_of(full_cache())
    for end in range(len(data)):
        with pytest.raises(InvalidSnapshot):
            decode_snapshot(data[:end])
    with pytest.raises(InvalidSnapshot):
        decode_snapshot(data + b"\0")


def sealed(body: bytes) -> bytes:
    """Return a snapshot whose checksum is right, whatever is in it."""
    return b"HRTM" + (1).to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


@given(st.binary(max_size=100))
def test_whatever_bytes_have_a_right_checksum_they_are_a_snapshot_or_refused(body: bytes) -> None:
    with contextlib.suppress(InvalidSnapshot):
        decode_snapshot(sealed(body))


def test_what_does_not_belong_into_a_snapshot_is_refused() -> None:
    one = segment(1, 0, 99)
    with pytest.raises(InvalidSnapshot):
        decode_snapshot(encode_snapshot(HEAD, [Piece(ORDERS, None, [one, one])]))
    gone = segment(1, 0, 99, state=SegmentState.DELETE_FINISHED)
    with pytest.raises(InvalidSnapshot):
        decode_snapshot(encode_snapshot(HEAD, [Piece(ORDERS, None, [gone])]))
    whole = snapshot_of(full_cache())[10:]
    first = 4 + int.from_bytes(whole[:4], "big")
    with pytest.raises(InvalidSnapshot, match="pieces"):
        decode_snapshot(sealed(whole[:first]))
    with pytest.raises(InvalidSnapshot):
        decode_snapshot(sealed(b""))
