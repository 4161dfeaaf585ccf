"""The tier of a node: what it does about the partitions that it has, at regular intervals.

    tier = Tier(node_id, settings, metadata, objects, surroundings)
    replicas.listeners.append(tier)
    replicas.before_deletion.append(tier.abandon)
    tier.start()

Leaders copy and delete; followers only learn what is in the tier, so that they free their disks.
Copies and deletions of different partitions do not wait for each other.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Final
from weakref import WeakKeyDictionary, ref

import msgspec

from headrace import config
from headrace.config import LiveSettings
from headrace.errors import HeadraceError
from headrace.ids import REMOTE_METADATA_TOPIC, BrokerId
from headrace.log.log import Log
from headrace.loop.slices import Slice
from headrace.loop.tasks import Tasks
from headrace.metadata.image import Image
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import PartitionKey
from headrace.replication.partition import Partition
from headrace.tier.adopting import Adopter
from headrace.tier.backoff import Backoff
from headrace.tier.copying import Copier
from headrace.tier.crew import Crew
from headrace.tier.deleted_topics import DeletedTopics
from headrace.tier.expiring import Expirer
from headrace.tier.orphans import Orphans
from headrace.tier.ports import NotReady
from headrace.tier.removing import Remover
from headrace.tier.swappable import LedMetadata
from headrace.tier.tiered_partition import NotLeading, TieredPartition
from headrace.tier.topic_manifests import TopicManifests

PARTITIONS_A_TURN: Final = 20
"""How many partitions are looked at in one turn of the loop."""

FIRST_METADATA_PARTITION: Final = 0
"""Whoever leads it looks after topics that nobody leads."""
HELD_CHECK_SECONDS: Final = 0.1
HELD_UNITS: Final = 10
"""What it costs to release a held log, in units of a slice."""
"""How often it is looked whether partitions that are held may go on."""

logger = logging.getLogger(__name__)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier needs of its node."""

    now_ms: Callable[[], int]
    image_of: Callable[[], Image]
    read_image: Callable[[], Awaitable[Image]]
    """Returns the image after all that the quorum has decided so far."""
    checkpoint: Callable[[], Awaitable[None]]
    """Makes the starts of logs durable."""
    random: Random


class Tier:
    """Copies segments to the tier and deletes them there."""

    def __init__(
        self,
        node_id: BrokerId,
        settings: LiveSettings,
        metadata: LedMetadata,
        objects: SegmentObjects,
        around: Surroundings,
    ) -> None:
        self.metadata = metadata
        self.objects = objects
        self._settings = settings
        self._now_ms = around.now_ms
        self._partitions: dict[PartitionKey, Partition] = {}
        """All partitions of this node: any topic may enter the tier."""
        self.tiered: dict[PartitionKey, TieredPartition] = {}
        self._of_logs: WeakKeyDictionary[Log, list[ref[TieredPartition]]] = WeakKeyDictionary()
        """The partitions that there may be work for, one for each role that a log's has had."""
        self._led_metadata: set[int] = set()
        """The partitions of the metadata topic that this node leads."""
        self.store_problem: str | None = None
        """Why nothing is copied or deleted yet, if so: the store is not known to be ours."""
        self.sweep_error: str | None = None
        """Why deleted topics stay in the tier, if so."""
        self.orphan_error: str | None = None
        """Why objects that belong to no segment were not looked for everywhere, if so."""
        self.is_starting = False
        """Whether the partitions that come are those that this node had before its start."""
        self.on_left: list[Callable[[PartitionKey], None]] = []
        """Called when this node has a partition no more."""
        self._is_following_due = False
        self._held: dict[PartitionKey, TieredPartition] = {}
        """Partitions that take no records until it is known what the tier has of them."""
        self._has_held = asyncio.Event()
        self._tasks = Tasks()
        self.remover = Remover(node_id, metadata, objects, around.now_ms)
        self.copier = Copier(
            node_id, settings, metadata, objects, self.remover, now_ms=around.now_ms
        )
        self.expirer = Expirer(
            node_id,
            metadata,
            self.remover,
            objects.store,
            now_ms=around.now_ms,
            checkpoint=around.checkpoint,
            copies=self.copier.under_way,
        )
        self.adopter = Adopter(metadata, objects)
        self.manifests = TopicManifests(
            objects, around.now_ms, image_of=around.image_of, read_image=around.read_image
        )
        self.deleted_topics = DeletedTopics(
            node_id,
            metadata,
            self.remover,
            self.manifests,
            image_of=around.image_of,
            read_image=around.read_image,
            now_ms=around.now_ms,
        )
        self.orphans = Orphans(
            metadata,
            objects,
            self.manifests,
            now_ms=around.now_ms,
            grace_ms=lambda: settings[config.TIER_ORPHAN_GRACE_MS],
            image_of=around.image_of,
            read_image=around.read_image,
        )
        self._chance = around.random.random
        backoff = Backoff(
            settings[config.REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS],
            settings[config.REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS],
            settings[config.REMOTE_LOG_MANAGER_TASK_RETRY_JITTER],
        )
        self.copiers = Crew(
            "copying to the tier",
            self._copy,
            limit=lambda: settings[config.REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE],
            backoff=backoff,
            chance=around.random.random,
        )
        self.expirers = Crew(
            "deleting from the tier",
            self.expirer.expire,
            limit=lambda: settings[config.REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE],
            backoff=backoff,
            chance=around.random.random,
        )
        self.adopters = Crew(
            "taking over from the tier",
            self.adopter.adopt,
            limit=lambda: settings[config.REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE],
            backoff=backoff,
            chance=around.random.random,
        )
        metadata.on_changed.append(self._on_changed)

    def watch(self) -> None:
        """Begin to find out what the tier has of partitions that are held."""
        self.is_starting = False
        self._tasks.start(self._release_held())

    async def _release_held(self) -> None:
        while True:
            await self._has_held.wait()
            current = Slice()
            for key, tiered in tuple(self._held.items()):
                if current.spend(HELD_UNITS):
                    await asyncio.sleep(0)
                if self._held.get(key) is not tiered:
                    continue  # since a turn before
                if self.metadata.is_ready(key):
                    if self.adopter.concerns(tiered):
                        self.adopters.call(tiered)
                    else:
                        tiered.partition.log.release()
                if not tiered.partition.log.is_held:
                    self._held.pop(key, None)
            if not self._held:
                self._has_held.clear()
            await asyncio.sleep(HELD_CHECK_SECONDS)

    def start(self) -> None:
        """Begin; the first look comes after remote.log.manager.task.interval.ms."""
        self._tasks.start(self._look_regularly())
        self._tasks.start(self._sweep_regularly())
        self._tasks.start(self._sweep_orphans_regularly())

    async def stop(self) -> None:
        """Stop; copies under way are given up, and deleted when a leader next looks."""
        for tiered in self.tiered.values():
            tiered.is_stopped = True
        await self._tasks.stop()
        await asyncio.gather(self.copiers.stop(), self.expirers.stop(), self.adopters.stop())
        if self._on_changed in self.metadata.on_changed:
            self.metadata.on_changed.remove(self._on_changed)

    # Roles (replication.replicas.RoleListener)

    def on_leading(self, partition: Partition) -> None:
        """Take care of a partition as its leader."""
        self._take(partition)

    def on_following(self, partition: Partition) -> None:
        """Learn what the leader of a partition does."""
        self._take(partition)

    def on_stopped(self, partition: Partition, *, is_deleted: bool) -> None:
        """Leave a partition that this node has no more."""
        key = partition.topic_id, partition.index
        self._partitions.pop(key, None)
        if partition.topic == REMOTE_METADATA_TOPIC:
            self._lead_metadata(partition.index, is_led=False)
        self._leave(key)
        for forget in self.on_left:
            forget(key)

    async def abandon(self, log: Log) -> None:
        """Return when nobody reads a log's files any more: they are about to be deleted."""
        for each in self._of_logs.pop(log, ()):
            if (tiered := each()) is not None:
                tiered.is_stopped = True
                for crew in (self.copiers, self.expirers, self.adopters):
                    await crew.dismiss(tiered)

    def _take(self, partition: Partition) -> None:
        key = partition.topic_id, partition.index
        self._partitions[key] = partition
        if partition.topic == REMOTE_METADATA_TOPIC:
            self._lead_metadata(partition.index, is_led=partition.is_leader)
        self._leave(key)
        self._enter(key, partition)

    def _enter(self, key: PartitionKey, partition: Partition) -> None:
        if _concerns_tier(partition):
            tiered = self.tiered[key] = TieredPartition(partition)
            known = self._of_logs.get(partition.log, ())
            self._of_logs[partition.log] = [*(each for each in known if each()), ref(tiered)]
            if self.adopter.holds(tiered, is_start=self.is_starting):
                self._held[key] = tiered
                self._has_held.set()
            self._follow_soon()

    def _leave(self, key: PartitionKey) -> None:
        tiered = self.tiered.pop(key, None)
        if tiered is not None:
            if self._held.pop(key, None) is not None:
                tiered.partition.log.release()
            tiered.is_stopped = True
            self.manifests.forget(tiered.id.topic_id)
            self._follow_soon()

    def _lead_metadata(self, index: int, *, is_led: bool) -> None:
        (self._led_metadata.add if is_led else self._led_metadata.discard)(index)
        self._follow_soon()

    def _follow_soon(self) -> None:
        """Subscribe to what this node needs, once for all changes of a turn of the loop."""
        if not self._is_following_due:
            self._is_following_due = True
            asyncio.get_running_loop().call_soon(self._follow)

    def _follow(self) -> None:
        self._is_following_due = False
        self.metadata.lead(sorted(self._led_metadata))
        self.metadata.follow([tiered.id for tiered in self.tiered.values()])

    # Looking

    async def look(self) -> None:
        """Look at every partition, and have copied and deleted what is to be."""
        for number, (key, partition) in enumerate(tuple(self._partitions.items()), 1):
            if self._partitions.get(key) is partition:
                self._check_settings(key, partition)
                if (tiered := self.tiered.get(key)) is not None:
                    self._consider(tiered)
            if number % PARTITIONS_A_TURN == 0:
                await asyncio.sleep(0)

    def _check_settings(self, key: PartitionKey, partition: Partition) -> None:
        """Follow a topic that enters the tier, or has left it."""
        if _concerns_tier(partition) != (key in self.tiered):
            self._leave(key)
            self._enter(key, partition)

    def _consider(self, tiered: TieredPartition) -> None:
        """Call those who have something to do for a partition."""
        if not self.metadata.is_ready(tiered.key):
            return
        if not tiered.is_leader:
            self._learn(tiered)
            return
        if self.adopter.concerns(tiered):
            self.adopters.call(tiered)
            return
        if self.copier.next_segment(tiered) is not None or self._is_manifest_due(tiered):
            self.copiers.call(tiered)
        if self.expirer.is_due(tiered):
            self.expirers.call(tiered)

    def _on_changed(self, key: PartitionKey) -> None:
        """Handle an event in the metadata of a partition."""
        tiered = self.tiered.get(key)
        if tiered is not None:
            tiered.has_changed = True
            self._learn(tiered)

    def _learn(self, tiered: TieredPartition) -> None:
        try:
            tiered.learn_remote_end(self.metadata)
        except NotReady:
            logger.debug("%s: the tier is not ready", tiered.name)

    async def _copy(self, tiered: TieredPartition) -> None:
        await self.copier.copy_all(tiered)
        if self._is_manifest_due(tiered):
            await self.manifests.write(tiered.id.topic)

    def _is_manifest_due(self, tiered: TieredPartition) -> bool:
        """Return whether a topic is to be described in the store.

        Only one that has something there: the events about that let it be found when the topic is
        deleted, and with it the description.
        """
        return (
            tiered.partition.log.settings.is_tiered
            and self.manifests.is_due(tiered.id.topic)
            and len(self.metadata.segments(tiered.key)) > 0
        )

    async def sweep(self) -> None:
        """Delete what deleted topics left, as far as this node has to."""
        await self.manifests.check_written()
        await self.deleted_topics.sweep(sorted(self._led_metadata))

    async def _look_regularly(self) -> None:
        while True:
            await self._rest()
            await self.look()

    async def _sweep_regularly(self) -> None:
        while True:
            await self._rest()
            try:
                await self.sweep()
                self.sweep_error = None
            except (HeadraceError, OSError) as error:
                if str(error) != self.sweep_error:
                    logger.warning("deleted topics stay in the tier for now: %s", error)
                self.sweep_error = str(error)

    async def sweep_orphans(self) -> None:
        """Delete objects that belong to no segment, of one partition after the other."""
        errors: list[str] = []
        for tiered in self:
            if tiered.is_leader and self.metadata.is_ready(tiered.key):
                try:
                    await self.orphans.sweep_partition(tiered)
                except NotLeading as error:
                    logger.info("a look for orphans ends: %s", error)
                except (HeadraceError, OSError) as error:
                    errors.append(f"{tiered.name}: {error}")
        if FIRST_METADATA_PARTITION in self._led_metadata:
            try:
                await self.orphans.sweep_deleted()
            except (HeadraceError, OSError) as error:
                errors.append(f"deleted topics: {error}")
        error_text = errors[0] if errors else None
        if error_text is not None and error_text != self.orphan_error:
            logger.warning("orphans in the tier are looked for again later: %s", error_text)
        self.orphan_error = error_text

    async def _sweep_orphans_regularly(self) -> None:
        share = self._chance()  # nodes that start together do not list the store together
        while True:
            interval_ms = self._settings[config.TIER_ORPHAN_INTERVAL_MS]
            await asyncio.sleep(share * interval_ms / 1000)
            await self.sweep_orphans()
            share = 1.0

    async def _rest(self) -> None:
        await asyncio.sleep(self._settings[config.REMOTE_LOG_MANAGER_TASK_INTERVAL_MS] / 1000)

    def __iter__(self) -> Iterator[TieredPartition]:
        return iter(tuple(self.tiered.values()))


def _concerns_tier(partition: Partition) -> bool:
    """Return whether a partition is in the tier, or something of it may be."""
    settings = partition.log.settings
    return settings.is_tiered or settings.remote_delete_on_disable
