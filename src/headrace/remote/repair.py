"""What may be done about an audit's findings, and doing it.

Repair goes the way that brokers go: a segment that is to be deleted is announced as such, then its
objects go, then that is announced too. Brokers that look at the same segment meanwhile see legal
steps only. Nothing that is read is deleted, nothing that is lost is hidden: segments with missing
or damaged objects stay as they are.
"""

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Final

import msgspec

from headrace.ids import BrokerId
from headrace.remote.audit import Ages, Class, JudgedObject, JudgedSegment, Report
from headrace.remote.inventory import Known
from headrace.remote.layout import (
    MAX_OFFSET,
    WRITE_ORDER,
    ObjectKind,
    SegmentKey,
    object_key,
    parse_key,
    segment_prefix,
)
from headrace.remote.leases import Lease, Leases, read_leases
from headrace.remote.segments import (
    DeleteState,
    MetadataEvent,
    PartitionDelete,
    PartitionKey,
    RemoteSegment,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TierError,
)
from headrace.remote.store import ObjectStore, UnfinishedUpload

TOOL_ID: Final = BrokerId(-1)
"""Whom events of tools come from: no broker."""

REPAIR_ID: Final = BrokerId(-2)
"""Whom a copy belongs to that is about to be deleted: nobody who would finish it."""

DELETABLE: Final = frozenset({Class.DANGLING, Class.OVERLAP, Class.FOREIGN_LINEAGE})


def is_being_restored(segment: RemoteSegment) -> bool:
    """Return whether a tool has announced a segment that it has not finished.

    A node that announced one is gone with its disk: that copy is deleted later.
    """
    return segment.state is SegmentState.COPY_STARTED and segment.broker_id == TOOL_ID


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, in this order: announce, delete, announce."""

    what: str
    key: PartitionKey | None = None
    start: int = 0
    stop: int = MAX_OFFSET
    segment_id: SegmentId | None = None
    taken_over: RemoteSegment | None = None
    """The announcement of an unfinished copy that nobody else may finish any more."""
    before: tuple[MetadataEvent, ...] = ()
    objects: tuple[str, ...] = ()
    """Keys, the one that makes a segment complete first."""
    upload: UnfinishedUpload | None = None
    after: tuple[MetadataEvent, ...] = ()
    freed_bytes: int = 0


class Skipped(msgspec.Struct, frozen=True):
    """A thing that is left for now."""

    what: str
    why: str


class Plan(msgspec.Struct):
    """What a repair would do."""

    repairs: list[Repair] = msgspec.field(default_factory=list)
    skipped: list[Skipped] = msgspec.field(default_factory=list)


def plan_repairs(report: Report, leases: Leases, ages: Ages) -> Plan:
    """Return what may be repaired now. Pure."""
    plan = Plan()
    unfinished: set[PartitionKey] = set()
    for judged in report.segments:
        repair = _delete_segment(judged, ages)
        if repair is None:
            if judged.verdict is not Class.OK:
                unfinished.add(judged.segment.key)
            if judged.verdict in DELETABLE:
                plan.skipped.append(Skipped(_name(judged), "it is too new"))
        elif not _take(plan, repair, leases):
            unfinished.add(judged.segment.key)
    lost: dict[PartitionKey, int] = {}
    for gap in report.gaps:
        lost[gap.partition.key] = max(gap.last, lost.get(gap.partition.key, -1))
    for repair in _delete_orphans(report.objects):
        if why := _why_needed(repair, lost, report.unsure):
            plan.skipped.append(Skipped(repair.what, why))
        else:
            _take(plan, repair, leases)
    for deletion in report.deletions:
        if deletion.partition.key in unfinished:
            what = f"deletion of {deletion.partition.text}"
            plan.skipped.append(Skipped(what, "some of its segments are left"))
        else:
            plan.repairs.append(_finish_deletion(deletion, ages))
    plan.repairs += (
        Repair(what=f"unfinished upload of {upload.key}", upload=upload)
        for upload in report.uploads
    )
    return plan


async def take_over(
    repairs: Iterable[Repair],
    read: Callable[[], Awaitable[Known]],
    publish: Callable[..., Awaitable[None]],
) -> Known:
    """Take over the copies that are to be deleted; return what is known then.

    A broker may still write one, and finish it just before its deletion is announced: then disks
    are freed for it. So it is announced again first, which is refused once it is finished, and who
    announced it last alone may finish it. Which of them belong to the repair now, the events say.
    """
    cache = (await read()).cache
    announced = [
        each.taken_over
        for each in repairs
        if each.taken_over is not None
        and (known := cache.get(each.taken_over.key, each.taken_over.id)) is not None
        and known.state is SegmentState.COPY_STARTED
    ]
    if announced:
        await publish(*announced)
    return await read()


def why_moot(repair: Repair, known: Known) -> str:
    """Return why a repair is not to be done after all, empty if it is: brokers may be faster."""
    found = None
    if repair.key is not None and repair.segment_id is not None:
        found = known.cache.get(repair.key, repair.segment_id)
    if repair.taken_over is not None and (
        found is None or (found.state, found.broker_id) != (SegmentState.COPY_STARTED, REPAIR_ID)
    ):
        return "its copy was finished or deleted meanwhile"
    if repair.objects and not repair.before and not repair.after and found is not None:
        return "its segment was announced meanwhile"
    try:
        for event in repair.before:
            known.cache.check(event)
    except TierError as error:
        return str(error)
    return ""


async def carry_out(
    repair: Repair,
    store: ObjectStore,
    publish: Callable[[MetadataEvent], Awaitable[None]],
    now_ms: int,
) -> Lease | None:
    """Do a repair; return the lease of a reader that came first, None if it is done.

    It may be repeated after an error at any step. See `leases` for why they are asked for here.
    """
    for event in repair.before:
        await publish(event)
    epochs = [key for key in repair.objects if key.endswith(ObjectKind.LEADER_EPOCHS)]
    if epochs:
        await store.delete(epochs)
    if repair.key is not None and repair.objects:
        leases = await read_leases(store, now_ms)
        lease = leases.protecting(repair.key, repair.start, repair.stop)
        if lease is not None:
            return lease
        await store.delete(repair.objects)
    if repair.upload is not None:
        await store.abort_upload(repair.upload)
    for event in repair.after:
        await publish(event)
    return None


def _why_needed(
    repair: Repair, lost: Mapping[PartitionKey, int], unsure: Container[PartitionKey]
) -> str:
    """Return why orphans may be all that is left of their offsets, empty if they are not.

    `lost` has the last offset of each partition that is nowhere.
    """
    if repair.key is not None and repair.start <= lost.get(repair.key, -1):
        return "offsets of its partition are nowhere else: its events may be lost"
    if repair.key in unsure:
        return "its leader does not say whether the log lacks its offsets"
    return ""


def _take(plan: Plan, repair: Repair, leases: Leases) -> bool:
    lease = None
    if repair.key is not None:
        lease = leases.protecting(repair.key, repair.start, repair.stop)
    if lease is None:
        plan.repairs.append(repair)
        return True
    plan.skipped.append(Skipped(repair.what, f"{lease.holder} reads it (lease {lease.id})"))
    return False


def _delete_segment(judged: JudgedSegment, ages: Ages) -> Repair | None:
    segment = judged.segment
    if judged.verdict not in DELETABLE or not ages.is_old(segment.event_timestamp_ms):
        return None

    def update(state: SegmentState) -> SegmentUpdate:
        return SegmentUpdate(segment.partition, segment.id, ages.now_ms, state, TOOL_ID)

    is_announced = segment.state is SegmentState.DELETE_STARTED
    taken_over = msgspec.structs.replace(
        segment, broker_id=REPAIR_ID, event_timestamp_ms=ages.now_ms
    )
    return Repair(
        what=_name(judged),
        key=segment.key,
        start=segment.start_offset,
        stop=segment.next_offset,
        segment_id=segment.id,
        taken_over=taken_over if segment.state is SegmentState.COPY_STARTED else None,
        before=() if is_announced else (update(SegmentState.DELETE_STARTED),),
        objects=tuple(object_key(segment, kind) for kind in reversed(WRITE_ORDER)),
        after=(update(SegmentState.DELETE_FINISHED),),
        freed_bytes=judged.stored_bytes,
    )


def _delete_orphans(objects: Iterable[JudgedObject]) -> Iterable[Repair]:
    """Return a repair for each segment of which only objects are left."""
    found: dict[str, list[tuple[SegmentKey, JudgedObject]]] = {}
    for judged in objects:
        key = parse_key(judged.object.key)
        if judged.verdict is Class.ORPHANED_OBJECT and isinstance(key, SegmentKey):
            prefix = segment_prefix(key.partition, key.start_offset, key.id)
            found.setdefault(prefix, []).append((key, judged))
    for prefix, rows in found.items():
        first = rows[0][0]
        rows.sort(key=lambda row: WRITE_ORDER.index(row[0].kind), reverse=True)
        yield Repair(
            what=f"orphaned objects {prefix}.*",
            key=first.partition.key,
            start=first.start_offset,
            segment_id=first.id,
            objects=tuple(judged.object.key for _, judged in rows),
            freed_bytes=sum(judged.object.size_bytes for _, judged in rows),
        )


def _finish_deletion(deletion: PartitionDelete, ages: Ages) -> Repair:
    states = [DeleteState.STARTED, DeleteState.FINISHED]
    return Repair(
        what=f"deletion of {deletion.partition.text}",
        after=tuple(
            PartitionDelete(deletion.partition, ages.now_ms, state, TOOL_ID)
            for state in states[deletion.state :]
        ),
    )


def _name(judged: JudgedSegment) -> str:
    return f"{judged.verdict} segment {judged.segment.text}"
