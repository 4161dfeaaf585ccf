"""A partition of this node whose topic is in the tier, or has yet to leave it."""

import asyncio
from typing import Final

from headrace.ids import LeaderEpoch
from headrace.remote.segments import (
    PartitionKey,
    RemoteSegment,
    SegmentId,
    SegmentState,
    TierError,
    TopicIdPartition,
)
from headrace.replication.partition import Partition
from headrace.tier.life import Find, Lineage, LocalSegment, find_remote_end
from headrace.tier.swappable import LedMetadata

SEGMENTS_A_TURN: Final = 1000
"""How many segments are looked up in one turn of the loop."""


class NotLeading(TierError):
    """This node does not lead the partition any more, or its log changed: the work is moot."""


class ForeignTier(TierError):
    """The tier has records of a partition, and none of them is in this node's log."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: the tier has records of earlier leaders, and none of them is in the log of "
            "this one, whose disk may have been lost: nothing is copied or deleted. To give them "
            "up, set remote.storage.enable=false with remote.log.delete.on.disable=true, then "
            "remote.storage.enable=true again"
        )


class TieredPartition:
    """What this node knows and does about a partition in the tier.

    There is one for each role: after a change of leaders another one takes its place.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.id = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.is_leader = partition.is_leader
        self.is_stopped = False
        self.copying: SegmentId | None = None
        """The segment that this node is copying."""
        self.has_changed = True
        """Whether the tier's segments changed since they were looked through."""
        self.due_ms: int | None = None
        """When a segment will be too old, by the last look, and at which size of the log."""
        self.due_bytes: int | None = None
        self.seen: object = None
        """What else the last look went by."""
        self.remote_count = 0
        """Finished segments and their bytes, as of the last look."""
        self.remote_bytes = 0
        self.delete_lag = (0, 0)
        """Segments that are being deleted, and their bytes."""
        self.doomed: frozenset[SegmentId] = frozenset()
        """Copies of others that this node is about to delete: one may be finished just before, and
        nothing may leave the disk for it."""
        self.has_all = False
        """Whether the log is known to lack nothing that the tier has behind its end."""
        self.producers: tuple[int, bytes] | None = None
        """The end of the last segment that was copied, the producers there, and after which cut."""
        self.producers_cuts = -1
        self._is_caught_up = False
        self._proved: tuple[int, int] = (0, -1)
        """Up to where the tier has everything from the local start on, and after which cut."""

    @property
    def key(self) -> PartitionKey:
        return self.id.key

    @property
    def name(self) -> str:
        return self.partition.name

    def check_leading(self, cuts: int | None = None) -> None:
        """Raise NotLeading if this node leads no more in this epoch, or the log was cut."""
        partition = self.partition
        is_same = partition.is_leader and partition.leader_epoch == self.leader_epoch
        if self.is_stopped or not is_same:
            raise NotLeading(f"{self.name} is not led here any more")
        if cuts is not None and partition.log.cuts != cuts:
            raise NotLeading(f"the log of {self.name} was cut meanwhile")

    async def catch_up(self, metadata: LedMetadata) -> None:
        """Wait, once, until what an earlier leader announced is known; raise NotReady."""
        if not self._is_caught_up:
            await metadata.catch_up(self.key)
            self.check_leading()
            self._is_caught_up = True

    @property
    def disk_start(self) -> int:
        """The first offset of the log that is on this disk, whether its topic is tiered or not."""
        log = self.partition.log
        return max(log.start_offset, log.segments[0].base_offset)

    @property
    def lineage(self) -> Lineage:
        log = self.partition.log
        return Lineage(log.epochs.entries(), log.end_offset)

    @property
    def stable_offset(self) -> int:
        """Below it every record is committed, decided and durable here: it may be copied."""
        log = self.partition.log
        return min(log.last_stable_offset, log.recovery_point)

    def local_segments(self, offset: int, count_max: int) -> list[LocalSegment]:
        """Return some finished segments of the log from the one with an offset on."""
        segments = self.partition.log.segments
        first = self.partition.log.segment_index(offset)
        last = min(first + count_max, len(segments) - 1)
        return [
            LocalSegment(
                segments[at].base_offset, segments[at + 1].base_offset, segments[at].size_bytes
            )
            for at in range(first, last)
        ]

    def uncopied_bytes(self) -> int:
        """Return the bytes that only the local disk has."""
        log = self.partition.log
        first = log.segment_index(max(log.remote_end_offset, log.start_offset))
        return sum(segment.size_bytes for segment in log.segments[first:])

    def copy_lag(self) -> tuple[int, int]:
        """Return how many finished segments are not in the tier yet, and their bytes."""
        log = self.partition.log
        first = log.segment_index(max(log.remote_end_offset, log.start_offset))
        waiting = log.segments[first:-1] if log.settings.is_copied else []
        return len(waiting), sum(segment.size_bytes for segment in waiting)

    def check_shared(self, metadata: LedMetadata) -> None:
        """Raise ForeignTier if the tier has records from the start on, and none is the log's."""
        log, key = self.partition.log, self.key
        shared = self.lineage.highest_copied(lambda epoch: metadata.highest_offset(key, epoch))
        if shared is None and any(
            segment.state == SegmentState.COPY_FINISHED and segment.end_offset >= log.start_offset
            for segment in metadata.segments(key)
        ):
            raise ForeignTier(self.name)

    def learn_remote_end(self, metadata: LedMetadata) -> None:
        """Tell the log how much of it is in the tier; raise NotReady if that is not known yet."""
        log, key = self.partition.log, self.key
        end, cuts = self._proved
        log.remote_end_offset = end = find_remote_end(
            self.lineage,
            log.local_start_offset,
            self._finder(metadata),
            lambda epoch: metadata.highest_offset(key, epoch),
            proved=0 if cuts != log.cuts else end,
        )
        self._proved = end, log.cuts

    def _finder(self, metadata: LedMetadata) -> Find:
        """Return a look-up of segments that the local disk may rely on."""
        key = self.key

        def find(epoch: int, offset: int) -> RemoteSegment | None:
            found = metadata.find(key, epoch, offset)
            return None if found is not None and found.id in self.doomed else found

        return find

    async def relearn_remote_end(self, metadata: LedMetadata) -> None:
        """Tell the log how much of it is in the tier, even if that is less than before.

        That is looked up in slices. Raise NotReady, or NotLeading.
        """
        log, lineage, find = self.partition.log, self.lineage, self._finder(metadata)
        end, cuts = log.local_start_offset, log.cuts
        while (reached := lineage.copied_up_to(end, find, SEGMENTS_A_TURN)) > end:
            end = reached
            await asyncio.sleep(0)
            self.check_leading(cuts)
        self._proved = end, cuts
        self.learn_remote_end(metadata)
