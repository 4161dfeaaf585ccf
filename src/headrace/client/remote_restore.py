"""Restoring topics from the tier alone, into a cluster that does not have them.

1. The topic is created with the partitions and configs that the store remembers.
2. Its segments are copied to its new id (`remote.restoring`).
3. When all of a partition is there, its segments are announced: all begun, then all finished.
4. The leader of a partition whose log was never written adopts them: its log begins where they
   begin, and the next record gets the offset after the last one.

Until 3 nobody sees anything of it. A restore that was interrupted is run again: partitions that are
done are left, the others are copied again, and `headrace tier fsck --repair` deletes the rest.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.client.admin import Admin
from headrace.client.configs import Resource, ResourceType
from headrace.client.offsets import Start
from headrace.client.outcomes import values_of
from headrace.client.remote_log import RemoteLogTopic
from headrace.client.topics import BROKERS_DEFAULT, NewTopic, TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, TopicId, TopicName, topic_id_text
from headrace.records.errors import RecordsError
from headrace.remote.coverage import Coverage, cover_log
from headrace.remote.layout import ObjectKind, object_key, topic_key
from headrace.remote.reconstruction import list_segments, read_segments
from headrace.remote.repair import TOOL_ID, is_being_restored
from headrace.remote.restoring import Restored, Target, restore_segment
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import (
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TierError,
    TopicIdPartition,
)
from headrace.remote.store import NoSuchObject, ObjectStore
from headrace.remote.together import do_together
from headrace.remote.topic_manifest import TopicManifest, decode_manifest
from headrace.remote.undecided import open_transactions
from headrace.surroundings import clocks

COPIES_AT_A_TIME: Final = 4
LOOKS_AT_A_TIME: Final = 32
"""How many copies are looked for at once before they are announced."""
LOOK_SECONDS: Final = 0.5
"""How often leaders are asked whether they have adopted what was announced."""
QUIET_SECONDS: Final = 10.0
"""How long a run announces nothing before it counts as cut short."""
ENABLE: Final = "remote.storage.enable"


class CannotRestore(TierError):
    """A topic that cannot be restored as it was asked for."""


class SourceTopic(msgspec.Struct, frozen=True):
    """A topic as a store has it."""

    topic_id: TopicId
    name: TopicName
    manifest: TopicManifest | None
    partitions: Mapping[PartitionIndex, Coverage]

    @property
    def partition_count(self) -> int:
        last = max(self.partitions, default=-1)
        return max(last + 1, self.manifest.partitions if self.manifest else 1)

    @property
    def configs(self) -> dict[str, str]:
        configs = dict(self.manifest.configs) if self.manifest else {}
        return {**configs, ENABLE: "true"}


class PartitionOutcome(msgspec.Struct, frozen=True):
    """What a partition has now: offsets from `start` up to, not including, `stop`."""

    partition: int
    start: int
    stop: int
    segments: int
    size_bytes: int
    is_adopted: bool


async def find_topics(
    source: ObjectStore, wanted: Collection[str] = (), wanted_id: str | None = None
) -> list[SourceTopic]:
    """Return the topics of which a store has complete segments, by name; no names mean all.

    Nothing is read of other topics: they may be many, or damaged.
    """
    listed = await list_segments(source, [*map(TopicName, dict.fromkeys(wanted))] or None)
    segments = await read_segments(
        source,
        {
            (key, id_): kinds
            for (key, id_), kinds in listed.items()
            if wanted_id is None or topic_id_text(key[0]) == wanted_id
        },
    )
    found: dict[TopicId, dict[PartitionIndex, Coverage]] = {}
    names: dict[TopicId, TopicName] = {}
    for (topic_id, index), known in segments.items():
        names[topic_id] = known[0].partition.topic
        found.setdefault(topic_id, {})[index] = cover_log(known)
    manifests = await _manifests(source, found)
    return sorted(
        (
            SourceTopic(topic_id, names[topic_id], manifests.get(topic_id), partitions)
            for topic_id, partitions in found.items()
        ),
        key=lambda topic: (topic.name, topic.topic_id),
    )


def choose(
    topics: Iterable[SourceTopic], names: Iterable[str], topic_id: str | None
) -> list[SourceTopic]:
    """Return the wanted ones; CannotRestore if one is missing, or there are two of a name."""
    wanted = set(names)
    chosen = [
        each
        for each in topics
        if (not wanted or each.name in wanted)
        and (topic_id is None or topic_id_text(each.topic_id) == topic_id)
    ]
    seen: dict[str, TopicId] = {}
    for each in chosen:
        if each.name in seen:
            ids = topic_id_text(seen[each.name]), topic_id_text(each.topic_id)
            raise CannotRestore(
                f"the store has several topics {each.name!r}, {' and '.join(ids)}: say which one "
                "with --topic-id"
            )
        seen[each.name] = each.topic_id
    if missing := wanted - seen.keys():
        raise CannotRestore(f"the store has no complete segment of topic {min(missing)!r}")
    return chosen


def check_gaps(topic: SourceTopic, *, skips: bool) -> SourceTopic:
    """Return a topic without what lies before a gap; CannotRestore unless that may be skipped."""
    partitions = dict(topic.partitions)
    for index, known in topic.partitions.items():
        if known.gaps and not skips:
            first, last = known.gaps[-1]
            raise CannotRestore(
                f"offsets {first} to {last} of {topic.name}-{index} are missing: --skip-gaps "
                "restores what follows them, and leaves out what comes before"
            )
        after = known.gaps[-1].last if known.gaps else -1
        kept = [each for each in known.extents if each.start > after]
        partitions[index] = Coverage(kept, [], [])
    return msgspec.structs.replace(topic, partitions=partitions)


class Restoration:
    """Restores one topic."""

    def __init__(
        self, admin: Admin, source: ObjectStore, target: ObjectStore, topic: SourceTopic, name: str
    ) -> None:
        self._admin = admin
        self._source = SegmentObjects(source)
        self._target = SegmentObjects(target)
        self._topic = topic
        self._name = name
        self._events = RemoteLogTopic(admin.cluster)

    async def create(self, configs: Mapping[str, str], replication_factor: int) -> None:
        """Create the topic, or check that the one that is there is as it was created."""
        if configs.get(ENABLE, "true").lower() != "true":
            raise CannotRestore(
                f"topic {self._name!r} cannot be restored outside the tier: it needs {ENABLE}=true"
            )
        new = NewTopic(
            self._name,
            self._topic.partition_count,
            replication_factor or BROKERS_DEFAULT,
            {**self._topic.configs, **configs},
        )
        outcome = (await self._admin.create_topics([new]))[self._name]
        if not isinstance(outcome, KafkaError):
            return
        if outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome
        there = await self._admin.describe_topic(self._name)
        if len(there.partitions) != self._topic.partition_count:
            raise CannotRestore(
                f"topic {self._name!r} exists with {len(there.partitions)} partitions, "
                f"{self._topic.partition_count} are to be restored: delete it first"
            )
        resource = Resource(ResourceType.TOPIC, self._name)
        found = values_of(await self._admin.describe_configs([resource], names=[ENABLE]))
        if {each.name: each.value for each in found[resource]}.get(ENABLE) != "true":
            raise CannotRestore(
                f"topic {self._name!r} exists without {ENABLE}=true, so its leaders take nothing "
                "over: set that, or delete the topic"
            )

    async def copy(self) -> None:
        """Copy and announce the segments of the partitions that are not restored yet."""
        self._admin.cluster.forget(self._name)
        there = await self._admin.cluster.topic(self._name)
        known = await self._events.read()
        ends = await self._ends(self._topic.partitions)
        for index, coverage in sorted(self._topic.partitions.items()):
            if not coverage.extents or self._is_done(coverage, ends[index]):
                continue
            partition = TopicIdPartition(there.topic_id, TopicName(self._name), index)
            announced = known.cache.segments(partition.key)
            if ends[index] == (0, 0) and any(map(is_being_restored, announced)):
                await self._take_back(partition, announced)  # an earlier run was cut short
            elif any(each.state is not SegmentState.DELETE_STARTED for each in announced):
                continue  # an earlier run did: the leader adopts them
            self._check_unwritten(index, ends[index])
            epoch = (await self._admin.cluster.leader(self._name, index)).leader_epoch
            target = Target(partition, max(epoch, 0), coverage.extents[0].start)
            restored = await self._copy_partition(coverage, target)
            # That may have taken hours. Records that were written meanwhile have offsets and epoch
            # of what was copied: their leader would take the one for copies of the other.
            now = (await self._ends([index]))[index]
            if self._is_done(coverage, now):
                continue  # by another run
            self._check_unwritten(index, now)
            looks = asyncio.Semaphore(LOOKS_AT_A_TIME)
            await do_together(self._check_there(each.segment, looks) for each in restored)
            await self._events.publish(
                *(each.started for each in restored), *(each.finished for each in restored)
            )

    async def _check_there(self, segment: RemoteSegment, limit: asyncio.Semaphore) -> None:
        """Raise CannotRestore if a copy was deleted, as it belongs to no segment that is announced.

        Whoever deletes one begins with the object that makes it complete.
        """
        try:
            async with limit:
                await self._target.store.get(object_key(segment, ObjectKind.LEADER_EPOCHS), 0, 1)
        except NoSuchObject:
            raise CannotRestore(
                f"the copy {segment.text} was deleted before it was announced, as by `headrace "
                "tier fsck --repair`: run the command again"
            ) from None

    def _check_unwritten(self, index: PartitionIndex, ends: tuple[int, int]) -> None:
        start, stop = ends
        if ends != (0, 0):
            raise CannotRestore(
                f"{self._name}-{index} has records of its own, offsets {start} to {stop - 1}: only "
                "a partition that was never written is restored"
            )

    async def _take_back(
        self, partition: TopicIdPartition, announced: Sequence[RemoteSegment]
    ) -> None:
        """Delete what a run has announced that did not come to its end.

        The leader adopts nothing as long as a copy is not finished, so the finished ones go first.
        Raise CannotRestore if the run goes on: the leader may adopt what would be deleted.
        """
        await asyncio.sleep(QUIET_SECONDS)
        known = await self._events.read([partition.key])
        if known.cache.segments(partition.key) != announced:
            raise CannotRestore(
                f"{self._name}-{partition.index} is being restored by another run of the command: "
                "run it again when that has ended"
            )
        await self._publish(sorted(announced, key=is_being_restored), SegmentState.DELETE_STARTED)
        for segment in announced:
            await self._target.delete(segment)
        await self._publish(announced, SegmentState.DELETE_FINISHED)

    async def _publish(self, segments: Iterable[RemoteSegment], state: SegmentState) -> None:
        now_ms = clocks().time_ns() // 1_000_000
        await self._events.publish(
            *(
                SegmentUpdate(each.partition, each.id, now_ms, state, TOOL_ID)
                for each in segments
                if each.state is not state
            )
        )

    async def wait(self, timeout_seconds: float) -> list[PartitionOutcome]:
        """Return the outcomes when every leader has adopted its segments, or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            ends = await self._ends(self._topic.partitions)
            outcomes = [
                _outcome(index, coverage, ends[index])
                for index, coverage in sorted(self._topic.partitions.items())
            ]
            if all(each.is_adopted for each in outcomes) or loop.time() > deadline:
                return outcomes
            await asyncio.sleep(LOOK_SECONDS)

    async def _copy_partition(self, coverage: Coverage, target: Target) -> list[Restored]:
        limit = asyncio.Semaphore(COPIES_AT_A_TIME)
        last = len(coverage.extents) - 1
        undecided = await open_transactions(self._source, coverage.extents[last].segment)

        async def copy(number: int) -> Restored:
            async with limit:
                extent = coverage.extents[number]
                at_end = undecided if number == last else []
                try:
                    return await restore_segment(self._source, extent, self._target, target, at_end)
                except (TierError, RecordsError) as error:
                    raise CannotRestore(
                        f"{self._topic.name}-{target.partition.index}: segment "
                        f"{extent.segment.text} with offsets {extent.start} to {extent.stop - 1} "
                        f"cannot be copied: {error}"
                    ) from error

        return await do_together(copy(number) for number in range(len(coverage.extents)))

    async def _ends(
        self, indexes: Iterable[PartitionIndex]
    ) -> dict[PartitionIndex, tuple[int, int]]:
        partitions = {TopicPartition(self._name, index): index for index in indexes}
        starts = values_of(
            await self._admin.list_offsets(dict.fromkeys(partitions, int(Start.BEGINNING)))
        )
        stops = values_of(await self._admin.list_offsets(dict.fromkeys(partitions, int(Start.END))))
        return {
            index: (starts[each].offset, stops[each].offset) for each, index in partitions.items()
        }

    @staticmethod
    def _is_done(coverage: Coverage, ends: tuple[int, int]) -> bool:
        return ends[0] >= coverage.extents[0].start and ends[1] >= coverage.extents[-1].stop


def _outcome(index: int, coverage: Coverage, ends: tuple[int, int]) -> PartitionOutcome:
    extents = coverage.extents
    start, stop = (extents[0].start, extents[-1].stop) if extents else (0, 0)
    return PartitionOutcome(
        partition=index,
        start=ends[0],
        stop=ends[1],
        segments=len(extents),
        size_bytes=sum(each.segment.size_bytes for each in extents),
        # Retention may have removed a part by now, producers may have added some.
        is_adopted=ends[0] >= start and ends[1] >= stop,
    )


async def _manifests(
    source: ObjectStore, topic_ids: Iterable[TopicId]
) -> dict[TopicId, TopicManifest]:
    """Return the descriptions of topics, of those that have one."""
    found: dict[TopicId, TopicManifest] = {}
    for topic_id in topic_ids:
        key = topic_key(topic_id)
        try:
            data = bytes(await source.get(key))
        except NoSuchObject:
            continue
        found[topic_id] = decode_manifest(data, key)
    return found
