"""A file of fixed-width entries that only grows: the form of a segment's indexes.

New entries wait in memory until `write_out`, as an index is rebuilt from its log after a crash
and a system call for each would cost more than the append that it describes. Reading maps the
file on first use.
"""

from contextlib import suppress
from struct import Struct as Layout
from typing import Final

from headrace.log.disk import Disk, DiskFile
from headrace.wire.schema import Buffer

PENDING_BYTES_MAX: Final = 16 * 1024


class EntryFile:
    """Entries of two numbers, the first of which never decreases."""

    __slots__ = ("_disk", "_file", "_layout", "_map", "_pending", "_stored_count", "count", "path")

    def __init__(self, disk: Disk, path: str, layout: Layout, stored_bytes: int) -> None:
        """Use a file of `stored_bytes`; it need not exist if that is 0."""
        self.path = path
        self._disk = disk
        self._layout = layout
        self._stored_count = stored_bytes // layout.size
        self.count = self._stored_count
        """How many entries there are, in the file and pending."""
        self._pending = bytearray()
        self._file: DiskFile | None = None
        self._map: memoryview | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, ...]:
        if index >= self._stored_count:
            position = (index - self._stored_count) * self._layout.size
            return self._layout.unpack_from(self._pending, position)
        return self._layout.unpack_from(self._mapped(), index * self._layout.size)

    @property
    def size_bytes(self) -> int:
        return self.count * self._layout.size

    def last(self) -> tuple[int, ...] | None:
        return self[self.count - 1] if self.count else None

    def find(self, value: int) -> int:
        """Return the index of the last entry whose first value is at most `value`, or -1."""
        stored = self._stored_count
        if self.count > stored and self[stored][0] <= value:
            return stored - 1 + self._count_up_to(value, self._pending, self.count - stored)
        return self._count_up_to(value, self._mapped(), stored) - 1 if stored else -1

    def _count_up_to(self, value: int, entries: Buffer, count: int) -> int:
        """Count the entries whose first value is at most `value`."""
        unpack, entry_bytes = self._layout.unpack_from, self._layout.size
        low = 0
        while low < count:
            middle = (low + count) >> 1
            if unpack(entries, middle * entry_bytes)[0] <= value:
                low = middle + 1
            else:
                count = middle
        return low

    def append(self, first: int, second: int) -> None:
        """Add an entry. It never fails: the batch that it is about is in the log already."""
        self._pending += self._layout.pack(first, second)
        self.count += 1
        if len(self._pending) >= PENDING_BYTES_MAX:
            with suppress(OSError):  # the next flush meets it, and the entries still wait
                self.write_out()

    def make(self) -> None:
        """Make sure that there is a file, even if there is no entry for it."""
        self._opened()

    def write_out(self) -> None:
        """Write pending entries to the file, after the last whole entry."""
        if self._pending:
            file = self._opened()
            stored_bytes = self._stored_count * self._layout.size
            if file.size > stored_bytes:
                file.truncate(stored_bytes)
            file.append(self._pending)
            self._stored_count += len(self._pending) // self._layout.size
            self._pending = bytearray()
            self._map = None

    def make_file(self) -> None:
        """Make the file if there is none yet: Kafka's tools miss one that would be empty."""
        self._opened()

    def keep(self, count: int) -> None:
        """Drop the entries from `count` on."""
        stored = min(count, self._stored_count)
        del self._pending[(count - stored) * self._layout.size :]
        self.count = count
        if stored < self._stored_count:
            self._opened().truncate(stored * self._layout.size)
            self._stored_count = stored
            self._map = None

    @property
    def opened_file(self) -> DiskFile | None:
        """The file, if it was used."""
        return self._file

    def close(self) -> None:
        self._map = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _mapped(self) -> memoryview:
        mapped = self._map
        if mapped is None:
            mapped = self._map = self._opened().map()
            self._disk.maps.hold(self)
        return mapped

    def unmap(self) -> None:
        self._map = None

    def _opened(self) -> DiskFile:
        if self._file is None:
            self._file = self._disk.open(self.path, create=not self._disk.exists(self.path))
        return self._file
