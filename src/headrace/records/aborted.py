"""Aborted transactions, as the `.txnindex` of a segment has them: entries in bytes. Pure.

A reader of committed records drops what aborted transactions wrote; this index tells it which ones
touch the offsets that it got. Entries are in the order of their markers, 34 bytes each, as in
KIP-98. `log.transactions` has the file of a local segment; in the tier the index is an object.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from headrace.records.compression import ReadableBuffer


class AbortedTransaction(Struct, frozen=True, gc=False):
    """What a producer wrote between two offsets, both included, and then took back.

    `last_offset` is that of the abort marker. `last_stable_offset` is where the log was stable up
    to when the marker was written: later entries begin no earlier than there.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


ENTRY: Final = Layout(">hqqqq")
ENTRY_BYTES: Final = ENTRY.size
VERSION: Final = 0
BLOCK_ENTRIES: Final = 256
"""How many entries are passed over at once."""
BLOCK_BYTES: Final = BLOCK_ENTRIES * ENTRY_BYTES
_OFFSET_MAX: Final = 2**63 - 1
_NO_TAIL: Final = (-1, 0, _OFFSET_MAX)


def encode_entry(transaction: AbortedTransaction) -> bytes:
    return ENTRY.pack(
        VERSION,
        transaction.producer_id,
        transaction.first_offset,
        transaction.last_offset,
        transaction.last_stable_offset,
    )


def read_entries(index: ReadableBuffer, first: int = 0) -> Iterator[AbortedTransaction]:
    """Yield the entries from the one numbered `first` on; a last one that is cut off is left."""
    for position in range(first * ENTRY_BYTES, len(index) - ENTRY_BYTES + 1, ENTRY_BYTES):
        yield AbortedTransaction(*ENTRY.unpack_from(index, position)[1:])


class BlockMinima:
    """The smallest first offset of each block of an index of transactions, as far as it was read.

    The index may grow; once entries were cut off it needs another one of these. Threads may read
    along: what they remember differs only in how many entries it is of.
    """

    __slots__ = ("_tail", "whole")

    def __init__(self) -> None:
        self.whole: dict[int, int] = {}
        """The blocks that will not grow."""
        self._tail = _NO_TAIL
        """A block that may: its number, how many entries were read, and the smallest of them."""

    def unread_count(self, count: int) -> int:
        """Return how many of the first `count` entries, at most, were not read."""
        tail, tail_count, _ = self._tail
        read_count = len(self.whole) * BLOCK_ENTRIES + (0 if tail in self.whole else tail_count)
        return max(count - read_count, 0)

    def has_read(self, first: int, count: int) -> bool:
        """Return whether `count` entries from the block numbered `first` on were read."""
        end, rest = first + count // BLOCK_ENTRIES, count % BLOCK_ENTRIES
        if rest and end not in self.whole:
            tail, tail_count, _ = self._tail
            if tail != end or tail_count < rest:
                return False
        return all(block in self.whole for block in range(first, end))

    def read(self, entries: memoryview, first: int) -> None:
        """Read whole entries that begin with the block numbered `first`."""
        count = len(entries) // ENTRY_BYTES
        for block, least in enumerate(least_first_offsets(entries), first):
            if count >= BLOCK_ENTRIES:
                self.whole[block] = least
            else:
                self._tail = (block, count, least)
            count -= BLOCK_ENTRIES

    def least_of(self, block: int, index: memoryview) -> int:
        """Return the minimum of a block that is not known as a whole; read what is new of it."""
        tail, count, least = self._tail
        if tail != block:
            count, least = 0, _OFFSET_MAX
        begin, end = block * BLOCK_ENTRIES, min((block + 1) * BLOCK_ENTRIES, _count(index))
        if end - begin > count:
            new = index[(begin + count) * ENTRY_BYTES : end * ENTRY_BYTES]
            least = min(least, *least_first_offsets(new))
            if end - begin == BLOCK_ENTRIES:
                self.whole[block] = least
            else:
                self._tail = (block, end - begin, least)
        return least

    def least_of_all(self) -> int:
        """Return the minimum of all that was read."""
        return min(self._tail[2], *self.whole.values()) if self.whole else self._tail[2]


def find_aborted(
    index: ReadableBuffer, fetch_offset: int, end_offset: int, minima: BlockMinima | None = None
) -> tuple[list[AbortedTransaction], bool]:
    """Return the transactions that touch `fetch_offset` up to but without `end_offset`.

    Also says whether these are all: if not, then entries of later segments may touch them too.

    While one transaction was open for long, entries of thousands of others may follow which none
    says are beyond the end. With `minima`, which may be those of a longer index that begins alike,
    each block of entries is read once, and passed over from then on.
    """
    found: list[AbortedTransaction] = []
    count = _count(index)
    number = first_ending_at(index, fetch_offset)
    if minima is None:
        minima = BlockMinima()
    whole = minima.whole
    with memoryview(index) as view:
        while number < count:
            block = number // BLOCK_ENTRIES
            end = min((block + 1) * BLOCK_ENTRIES, count)
            if (least := whole.get(block)) is None:
                least = minima.least_of(block, view)
            if least < end_offset:
                entries = view[number * ENTRY_BYTES : end * ENTRY_BYTES]
                for _, producer_id, first, last, stable in ENTRY.iter_unpack(entries):
                    if first < end_offset:
                        found.append(AbortedTransaction(producer_id, first, last, stable))
                    if stable >= end_offset:
                        return found, True
            elif _STABLE_OFFSET.unpack_from(view, end * ENTRY_BYTES - 8)[0] >= end_offset:
                return found, True
            number = end
    return found, False


def _count(index: ReadableBuffer) -> int:
    return len(index) // ENTRY_BYTES


def least_first_offsets(blocks: memoryview) -> list[int]:
    """Return the smallest first offset of each block of entries; the last one may be shorter."""
    return [
        min(_FIRST_OFFSETS.iter_unpack(blocks[begin : begin + BLOCK_BYTES]))[0]
        for begin in range(0, len(blocks), BLOCK_BYTES)
    ]


class AbortedRanges:
    """Aborted transactions by producer, to ask whether a batch belongs to one."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for each in aborted:  # in the order of their markers: those of one producer do not overlap
            firsts, lasts = self._by_producer.setdefault(each.producer_id, ([], []))
            firsts.append(each.first_offset)
            lasts.append(each.last_offset)

    def hold(self, producer_id: int, offset: int) -> bool:
        """Return whether a producer wrote an offset in a transaction that it aborted."""
        ranges = self._by_producer.get(producer_id)
        if ranges is None:
            return False
        firsts, lasts = ranges
        number = bisect_right(firsts, offset) - 1
        return number >= 0 and offset <= lasts[number]


def first_ending_at(index: ReadableBuffer, offset: int) -> int:
    """Return the number of the first entry whose marker is at `offset` or later."""
    return bisect_left(
        range(_count(index)),
        offset,
        key=lambda number: _LAST_OFFSET.unpack_from(index, number * ENTRY_BYTES + _LAST_AT)[0],
    )


_LAST_OFFSET: Final = Layout(">q")
_STABLE_OFFSET: Final = _LAST_OFFSET
_LAST_AT: Final = 18
_FIRST_OFFSETS: Final = Layout(">10xq16x")
