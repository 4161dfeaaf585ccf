from pathlib import Path

import pytest

from headrace.log.errors import CorruptLog
from headrace.log.real_disk import RealDisk, RealFile
from headrace.log.transactions import TransactionIndex, check_index, first_looks, search
from headrace.records.aborted import BLOCK_ENTRIES, AbortedTransaction, encode_entry

FIRST = AbortedTransaction(producer_id=7, first_offset=2, last_offset=5, last_stable_offset=3)
SECOND = AbortedTransaction(producer_id=8, first_offset=3, last_offset=9, last_stable_offset=10)
NAME = "00000000000000000000.txnindex"


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(tmp_path)


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


def short_ones(count: int) -> list[AbortedTransaction]:
    """Return transactions that were aborted while another was open."""
    return [
        AbortedTransaction(
            producer_id=2 + number,
            first_offset=2 * number + 1,
            last_offset=2 * number + 2,
            last_stable_offset=0,
        )
        for number in range(count)
    ]


def test_what_is_remembered_of_blocks_goes_with_what_is_cut_off(disk: RealDisk) -> None:
    index = TransactionIndex(disk, NAME)
    late = short_ones(2 * BLOCK_ENTRIES)
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


def filled(disk: RealDisk, entries: list[AbortedTransaction], name: str = NAME) -> TransactionIndex:
    index = TransactionIndex(disk, name)
    for each in entries:
        index.append(each)
    return index


def test_after_a_first_look_a_search_reads_few_entries(disk: RealDisk) -> None:
    entries = short_ones(3 * BLOCK_ENTRIES + 7)
    indexes = [filled(disk, entries, name) for name in ("1.txnindex", "2.txnindex")]
    assert search(indexes, 0, 10, unread_max=4 * BLOCK_ENTRIES) is None
    for look in first_looks(indexes, 10):
        look.run()
    assert [each.unread_count for each in indexes] == [0, 0]
    assert search(indexes, 0, 10, unread_max=0) == 2 * entries[:5]
    assert first_looks(indexes, 10) == []
    indexes[1].append(AbortedTransaction(9000, 3, 9001, 0))
    assert [each.unread_count for each in indexes] == [0, 1]
    (look,) = first_looks(indexes, 10)
    look.run()
    assert search(indexes, 0, 10, unread_max=0) == [
        *(2 * entries[:5]),
        AbortedTransaction(9000, 3, 9001, 0),
    ]


def test_a_search_remembers_what_it_read_of_blocks_that_are_not_whole(disk: RealDisk) -> None:
    indexes = [filled(disk, short_ones(250), f"{number}.txnindex") for number in range(2)]
    for _ in range(2):
        assert search(indexes, 0, 10) == 2 * short_ones(5)
    assert search(indexes, 0, 10, unread_max=0) == 2 * short_ones(5)


def test_indexes_that_hold_nothing_for_a_reader_are_not_mapped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(tmp_path, index_maps_max=1)
    later = [
        AbortedTransaction(9000 + number, 5000 + number, 9000 + number, 0)
        for number in range(BLOCK_ENTRIES + 7)
    ]
    indexes = [filled(disk, later, f"{number}.txnindex") for number in range(3)]
    assert search(indexes, 0, 10) == []
    maps: list[str] = []
    real = RealFile.map

    def note(self: RealFile) -> memoryview:
        maps.append(self.path)
        return real(self)

    monkeypatch.setattr(RealFile, "map", note)
    assert search(indexes, 0, 10) == search(indexes, 4000, 5000) == []
    assert first_looks(indexes, 10) == []
    assert maps == []
    assert search(indexes, 0, 5001) == 3 * later[:1]
    closing = AbortedTransaction(1, 6000, 20_000, 20_001)
    indexes[1].append(closing)
    assert search(indexes, 0, 5001) == 2 * later[:1]
    assert search(indexes, 0, 5000) == []
    indexes[0].truncate_to(later[3].last_offset)
    indexes[0].append(AbortedTransaction(1, 2, 9_003, 0))
    assert search(indexes, 0, 3) == [AbortedTransaction(1, 2, 9_003, 0)]


def test_a_first_look_ends_where_no_later_transaction_matters(disk: RealDisk) -> None:
    closing = AbortedTransaction(1, 0, 5000, 5001)
    indexes = [
        filled(disk, [*short_ones(BLOCK_ENTRIES), closing], "1.txnindex"),
        filled(disk, short_ones(BLOCK_ENTRIES), "2.txnindex"),
    ]
    assert len(first_looks(indexes, 5001)) == 1
    assert len(first_looks(indexes, 5002)) == 2


def test_a_first_look_at_what_is_cut_off_meanwhile_is_forgotten(disk: RealDisk) -> None:
    entries = short_ones(2 * BLOCK_ENTRIES)
    index = filled(disk, entries)
    (look,) = first_looks([index], 10)
    index.truncate_to(entries[BLOCK_ENTRIES].last_offset)
    early = [AbortedTransaction(9000, 5, 5000 + number, 0) for number in range(BLOCK_ENTRIES)]
    for each in early:
        index.append(each)
    look.run()
    assert search([index], 0, 10) == [*entries[:5], *early]
