"""One file of a log with its indexes: append, find, read, cut.

Offsets are found through sparse indexes, as in Kafka: about every `index.interval.bytes` an entry
says where the batch that ends with some offset begins, and which is the largest timestamp up to
there. From the entry on, batch headers lead the way.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from struct import Struct as Layout
from typing import Final

from headrace.ids import NO_TIMESTAMP
from headrace.log.disk import GONE, Disk, DiskFile
from headrace.log.entries import EntryFile
from headrace.log.errors import CorruptLog
from headrace.log.transactions import TransactionIndex
from headrace.log.walk import headers
from headrace.records.aborted import ENTRY_BYTES as TRANSACTION_ENTRY_BYTES
from headrace.records.errors import RecordsError
from headrace.records.header import HEADER_BYTES, BatchHeader, read_header
from headrace.wire.schema import Buffer

OFFSET_ENTRY: Final = Layout(">II")
"""The last offset of a batch, relative to the segment's base, and where the batch begins."""
TIME_ENTRY: Final = Layout(">qI")
"""The largest timestamp so far, and the last offset, relative too, of the batch that has it."""
INDEX_SUFFIXES: Final = (".index", ".timeindex", ".txnindex")
SUFFIXES: Final = (".log", *INDEX_SUFFIXES, ".snapshot")
DELETED_SUFFIX: Final = ".deleted"


def file_name(offset: int, suffix: str) -> str:
    """Name a file of a log: twenty digits of the first offset, and what it is."""
    return f"{offset:020d}{suffix}"


class Segment:
    """The batches from `base_offset` up to the next segment's."""

    __slots__ = (
        "_ending",
        "_file",
        "_folder",
        "_index_interval_bytes",
        "_indexed_timestamp",
        "_is_new",
        "_largest_timestamp",
        "_largest_timestamp_offset",
        "_unindexed_bytes",
        "base_offset",
        "disk",
        "first_timestamp",
        "offset_index",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        sizes: dict[str, int],
        index_interval_bytes: int,
        ending: str = "",
    ) -> None:
        """Use the files of a segment; `sizes` has the existing files of the folder.

        With an `ending` the files have that additional suffix, as those of compaction do.
        """
        self.disk = disk
        self._ending = ending
        self._folder = folder
        self._file: DiskFile | None = None
        self._is_new = file_name(base_offset, ".log") not in sizes
        """Whether the log's file must be created; an existing one must not be created again."""
        self._index_interval_bytes = index_interval_bytes
        self._unindexed_bytes = 0
        self._largest_timestamp: int | None = None
        self._indexed_timestamp: int = NO_TIMESTAMP
        self._largest_timestamp_offset = base_offset
        self.base_offset = base_offset
        self.size_bytes = sizes.get(file_name(base_offset, ".log"), 0)
        self.offset_index = self._entries(".index", OFFSET_ENTRY, sizes)
        self.time_index = self._entries(".timeindex", TIME_ENTRY, sizes)
        self.transaction_index = TransactionIndex(disk, self.path(".txnindex"))
        self.first_timestamp: int | None = None
        """The largest timestamp of the first batch, from which the segment's age counts."""

    @property
    def file(self) -> DiskFile:
        if self._file is None:
            path = self.path(".log")
            create = self._is_new and not self.disk.exists(path)
            self._file = self.disk.open(path, create=create)
            self._is_new = False
        return self._file

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of a batch, NO_TIMESTAMP if there is none."""
        if self._largest_timestamp is None:
            last = self.time_index.last() or (NO_TIMESTAMP, 0)
            self._largest_timestamp = self._indexed_timestamp = last[0]
            self._largest_timestamp_offset = self.base_offset + last[1]
        return self._largest_timestamp

    @property
    def largest_timestamp_offset(self) -> int:
        """The last offset of the batch that has the largest timestamp."""
        assert self.largest_timestamp >= NO_TIMESTAMP  # which loads both
        return self._largest_timestamp_offset

    def create(self) -> None:
        """Make the log's file, so that the segment is there however few batches it gets."""
        assert self.file.size == 0, f"{self.file.path} has {self.file.size} bytes"

    def path(self, suffix: str) -> str:
        return f"{self._folder}/{file_name(self.base_offset, suffix)}{self._ending}"

    # Writing

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Write one batch; nothing changes if the disk refuses it (OSError)."""
        (self._file or self.file).append(batch)
        self.note(len(batch), last_offset, max_timestamp)

    def append_run(self, data: Buffer, run: Iterable[BatchHeader]) -> None:
        """Write several batches at once; nothing changes if the disk refuses them (OSError)."""
        (self._file or self.file).append(data)
        for header in run:
            self.note(header.size_bytes, header.last_offset, header.max_timestamp)

    def note(self, batch_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Index a batch that the file has after the previously indexed one."""
        position = self.size_bytes
        if position == 0:
            self.first_timestamp = max_timestamp
        largest = self._largest_timestamp
        if largest is None:
            largest = self.largest_timestamp
        if max_timestamp > largest:
            self._largest_timestamp = largest = max_timestamp
            self._largest_timestamp_offset = last_offset
        if self._unindexed_bytes > self._index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            if largest > self._indexed_timestamp:
                self.index_time()
            self._unindexed_bytes = 0
        self._unindexed_bytes += batch_bytes
        self.size_bytes = position + batch_bytes

    def load_timestamps(self) -> None:
        """Read what `note` has to know of the batches before, so that it needs no disk."""
        if self.first_timestamp is None and self.size_bytes:
            self.first_timestamp = read_header(self.file.read(0, HEADER_BYTES)).max_timestamp
        assert self.largest_timestamp >= NO_TIMESTAMP

    def cut_torn(self) -> None:
        """Truncate what a failed append may have left after the last batch."""
        if self.file.size > self.size_bytes:
            self.file.truncate(self.size_bytes)

    def finish(self) -> None:
        """Complete the indexes and hand them to their files: no batch follows soon."""
        self.cut_torn()
        self.index_time()
        self.write_out()
        self.offset_index.make_file()
        self.time_index.make_file()

    def write_out(self) -> None:
        """Hand what the indexes hold in memory to their files."""
        if self.time_index.count and not self.offset_index.count:
            self.offset_index.make()  # Kafka's tool does not read the one without the other
        self.offset_index.write_out()
        self.time_index.write_out()
        self.transaction_index.write_out()

    def index_time(self) -> None:
        """Complete the time index, so that its last entry has the largest timestamp."""
        if self.largest_timestamp > self._indexed_timestamp:
            offset = self._largest_timestamp_offset - self.base_offset
            self.time_index.append(self.largest_timestamp, offset)
            self._indexed_timestamp = self.largest_timestamp

    # Finding

    def locate(self, offset: int) -> tuple[int, int]:
        """Return two positions between which the batch with `offset`, or the next one, starts."""
        entries = self.offset_index
        index = entries.find(offset - self.base_offset)
        begin = entries[index][1] if index >= 0 else 0
        end = entries[index + 1][1] if index + 1 < len(entries) else self.size_bytes
        return begin, end

    def offset_behind(self, offset: int, byte_count: int) -> int | None:
        """Return an offset after so many bytes of batches, from the one with `offset` on.

        The next one in the index; None if that is the end of the segment.
        """
        entries = self.offset_index
        low, high = entries.find(offset - self.base_offset) + 1, len(entries)
        if low == high:
            return None
        position = entries[low][1] + byte_count
        number = bisect_left(range(high), position, low, key=lambda each: entries[each][1])
        return None if number == high else self.base_offset + entries[number][0]

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Find the first batch that ends with `offset` or a later one."""
        for position, header in self.batches(self.locate(offset)[0]):
            if header.last_offset >= offset:
                return position, header
        return None

    def position_of(self, offset: int) -> int:
        """Return where the batch with `offset`, or the next one, starts; the end if none does."""
        found = self.find(offset)
        return self.size_bytes if found is None else found[0]

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of the batches from one that begins at `position`."""
        try:
            yield from headers(self.file, position, self.size_bytes)
        except RecordsError as error:
            raise CorruptLog(self.path(".log"), position, error.message) from None

    # Cutting

    def place_before(self, offset: int) -> tuple[int, int]:
        """Return where the batch with `offset`, or the next one, starts, and the end before it.

        That end is the offset after the last batch that has no `offset` and none beyond it.
        """
        position, end_offset = 0, self.base_offset
        for position, header in self.batches(self.locate(offset - 1)[0]):
            if header.last_offset >= offset:
                return position, end_offset
            end_offset = header.next_offset
        return self.size_bytes, end_offset

    def truncate(self, position: int) -> None:
        """Drop the batches from the one that begins at `position`; indexes follow."""
        self.file.truncate(position)
        self.size_bytes = position
        self._cut_offset_index(position)
        self.forget_from(position, self.read_end_offset())
        self.take_timestamps(*self.measure_timestamps())

    def forget_from(self, position: int, end_offset: int) -> None:
        """Forget the batches from a position, where `end_offset` would be next; the file stays.

        The timestamps are known again after `take_timestamps`.
        """
        self.size_bytes = position
        self._cut_offset_index(position)
        times = self.time_index
        times.keep(
            bisect_left(
                range(times.count), end_offset - self.base_offset, key=lambda each: times[each][1]
            )
        )
        self.transaction_index.truncate_to(end_offset)
        self._largest_timestamp = None
        self.first_timestamp = None

    def _cut_offset_index(self, position: int) -> None:
        entries = self.offset_index
        entries.keep(bisect_left(range(entries.count), position, key=lambda each: entries[each][1]))

    def read_end_offset(self) -> int:
        """Return the offset after the last batch, found from the last entry of the index on.

        Raise CorruptLog if the file ends within a batch.
        """
        end_offset, end_position = self.base_offset, 0
        if self.size_bytes:
            last = self.offset_index.last()
            for position, header in self.batches(0 if last is None else last[1]):
                end_offset, end_position = header.next_offset, position + header.size_bytes
        if end_position != self.size_bytes:
            raise CorruptLog(self.path(".log"), end_position, "the file ends within a batch")
        return end_offset

    def has_torn_indexes(self, sizes: dict[str, int]) -> bool:
        """Return whether an index must be incomplete, by the sizes of the files in the folder."""
        if self.size_bytes == 0:
            return False
        sizes_bytes = [sizes.get(file_name(self.base_offset, own), 0) for own in INDEX_SUFFIXES]
        entry_bytes = (OFFSET_ENTRY.size, TIME_ENTRY.size, TRANSACTION_ENTRY_BYTES)
        is_torn = any(size % entry for size, entry in zip(sizes_bytes, entry_bytes, strict=True))
        return is_torn or self.time_index.count == 0

    def measure_timestamps(self) -> tuple[int, int]:
        """Return the largest timestamp and the last offset of its batch, for `take_timestamps`.

        Found from the last entry of the time index on. May run in a thread.
        """
        indexed = self.time_index.last()
        timestamp, offset = indexed or (NO_TIMESTAMP, 0)
        offset += self.base_offset
        begin = self.locate(offset)[0] if indexed else 0
        for _, header in self.batches(begin):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        return timestamp, offset

    def take_timestamps(self, timestamp: int, offset: int) -> None:
        """Go on with the largest timestamp, and the last offset of the batch that has it."""
        indexed = self.time_index.last()
        self._indexed_timestamp = NO_TIMESTAMP if indexed is None else indexed[0]
        self._largest_timestamp, self._largest_timestamp_offset = timestamp, offset
        self.first_timestamp = None

    def clear_indexes(self) -> None:
        """Forget what the indexes say, so that the batches can be noted again."""
        self.size_bytes = 0
        self._unindexed_bytes = 0
        self._largest_timestamp = None
        self.first_timestamp = None
        self.offset_index.keep(0)
        self.time_index.keep(0)
        self.transaction_index.clear()

    # Files

    def opened_files(self) -> list[DiskFile]:
        """Return the files that may have changed since they were synced."""
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        files = [self._file, *(index.opened_file for index in indexes)]
        return [file for file in files if file is not None]

    def sync(self) -> None:
        """Make every file durable, and that it exists."""
        for file in self.opened_files():
            file.sync()
        self.disk.sync_folder(self._folder)

    def close(self) -> None:
        for opened in (self.offset_index, self.time_index, self.transaction_index, self._file):
            if opened is not None:
                opened.close()
        self._file = None

    def retire(self) -> None:
        """Close every file and never open one again: another log may have their names soon."""
        self.close()
        self.disk = GONE
        self.offset_index = self._entries(".index", OFFSET_ENTRY, {})
        self.time_index = self._entries(".timeindex", TIME_ENTRY, {})
        self.transaction_index = TransactionIndex(GONE, self.path(".txnindex"))

    def rename(self, suffix: str) -> None:
        """Append a suffix to the name of every file of the segment."""
        self.close()
        for own in SUFFIXES:
            if self.disk.exists(self.path(own)):
                self.disk.rename(self.path(own), self.path(own) + suffix)

    def _entries(self, suffix: str, layout: Layout, sizes: dict[str, int]) -> EntryFile:
        stored = sizes.get(file_name(self.base_offset, suffix), 0)
        return EntryFile(self.disk, self.path(suffix), layout, stored)
