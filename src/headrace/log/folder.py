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
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self, TypeAlias

from headrace.errors import HeadraceError
from headrace.ids import PartitionIndex, TopicId, TopicName
from headrace.log import checkpoints
from headrace.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    MetaProperties,
    Offsets,
)
from headrace.log.cutting import restart_at, truncate
from headrace.log.disk import Disk
from headrace.log.errors import LogError
from headrace.log.log import Log
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings

TopicPartition: TypeAlias = tuple[TopicName, PartitionIndex]

_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_DELETED_FOLDER: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_FOLDER_NAME_CHARACTERS_MAX: Final = 255

logger = logging.getLogger(__name__)


class WrongDirectory(HeadraceError):
    """A data directory that belongs to another cluster or node."""


class LogFolder:
    """The logs of a directory by topic and partition."""

    def __init__(
        self, disk: Disk, meta: MetaProperties, settings_of: Callable[[TopicName], LogSettings]
    ) -> None:
        self.disk = disk
        self.meta = meta
        self.logs: dict[TopicPartition, Log] = {}
        self.topic_ids: dict[TopicPartition, TopicId] = {}
        self.offline: dict[TopicPartition, LogError] = {}
        """Logs that did not open, and why."""
        self._offline_progress: dict[str, Offsets] = {}
        """What the checkpoints have of those, so that no later start forgets what was promised."""
        self.was_clean = True
        """Whether the logs were all closed before they were opened now."""
        self._settings_of = settings_of
        self._saving = threading.Lock()
        self._cuts = 0
        """How often a log was cut; a checkpoint in a thread sees by it that it is out of date."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        settings_of: Callable[[TopicName], LogSettings],
        *,
        cluster_id: str,
        node_id: int,
    ) -> Self:
        """Open every log of a directory, or begin one.

        `settings_of` gives the settings of a topic's logs. WrongDirectory if it is another's.
        """
        folder = cls(disk, _own(disk, cluster_id, node_id), settings_of)
        is_clean = disk.exists(CLEAN_SHUTDOWN)
        if is_clean:
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
        """Make the files of logs that are not there yet; `adopt` each then. May run in a thread.

        The folders are there for sure; what is in them is with the first flush. Until then a crash
        may leave any of it, and an empty log begins anew.
        """
        for key, _, _ in asked:
            self.disk.make_folder(_folder_name(key))
        self.disk.sync_folder("")
        logs = []
        for key, topic_id, settings in asked:
            name = _folder_name(key)
            logs.append(open_log(self.disk, name, settings, is_clean=True))
            path = f"{name}/{PARTITION_METADATA}"
            if self.disk.exists(path):
                self.disk.remove(path)  # left by an attempt that the disk refused
            metadata = self.disk.open(path, create=True)
            metadata.append(checkpoints.format_partition_metadata(topic_id).encode())
            metadata.close()
        return logs

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
        """Take a log, served or not, away and rename its folder; give the name to remove later.

        Renaming is what makes it gone: a crash cannot bring it back, and a topic of the same
        name can begin at once.
        """
        key = (topic, partition)
        self.release(key)
        (deleted,) = self.set_aside([key])
        return deleted

    def release(self, key: TopicPartition) -> None:
        """Forget a log, served or not; `set_aside` its files then."""
        if self.offline.pop(key, None) is None:
            for segment in self.logs.pop(key).segments:
                segment.close()
        self.topic_ids.pop(key, None)
        for offsets in self._offline_progress.values():
            offsets.pop(key, None)

    def set_aside(self, keys: Iterable[TopicPartition]) -> list[str]:
        """Rename the folders of logs that were released; give their names. May run in a thread."""
        renamed = []
        for key in keys:
            folder = _folder_name(key)
            ending = f".{uuid.uuid4().hex}-delete"
            deleted = folder[: _FOLDER_NAME_CHARACTERS_MAX - len(ending)] + ending
            self.disk.rename(folder, deleted)
            renamed.append(deleted)
        self.disk.sync_folder("")
        return renamed

    def remove_deleted(self) -> int:
        """Free the space of deleted logs; give how many. May run in a thread."""
        deleted = self.deleted_folders()
        for name in deleted:
            self.disk.remove_folder(name)
        return len(deleted)

    def deleted_folders(self) -> list[str]:
        """Give the names of the folders of deleted logs. May run in a thread."""
        return [name for name in self.disk.list_folders("") if _DELETED_FOLDER.fullmatch(name)]

    def truncate(self, topic: TopicName, partition: PartitionIndex, offset: int) -> bool:
        """End a log before `offset`; say whether anything went. Blocks until that is on disk.

        The recovery point goes down with it, and that is written before anything is appended: a
        start after a crash would else miss offsets that were synced once.
        """
        is_cut = truncate(self.logs[topic, partition], offset)
        if is_cut:
            self._save_cut()
        return is_cut

    def restart_at(self, topic: TopicName, partition: PartitionIndex, offset: int) -> None:
        """Empty a log and let it begin at `offset`. Blocks until that is on disk."""
        restart_at(self.logs[topic, partition], offset)
        self._save_cut()

    async def checkpoint(self) -> None:
        """Write down how far each log is, so that a start after a crash need not read it all."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._save, self._progress(), self._cuts)

    def close(self, broker_epoch: int) -> None:
        """Close every log, and say so if all could be; blocks until they are on disk."""
        failed = []
        for log in self.logs.values():
            try:
                log.close()
            except OSError as error:
                failed.append(log.folder)
                logger.error("%s was not closed cleanly: %s", log.folder, error)
        self._save(self._progress(), self._cuts)
        if not failed and not self.offline:
            checkpoints.save(
                self.disk, CLEAN_SHUTDOWN, checkpoints.format_clean_shutdown(broker_epoch)
            )

    def _progress(self) -> Mapping[str, Offsets]:
        logs = self.logs.items()
        progress: dict[str, Offsets] = {
            RECOVERY_POINTS: {key: log.recovery_point for key, log in logs},
            LOG_STARTS: {key: log.start_offset for key, log in logs},
            HIGH_WATERMARKS: {key: log.high_watermark for key, log in logs},
            CLEANED: {key: log.first_dirty_offset for key, log in logs if log.was_compacted},
        }
        for name, offsets in self._offline_progress.items():
            progress[name] |= offsets
        return progress

    def _save_cut(self) -> None:
        self._cuts += 1
        self._save(self._progress(), self._cuts)

    def _save(self, progress: Mapping[str, Offsets], cuts: int) -> None:
        """Write the checkpoints, unless a log was cut since `progress` was looked up."""
        with self._saving:
            if cuts == self._cuts:
                for name, offsets in progress.items():
                    checkpoints.save(self.disk, name, checkpoints.format_offsets(offsets))

    def _open_all(self, is_clean: bool) -> None:
        recovery_points = self._load_offsets(RECOVERY_POINTS)
        starts = self._load_offsets(LOG_STARTS)
        high_watermarks = self._load_offsets(HIGH_WATERMARKS)
        cleaned = self._load_offsets(CLEANED)
        stored = {
            RECOVERY_POINTS: recovery_points,
            LOG_STARTS: starts,
            HIGH_WATERMARKS: high_watermarks,
            CLEANED: cleaned,
        }
        for name in self.disk.list_folders(""):
            match = _PARTITION_FOLDER.fullmatch(name)
            if match is None:
                continue
            topic = TopicName(match["topic"])
            key = topic, PartitionIndex(int(match["partition"]))
            try:
                log = open_log(
                    self.disk,
                    name,
                    self._settings_of(topic),
                    is_clean=is_clean,
                    recovery_point=recovery_points.get(key, 0),
                    start_offset=starts.get(key, 0),
                    was_compacted=key in cleaned,
                )
                topic_id = self._load_topic_id(name, is_clean=is_clean)
            except LogError as error:
                self.offline[key] = error
                logger.error("%s is out of service: %s", name, error.message)
                continue
            log.advance_high_watermark(
                min(max(high_watermarks.get(key, 0), log.start_offset), log.end_offset)
            )
            log.first_dirty_offset = min(max(cleaned.get(key, 0), log.start_offset), log.end_offset)
            self.logs[key] = log
            if topic_id is not None:
                self.topic_ids[key] = topic_id
        self._offline_progress = {
            name: {key: offsets[key] for key in self.offline if key in offsets}
            for name, offsets in stored.items()
        }

    def _load_offsets(self, name: str) -> Mapping[tuple[str, int], int]:
        try:
            return checkpoints.load(self.disk, name, checkpoints.parse_offsets)
        except FileNotFoundError:
            return {}

    def _load_topic_id(self, name: str, *, is_clean: bool) -> TopicId | None:
        """Give the id in a log's folder; None if there is none, or a crash has torn it."""
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


def _folder_name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def check_node(disk: Disk, node_id: int) -> None:
    """Raise WrongDirectory if the directory is another node's; before anything is opened."""
    try:
        meta = checkpoints.load(disk, META_PROPERTIES, checkpoints.parse_meta_properties)
    except FileNotFoundError:
        return
    if meta.node_id != node_id:
        raise WrongDirectory(
            f"the data directory belongs to node {meta.node_id}, not to node {node_id} (node.id)"
        )


def _own(disk: Disk, cluster_id: str, node_id: int) -> MetaProperties:
    """Read whose directory this is, or make it ours if it is nobody's."""
    try:
        meta = checkpoints.load(disk, META_PROPERTIES, checkpoints.parse_meta_properties)
    except FileNotFoundError:
        meta = MetaProperties(cluster_id, node_id, TopicId(uuid.uuid4().bytes))
        checkpoints.save(disk, META_PROPERTIES, checkpoints.format_meta_properties(meta))
    if (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
        raise WrongDirectory(
            f"the data directory belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
            f"not to node {node_id} of cluster {cluster_id}"
        )
    return meta
