"""Making a log durable: what the loop prepares, what waits for the disk in a thread."""

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.checkpoints import LEADER_EPOCHS, format_epochs
from headrace.log.disk import TEMPORARY_SUFFIX, Disk, DiskFile, write_temporary
from headrace.log.errors import ReadOnlyLog
from headrace.log.producer_snapshots import encode_snapshot, snapshot_name
from headrace.log.producers import ProducerState

if TYPE_CHECKING:
    from headrace.log.log import Log


class LostWrites(OSError):
    """A sync that failed: what was written since the last one must count as lost.

    More space does not bring it back, so this is for good, whatever the error's number is.
    """


class Flush(NamedTuple):
    """What one flush makes durable; meanwhile the loop only appends to these files."""

    disk: Disk
    folder: str
    files: list[DiskFile]
    snapshots: list[tuple[str, list[ProducerState]]]
    """Path and content of each."""
    epochs: tuple[str, bytes] | None
    """Path and content, if the leader epochs have changed."""

    def run(self) -> None:
        """Do it; OSError if the disk fails. What retention removed meanwhile is passed over."""
        if not (self.files or self.snapshots or self.epochs):
            return
        for file in self.files:
            try:
                file.sync()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise LostWrites(*error.args, error.filename) from error
        for path, data in self._small_files():
            self.disk.replace(path, data)
        self.disk.sync_folder(self.folder)

    def stage(self) -> list[str]:
        """Write what is not written yet under temporary names, durable after `Disk.sync_all`.

        Return the paths of the files that are to be replaced by them.
        """
        return [
            write_temporary(self.disk, path, data, is_synced=False).removesuffix(TEMPORARY_SUFFIX)
            for path, data in self._small_files()
        ]

    def _small_files(self) -> Iterator[tuple[str, bytes]]:
        for path, states in self.snapshots:
            yield path, encode_snapshot(states)
        if self.epochs is not None:
            yield self.epochs


class Flusher:
    """Flushes one log, one flush at a time; knows which small files the next one has to write."""

    __slots__ = ("_log_of", "_new_files", "_running", "_snapshots", "_up_to", "are_epochs_dirty")

    def __init__(self, log: "Log") -> None:
        self.are_epochs_dirty = False
        self._log_of = weakref.ref(log)  # a cycle would keep a deleted log until a collection
        self._running: asyncio.Future[None] | None = None
        self._new_files: list[DiskFile] = []
        """Files beside the segments that no flush has synced yet."""
        self._snapshots: list[tuple[str, list[ProducerState]]] = []
        self._up_to = log.end_offset
        """What the flush that runs will have made durable, if nothing of it is cut off."""

    @property
    def _log(self) -> "Log":
        log = self._log_of()
        assert log is not None, "who flushes a log has it"
        return log

    async def flush(self) -> None:
        """Return when all that was appended before the call is on disk; see `Log.flush`."""
        log = self._log
        target = log.end_offset
        while log.recovery_point < min(target, log.end_offset):
            if log.failure is not None and not log.is_out_of_space:
                raise ReadOnlyLog(log.folder, log.failure)
            if self._running is None:
                self._running = self._start()
            elif self._running.done():
                # What comes of it is noted in this turn; to await it would not let that happen.
                await asyncio.sleep(0)
                continue
            try:
                await asyncio.shield(self._running)
            except OSError as error:
                raise ReadOnlyLog(log.folder, str(error)) from error

    async def finish(self) -> None:
        """Wait until no flush is running, whatever its outcome."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def prepare(self) -> Flush:
        """Hand everything to the files, and give the work that makes it durable."""
        log = self._log
        # From the segment before the first offset that is not durable: it may have been finished
        # since, and its time index completed.
        dirty = log.segments[log.segment_index(log.recovery_point - 1) :]
        for segment in dirty:
            segment.write_out()
        log.wants_flush = False
        self._up_to = log.end_offset
        snapshots, self._snapshots = self._snapshots, []
        epochs = None
        if self.are_epochs_dirty:
            epochs = f"{log.folder}/{LEADER_EPOCHS}", format_epochs(log.epochs.entries()).encode()
            self.are_epochs_dirty = False
        files, self._new_files = self._new_files, []
        files += [file for segment in dirty for file in segment.opened_files()]
        return Flush(log.disk, log.folder, files, snapshots, epochs)

    def also_sync(self, file: DiskFile) -> None:
        """Sync another file of the log's folder with the first flush."""
        self._new_files.append(file)

    def prepare_new_files(self) -> Flush:
        """Return the work that syncs the files of `also_sync`, if no flush has done so."""
        files, self._new_files = self._new_files, []
        return Flush(self._log.disk, self._log.folder, files, [], None)

    def note_snapshot(self, offset: int) -> None:
        """Write a snapshot of the current producers, at an offset, with the next flush."""
        self._snapshots.append((self._snapshot_path(offset), self._log.producers.capture()))

    def pending_snapshot(self, offset: int) -> list[ProducerState] | None:
        """Return the producers at an offset if the next flush is to write them."""
        return dict(self._snapshots).get(self._snapshot_path(offset))

    def cut(self, end_offset: int, snapshots_up_to: int) -> None:
        """Adapt to a truncated log; snapshots are valid only up to an offset."""
        limit = self._snapshot_path(snapshots_up_to)
        self._snapshots = [due for due in self._snapshots if due[0] <= limit]
        self._up_to = min(self._up_to, end_offset, snapshots_up_to)

    def _start(self) -> asyncio.Future[None]:
        log = self._log
        try:
            work = self.prepare()
        except OSError as error:
            raise log.fail(error) from error
        running = asyncio.get_running_loop().run_in_executor(None, work.run)

        def finish(done: asyncio.Future[None]) -> None:
            self._running = None
            error = None if done.cancelled() else done.exception()
            if isinstance(error, OSError):
                self._take_back(work)
                log.fail(error)
            elif error is None:
                log.recovery_point = max(log.recovery_point, self._up_to)
                self._remove_cut_snapshots(work)

        running.add_done_callback(finish)
        return running

    def _take_back(self, work: Flush) -> None:
        """Queue the small files of a failed flush for the next one."""
        self._log.wants_flush = self.are_epochs_dirty = True
        limit = self._snapshot_path(self._up_to)
        self._snapshots[:0] = [due for due in work.snapshots if due[0] <= limit]

    def _remove_cut_snapshots(self, work: Flush) -> None:
        """Remove what a flush wrote about offsets that were cut off while it ran."""
        for path, _ in work.snapshots:
            if path > self._snapshot_path(self._up_to):
                with suppress(FileNotFoundError):
                    self._log.disk.remove(path)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._log.folder}/{snapshot_name(offset)}"
