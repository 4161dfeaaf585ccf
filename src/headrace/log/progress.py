"""Kafka's checkpoint files: four offsets of each log of a directory, by topic name.

    files = ProgressFiles(disk)
    files.offset(RECOVERY_POINTS, key)
    files.write(rows, is_current, is_present)       # a checkpoint
    files.forget(keys)                              # before a log of that name begins

A row has a name and no topic id. So a row of a deleted topic must be gone, durably, before a new
log of that name has records: otherwise a restart would start the new log at the old one's offset,
and treat its records as lost. `forget` removes it; the files' contents are cached here, so it costs
nothing if there is no row. After a crash a start may find rows without a log: they are removed too.

Everything may be called from threads. A checkpoint is collected on the loop and written later by a
thread; each row is checked against the current state of its log right before it is written.
"""

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, Self, TypeAlias

from headrace.ids import PartitionIndex, TopicName
from headrace.log import checkpoints
from headrace.log.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, Offsets
from headrace.log.disk import Disk
from headrace.log.log import Log

TopicPartition: TypeAlias = tuple[TopicName, PartitionIndex]

FILES: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED)


class Row(NamedTuple):
    """The offsets of a log when they were collected."""

    key: TopicPartition
    log: Log
    cuts: int
    """How often the log had been truncated: a row from before a truncation is invalid after."""
    recovery_point: int
    start_offset: int
    high_watermark: int
    first_dirty_offset: int | None
    """None if the log was never compacted."""

    @classmethod
    def of(cls, key: TopicPartition, log: Log) -> Self:
        return cls(
            key,
            log,
            log.cuts,
            log.recovery_point,
            log.start_offset,
            log.high_watermark,
            log.first_dirty_offset if log.was_compacted else None,
        )


class ProgressFiles:
    """The four files, and what they hold."""

    def __init__(self, disk: Disk) -> None:
        """Read the files; CorruptCheckpoint names one that is damaged."""
        self._disk = disk
        self._lock = threading.Lock()
        self._written: dict[str, Offsets] = {}
        """What each file holds, or is about to hold."""
        self._unsure: set[str] = set()
        """Files that may hold something else: they do not exist yet, or a write has failed."""
        for name in FILES:
            try:
                self._written[name] = checkpoints.load(disk, name, checkpoints.parse_offsets)
            except FileNotFoundError:
                self._written[name] = {}
                self._unsure.add(name)

    def offset(self, name: str, key: TopicPartition) -> int | None:
        """Return what a file holds for a partition."""
        return self._written[name].get(key)

    def write(
        self,
        rows: Iterable[Row],
        is_current: Callable[[Row], bool],
        is_present: Callable[[tuple[str, int]], bool],
    ) -> None:
        """Write a checkpoint; files that would not change are not written.

        Rows that are no longer current are skipped. The files keep the old rows of partitions that
        are present and have no new row: logs that did not open, or that were truncated in the
        meantime and write their own. Other rows are removed.
        """
        with self._lock:
            fresh: dict[str, Offsets] = {name: {} for name in FILES}
            for row in rows:
                if is_current(row):
                    fresh[RECOVERY_POINTS][row.key] = row.recovery_point
                    fresh[LOG_STARTS][row.key] = row.start_offset
                    fresh[HIGH_WATERMARKS][row.key] = row.high_watermark
                    if row.first_dirty_offset is not None:
                        fresh[CLEANED][row.key] = row.first_dirty_offset
            looked_up = fresh[RECOVERY_POINTS].keys()
            for name, offsets in fresh.items():
                for key, offset in self._written[name].items():
                    if key not in looked_up and is_present(key):
                        offsets[key] = offset
                self._save(name, offsets)

    def update(self, row: Row) -> None:
        """Write the row of one log."""
        with self._lock:
            offsets = (row.recovery_point, row.start_offset, row.high_watermark)
            for name, offset in zip(FILES, (*offsets, row.first_dirty_offset), strict=True):
                if offset is not None:
                    self._save(name, self._written[name] | {row.key: offset})

    def forget(self, keys: Collection[TopicPartition]) -> None:
        """Make sure that no file has a row of these partitions, whatever crashes."""
        gone = set[tuple[str, int]](keys)
        with self._lock:
            for name in FILES:
                written = self._written[name]
                if name in self._unsure or not gone.isdisjoint(written):
                    kept = {key: offset for key, offset in written.items() if key not in gone}
                    self._save(name, kept)

    def _save(self, name: str, offsets: Offsets) -> None:
        if name not in self._unsure and offsets == self._written[name]:
            return
        self._written[name] = offsets
        self._unsure.add(name)
        checkpoints.save(self._disk, name, checkpoints.format_offsets(offsets))
        self._unsure.discard(name)
