from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records.aborted import (
    BLOCK_ENTRIES,
    AbortedRanges,
    AbortedTransaction,
    BlockMinima,
    encode_entry,
    find_aborted,
    least_first_offsets,
    read_entries,
)

FIRST = AbortedTransaction(producer_id=7, first_offset=2, last_offset=5, last_stable_offset=3)
SECOND = AbortedTransaction(producer_id=8, first_offset=3, last_offset=9, last_stable_offset=10)
INT64 = st.integers(0, 2**63 - 1)


def test_an_entry_has_34_bytes() -> None:
    assert encode_entry(FIRST).hex() == (
        "00000000000000000007000000000000000200000000000000050000000000000003"
    )


@given(st.lists(st.builds(AbortedTransaction, INT64, INT64, INT64, INT64)))
def test_what_was_written_is_read(written: list[AbortedTransaction]) -> None:
    assert list(read_entries(b"".join(map(encode_entry, written)))) == written


@pytest.mark.parametrize(
    ("fetch_offset", "end_offset", "found", "is_complete"),
    [
        (0, 2, [], True),
        (0, 3, [FIRST], True),
        (0, 4, [FIRST, SECOND], True),
        (5, 6, [FIRST, SECOND], True),
        (6, 10, [SECOND], True),
        (6, 11, [SECOND], False),
        (10, 20, [], False),
    ],
)
def test_a_fetch_finds_what_touches_it(
    fetch_offset: int, end_offset: int, found: list[AbortedTransaction], is_complete: bool
) -> None:
    index = encode_entry(FIRST) + encode_entry(SECOND)
    assert find_aborted(index, fetch_offset, end_offset) == (found, is_complete)


# Many of them

LONG = AbortedTransaction(
    producer_id=1, first_offset=0, last_offset=100_000, last_stable_offset=100_001
)


def entries_behind_a_long_one(count: int) -> list[AbortedTransaction]:
    """Return transactions that were aborted while another was open, and that one."""
    short = [
        AbortedTransaction(
            producer_id=2 + number,
            first_offset=2 * number + 1,
            last_offset=2 * number + 2,
            last_stable_offset=0,
        )
        for number in range(count)
    ]
    return [*short, LONG]


@given(st.integers(0, 2500), st.integers(1, 600), st.sampled_from([0, 1, 255, 256, 257, 1000]))
def test_blocks_are_passed_over_without_losing_any(offset: int, span: int, count: int) -> None:
    entries = entries_behind_a_long_one(count)
    index = b"".join(map(encode_entry, entries))
    end_offset = offset + span
    expected = [
        each for each in entries if each.last_offset >= offset and each.first_offset < end_offset
    ]
    minima = BlockMinima()
    for _ in range(2):  # the second time with what the first one remembered
        assert find_aborted(index, offset, end_offset, minima) == (expected, True)


@given(
    st.lists(st.tuples(st.integers(0, 700), st.integers(0, 2000), st.booleans()), max_size=6),
    st.integers(0, 2**32),
)
def test_what_is_remembered_of_an_index_holds_while_it_grows(
    steps: list[tuple[int, int, bool]], seed: int
) -> None:
    """A thread may read what there was before; a reader may see less of the index than others."""
    firsts = Random(seed)
    index, count = b"", 0
    minima = BlockMinima()
    for more, end_offset, is_thread in steps:
        shorter = memoryview(index)
        added = [
            AbortedTransaction(1, firsts.randint(0, 2000), 3000 + count + each, -1)
            for each in range(more)
        ]
        index += b"".join(map(encode_entry, added))
        count += more
        if is_thread:
            minima.read(shorter, 0)
        assert find_aborted(shorter, 0, end_offset, minima) == find_aborted(shorter, 0, end_offset)
        from_there = 3000 + end_offset % (count + 1)
        for _ in range(2):
            expected = find_aborted(index, from_there, end_offset)
            assert find_aborted(index, from_there, end_offset, minima) == expected
        assert find_aborted(index, 0, end_offset, minima) == find_aborted(index, 0, end_offset)
        assert minima.unread_count(count) == 0
        assert minima.has_read(0, count)
        assert minima.least_of_all() == min(
            (each.first_offset for each in read_entries(index)), default=2**63 - 1
        )


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.integers(1, 3 * BLOCK_ENTRIES),
)
def test_the_smallest_first_offset_of_each_block(offsets: list[int], count: int) -> None:
    firsts = [offsets[number % len(offsets)] ^ number for number in range(count)]
    index = b"".join(encode_entry(AbortedTransaction(-1, each, -1, -1)) for each in firsts)
    assert least_first_offsets(memoryview(index)) == [
        min(firsts[first : first + BLOCK_ENTRIES]) for first in range(0, count, BLOCK_ENTRIES)
    ]


def test_a_batch_is_aborted_if_its_producer_aborted_what_it_wrote_there() -> None:
    aborted = AbortedRanges(
        [
            AbortedTransaction(7, 2, 5, 0),
            AbortedTransaction(8, 3, 9, 0),
            AbortedTransaction(7, 8, 11, 0),
        ]
    )
    assert [offset for offset in range(14) if aborted.hold(7, offset)] == [2, 3, 4, 5, 8, 9, 10, 11]
    assert [offset for offset in range(14) if aborted.hold(8, offset)] == list(range(3, 10))
    assert not aborted.hold(9, 4)
