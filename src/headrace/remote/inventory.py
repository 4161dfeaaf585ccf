"""What an audit needs to know: the events before and after a listing of the store.

An event comes before what it announces. So the store is listed between two readings of the events:
an object that is listed has its event in the second one, and a segment that was finished in the
first one has its objects in the listing. What changed in between is on its way, and judged so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from headrace.ids import TopicId
from headrace.remote.audit import (
    Ages,
    Class,
    JudgedSegment,
    PartitionFacts,
    Report,
    audit_partition,
    sort_objects,
)
from headrace.remote.cache import SegmentCache
from headrace.remote.checking import check_segment
from headrace.remote.layout import ObjectKind, SegmentKey, object_key, parse_key
from headrace.remote.segments import (
    DeleteState,
    MetadataEvent,
    PartitionDelete,
    PartitionKey,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    TierError,
    TopicIdPartition,
)
from headrace.remote.store import (
    NoSuchObject,
    ObjectStore,
    StoredObject,
    UnfinishedUpload,
    UploadsUnknown,
)
from headrace.remote.together import do_together

CHECKS_AT_A_TIME: Final = 8
"""How many segments are read at once where their checksums are checked."""


class Known(msgspec.Struct):
    """What events say, when all of them are read."""

    cache: SegmentCache = msgspec.field(default_factory=SegmentCache)
    deletions: dict[PartitionKey, PartitionDelete] = msgspec.field(default_factory=dict)
    """Deletions of partitions that are not finished."""
    refused: list[str] = msgspec.field(default_factory=list)
    """Events that no node applies, and why."""

    def apply(self, event: MetadataEvent) -> None:
        """Apply an event as nodes do; one that is refused changes nothing."""
        try:
            self.cache.apply(event)
        except TierError as error:
            self.refused.append(str(error))
            return
        if isinstance(event, PartitionDelete):
            if event.state is DeleteState.FINISHED:
                self.deletions.pop(event.partition.key, None)
            else:
                self.deletions[event.partition.key] = event

    def partitions(self) -> dict[PartitionKey, TopicIdPartition]:
        found = {each.key: each for each in self.cache.partitions()}
        return found | {key: each.partition for key, each in self.deletions.items()}


class Events(Protocol):
    """Where events are read; `client.remote_log` has the cluster's topic."""

    async def read(self) -> Known:
        """Read all events that were written before the call."""


class LeaderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader of a partition says of it."""

    log_start_offset: int | None = None
    local_start_offset: int | None = None
    epochs: tuple[SegmentEpoch, ...] = ()


class Inventory(msgspec.Struct, kw_only=True):
    """Everything that there is to judge."""

    before: Known
    after: Known
    objects: list[StoredObject]
    uploads: list[UnfinishedUpload]
    uploads_unknown: str = ""
    """Why unfinished uploads could not be listed, if they could not."""
    topic_ids: Collection[TopicId] | None = None
    """The topics that exist; None if nobody was asked."""
    leaders: Mapping[PartitionKey, LeaderFacts] = msgspec.field(default_factory=dict)

    def stored_partitions(self) -> set[PartitionKey]:
        """Return the partitions that objects name."""
        keys = (parse_key(each.key) for each in self.objects)
        return {each.partition.key for each in keys if isinstance(each, SegmentKey)}

    @property
    def listed_bytes(self) -> int:
        return sum(each.size_bytes for each in self.objects)


async def take_inventory(
    store: ObjectStore, events: Events, ask: Callable[[Known], Awaitable[None]] | None = None
) -> Inventory:
    """Read the events, list the store, and read the events again.

    `ask` is called before the second time: what it hears of disks that were freed, the events say.
    """
    before = await events.read()
    objects = [each async for page in store.list_objects() for each in page]
    if ask is not None:
        await ask(before)
    inventory = Inventory(before=before, after=before, objects=objects, uploads=[])
    try:
        inventory.uploads = await store.list_uploads()
    except UploadsUnknown as error:
        inventory.uploads_unknown = str(error)
    inventory.after = await events.read()
    return inventory


async def judge(
    store: ObjectStore,
    inventory: Inventory,
    ages: Ages,
    *,
    checks_checksums: bool = False,
    damaged: Mapping[SegmentId, str] | None = None,
) -> Report:
    """Judge everything. Objects that the listing misses are asked for before they are missing.

    `damaged` is what somebody else found who read the objects.
    """
    of_partitions, others = sort_objects(inventory.objects)
    report = Report(objects=others)
    for upload in inventory.uploads:
        (report.uploads if ages.is_old(upload.began_ms) else report.new_uploads).append(upload)
    for facts in gather_facts(inventory, of_partitions):
        facts.damaged = damaged or {}
        judged = audit_partition(facts, ages)
        again = await _look_again(store, judged.segments, facts)
        if checks_checksums:
            again |= await _check(store, judged.segments, facts)
        report.add(audit_partition(facts, ages) if again else judged)
        await asyncio.sleep(0)
    return report


def finished_segments(inventory: Inventory) -> list[RemoteSegment]:
    """Return the segments whose objects are all there, if nothing is wrong."""
    return [
        segment
        for key in inventory.after.partitions()
        if key not in inventory.after.deletions
        for segment in inventory.after.cache.segments(key)
        if segment.state is SegmentState.COPY_FINISHED
    ]


def gather_facts(
    inventory: Inventory,
    of_partitions: Mapping[PartitionKey, list[tuple[StoredObject, SegmentKey]]],
) -> Iterable[PartitionFacts]:
    """Yield the facts of each partition that events or objects name."""
    partitions = {key: rows[0][1].partition for key, rows in of_partitions.items()}
    partitions |= inventory.before.partitions() | inventory.after.partitions()
    for key in sorted(partitions, key=lambda key: (partitions[key].topic, key)):
        leader = inventory.leaders.get(key, LeaderFacts())
        topic_ids = inventory.topic_ids
        yield PartitionFacts(
            partition=partitions[key],
            segments=inventory.after.cache.segments(key),
            states_before={each.id: each.state for each in inventory.before.cache.segments(key)},
            objects=of_partitions.get(key, []),
            deletion=inventory.after.deletions.get(key),
            is_topic_deleted=topic_ids is not None and key[0] not in topic_ids,
            epochs=leader.epochs,
            local_start_offset=leader.local_start_offset,
            log_start_offset=leader.log_start_offset,
            is_leader_silent=topic_ids is not None
            and key[0] in topic_ids
            and (leader.log_start_offset is None or leader.local_start_offset is None),
            damaged={},
            confirmed={},
            unreferenced={each.id for each in inventory.after.cache.unreferenced(key)},
        )


async def _look_again(
    store: ObjectStore, segments: Iterable[JudgedSegment], facts: PartitionFacts
) -> bool:
    """Ask for objects that the listing does not have: it may lag. Return whether one is there."""
    confirmed: dict[SegmentId, frozenset[ObjectKind]] = {}
    for judged in segments:
        if judged.verdict is Class.MISSING_OBJECT:
            segment = judged.segment
            listed = {each.key for each in judged.objects}
            there = {
                kind
                for kind in ObjectKind
                if object_key(segment, kind) not in listed
                and await _is_there(store, object_key(segment, kind))
            }
            if there:
                confirmed[segment.id] = frozenset(there)
    facts.confirmed = confirmed
    return bool(confirmed)


async def _is_there(store: ObjectStore, key: str) -> bool:
    try:
        await store.get(key, 0, 1)
    except NoSuchObject:
        return False
    return True


async def _check(
    store: ObjectStore, segments: Iterable[JudgedSegment], facts: PartitionFacts
) -> bool:
    """Read finished segments whole and compare checksums; return whether one is damaged."""
    wanted = [
        each.segment
        for each in segments
        if each.segment.state is SegmentState.COPY_FINISHED
        and each.verdict in (Class.OK, Class.GAP, Class.OVERLAP)
    ]
    damaged: dict[SegmentId, str] = {}
    limit = asyncio.Semaphore(CHECKS_AT_A_TIME)

    async def check(segment: RemoteSegment) -> None:
        async with limit:
            if problem := await check_segment(store, segment):
                damaged[segment.id] = problem

    await do_together(check(segment) for segment in wanted)
    facts.damaged = damaged
    return bool(damaged)
