"""All logs of one data directory, laid out and checkpointed as Kafka does.

    folder = LogFolder.open(disk, settings_of, cluster_id="...", node_id=1)
    log = folder.create("orders", 0, topic_id)
    await folder.checkpoint()
    folder.close(broker_epoch=7)

A directory that was closed leaves a marker, and the next start trusts its files; without the
marker every log is recovered from its recovery point. A log that cannot be opened is kept out of
service with its reason, the others are served.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self

from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.log import checkpoints
from headrace.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    MetaProperties,
)
from headrace.log.closing import close_all
from headrace.log.disk import Disk
from headrace.log.errors import LogError
from headrace.log.log import Log, is_out_of_space
from headrace.log.opening import open_log
from headrace.log.ownership import own
from headrace.log.progress import ProgressFiles, Row, TopicPartition
from headrace.log.settings import LogSettings
from headrace.log.truncating import Cut
from headrace.surroundings import new_uuid

__all__ = ["LogFolder", "TopicPartition"]

ROWS_A_TURN: Final = 500
"""How many logs a checkpoint looks up before others have their turn."""
_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_DELETED_FOLDER: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_FOLDER_NAME_CHARACTERS_MAX: Final = 255

logger = logging.getLogger(__name__)


class LogFolder:
    """The logs of a directory by topic and partition."""

    def __init__(
        self, disk: Disk, meta: MetaProperties, settings_of: Callable[[TopicName], LogSettings]
    ) -> None:
        self.disk = disk
        self.meta = meta
        self.logs: dict[TopicPartition, Log] = {}
        self.topic_ids: dict[TopicPartition, TopicId] = {}
        """Whose logs they are, those that did not open included; as far as it is known."""
        self.offline: dict[TopicPartition, LogError] = {}
        """Logs that did not open, and why."""
        self.released: set[TopicPartition] = set()
        """Logs that were taken out of service and whose folders still have their names."""
        self.was_clean = True
        """Whether the logs were all closed before they were opened now."""
        self.clean_epoch = -1
        """The broker epoch in which they were closed, -1 if they were not."""
        self._settings_of = settings_of
        self._progress = ProgressFiles(disk)
        self._checkpointing: asyncio.Task[None] | None = None
        self._next_checkpoint: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        settings_of: Callable[[TopicName], LogSettings],
        *,
        cluster_id: str,
        node_id: int,
        directory_id: TopicId | None = None,
    ) -> Self:
        """Open every log of a directory, or begin one, with this id if it has none yet.

        `settings_of` gives the settings of a topic's logs. WrongDirectory if it is another's.
        """
        folder = cls(disk, own(disk, cluster_id, node_id, directory_id), settings_of)
        is_clean = disk.exists(CLEAN_SHUTDOWN)
        if is_clean:
            with contextlib.suppress(CorruptCheckpoint):
                parse = checkpoints.parse_clean_shutdown
                folder.clean_epoch = checkpoints.load(disk, CLEAN_SHUTDOWN, parse)
            disk.remove(CLEAN_SHUTDOWN)  # the next start is clean only if this one ends well
            disk.sync_folder("")
        folder.was_clean = is_clean
        folder._open_all(is_clean)
        return folder

    def create(self, topic: TopicName, partition: PartitionIndex, topic_id: TopicId) -> Log:
        """Begin an empty log; ValueError if there is one already. Blocks until it is on disk."""
        key = (topic, partition)
        if key in self.logs or key in self.offline:
            raise ValueError(f"{topic}-{partition} has a log")
        (log,) = self.begin_all([(key, topic_id, self._settings_of(topic))])
        self.adopt(key, topic_id, log)
        return log

    def begin_all(self, asked: Sequence[tuple[TopicPartition, TopicId, LogSettings]]) -> list[Log]:
        """Create the files of new logs; call `adopt` for each afterwards. May run in a thread.

        Leftovers of the same name are removed first: the folder of an earlier log, if it could not
        be renamed or an attempt failed, and then, durably, its offsets in the checkpoints.

        The folders are durable; their contents become so with the first flush. Until then a crash
        may leave any part of them, and an empty log starts over.
        """
        names = {key: _folder_name(key) for key, _, _ in asked}
        self.set_aside([key for key, name in names.items() if self.disk.exists(name)])
        self._progress.forget(names.keys())
        for name in names.values():
            self.disk.make_folder(name)
        self.disk.sync_folder("")
        return [self._begin(names[key], topic_id, settings) for key, topic_id, settings in asked]

    def _begin(self, name: str, topic_id: TopicId, settings: LogSettings) -> Log:
        log = open_log(self.disk, name, settings, is_clean=True)
        metadata = self.disk.open(f"{name}/{PARTITION_METADATA}", create=True)
        metadata.append(checkpoints.format_partition_metadata(topic_id).encode())
        metadata.close()
        log.flusher.also_sync(metadata)
        return log

    def adopt(self, key: TopicPartition, topic_id: TopicId, log: Log) -> None:
        """Keep a log that `begin_all` made."""
        self.logs[key] = log
        self.topic_ids[key] = topic_id

    def save_topic_id(self, key: TopicPartition, topic_id: TopicId) -> None:
        """Write down whose log it is, if a crash came before that was on disk."""
        path = f"{_folder_name(key)}/{PARTITION_METADATA}"
        checkpoints.save(self.disk, path, checkpoints.format_partition_metadata(topic_id))
        self.topic_ids[key] = topic_id

    def delete(self, topic: TopicName, partition: PartitionIndex) -> str:
        """Remove a log, served or not, and rename its folder; return the name to remove later.

        The rename is the deletion: a crash cannot bring the log back, and a topic of the same
        name can start at once.
        """
        key = (topic, partition)
        self.release(key)
        (deleted,) = self.set_aside([key])
        return deleted

    def release(self, key: TopicPartition) -> None:
        """Forget a log, served or not; `set_aside` its files then."""
        self.released.add(key)
        self.topic_ids.pop(key, None)
        if self.offline.pop(key, None) is None:
            self.logs.pop(key).retire()

    def set_aside(self, keys: Sequence[TopicPartition]) -> list[str]:
        """Rename the folders of logs that were released; return their names. May run in a thread.

        After an OSError those that are left are still among `released`. Their rows in the
        checkpoints go with the next one, or before a log of the same name begins.
        """
        renamed, done, failure = [], [], None
        for key in keys:
            folder = _folder_name(key)
            deleted = _aside(folder, "delete")
            try:
                self.disk.rename(folder, deleted)
            except FileNotFoundError:
                pass  # it was renamed before a sync that failed
            except OSError as error:
                failure = failure or error  # the others go all the same
                continue
            else:
                renamed.append(deleted)
            done.append(key)
        if done:
            self.disk.sync_folder("")
        self.released.difference_update(done)
        if failure is not None:
            raise failure
        return renamed

    def remove_deleted(self) -> int:
        """Free the space of deleted logs; give how many. May run in a thread."""
        deleted = self.deleted_folders()
        for name in deleted:
            self.disk.remove_folder(name)
        return len(deleted)

    def deleted_folders(self) -> list[str]:
        """Return the names of the folders of deleted logs. May run in a thread."""
        return [name for name in self.disk.list_folders("") if _DELETED_FOLDER.fullmatch(name)]

    async def finish_cut(self, key: TopicPartition, cut: Cut) -> None:
        """Do the part of a truncation that waits for the disk; the log takes appends then.

        The recovery point went down with the end of the log, and that is written too: a start
        after a crash would otherwise miss offsets that were synced once.

        Raise OSError if the disk is full: nothing is lost, and this is to be called again. Raise
        ReadOnlyLog if the disk fails.
        """
        row = Row.of(key, cut.log)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._run_cut, cut, row)
        except OSError as error:
            if is_out_of_space(error):
                raise
            raise cut.log.fail(error) from error
        cut.finish()

    def _run_cut(self, cut: Cut, row: Row) -> None:
        cut.run()
        self._progress.update(row)

    async def checkpoint(self) -> None:
        """Write the offsets of each log, so that a start after a crash need not read all of it.

        The offsets at the time of the call are on disk on return. Calls during a write share the
        next one.
        """
        if self._next_checkpoint is None:
            waiting = self._checkpoint(self._checkpointing)
            self._next_checkpoint = asyncio.get_running_loop().create_task(waiting)
        await asyncio.shield(self._next_checkpoint)

    async def _checkpoint(self, former: asyncio.Task[None] | None) -> None:
        if former is not None:
            await asyncio.wait([former])
        self._checkpointing, self._next_checkpoint = self._next_checkpoint, None
        try:
            rows = []
            for number, (key, log) in enumerate(tuple(self.logs.items()), 1):
                rows.append(Row.of(key, log))
                if number % ROWS_A_TURN == 0:
                    await asyncio.sleep(0)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._write_progress, rows)
            for row in filter(self._is_current, rows):
                row.log.durable_start_offset = row.start_offset
        finally:
            self._checkpointing = None

    def close(self, broker_epoch: int) -> None:
        """Close every log, and leave a mark if all could be; block until they are on disk.

        On a full or failing disk there is no mark: the next start reads the logs again.
        """
        is_clean = close_all(self.disk, self.logs.values())
        try:
            self._write_progress([Row.of(key, log) for key, log in self.logs.items()])
            if is_clean and not self.offline and not self.released:
                checkpoints.save(
                    self.disk, CLEAN_SHUTDOWN, checkpoints.format_clean_shutdown(broker_epoch)
                )
        except OSError as error:
            logger.error(
                "the next start reads the logs again, as this stop is not clean: %s", error
            )

    def _write_progress(self, rows: Iterable[Row]) -> None:
        self._progress.write(
            rows,
            self._is_current,
            lambda key: key in self.logs or key in self.offline,
        )

    def _is_current(self, row: Row) -> bool:
        """Return whether a row is still that of its log."""
        return self.logs.get(row.key) is row.log and row.log.cuts == row.cuts

    def _open_all(self, is_clean: bool) -> None:
        strays = []
        for name in self.disk.list_folders(""):
            match = _PARTITION_FOLDER.fullmatch(name)
            if match is None:
                continue
            key = TopicName(match["topic"]), PartitionIndex(int(match["partition"]))
            try:
                topic_id = self._load_topic_id(name, is_clean=is_clean)
                if topic_id is not None:
                    self.topic_ids[key] = topic_id
                log = self._open_log(key, name, is_clean=is_clean)
            except LogError as error:
                self.offline[key] = error
                logger.error("%s is out of service: %s", name, error.message)
                continue
            if topic_id is None and not is_clean and log.size_bytes and log.recovery_point == 0:
                strays.append(log)
                continue
            self.logs[key] = log
            if topic_id is not None and not is_clean:
                # Whoever was to sync it may have been killed before.
                metadata = self.disk.open(f"{name}/{PARTITION_METADATA}")
                metadata.close()
                log.flusher.also_sync(metadata)
        if strays:
            self._set_strays_aside(strays)

    def _open_log(self, key: TopicPartition, name: str, *, is_clean: bool) -> Log:
        stored = self._progress.offset
        cleaned = stored(CLEANED, key)
        log = open_log(
            self.disk,
            name,
            self._settings_of(key[0]),
            is_clean=is_clean,
            recovery_point=stored(RECOVERY_POINTS, key) or 0,
            start_offset=stored(LOG_STARTS, key) or 0,
            was_compacted=cleaned is not None,
        )
        if log.end_offset - log.recovery_point >= log.settings.flush_messages:
            _sync_found(log)
        start_offset, end_offset = log.start_offset, log.end_offset
        high_watermark = stored(HIGH_WATERMARKS, key) or 0
        log.advance_high_watermark(min(max(high_watermark, start_offset), end_offset))
        log.first_dirty_offset = min(max(cleaned or 0, start_offset), end_offset)
        return log

    def _set_strays_aside(self, logs: list[Log]) -> None:
        """Rename the folders of logs whose topic is unknown.

        They were never flushed, as the topic's id is synced with the first flush. They may belong
        to a deleted topic while another one of the same name exists.
        """
        for log in logs:
            for segment in log.segments:
                segment.close()
            stray = _aside(log.folder, "stray")
            self.disk.rename(log.folder, stray)
            logger.error(
                "%s was never flushed, and a crash lost the id of its topic: it starts over, "
                "and its contents, up to offset %d, are kept in %s",
                *(log.folder, log.end_offset, stray),
            )
        self.disk.sync_folder("")

    def _load_topic_id(self, name: str, *, is_clean: bool) -> TopicId | None:
        """Return the topic id in a log's folder; None if there is none, or a crash has torn it."""
        path = f"{name}/{PARTITION_METADATA}"
        if not self.disk.exists(path):
            return None
        try:
            return checkpoints.load(self.disk, path, checkpoints.parse_partition_metadata)
        except CorruptCheckpoint as error:
            if is_clean:
                raise
            logger.warning("%s is written again: %s", path, error.message)
            return None


def _sync_found(log: Log) -> None:
    """Make durable what a crash left, where flush.messages promises that what is seen is.

    After a kill it may be in the page cache only.
    """
    try:
        log.flusher.prepare().run()
    except OSError as error:
        log.fail(error)
    else:
        log.recovery_point = log.end_offset


def _folder_name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def _aside(folder: str, why: str) -> str:
    """Return another name for a folder, which no log has."""
    ending = f".{new_uuid().hex}-{why}"
    return folder[: _FOLDER_NAME_CHARACTERS_MAX - len(ending)] + ending
