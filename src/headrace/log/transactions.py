"""Aborted transactions of one segment: the `.txnindex` file.

Committed transactions leave no entry, so most segments have no file. `records.aborted` knows the
entries.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from headrace.log.disk import Disk, DiskFile
from headrace.log.errors import CorruptLog
from headrace.records.aborted import (
    BLOCK_ENTRIES,
    ENTRY,
    ENTRY_BYTES,
    VERSION,
    AbortedTransaction,
    BlockMinima,
    encode_entry,
    find_aborted,
    first_ending_at,
    read_entries,
)
from headrace.wire.schema import Buffer

UNREAD_MAX: Final = 8192
"""How many entries are read for the first time on the loop; more are by a thread."""
ENTRIES_AT_ONCE: Final = 64 * BLOCK_ENTRIES


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


class FirstLook:
    """Reads the entries of an index that nobody has looked at. Call `run` in any thread.

    Whatever is done to the index meanwhile: it remembers nothing in these minima any more if
    entries were cut off.
    """

    __slots__ = ("_count", "_file", "_minima")

    def __init__(self, file: DiskFile, minima: BlockMinima, count: int) -> None:
        """Look at the first `count` entries of a file."""
        self._file = file
        self._minima = minima
        self._count = count

    def run(self) -> None:
        """Look; OSError if the disk fails."""
        for first in range(0, self._count, ENTRIES_AT_ONCE):
            count = min(ENTRIES_AT_ONCE, self._count - first)
            block = first // BLOCK_ENTRIES
            if self._minima.has_read(block, count):
                continue
            data = self._file.read(first * ENTRY_BYTES, count * ENTRY_BYTES)
            if len(data) < count * ENTRY_BYTES:
                return  # it was cut off
            self._minima.read(memoryview(data), block)


class _Whole(NamedTuple):
    """What is known of an index once all of its entries were read."""

    entry_count: int
    least_first_offset: int
    last_stable_offset: int


_NO_ENTRIES: Final = _Whole(0, 2**63 - 1, -1)


class TransactionIndex:
    """The index of one segment; its file is opened on first use and made by the first abort."""

    __slots__ = ("_disk", "_file", "_is_missing", "_map", "_minima", "_pending", "_whole", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._file: DiskFile | None = None
        self._map: Buffer | None = None
        self._is_missing = False
        self._minima = BlockMinima()
        self._whole = _NO_ENTRIES
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
        """Return what the function of this name does.

        Once all entries were read it takes not even a map of the file if none touches the offsets.
        """
        count = self._count()
        if (whole := self._whole).entry_count == count and whole.least_first_offset >= end_offset:
            return [], whole.last_stable_offset >= end_offset
        index = self._bytes()
        aborted, is_complete = find_aborted(index, fetch_offset, end_offset, self._minima)
        if not aborted and whole.entry_count != count and self._minima.unread_count(count) == 0:
            (last,) = read_entries(index, count - 1)
            self._whole = _Whole(count, self._minima.least_of_all(), last.last_stable_offset)
        return aborted, is_complete

    @property
    def unread_count(self) -> int:
        """How many entries at most `find_aborted` would read for the first time."""
        return self._minima.unread_count(self._count())

    def first_look(self) -> FirstLook | None:
        """Return what has to be read before `find_aborted` is quick; None if nothing has to."""
        file = self._opened()
        if file is None:
            return None
        count = file.size // ENTRY_BYTES
        if self._minima.unread_count(count) == 0:
            return None
        return FirstLook(file, self._minima, count)

    def is_complete_at(self, offset: int) -> bool:
        """Return whether no entry of a later index touches what is before an offset."""
        if self._whole.entry_count == self._count():
            return self._whole.last_stable_offset >= offset
        index = self._bytes()
        last = read_entries(index, max(len(index) // ENTRY_BYTES - 1, 0))
        return any(each.last_stable_offset >= offset for each in last)

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
        self._minima, self._whole = BlockMinima(), _NO_ENTRIES
        file = self._opened()
        file_bytes = 0 if file is None else file.size
        del self._pending[max(size - file_bytes, 0) :]
        if file is not None and size < file_bytes:
            self._map = None
            file.truncate(size)

    def _count(self) -> int:
        file = self._opened()
        stored = 0 if file is None else file.size // ENTRY_BYTES
        return stored + len(self._pending) // ENTRY_BYTES

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


def search(
    indexes: Iterable[TransactionIndex],
    fetch_offset: int,
    end_offset: int,
    unread_max: int | None = None,
) -> list[AbortedTransaction] | None:
    """Return the transactions of successive segments that touch what is between two offsets.

    None if more than `unread_max` entries would be read for the first time: `first_looks` says what
    to do before.
    """
    found: list[AbortedTransaction] = []
    unread = 0
    for index in indexes:
        if index.is_known_empty:
            continue
        if unread_max is not None:
            unread += index.unread_count
            if unread > unread_max:
                return None
        transactions, is_complete = index.find_aborted(fetch_offset, end_offset)
        found += transactions
        if is_complete:
            break
    return found


def first_looks(indexes: Iterable[TransactionIndex], end_offset: int) -> list[FirstLook]:
    """Return what has to be read before `search` up to an offset is quick."""
    looks = []
    for index in indexes:
        if index.is_known_empty:
            continue
        look = index.first_look()
        if look is not None:
            looks.append(look)
        if index.is_complete_at(end_offset):
            break
    return looks
