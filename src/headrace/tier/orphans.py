"""Deleting objects that belong to no segment: what leaders wrote that were deposed, and then died.

A copy is announced before its first object is written. So an object whose segment no event names,
once all events are known that were there when the store was listed, belongs to a copy that another
leader has deleted. The leader of a partition looks for such objects, at long intervals, and deletes
those that are older than a grace period: `headrace tier restore` announces what it has written.

Events may be lost as well, and then such an object may be all that is left of its records. So
nothing of a partition is deleted unless this disk and the segments that are known have the whole
log, and nothing that begins behind its end. `headrace tier fsck` reports the rest.

Nobody leads a topic that was deleted. The leader of the first partition of the metadata lists the
whole store for those. Whoever deletes a topic from the tier deletes its description last: so
objects of a topic that has one are left, and a description of a topic that has objects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from headrace.ids import TopicId, parse_topic_id
from headrace.metadata.image import Image
from headrace.remote.audit import Ages, Class, JudgedObject, Report
from headrace.remote.layout import (
    TOPICS_PREFIX,
    SegmentKey,
    parse_key,
    partition_prefix,
)
from headrace.remote.leases import Leases, read_leases
from headrace.remote.repair import carry_out, plan_repairs
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import MetadataEvent, RemoteSegment, SegmentId
from headrace.remote.store import StoredObject, StoreError
from headrace.tier.removing import LeasesUnknown
from headrace.tier.swappable import LedMetadata
from headrace.tier.tiered_partition import TieredPartition
from headrace.tier.topic_manifests import TopicManifests

FOUND_MAX: Final = 1000
"""How many objects one look deletes at most; the next one goes on."""
LOOKED_AT_A_TURN: Final = 500
"""How many objects or segments are looked at in one turn of the loop."""

Found: TypeAlias = list[tuple[StoredObject, SegmentKey]]

logger = logging.getLogger(__name__)


class Orphans:
    """Finds and deletes objects that belong to no segment."""

    def __init__(
        self,
        metadata: LedMetadata,
        objects: SegmentObjects,
        manifests: TopicManifests,
        *,
        now_ms: Callable[[], int],
        grace_ms: Callable[[], int],
        image_of: Callable[[], Image],
        read_image: Callable[[], Awaitable[Image]],
    ) -> None:
        """`read_image` returns the image after all that the quorum has decided so far."""
        self.deleted = 0
        """How many objects were deleted, and their bytes."""
        self.deleted_bytes = 0
        self._metadata = metadata
        self._objects = objects
        self._manifests = manifests
        self._now_ms = now_ms
        self._grace_ms = grace_ms
        self._image_of = image_of
        self._read_image = read_image

    async def sweep_partition(self, tiered: TieredPartition) -> None:
        """Delete what belongs to no segment of a partition that is led here.

        Raise NotLeading, NotReady, or StoreError.
        """
        found = await self._list_unknown(tiered)
        if not found:
            return
        await self._metadata.catch_up(tiered.key)
        known = await self._known_ids(tiered)
        tiered.check_leading()
        end_offset = tiered.partition.log.end_offset
        orphans = [
            (stored, key)
            for stored, key in found
            if key.id not in known and key.start_offset < end_offset
        ]
        if orphans and await self._has_all(tiered):
            await self._delete(orphans, tiered.check_leading)

    async def sweep_deleted(self) -> None:
        """Delete what is left of topics that do not exist; raise StoreError or KafkaError."""
        found: Found = []
        stored_topics: set[TopicId] = set()
        image, ages = self._image_of(), self._ages()
        described = await self._list_descriptions()
        async for page in self._objects.store.list_objects():
            for number, stored in enumerate(page, 1):
                key = parse_key(stored.key)
                if isinstance(key, SegmentKey):
                    topic_id = key.partition.topic_id
                    if image.topic_by_id(topic_id) is None:
                        stored_topics.add(topic_id)
                        if (
                            topic_id not in described
                            and ages.is_old(stored.modified_ms)
                            and len(found) < FOUND_MAX
                        ):
                            found.append((stored, key))
                if number % LOOKED_AT_A_TURN == 0:
                    await asyncio.sleep(0)
        left = {
            topic_id
            for topic_id, modified_ms in described.items()
            if ages.is_old(modified_ms)
            and topic_id not in stored_topics
            and image.topic_by_id(topic_id) is None
        }
        if not found and not left:
            return
        image = await self._read_image()
        await self._delete(
            [row for row in found if image.topic_by_id(row[1].partition.topic_id) is None],
            lambda: None,
        )
        for topic_id in sorted(left):
            if image.topic_by_id(topic_id) is None:
                await self._manifests.delete(topic_id)
                self.deleted += 1

    async def _list_descriptions(self) -> dict[TopicId, int]:
        """Return which topics the store describes, and since when."""
        described: dict[TopicId, int] = {}
        async for page in self._objects.store.list_objects(TOPICS_PREFIX):
            for number, stored in enumerate(page, 1):
                if (topic_id := _described(stored.key)) is not None:
                    described[topic_id] = stored.modified_ms
                if number % LOOKED_AT_A_TURN == 0:
                    await asyncio.sleep(0)
        return described

    async def _list_unknown(self, tiered: TieredPartition) -> Found:
        """Return old objects of a partition whose segments are not known at the moment."""
        known, ages = await self._known_ids(tiered), self._ages()
        found: Found = []
        async for page in self._objects.store.list_objects(partition_prefix(tiered.id)):
            tiered.check_leading()
            for number, stored in enumerate(page, 1):
                key = parse_key(stored.key)
                if (
                    isinstance(key, SegmentKey)
                    and key.partition.key == tiered.key
                    and key.id not in known
                    and ages.is_old(stored.modified_ms)
                    and len(found) < FOUND_MAX
                ):
                    found.append((stored, key))
                if number % LOOKED_AT_A_TURN == 0:
                    await asyncio.sleep(0)
        return found

    async def _known_ids(self, tiered: TieredPartition) -> set[SegmentId]:
        known: set[SegmentId] = set()
        for number, segment in enumerate(self._metadata.segments(tiered.key), 1):
            known.add(segment.id)
            if number % LOOKED_AT_A_TURN == 0:
                await asyncio.sleep(0)
        return known

    async def _has_all(self, tiered: TieredPartition) -> bool:
        """Return whether the segments that are known have all that is not on this disk."""
        log, lineage = tiered.partition.log, tiered.lineage
        if log.is_held or log.is_being_cut:
            return False
        offset, cuts = log.start_offset, log.cuts

        def find(epoch: int, at: int) -> RemoteSegment | None:
            return self._metadata.find(tiered.key, epoch, at)

        while offset < tiered.disk_start:
            reached = lineage.copied_up_to(offset, find, LOOKED_AT_A_TURN)
            if reached == offset:
                logger.warning(
                    "%s: objects of segments that no event names stay in the store, as offset %d "
                    "is neither on this disk nor in a segment that is known",
                    *(tiered.name, offset),
                )
                return False
            offset = reached
            await asyncio.sleep(0)
            tiered.check_leading(cuts)
        return True

    async def _delete(self, orphans: Found, check: Callable[[], None]) -> None:
        """Delete objects unless somebody reads them."""
        if not orphans:
            return
        judged = [JudgedObject(stored, Class.ORPHANED_OBJECT, "") for stored, _ in orphans]
        leases = await self._read_leases()
        for repair in plan_repairs(Report(objects=judged), leases, self._ages()).repairs:
            check()
            lease = await carry_out(repair, self._objects.store, _publish_nothing, self._now_ms())
            if lease is None:
                self.deleted += len(repair.objects)
                self.deleted_bytes += repair.freed_bytes
                logger.info("deleted %s from the tier: no event names them", repair.what)

    async def _read_leases(self) -> Leases:
        try:
            return await read_leases(self._objects.store, self._now_ms())
        except StoreError:
            raise
        except ValueError as error:
            raise LeasesUnknown(f"nothing is deleted from the tier: {error}") from error

    def _ages(self) -> Ages:
        return Ages(self._now_ms(), self._grace_ms())


def _described(key: str) -> TopicId | None:
    """Return the topic that an object describes, None if it is another object."""
    name = key.removeprefix(TOPICS_PREFIX)
    if name == key:
        return None
    try:
        return parse_topic_id(name.removesuffix(".json"))
    except ValueError:
        return None


async def _publish_nothing(event: MetadataEvent) -> None:
    raise AssertionError(f"orphans have no events: {event}")
