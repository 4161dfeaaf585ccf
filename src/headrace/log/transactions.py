"""Aborted transactions of one segment: the `.txnindex` file.

A reader of committed records drops what aborted transactions wrote; this index tells it which ones
touch the offsets that it got. Entries are in the order of their markers, 34 bytes each, as in
KIP-98. Committed transactions leave no entry, so most segments have no file.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from headrace.log.disk import Disk, DiskFile
from headrace.log.errors import CorruptLog
from headrace.wire.schema import Buffer


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


def encode_entry(transaction: AbortedTransaction) -> bytes:
    return ENTRY.pack(
        VERSION,
        transaction.producer_id,
        transaction.first_offset,
        transaction.last_offset,
        transaction.last_stable_offset,
    )


def read_entries(index: Buffer, first: int = 0) -> Iterator[AbortedTransaction]:
    """Yield the entries from the one numbered `first` on; a last one that is cut off is left."""
    for position in range(first * ENTRY_BYTES, len(index) - ENTRY_BYTES + 1, ENTRY_BYTES):
        yield AbortedTransaction(*ENTRY.unpack_from(index, position)[1:])


def find_aborted(
    index: Buffer, fetch_offset: int, end_offset: int, minima: dict[int, int] | None = None
) -> tuple[list[AbortedTransaction], bool]:
    """Return the transactions that touch `fetch_offset` up to but without `end_offset`.

    Also says whether these are all: if not, then entries of later segments may touch them too.

    While one transaction was open for long, entries of thousands of others may follow which none
    says are beyond the end. `minima` remembers the smallest first offset of each block of entries,
    so that such a block is read once, and passed over from then on.
    """
    found: list[AbortedTransaction] = []
    count = len(index) // ENTRY_BYTES
    number = first_ending_at(index, fetch_offset)
    if minima is None:
        minima = {}
    with memoryview(index) as view:
        while number < count:
            block = number // BLOCK_ENTRIES
            block_end = (block + 1) * BLOCK_ENTRIES
            if (least := minima.get(block)) is None or least < end_offset:
                if least is None and block_end <= count:
                    entries = view[block * BLOCK_BYTES : block_end * ENTRY_BYTES]
                    minima[block] = min(entry[2] for entry in ENTRY.iter_unpack(entries))
                end = min(block_end, count)
                entries = view[number * ENTRY_BYTES : end * ENTRY_BYTES]
                for _, producer_id, first, last, stable in ENTRY.iter_unpack(entries):
                    if first < end_offset:
                        found.append(AbortedTransaction(producer_id, first, last, stable))
                    if stable >= end_offset:
                        return found, True
            elif _STABLE_OFFSET.unpack_from(view, block_end * ENTRY_BYTES - 8)[0] >= end_offset:
                return found, True
            number = block_end
    return found, False


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


def first_ending_at(index: Buffer, offset: int) -> int:
    """Return the number of the first entry whose marker is at `offset` or later."""
    return bisect_left(
        range(len(index) // ENTRY_BYTES),
        offset,
        key=lambda number: _LAST_OFFSET.unpack_from(index, number * ENTRY_BYTES + _LAST_AT)[0],
    )


def check_index(index: Buffer, base_offset: int, path: str) -> None:
    """CorruptLog at the first thing that no index of a segment with this base offset has."""
    last_offset = base_offset - 1
    for position in range(0, len(index), ENTRY_BYTES):
        if len(index) - position < ENTRY_BYTES:
            raise CorruptLog(path, position, f"an entry of {len(index) - position} bytes")
        version, _, first, last, _ = ENTRY.unpack_from(index, position)
        if version != VERSION:
            raise CorruptLog(path, position, f"an entry of version {version}, not {VERSION}")
        if last <= last_offset or first > last:
            raise CorruptLog(
                path, position, f"offsets {first} to {last}, the end must be beyond {last_offset}"
            )
        last_offset = last


class TransactionIndex:
    """The index of one segment; its file is opened on first use and made by the first abort."""

    __slots__ = ("_disk", "_file", "_is_missing", "_map", "_minima", "_pending", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._file: DiskFile | None = None
        self._map: Buffer | None = None
        self._is_missing = False
        self._minima: dict[int, int] = {}
        """The smallest first offset of each whole block of entries, as far as read."""
        self._pending = bytearray()

    @property
    def is_known_empty(self) -> bool:
        """Whether it is known that there is no entry."""
        return self._is_missing and not self._pending

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction whose marker is beyond those of all before.

        It never fails, as the marker is in the log already: what the disk does not take waits for
        `write_out`.
        """
        self._pending += encode_entry(transaction)
        with suppress(OSError):
            self.write_out()

    def write_out(self) -> None:
        """Write pending entries to the file, after the last whole entry."""
        if not self._pending:
            return
        file = self._opened()
        if file is None:
            self._file = file = self._disk.open(self.path, create=True)
            self._is_missing = False
        self._map = None
        if file.size % ENTRY_BYTES:
            file.truncate(file.size - file.size % ENTRY_BYTES)
        file.append(self._pending)
        self._pending = bytearray()

    def find_aborted(
        self, fetch_offset: int, end_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return what the function of this name does."""
        return find_aborted(self._bytes(), fetch_offset, end_offset, self._minima)

    def entries(self) -> list[AbortedTransaction]:
        return list(read_entries(self._bytes()))

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose marker is at `offset` or beyond."""
        index = self._bytes()
        self._cut(first_ending_at(index, offset) * ENTRY_BYTES)

    def clear(self) -> None:
        """Forget every transaction."""
        self._cut(0)

    def check(self, base_offset: int) -> None:
        """CorruptLog if the file is not the index of a segment that begins there."""
        check_index(self._bytes(), base_offset, self.path)

    @property
    def opened_file(self) -> DiskFile | None:
        """The file, if there is one and it was used."""
        return self._file

    def close(self) -> None:
        self._map = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _cut(self, size: int) -> None:
        self._minima.clear()
        file = self._opened()
        file_bytes = 0 if file is None else file.size
        del self._pending[max(size - file_bytes, 0) :]
        if file is not None and size < file_bytes:
            self._map = None
            file.truncate(size)

    def _bytes(self) -> Buffer:
        stored = self._stored()
        if not self._pending:
            return stored
        whole_bytes = len(stored) - len(stored) % ENTRY_BYTES
        return bytes(stored[:whole_bytes]) + self._pending

    def _stored(self) -> Buffer:
        file = self._opened()
        if file is None or file.size == 0:
            return b""
        mapped = self._map
        if mapped is None:
            mapped = self._map = file.map()
            self._disk.maps.hold(self)
        return mapped

    def unmap(self) -> None:
        self._map = None

    def _opened(self) -> DiskFile | None:
        """Return the file, or None if there is none; that is checked once."""
        if self._file is None and not self._is_missing:
            if self._disk.exists(self.path):
                self._file = self._disk.open(self.path)
            else:
                self._is_missing = True
        return self._file


_LAST_OFFSET: Final = Layout(">q")
_STABLE_OFFSET: Final = _LAST_OFFSET
_LAST_AT: Final = 18
