"""The partitions of this node, which follow the image.

A partition that is here takes its role as soon as the entry is applied that says so, and one that
left the image is out of service at once. What concerns files is done by a task: events of the
metadata log mark partitions, and the task brings each marked one in line with the current image:
create a log and take a role, or delete. So it does not matter how many entries were applied in the
meantime, and at startup everything is marked.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Final, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import (
    ZERO_TOPIC_ID,
    BrokerId,
    PartitionIndex,
    TopicId,
    TopicName,
    topic_id_text,
)
from headrace.log.folder import LogFolder, TopicPartition
from headrace.log.log import Log
from headrace.loop.counters import Counters
from headrace.metadata.applier import Outcome
from headrace.metadata.events import (
    ConfigsChanged,
    Event,
    LeaderChanged,
    PartitionsAdded,
    ReplicasChanged,
    TopicCreated,
    TopicDeleted,
)
from headrace.metadata.image import Image
from headrace.metadata.state import Partition as PartitionRow
from headrace.metadata.state import ResourceType
from headrace.replication.partition import Partition, Surroundings
from headrace.replication.remote_log import NoTier, RemoteLog
from headrace.replication.topic_settings import SettingsOfTopics, TopicSettings

SETTLED_AT_ONCE_MAX: Final = 500
"""How many partitions are set up together, sharing the syncs of their folders."""
RETRY_SECONDS: Final = 5
"""How long to wait after the disk refused a new log."""
TOLD_A_TURN: Final = 200
"""How many removed partitions are reported in one turn of the loop."""
MARKED_A_TURN: Final = 2_000
"""How many partitions are checked in one turn of the loop when all are marked."""
RELEASED_A_TURN: Final = 20
"""How many logs are closed for deletion in one turn of the loop."""
BEGUN_A_TURN: Final = 50
"""How many new logs get their settings in one turn of the loop."""
NAMED_MAX: Final = 5
"""How many partitions a log line names."""

logger = logging.getLogger(__name__)


class RoleListener(Protocol):
    """Acts on this node's role for a partition: coordinators, and followers' fetchers."""

    def on_leading(self, partition: Partition) -> None:
        """Handle that this node now leads the partition, in the partition's epoch."""

    def on_following(self, partition: Partition) -> None:
        """Handle that another node now leads the partition."""

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        """Handle that this node no longer has the partition."""


class Replicas:
    """Partitions by name and by id."""

    def __init__(
        self,
        node_id: BrokerId,
        folder: LogFolder,
        image_of: Callable[[], Image],
        settings_of: Callable[[TopicName], TopicSettings],
        counters: Counters,
        *,
        around: Surroundings,
        remote: RemoteLog | None = None,
    ) -> None:
        self.remote: RemoteLog = remote or NoTier()
        """The part of the logs that is in the tier."""
        self.listeners: list[RoleListener] = []
        self.before_deletion: list[Callable[[Log], Awaitable[None]]] = []
        """Awaited before a log's files are deleted, so that threads stop working on them."""
        self._node_id = node_id
        self._folder = folder
        self._image_of = image_of
        self._settings = SettingsOfTopics(settings_of, self._partitions_of)
        self._counters = counters
        self._around = around
        self._by_name: dict[TopicPartition, Partition] = {}
        self._by_id: dict[tuple[TopicId, int], Partition] = {}
        self._marked: dict[TopicPartition, None] = {}
        self._is_all_due = False
        """Whether to mark everything."""
        self._is_marking = False
        """Whether everything is being marked."""
        self._stopped: deque[tuple[Partition, bool]] = deque()
        """Partitions out of service whose listeners were not notified yet; whether deleted."""
        self._telling: asyncio.Handle | None = None
        self._settling: asyncio.Task[None] | None = None
        self._begun = 0
        """How many of those marked were begun to be brought in line, and how many are."""
        self._done = 0
        self._progress: asyncio.Future[None] | None = None
        """Resolved when more are done; None while nobody waits."""
        self._is_stopped = False

    # Looking up

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def image(self) -> Image:
        """The image that the partitions follow."""
        return self._image_of()

    def find(self, topic: TopicName, index: int) -> Partition | None:
        return self._by_name.get((topic, index))  # type: ignore[arg-type]

    def find_by_id(self, topic_id: TopicId, index: int) -> Partition | None:
        return self._by_id.get((topic_id, index))

    def find_wanted(self, topic_id: TopicId, topic: TopicName, index: int) -> Partition | None:
        """Look up by id, or by name if the id is zero."""
        if topic_id != ZERO_TOPIC_ID:
            return self._by_id.get((topic_id, index))
        return self._by_name.get((topic, index))  # type: ignore[arg-type]

    def find_leader(self, topic: TopicName, index: int, leader_epoch: int) -> Partition:
        """Return a partition that this node leads in an epoch, or raise KafkaError.

        A `leader_epoch` of -1 means any.
        """
        return self.find_replica(topic, index, leader_epoch, is_leader_needed=True)

    def find_replica(
        self, topic: TopicName, index: int, leader_epoch: int, *, is_leader_needed: bool
    ) -> Partition:
        """Return a partition in a leader epoch, or raise KafkaError; -1 means any epoch."""
        partition = self.find(topic, index)
        if partition is None:
            raise self.explain_missing(topic, index)
        if (code := partition.check_leader_epoch(leader_epoch)) != ErrorCode.NONE:
            raise KafkaError(code, f"{partition.name} is in leader epoch {partition.leader_epoch}")
        if is_leader_needed and not partition.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is led by {partition.leader}"
            )
        return partition

    def explain_missing(self, topic: TopicName, index: int) -> KafkaError:
        """Return why a partition is not here, by its topic's name."""
        image = self._image_of()
        if image.partition(topic, PartitionIndex(index)) is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
            )
        if (error := self._folder.offline.get((topic, PartitionIndex(index)))) is not None:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.message)
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not on node {self._node_id}"
        )

    def explain_missing_id(self, topic_id: TopicId, index: int) -> KafkaError:
        """Return why a partition is not here, by its topic's id."""
        topic = self._image_of().topic_by_id(topic_id)
        if topic is None:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic {topic_id_text(topic_id)}"
            )
        return self.explain_missing(topic.name, index)

    # Changing

    def on_outcome(self, outcome: Outcome) -> None:
        """Mark what an entry of the metadata log changed."""
        for event in outcome.events:
            self._take_note(event)
        if self._telling is None:
            self._tell_of_stopped()
        self._settings.apply()
        if self._marked:
            self._start_settling()

    def mark_all(self) -> None:
        """Mark everything: at startup, or when the image was replaced."""
        self._is_all_due = True
        # Partitions get their settings with their roles: a former leader must not go by new ones.
        self._settings.note_all_changed(())
        self._start_settling()

    async def settle(self) -> None:
        """Wait until every partition matches the image as it is now.

        What changes later is not waited for: others may change partitions all the time.
        """
        while self._settling is not None and (self._is_all_due or self._is_marking):
            await self._wait_for_progress()
        due = self._begun + len(self._marked)
        while self._settling is not None and self._done < due:
            await self._wait_for_progress()

    async def _wait_for_progress(self) -> None:
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._progress)

    def _tell_of_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None and not progress.done():
            progress.set_result(None)

    async def stop(self) -> None:
        """Stop following the image."""
        self._is_stopped = True
        while self._settling is not None:
            await asyncio.shield(self._settling)

    def _take_note(self, event: Event) -> None:
        match event:
            case TopicCreated(name=name):
                topic = self._image_of().topic(name)
                count = len(topic.partitions) if topic is not None else 0
                self._mark(name, range(count))
            case PartitionsAdded(name=name, first=first, end=end):
                self._mark(name, range(first, end))
            case (
                LeaderChanged(name=name, partition=index)
                | ReplicasChanged(name=name, partition=index)
            ):
                if not self._take_role_now(name, index):
                    self._mark(name, range(index, index + 1))
            case TopicDeleted(name=name, topic_id=topic_id, partition_count=count):
                for each in range(count):
                    self._withdraw(name, topic_id, PartitionIndex(each))
                self._mark(name, range(count))
                self._counters.topics.pop(name, None)
                self._settings.forget(name)
            case ConfigsChanged(resource_type=ResourceType.TOPIC, resource_name=name):
                self._settings.note_changed(TopicName(name))
            case ConfigsChanged(resource_type=ResourceType.BROKER):
                self._settings.note_all_changed(topic for topic, _ in self._by_name)

    def _take_role_now(self, topic: TopicName, index: PartitionIndex) -> bool:
        """Apply the role of a partition here; return False if it does not stay."""
        partition, row = self._by_name.get((topic, index)), self._row((topic, index))
        known = self._image_of().topic(topic)
        if partition is None or known is None or known.topic_id != partition.topic_id:
            return False
        if row is None:  # it has moved away: its files may wait, its leadership not
            self._withdraw(*_place(partition), is_deleted=False)
            return False
        self._take_role(partition, row)
        return True

    def _mark(self, topic: TopicName, indexes: range) -> None:
        for index in indexes:
            self._marked[topic, PartitionIndex(index)] = None

    def _withdraw(
        self,
        topic: TopicName,
        topic_id: TopicId,
        index: PartitionIndex,
        *,
        is_deleted: bool = True,
    ) -> None:
        """Take a partition out of service; its log stays."""
        partition = self._by_id.pop((topic_id, index), None)
        if partition is None:
            return
        del self._by_name[topic, index]
        partition.stop()
        self._stopped.append((partition, is_deleted))

    def _tell_of_stopped(self) -> None:
        """Notify listeners of some partitions that were taken out of service.

        The rest waits for the next turn. No partition of the same name takes a role before.
        """
        self._telling = None
        for _ in range(min(len(self._stopped), TOLD_A_TURN)):
            partition, is_deleted = self._stopped.popleft()
            partition.tell_of_change()
            for listener in self.listeners:
                listener.on_stopped(partition, is_deleted=is_deleted)
        if self._stopped:
            self._telling = asyncio.get_running_loop().call_soon(self._tell_of_stopped)

    def _start_settling(self) -> None:
        if self._settling is None and not self._is_stopped:
            self._settling = asyncio.get_running_loop().create_task(self._settle_all())

    async def _settle_all(self) -> None:
        try:
            while (self._marked or self._is_all_due) and not self._is_stopped:
                if self._is_all_due:
                    self._is_all_due, self._is_marking = False, True
                    await self._mark_everything()
                    self._is_marking = False
                keys = list(islice(self._marked, SETTLED_AT_ONCE_MAX))
                for key in keys:
                    del self._marked[key]
                self._begun += len(keys)
                await self._settle_some(keys)
                self._done += len(keys)
                self._tell_of_progress()
                await asyncio.sleep(0)
        finally:
            self._settling, self._is_marking = None, False
            self._begun = self._done
            self._tell_of_progress()

    async def _mark_everything(self) -> None:
        folder = self._folder
        for held in (self._by_name, folder.logs, folder.offline, folder.released):
            self._marked.update(dict.fromkeys(held))
        looked_at = 0
        for topic in tuple(self._image_of().topics()):
            for index, row in enumerate(tuple(topic.partitions)):
                if self._node_id in row.replicas:
                    self._marked[topic.name, PartitionIndex(index)] = None
                looked_at += 1
                if looked_at % MARKED_A_TURN == 0:
                    await asyncio.sleep(0)

    async def _settle_some(self, keys: list[TopicPartition]) -> None:
        """Make some partitions match the image."""
        stale = [key for key in keys if self._is_stale(key)]
        for key in keys:
            partition = self._by_name.get(key)
            if partition is not None and not self._is_wanted(key):
                is_deleted = self._image_of().topic_by_id(partition.topic_id) is None
                self._withdraw(*_place(partition), is_deleted=is_deleted)
        while self._stopped:
            self._tell_of_stopped()
            await asyncio.sleep(0)
        await self._delete_logs(stale)
        await self._begin_logs([key for key in keys if self._is_missing(key)])
        await self._name_logs([key for key in keys if self._is_nameless(key)])
        for key in keys:
            # Partitions deleted while files were created are marked again.
            log = self._folder.logs.get(key)
            if log is not None and key in self._folder.topic_ids and self._is_wanted(key):
                self._take_place(key, log)

    def _row(self, key: TopicPartition) -> PartitionRow | None:
        """Return a partition's row of the image if it belongs here."""
        row = self._image_of().partition(*key)
        return row if row is not None and self._node_id in row.replicas else None

    def _is_wanted(self, key: TopicPartition) -> bool:
        """Return whether the local log or replica is the one in the image."""
        if self._row(key) is None:
            return False
        topic = self._image_of().topic(key[0])
        partition = self._by_name.get(key)
        known_id = partition.topic_id if partition is not None else self._folder.topic_ids.get(key)
        return topic is not None and known_id in (None, topic.topic_id)

    def _is_stale(self, key: TopicPartition) -> bool:
        """Return whether a folder of that name must be deleted."""
        is_released = key in self._folder.released
        return is_released or (self._is_held(key) and not self._is_wanted(key))

    def _is_held(self, key: TopicPartition) -> bool:
        """Return whether there is a folder of that name, in service or not."""
        folder = self._folder
        return key in folder.logs or key in folder.offline or key in folder.released

    def _is_missing(self, key: TopicPartition) -> bool:
        return self._row(key) is not None and not self._is_held(key)

    def _is_nameless(self, key: TopicPartition) -> bool:
        """Return whether a crash came before the log's topic id was on disk."""
        is_held = key in self._folder.logs or key in self._folder.offline
        return is_held and key not in self._folder.topic_ids and self._is_wanted(key)

    async def _delete_logs(self, keys: list[TopicPartition]) -> None:
        if not keys:
            return
        for number, key in enumerate(keys, 1):
            log = self._folder.logs.get(key)
            if log is not None:
                for end_work in self.before_deletion:
                    await end_work(log)
                await log.finish_flush()
            if key not in self._folder.released:
                self._folder.release(key)
            if number % RELEASED_A_TURN == 0:
                await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._folder.set_aside, keys)
        except OSError as error:
            left = [key for key in keys if key in self._folder.released]
            logger.error("files of %d deleted partitions stay for now: %s", len(left), error)
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._mark_again, left)
        else:
            names = ", ".join(f"{topic}-{index}" for topic, index in keys[:NAMED_MAX])
            logger.info("deleted %d partitions: %s", len(keys), names)

    async def _begin_logs(self, keys: list[TopicPartition]) -> None:
        if not keys:
            return
        asked = []
        for number, key in enumerate(keys, 1):
            topic = self._image_of().topic(key[0])  # not one that was deleted in the meantime
            if topic is not None:
                asked.append((key, topic.topic_id, self._settings.of(key[0]).log))
            if number % BEGUN_A_TURN == 0:
                await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        try:
            logs = await loop.run_in_executor(None, self._folder.begin_all, asked)
        except OSError as error:
            self._try_later(keys, error)
            return
        for (key, topic_id, _), log in zip(asked, logs, strict=True):
            self._folder.adopt(key, topic_id, log)

    async def _name_logs(self, keys: list[TopicPartition]) -> None:
        """Write the topic ids of logs; for one that did not open, only remember it."""
        loop = asyncio.get_running_loop()
        for key in keys:
            topic = self._image_of().topic(key[0])
            if topic is None:
                continue
            if key in self._folder.offline:
                self._folder.topic_ids[key] = topic.topic_id
                continue
            try:
                await loop.run_in_executor(None, self._folder.save_topic_id, key, topic.topic_id)
            except OSError as error:
                self._try_later([key], error)

    def _try_later(self, keys: list[TopicPartition], error: OSError) -> None:
        logger.error("%d partitions cannot be set up, to be tried again: %s", len(keys), error)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._mark_again, keys)

    def _mark_again(self, keys: list[TopicPartition]) -> None:
        self._marked.update(dict.fromkeys(keys))
        self._start_settling()

    def _take_place(self, key: TopicPartition, log: Log) -> None:
        row, topic = self._row(key), self._image_of().topic(key[0])
        assert row is not None
        assert topic is not None
        partition = self._by_name.get(key)
        if partition is None:
            self._take_role(self._add(key, topic.topic_id, log), row)
        else:
            self._take_role(partition, row)
            self._settings.configure(partition)

    def _add(self, key: TopicPartition, topic_id: TopicId, log: Log) -> Partition:
        topic, index = key
        partition = Partition(
            topic, index, topic_id, log, self._counters.topic(topic), around=self._around
        )
        self._settings.configure(partition)
        self._by_name[key] = partition
        self._by_id[topic_id, index] = partition
        return partition

    def _partitions_of(self, topic: TopicName) -> Iterator[Partition]:
        """Yield this node's partitions of a topic."""
        row = self._image_of().topic(topic)
        for index in range(0 if row is None else len(row.partitions)):
            partition = self._by_name.get((topic, PartitionIndex(index)))
            if partition is not None:
                yield partition

    def _take_role(self, partition: Partition, row: PartitionRow) -> None:
        was = partition.leader, partition.leader_epoch
        # Both at once: with the former value of either, what must not be might be committed.
        min_insync_replicas = self._settings.of(partition.topic).min_insync_replicas
        partition.become(row, self._node_id, min_insync_replicas)
        if was == (row.leader, row.leader_epoch):
            return
        for listener in self.listeners:
            if partition.is_leader:
                listener.on_leading(partition)
            else:
                listener.on_following(partition)


def _place(partition: Partition) -> tuple[TopicName, TopicId, PartitionIndex]:
    return partition.topic, partition.topic_id, partition.index
