"""fsck's judgement: what the events say, joined with what the store has. Pure.

Every segment and every object is in exactly one class; an object of a segment is in its segment's.
So the bytes of all classes add up to the store's listing, and nothing is counted twice or missed.
Partitions do not depend on each other: a Spark job audits each one on its own.

`inventory` gathers the facts, `repair` says what may be done about them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from headrace.remote.coverage import Gap, LineageCheck, cover, lineage_of
from headrace.remote.fingerprints import decode_fingerprints
from headrace.remote.layout import (
    WRITE_ORDER,
    ObjectKind,
    OwnKey,
    SegmentKey,
    parse_key,
    segment_prefix,
)
from headrace.remote.segments import (
    DeleteState,
    PartitionDelete,
    PartitionKey,
    RemoteSegment,
    SegmentEpoch,
    SegmentId,
    SegmentState,
    TopicIdPartition,
)
from headrace.remote.store import StoredObject, UnfinishedUpload

GRACE_MS: Final = 24 * 3_600_000
"""How long something may be on its way before it counts as left behind."""


class Class(StrEnum):
    """What a segment or an object is."""

    OK = "ok"
    COPYING = "copying"
    """A copy or an upload that began within the grace period."""
    DELETING = "deleting"
    """A deletion that began within the grace period."""
    DANGLING = "dangling"
    """A copy or a deletion that began and was not finished since."""
    ORPHANED_OBJECT = "orphaned_object"
    """An object of a segment that no event knows."""
    MISSING_OBJECT = "missing_object"
    """A finished segment without one of its objects: data is lost."""
    MISMATCH = "mismatch"
    """A finished segment with an object of another size or checksum: data is damaged."""
    GAP = "gap"
    """A whole segment, but the offsets before it are nowhere."""
    OVERLAP = "overlap"
    """A whole segment that is not needed: others have its offsets, too."""
    FOREIGN_LINEAGE = "foreign_lineage"
    """Records of a leader that lost them: they are not the log, or others have those that are."""
    UNFINISHED_UPLOAD = "unfinished_upload"
    FOREIGN_OBJECT = "foreign_object"
    """An object that is not ours; it is never touched."""
    OWN = "own"
    """An object of ours that belongs to no segment: the marker, topics, leases."""


HEALTHY: Final = frozenset({Class.OK, Class.COPYING, Class.DELETING, Class.OWN})
"""Classes that need nobody's attention."""
LOST: Final = frozenset({Class.MISSING_OBJECT, Class.MISMATCH, Class.GAP})
"""Classes that no repair brings back."""


class JudgedSegment(msgspec.Struct, frozen=True):
    """A segment that is known, its class and why, and its objects."""

    segment: RemoteSegment
    verdict: Class
    why: str
    objects: tuple[StoredObject, ...] = ()

    @property
    def stored_bytes(self) -> int:
        return sum(each.size_bytes for each in self.objects)


class JudgedObject(msgspec.Struct, frozen=True):
    """An object that belongs to no known segment, its class and why."""

    object: StoredObject
    verdict: Class
    why: str


class PartitionGap(msgspec.Struct, frozen=True):
    """Offsets, both ends included, of a partition that are nowhere."""

    partition: TopicIdPartition
    first: int
    last: int


class Tally(msgspec.Struct):
    """How much there is of a class."""

    segments: int = 0
    objects: int = 0
    uploads: int = 0
    stored_bytes: int = 0


class Report(msgspec.Struct):
    """What an audit found."""

    segments: list[JudgedSegment] = msgspec.field(default_factory=list)
    objects: list[JudgedObject] = msgspec.field(default_factory=list)
    uploads: list[UnfinishedUpload] = msgspec.field(default_factory=list)
    """Uploads that began before the grace period and are not finished."""
    new_uploads: list[UnfinishedUpload] = msgspec.field(default_factory=list)
    """Those that may be under way."""
    gaps: list[PartitionGap] = msgspec.field(default_factory=list)
    unsure: set[PartitionKey] = msgspec.field(default_factory=set)
    """Partitions that may have gaps: nobody said where their logs and disks begin."""
    deletions: list[PartitionDelete] = msgspec.field(default_factory=list)
    """Deletions of partitions that began before the grace period and are not finished."""

    def add(self, other: "Report") -> None:
        """Take what an audit of other partitions found."""
        self.segments += other.segments
        self.objects += other.objects
        self.uploads += other.uploads
        self.new_uploads += other.new_uploads
        self.gaps += other.gaps
        self.unsure |= other.unsure
        self.deletions += other.deletions

    def tallies(self) -> dict[Class, Tally]:
        """Return the sums of each class that has anything, in the order of the classes."""
        sums = {each: Tally() for each in Class}
        for segment in self.segments:
            tally = sums[segment.verdict]
            tally.segments += 1
            tally.objects += len(segment.objects)
            tally.stored_bytes += segment.stored_bytes
        for each in self.objects:
            tally = sums[each.verdict]
            tally.objects += 1
            tally.stored_bytes += each.object.size_bytes
        sums[Class.UNFINISHED_UPLOAD].uploads = len(self.uploads)
        sums[Class.COPYING].uploads = len(self.new_uploads)
        return {each: tally for each, tally in sums.items() if tally != Tally()}

    @property
    def is_clean(self) -> bool:
        """Whether nothing needs attention."""
        return not self.gaps and not self.deletions and self.tallies().keys() <= HEALTHY


class PartitionFacts(msgspec.Struct, kw_only=True):
    """What is known of one partition."""

    partition: TopicIdPartition
    segments: Sequence[RemoteSegment] = ()
    """Those that the events have after the listing."""
    states_before: Mapping[SegmentId, SegmentState] = msgspec.field(default_factory=dict)
    """The states that they, and others that are gone by now, had before the listing."""
    objects: Sequence[tuple[StoredObject, SegmentKey]] = ()
    deletion: PartitionDelete | None = None
    is_topic_deleted: bool = False
    epochs: Sequence[SegmentEpoch] = ()
    """Leader epochs that the brokers know, if they were asked."""
    local_start_offset: int | None = None
    """The first offset on the leader's own disk, if it was asked."""
    log_start_offset: int | None = None
    is_leader_silent: bool = False
    """Whether the leader was asked for these two, and did not say both."""
    damaged: Mapping[SegmentId, str] = msgspec.field(default_factory=dict)
    """What reading the objects showed, if they were read."""
    confirmed: Mapping[SegmentId, frozenset[ObjectKind]] = msgspec.field(default_factory=dict)
    """Objects that are there although the listing does not have them."""
    unreferenced: Collection[SegmentId] | None = None
    """Finished segments that answer for no offset; None if all may that others make superfluous."""


class Ages(msgspec.Struct, frozen=True):
    """The clock of an audit."""

    now_ms: int
    grace_ms: int = GRACE_MS

    def is_old(self, then_ms: int) -> bool:
        return self.now_ms - then_ms > self.grace_ms


def sort_objects(
    objects: Iterable[StoredObject],
) -> tuple[dict[PartitionKey, list[tuple[StoredObject, SegmentKey]]], list[JudgedObject]]:
    """Return the objects of segments by partition, and all others with their class."""
    of_partitions: dict[PartitionKey, list[tuple[StoredObject, SegmentKey]]] = {}
    others: list[JudgedObject] = []
    for each in objects:
        key = parse_key(each.key)
        if isinstance(key, SegmentKey):
            of_partitions.setdefault(key.partition.key, []).append((each, key))
        elif isinstance(key, OwnKey):
            others.append(JudgedObject(each, Class.OWN, ""))
        else:
            others.append(JudgedObject(each, Class.FOREIGN_OBJECT, "the key is not one of ours"))
    return of_partitions, others


def audit_partition(facts: PartitionFacts, ages: Ages) -> Report:
    """Judge the segments and objects of one partition."""
    report = Report()
    by_prefix: dict[str, list[tuple[StoredObject, SegmentKey]]] = {}
    for stored, key in facts.objects:
        prefix = segment_prefix(key.partition, key.start_offset, key.id)
        by_prefix.setdefault(prefix, []).append((stored, key))
    owned = {
        each.id: by_prefix.pop(segment_prefix(each.partition, each.start_offset, each.id), [])
        for each in facts.segments
    }
    early = {each.id: _judge_state(each, facts, ages) for each in facts.segments}
    finished = [each for each in facts.segments if early[each.id] is None]
    early |= _judge_finished(finished, owned, facts, report)
    for segment in facts.segments:
        verdict, why = early[segment.id] or (Class.OK, "")
        stored_ones = tuple(stored for stored, _ in owned[segment.id])
        report.segments.append(JudgedSegment(segment, verdict, why, stored_ones))
    for found in by_prefix.values():
        report.objects += [_judge_stray(stored, key, facts, ages) for stored, key in found]
    if facts.is_leader_silent:
        report.unsure.add(facts.partition.key)
    deletion = facts.deletion
    if (
        deletion is not None
        and deletion.state is not DeleteState.FINISHED
        and ages.is_old(deletion.event_timestamp_ms)
    ):
        report.deletions.append(deletion)
    return report


_Verdict = tuple[Class, str]


def _judge_state(segment: RemoteSegment, facts: PartitionFacts, ages: Ages) -> _Verdict | None:
    """Return the class of a segment that is not to be read, or not yet; None for the others."""
    since_ms, left, under_way = segment.event_timestamp_ms, "", Class.DELETING
    if facts.deletion is not None:
        since_ms = facts.deletion.event_timestamp_ms
        left = "its partition was to be deleted"
    elif segment.state is SegmentState.DELETE_STARTED:
        left = "its deletion began"
    elif segment.state is SegmentState.COPY_STARTED:
        left, under_way = "its copy began", Class.COPYING
    elif facts.is_topic_deleted:
        left = "its topic does not exist"
    elif facts.states_before.get(segment.id) is not SegmentState.COPY_FINISHED:
        return Class.COPYING, "its copy was finished while the store was listed"
    else:
        return None
    return (Class.DANGLING if ages.is_old(since_ms) else under_way), left


def _judge_finished(
    finished: Sequence[RemoteSegment],
    owned: Mapping[SegmentId, list[tuple[StoredObject, SegmentKey]]],
    facts: PartitionFacts,
    report: Report,
) -> dict[SegmentId, _Verdict | None]:
    verdicts: dict[SegmentId, _Verdict | None] = {}
    late = _late(facts)
    check = LineageCheck(lineage_of([*finished, *late], facts.epochs))
    sound: list[RemoteSegment] = []
    broken: list[RemoteSegment] = []
    for segment in finished:
        if check.own_stop(segment) == segment.start_offset:
            verdicts[segment.id] = _foreign(segment)
        elif problem := _problem_of(segment, owned[segment.id], facts):
            verdicts[segment.id] = problem
            broken.append(segment)
        else:
            sound.append(segment)
    coverage = cover(sound, check.own_stop)
    for segment in coverage.superseded:
        if not check.holds(segment):
            verdicts[segment.id] = _foreign(segment)
        elif facts.unreferenced is None or segment.id in facts.unreferenced:
            verdicts[segment.id] = Class.OVERLAP, "other segments have its offsets"
        # Else brokers read it: of overlapping copies the one that was finished last answers.
    # What only a damaged segment has is no gap: it is reported as damaged. Nor is what was finished
    # while the store was listed: leaders may have freed their disks for it.
    everything = cover(
        [*(each.segment for each in coverage.extents), *broken, *late], check.own_stop
    )
    gaps = list(everything.gaps)
    if everything.extents:
        gaps += _gaps_at_the_ends(everything.extents[0].start, everything.extents[-1].stop, facts)
    elif not facts.is_topic_deleted:
        gaps += _gap_of_everything(facts)
    following = {each.start: each.segment for each in everything.extents}
    for gap in gaps:
        report.gaps.append(PartitionGap(facts.partition, *gap))
        after = following.get(gap.last + 1)
        if after is not None and verdicts.get(after.id) is None:
            why = f"offsets {gap.first} to {gap.last} before it are nowhere"
            verdicts[after.id] = Class.GAP, why
    return verdicts


def _late(facts: PartitionFacts) -> list[RemoteSegment]:
    """Return the copies that were finished while the store was listed."""
    if facts.deletion is not None or facts.is_topic_deleted:
        return []
    finished = SegmentState.COPY_FINISHED
    return [
        each
        for each in facts.segments
        if each.state is finished and facts.states_before.get(each.id) is not finished
    ]


def _foreign(segment: RemoteSegment) -> _Verdict:
    epochs = ", ".join(f"{each.epoch} from {each.start_offset}" for each in segment.epochs)
    return Class.FOREIGN_LINEAGE, f"its epochs {epochs} are not those of the log"


def _gaps_at_the_ends(start: int, stop: int, facts: PartitionFacts) -> list[Gap]:
    """Return what is missing before the first segment, and between the last one and the disk."""
    gaps: list[Gap] = []
    if facts.log_start_offset is not None and facts.log_start_offset < start:
        local = facts.local_start_offset
        if local is None or local > facts.log_start_offset:
            gaps.append(Gap(facts.log_start_offset, start - 1))
    if facts.local_start_offset is not None and facts.local_start_offset > stop:
        gaps.append(Gap(stop, facts.local_start_offset - 1))
    return gaps


def _gap_of_everything(facts: PartitionFacts) -> list[Gap]:
    """Return what is missing before the disk if the events name no segment that can be read."""
    start, local = facts.log_start_offset, facts.local_start_offset
    return [] if start is None or local is None or start >= local else [Gap(start, local - 1)]


def _problem_of(
    segment: RemoteSegment,
    objects: Sequence[tuple[StoredObject, SegmentKey]],
    facts: PartitionFacts,
) -> _Verdict | None:
    """Return what is wrong with the objects of a finished segment."""
    sizes = {key.kind: stored.size_bytes for stored, key in objects}
    written = decode_fingerprints(segment.custom_metadata)
    needed = (
        [kind for kind in WRITE_ORDER if kind is not ObjectKind.TXN_INDEX]
        if written is None
        else list(written)
    )
    there = facts.confirmed.get(segment.id, frozenset())
    missing = [kind for kind in needed if kind not in sizes and kind not in there]
    if missing:
        return Class.MISSING_OBJECT, f"there is no {', '.join(missing)}"
    expected = {ObjectKind.LOG: segment.size_bytes}
    if written is not None:
        expected |= {kind: each.size_bytes for kind, each in written.items()}
    for kind, size_bytes in expected.items():
        if sizes.get(kind, size_bytes) != size_bytes:
            return (
                Class.MISMATCH,
                f"{kind} has {sizes[kind]} bytes, {size_bytes} were written",
            )
    if segment.id in facts.damaged:
        return Class.MISMATCH, facts.damaged[segment.id]
    return None


def _judge_stray(
    stored: StoredObject, key: SegmentKey, facts: PartitionFacts, ages: Ages
) -> JudgedObject:
    """Judge an object of a segment that the events do not have."""
    if key.id in facts.states_before:
        return JudgedObject(stored, Class.DELETING, "its segment was deleted during the listing")
    if not ages.is_old(stored.modified_ms):
        return JudgedObject(stored, Class.COPYING, "it is new, and no event names it yet")
    return JudgedObject(stored, Class.ORPHANED_OBJECT, "no event names its segment")
