"""Walks over batch headers believe only what fits the segment."""

from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.remote.indexes import DamagedSegment
from headrace.tier.batches import Batch, Walk, Wanted
from tests.unit.log.logs import batch_of
from tests.unit.tier.tiers import segment_of


def batches(*offsets: int) -> bytearray:
    """Batches of two records each, at base offsets."""
    data = bytearray()
    for offset in offsets:
        batch = batch_of(b"one", b"two", timestamp=1000 + offset)
        pack_into(">q", batch, 0, offset)
        data += batch
    return data


DATA = batches(10, 12, 20, 22)
SIZE = len(DATA) // 4
SEGMENT = segment_of(10, 23, (0, 10), size_bytes=len(DATA))


def walk(
    data: bytes | bytearray,
    wanted: Wanted,
    *,
    position: int = 0,
    first_offset_max: int = 23,
    part_bytes: int = 1000,
    count_max: int = 10,
) -> Batch | None:
    """Walk in parts, as a reader does."""
    steps = Walk(SEGMENT, position, wanted, first_offset_max=first_offset_max)
    while not steps.is_over:
        begin = steps.position
        end = max(begin + part_bytes, begin + 61)
        found = steps.step(memoryview(data)[begin:end], begin, count_max)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize("part_bytes", [61, 100, 1000])
@pytest.mark.parametrize("count_max", [1, 10])
def test_the_first_batch_that_reaches_an_offset_is_found(part_bytes: int, count_max: int) -> None:
    bases = {10: 10, 11: 10, 12: 12, 13: 12, 14: 20, 20: 20, 21: 20, 23: 22}
    for offset, base in bases.items():
        found = walk(DATA, Wanted(offset), part_bytes=part_bytes, count_max=count_max)
        assert found is not None
        assert (found.base_offset, found.last_offset) == (base, base + 1)
        assert found.position == [10, 12, 20, 22].index(base) * SIZE
        assert found.size_bytes == SIZE
    assert walk(DATA, Wanted(24), part_bytes=part_bytes, count_max=count_max) is None


def test_the_first_batch_that_reaches_a_time_is_found_from_there_on() -> None:
    steps = Walk(SEGMENT, 0, Wanted(11, 1012), first_offset_max=23)
    found = steps.step(DATA, 0, 10)
    assert found is not None
    assert found.base_offset == 12
    steps.skip(found)
    found = steps.step(DATA, 0, 10)
    assert found is not None
    assert found.base_offset == 20


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("magic", 16, b"\x01"),
        ("length", 8, b"\x00\x00\x00\x10"),
        ("length", 8, b"\x7f\x00\x00\x00"),
        ("base offset", 0, (9).to_bytes(8)),
        ("base offset", 0, (23).to_bytes(8)),
        ("last offset", 23, b"\xff\xff\xff\xff"),
    ],
)
def test_a_header_that_cannot_be_is_damage(name: str, at: int, value: bytes) -> None:
    data = bytearray(DATA)
    data[SIZE + at : SIZE + at + len(value)] = value
    with pytest.raises(DamagedSegment):
        walk(data, Wanted(23))
    assert walk(data, Wanted(11)) is not None  # what comes before is fine


def test_a_segment_that_ends_within_a_batch_is_damaged() -> None:
    torn = segment_of(10, 23, (0, 10), size_bytes=len(DATA) - SIZE + 30)
    steps = Walk(torn, 0, Wanted(23), first_offset_max=23)
    with pytest.raises(DamagedSegment):
        steps.step(DATA[: torn.size_bytes], 0, 10)


def test_a_place_that_is_too_far_is_damage_and_skips_nothing() -> None:
    assert walk(DATA, Wanted(13), position=SIZE, first_offset_max=13) is not None
    with pytest.raises(DamagedSegment):
        walk(DATA, Wanted(13), position=2 * SIZE, first_offset_max=13)


@given(st.binary(min_size=61, max_size=300), st.integers(10, 23))
def test_any_bytes_end_a_walk(data: bytes, offset: int) -> None:
    segment = segment_of(10, 23, (0, 10), size_bytes=len(data))
    steps = Walk(segment, 0, Wanted(offset), first_offset_max=23)
    try:
        while not steps.is_over:
            if steps.step(data[steps.position :], steps.position, 10) is not None:
                break
    except DamagedSegment:
        pass
