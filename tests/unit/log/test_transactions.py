from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.errors import CorruptLog
from headrace.log.real_disk import RealDisk
from headrace.log.transactions import (
    BLOCK_ENTRIES,
    AbortedRanges,
    AbortedTransaction,
    TransactionIndex,
    check_index,
    encode_entry,
    find_aborted,
    read_entries,
)

FIRST = AbortedTransaction(producer_id=7, first_offset=2, last_offset=5, last_stable_offset=3)
SECOND = AbortedTransaction(producer_id=8, first_offset=3, last_offset=9, last_stable_offset=10)
NAME = "00000000000000000000.txnindex"

INT64 = st.integers(0, 2**63 - 1)


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(tmp_path)


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


@pytest.mark.parametrize(
    ("index", "base_offset", "reason"),
    [
        (encode_entry(FIRST), 6, "at byte 0: offsets 2 to 5"),
        (encode_entry(SECOND) + encode_entry(FIRST), 0, "at byte 34: offsets 2 to 5"),
        (encode_entry(FIRST) + b"\x00" * 33, 0, "at byte 34: an entry of 33 bytes"),
        (b"\x00\x01" + encode_entry(FIRST)[2:], 0, "at byte 0: an entry of version 1"),
        (encode_entry(AbortedTransaction(1, 9, 5, 3)), 0, "at byte 0: offsets 9 to 5"),
    ],
)
def test_what_no_log_writes_is_corrupt(index: bytes, base_offset: int, reason: str) -> None:
    with pytest.raises(CorruptLog, match=f"t-0/index {reason}"):
        check_index(index, base_offset, "t-0/index")


def test_a_segment_without_aborts_has_no_file(disk: RealDisk, tmp_path: Path) -> None:
    index = TransactionIndex(disk, NAME)
    assert index.find_aborted(0, 100) == ([], False)
    index.check(0)
    index.truncate_to(0)
    index.clear()
    index.close()
    assert list(tmp_path.iterdir()) == []


def test_entries_are_found_while_the_index_grows_and_after_it_is_opened_again(
    disk: RealDisk,
) -> None:
    index = TransactionIndex(disk, NAME)
    index.append(FIRST)
    assert index.entries() == [FIRST]
    index.append(SECOND)
    assert index.find_aborted(6, 10) == ([SECOND], True)
    index.close()
    assert index.entries() == [FIRST, SECOND]
    again = TransactionIndex(disk, NAME)
    again.check(0)
    assert again.entries() == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("offset", "kept"), [(10, [FIRST, SECOND]), (9, [FIRST]), (6, [FIRST]), (5, []), (0, [])]
)
def test_truncation_forgets_markers_from_the_offset_on(
    disk: RealDisk, offset: int, kept: list[AbortedTransaction]
) -> None:
    index = TransactionIndex(disk, NAME)
    index.append(FIRST)
    index.append(SECOND)
    assert index.entries() == [FIRST, SECOND]
    index.truncate_to(offset)
    assert index.entries() == kept
    index.append(AbortedTransaction(1, 9, 12, 13))
    assert index.entries()[:-1] == kept


def test_clear_leaves_an_empty_index(disk: RealDisk) -> None:
    index = TransactionIndex(disk, NAME)
    index.append(FIRST)
    index.clear()
    assert index.entries() == []


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
    minima: dict[int, int] = {}
    for _ in range(2):  # the second time with what the first one remembered
        assert find_aborted(index, offset, end_offset, minima) == (expected, True)


def test_what_is_remembered_of_blocks_goes_with_what_is_cut_off(disk: RealDisk) -> None:
    index = TransactionIndex(disk, NAME)
    late = entries_behind_a_long_one(2 * BLOCK_ENTRIES)[:-1]
    for each in late:
        index.append(each)
    assert index.find_aborted(0, 10)[0] == late[:5]
    index.truncate_to(late[BLOCK_ENTRIES].last_offset)
    early = AbortedTransaction(
        producer_id=0, first_offset=5, last_offset=5000, last_stable_offset=0
    )
    index.append(early)
    for number in range(BLOCK_ENTRIES):
        index.append(AbortedTransaction(9000 + number, 5001, 5001 + number, 0))
    assert index.find_aborted(0, 10)[0] == [*late[:5], early]


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
