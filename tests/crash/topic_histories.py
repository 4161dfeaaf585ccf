"""A node's partitions on a disk that may lose power, while topics are deleted and made again.

The metadata log is not part of this: what it says is durable before the partitions hear of it.
Threads are played by a seeded executor that does the work of one at a time, on the loop, some turns
later: other threads and the loop come in between, and each seed is the same history every time.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from itertools import count
from random import Random
from typing import Any, NamedTuple

from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.log.cutting import delete_records
from headrace.log.folder import LogFolder
from headrace.log.log import Log
from headrace.log.settings import LogSettings
from headrace.loop.counters import Counters
from headrace.metadata.applier import Outcome
from headrace.metadata.entries import Entry
from headrace.metadata.events import TopicCreated, TopicDeleted
from headrace.metadata.image import Image
from headrace.metadata.state import Partition as PartitionRow
from headrace.metadata.state import Topic
from headrace.replication.isr_changes import IsrChanges
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.replication.topic_settings import TopicSettings
from headrace.testing.disk import CHANGES, Operation, SimulatedDisk
from tests.unit.log.logs import append, values_of

ROLLED = LogSettings(segment_bytes=400, index_interval_bytes=100)
COMPACTED = LogSettings(is_compacted=True)
"""One segment: what a crash takes out of the middle of several looks as compaction leaves it."""
ME = BrokerId(1)
TURNS = (1, 2, 5)
"""How long threads take."""
SLOW_TURNS = 30
"""Longer than a topic takes to be made again."""


class _NoQuorum:
    """Nobody proposes: every partition has one replica."""

    async def propose_for_outcome(self, change: Entry) -> Outcome:
        raise NotImplementedError


class Promises:
    """What one topic of the history was told, from its creation to its deletion."""

    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self.appended: list[bytes] = []
        self.flushed_count = 0
        self.asked_start = 0
        self.promised_start = 0


class Moment(NamedTuple):
    """A node right before a change of its disk, at which power may be lost."""

    disk: SimulatedDisk
    settings: LogSettings
    image: Image
    promises: dict[TopicName, Promises]

    def crashed(self, seed: int) -> "Node":
        """Return the node that starts after the power was lost."""
        disk = self.disk.clone(seed)
        disk.crash()
        node = Node(disk, self.settings, Image(deepcopy(self.image.state)))
        node.promises = deepcopy(self.promises)
        return node


class FilmedDisk(SimulatedDisk):
    """A disk that tells of every change before it is made."""

    on_change: Callable[[], None] | None = None

    def begin(self, operation: Operation, path: str) -> bool:
        if operation in CHANGES and self.on_change is not None:
            self.on_change()
        return super().begin(operation, path)


class Node:
    """Partitions and their folder."""

    def __init__(
        self, disk: SimulatedDisk, settings: LogSettings, image: Image | None = None
    ) -> None:
        self.disk = disk
        self.settings = settings
        self.image = image or Image()
        self.promises: dict[TopicName, Promises] = {}
        self.lookups = 0
        """How often a topic's settings were looked up."""
        self._numbers = count(self.image.state.next_vshard + 1)
        self.start()

    def moment(self) -> Moment:
        image = Image(deepcopy(self.image.state))
        return Moment(self.disk.clone(), self.settings, image, deepcopy(self.promises))

    def start(self) -> None:
        """Open what is there, as a node does; `settle` then."""
        self.folder = LogFolder.open(self.disk, lambda _: self.settings, cluster_id="c", node_id=1)
        self.replicas = Replicas(
            ME,
            self.folder,
            lambda: self.image,
            self._look_up_settings,
            Counters(),
            around=IsrChanges(lambda: self.image, _NoQuorum(), lambda: 30_000, Counters()),
        )

    def _look_up_settings(self, _: TopicName) -> TopicSettings:
        self.lookups += 1
        return TopicSettings(self.settings, 1)

    async def settle(self) -> None:
        self.replicas.mark_all()
        await self.replicas.settle()

    def run(self, work: Coroutine[Any, Any, None], seed: int = 0) -> None:
        """Run a part of the history with the threads of a seed."""
        self.threads = TurnExecutor(seed)

        async def main() -> None:
            asyncio.get_running_loop().set_default_executor(self.threads)
            await work

        asyncio.run(main())

    # What happens to topics

    def create(self, name: TopicName, partition_count: int = 1) -> None:
        topic_id = TopicId(next(self._numbers).to_bytes(16))
        rows = [
            PartitionRow((ME,), (ME,), ME, self.image.next_vshard()) for _ in range(partition_count)
        ]
        self.image.add_topic(Topic(name, topic_id, rows))
        self.promises[name] = Promises(topic_id)
        self.replicas.on_outcome(Outcome(1, (TopicCreated(name, topic_id),)))

    def delete(self, name: TopicName) -> None:
        topic = self.image.topic(name)
        assert topic is not None
        self.image.remove_topic(topic)
        del self.promises[name]
        self.replicas.on_outcome(
            Outcome(1, (TopicDeleted(name, topic.topic_id, len(topic.partitions)),))
        )

    def append(self, name: TopicName, how_many: int) -> None:
        log, promises = self.log(name), self.promises[name]
        for _ in range(how_many):
            number = len(promises.appended)
            value = b"%s of topic %d, number %d" % (name.encode(), promises.topic_id[-1], number)
            append(log, value)
            promises.appended.append(value)
        log.advance_high_watermark(log.end_offset)

    async def flush(self, name: TopicName) -> None:
        promises, appended_count = self.promises[name], len(self.promises[name].appended)
        await self.log(name).flush()
        promises.flushed_count = appended_count

    async def delete_records(self, name: TopicName, offset: int) -> None:
        promises = self.promises[name]
        promises.asked_start = offset
        delete_records(self.log(name), offset)
        await self.folder.checkpoint()
        promises.promised_start = offset

    def log(self, name: TopicName) -> Log:
        return self.partition(name).log

    def partition(self, name: TopicName) -> Partition:
        partition = self.replicas.find(name, 0)
        assert partition is not None, f"{name} is not in service"
        return partition

    # What must hold

    def check(self, names: tuple[TopicName, ...], where: str) -> None:
        """Assert that nothing promised is lost and nothing of a deleted topic is back."""
        assert self.folder.offline == {}, where
        for name in names:
            promises = self.promises.get(name)
            if promises is None:
                assert self.replicas.find(name, 0) is None, where
                assert (name, PartitionIndex(0)) not in self.folder.logs, where
                continue
            log = self.log(name)
            assert self.partition(name).topic_id == promises.topic_id, where
            assert promises.promised_start <= log.start_offset <= promises.asked_start, where
            assert log.end_offset >= promises.flushed_count, where
            kept = promises.appended[log.start_offset : log.end_offset]
            assert values_of(log) == kept, f"{where}: {name} {log.start_offset} to {log.end_offset}"


class TurnExecutor(ThreadPoolExecutor):
    """Does what threads would do, one after the other, after some turns of the loop."""

    def __init__(self, seed: int) -> None:
        super().__init__(1)
        self.is_next_slow = False
        self._random = Random(seed)

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        loop = asyncio.get_running_loop()

        def wait(turns: int) -> None:
            if turns:
                loop.call_soon(wait, turns - 1)
                return
            try:
                future.set_result(work(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        wait(SLOW_TURNS if self.is_next_slow else self._random.choice(TURNS))
        self.is_next_slow = False
        return future
