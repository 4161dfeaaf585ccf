"""A node's tier over one partition: a real log on a simulated disk, a store, and metadata."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from headrace.config import LiveSettings, load_settings
from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.log.settings import LogSettings
from headrace.loop.counters import Counters
from headrace.metadata.image import Image
from headrace.metadata.state import Partition as PartitionRow
from headrace.metadata.state import ResourceType
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import RemoteSegment, SegmentState, TopicIdPartition
from headrace.replication.partition import Partition
from headrace.testing.disk import SimulatedDisk
from headrace.testing.store import SimulatedStore
from headrace.testing.virtual_loop import VirtualLoop
from headrace.tier.event_log import InProcessEventLog
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.tier import Surroundings, Tier
from headrace.tier.tiered_partition import TieredPartition
from tests.unit.log.logs import NOW_MS, batch_of, open_simulated
from tests.unit.replication.test_partition import Around
from tests.unit.tier.logs import until

T = TypeVar("T")


class LoopWithThreads(VirtualLoop):
    """A virtual loop on which what threads do takes one turn."""

    def run_in_executor(  # type: ignore[override]
        self, executor: object, work: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()

        def run() -> None:
            try:
                result = work(*arguments)
            except Exception as error:
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        self.call_soon(run)
        return done


def run_tier(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new virtual loop with threads."""
    with asyncio.Runner(loop_factory=LoopWithThreads) as runner:
        return runner.run(main)


TOPIC = TopicName("orders")
TOPIC_ID = TopicId(bytes(range(16)))
ORDERS = TopicIdPartition(TOPIC_ID, TOPIC, PartitionIndex(0))
HOUR_MS = 3_600_000
NODE_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "headrace.tier.store": "memory://",
}
LOG_SETTINGS = LogSettings(
    segment_bytes=400,
    index_interval_bytes=100,
    is_tiered=True,
    is_copied=True,
    retention_ms=10 * HOUR_MS,
    local_retention_ms=HOUR_MS,
)


class KnownTopics:
    """The part of an image that a tier looks at."""

    def __init__(self) -> None:
        self.ids: dict[TopicId, TopicName] = {TOPIC_ID: TOPIC}
        self.partition_count = 1
        self.own_configs = {"remote.storage.enable": "true"}

    def topic_by_id(self, topic_id: TopicId) -> "KnownTopics | None":
        return self if topic_id in self.ids else None

    def topic(self, name: TopicName) -> "KnownTopics | None":
        return self if name in self.ids.values() else None

    @property
    def topic_id(self) -> TopicId:
        return TOPIC_ID

    @property
    def partitions(self) -> list[int]:
        return list(range(self.partition_count))

    def configs(self, kind: ResourceType, name: str) -> dict[str, str]:
        return self.own_configs


class World:
    """What outlives a node: a store, a log of events, the topics of the cluster, the time."""

    def __init__(self, seed: int = 0) -> None:
        self.now_ms = NOW_MS
        self.store = SimulatedStore(seed, time_ms=lambda: self.now_ms)
        self.events = InProcessEventLog(3)
        self.topics = KnownTopics()
        self.quorum_topics = self.topics
        """What the quorum has decided, which an image may not have heard of."""


class TierNode:
    """A node with one partition of one topic."""

    def __init__(
        self,
        world: World,
        node: int = 1,
        *,
        disk: SimulatedDisk | None = None,
        settings: LogSettings = LOG_SETTINGS,
        given: dict[str, str] | None = None,
        start_offset: int = 0,
        is_clean: bool = True,
        recovery_point: int = 0,
    ) -> None:
        self.world = world
        self.id = BrokerId(node)
        self.disk = disk or SimulatedDisk(seed=node)
        self.log = open_simulated(
            self.disk,
            settings,
            start_offset=start_offset,
            is_clean=is_clean,
            recovery_point=recovery_point,
        )
        self.around = Around()
        self.partition = Partition(
            TOPIC, ORDERS.index, TOPIC_ID, self.log, Counters().topic(TOPIC), around=self.around
        )
        self.live = LiveSettings(load_settings(overrides={**NODE_SETTINGS, **(given or {})}))
        self.metadata = TopicMetadata(world.events, waits=MetadataWaits(consume_wait_ms=5_000))
        self.objects = SegmentObjects(world.store)
        self.checkpoints: list[int] = []

        async def checkpoint() -> None:
            self.checkpoints.append(self.log.start_offset)
            self.log.durable_start_offset = self.log.start_offset

        async def read_image() -> Image:
            return cast(Image, world.quorum_topics)

        self.tier = Tier(
            self.id,
            self.live,
            self.metadata,
            self.objects,
            Surroundings(
                now_ms=lambda: world.now_ms,
                image_of=lambda: cast(Image, world.topics),
                read_image=read_image,
                checkpoint=checkpoint,
                random=Random(node),
            ),
        )
        self.row = PartitionRow((self.id,), (self.id,), self.id, 0)

    @property
    def tiered(self) -> TieredPartition:
        return self.tier.tiered[ORDERS.key]

    async def start(self, *, epoch: int = 0, leader: int | None = None) -> None:
        await self.metadata.start()
        self.become(epoch=epoch, leader=leader)
        await self.ready()

    async def ready(self) -> None:
        await until(lambda: self.metadata.is_ready(ORDERS.key))

    def become(self, *, epoch: int, leader: int | None = None) -> None:
        """Take a role: the leader's, unless another one leads."""
        leads = BrokerId(leader or self.id)
        self.row = replace(
            self.row,
            replicas=(leads,) if leads == self.id else (leads, self.id),
            isr=(leads,),
            leader=leads,
            leader_epoch=LeaderEpoch(epoch),
        )
        self.partition.become(self.row, self.id)
        if self.partition.is_leader:
            self.tier.on_leading(self.partition)
        else:
            self.tier.on_following(self.partition)

    def stop_partition(self, *, is_deleted: bool) -> None:
        self.partition.stop()
        self.tier.on_stopped(self.partition, is_deleted=is_deleted)

    async def stop(self) -> None:
        await self.tier.stop()
        await self.metadata.stop()

    def produce(self, count: int = 1, value: bytes | None = None, **fields: int) -> None:
        """Append batches of one record each; some make a segment."""
        for _ in range(count):
            value = b"%d" % self.log.end_offset if value is None else value
            self.partition.append(
                batch_of(value, **{"timestamp": self.world.now_ms, **fields}),
                self.world.now_ms,
                needs_replicas=False,
            )

    async def run(self) -> None:
        """Flush, look, and wait until everything is done that can be done."""
        if self.log.is_writable:
            await self.log.flush()
        await self.look()

    async def look(self) -> None:
        await self.tier.look()
        await self.settle()

    async def settle(self) -> None:
        while self.tier.copiers.running_count or self.tier.expirers.running_count:
            await self.tier.copiers.settle()
            await self.tier.expirers.settle()
            await asyncio.sleep(0)

    @property
    def segments(self) -> list[RemoteSegment]:
        return list(self.metadata.segments(ORDERS.key))

    @property
    def finished(self) -> list[tuple[int, int]]:
        return [
            (each.start_offset, each.end_offset)
            for each in self.segments
            if each.state == SegmentState.COPY_FINISHED
        ]

    @property
    def sealed(self) -> list[tuple[int, int]]:
        """The finished segments on the disk that the log has not passed."""
        bases = [segment.base_offset for segment in self.log.segments]
        start = self.log.start_offset
        return [(base, after - 1) for base, after in pairwise(bases) if after > start]


@asynccontextmanager
async def running(
    world: World, node: int = 1, *, epoch: int = 0, leader: int | None = None, **options: object
) -> AsyncIterator[TierNode]:
    """Run a node that leads the partition, or follows."""
    found = TierNode(world, node, **options)  # type: ignore[arg-type]
    await found.start(epoch=epoch, leader=leader)
    try:
        yield found
    finally:
        await found.stop()


def segment_objects(world: World) -> dict[str, list[str]]:
    """Return the kinds of objects in the store by the beginning of their keys."""
    found: dict[str, list[str]] = {}
    for key in world.store.objects:
        if not key.startswith(".headrace/"):
            stem, _, kind = key.partition(".")
            found.setdefault(stem, []).append(kind)
    return found


def hidden(stored: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what is left of segments whose deletion was announced while they are leased."""
    epochs = "leader_epoch_checkpoint"
    return {stem: [kind for kind in kinds if kind != epochs] for stem, kinds in stored.items()}


def is_clean(world: World, node: TierNode) -> bool:
    """Return whether the store has what the metadata says, all of it and nothing else."""
    known = [each for each in node.segments if each.state == SegmentState.COPY_FINISHED]
    stored = segment_objects(world)
    return len(stored) == len(known) == len(node.segments) and all(
        any(
            len(kinds) >= 5 and f"{each.start_offset:020d}-" in stem
            for stem, kinds in stored.items()
        )
        for each in known
    )
