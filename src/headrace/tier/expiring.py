"""Deleting segments from the tier that nobody needs: retention, leftovers, topics that left it.

The leader of a partition does so. First the log's start moves, which is made durable, then the
segments go: a reader is told that records are gone before they are.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from msgspec.structs import replace

from headrace.ids import BrokerId
from headrace.log.cutting import delete_records
from headrace.remote.repair import is_being_restored
from headrace.remote.segments import (
    InvalidTransition,
    PartitionKey,
    RemoteSegment,
    SegmentId,
    SegmentState,
)
from headrace.remote.store import ObjectStore
from headrace.tier.forgotten import ForgottenSegments, find_forgotten
from headrace.tier.life import Deletion, Expiry, ExpiryPlan, Reason, Terms
from headrace.tier.removing import Remover
from headrace.tier.swappable import LedMetadata
from headrace.tier.tiered_partition import ForeignTier, NotLeading, TieredPartition

BY_START: Final = frozenset(
    (Reason.TOO_OLD, Reason.TOO_MUCH, Reason.BELOW_START, Reason.NOT_TIERED)
)
"""Why segments go that are below the log's start: a crash must not move it back afterwards."""
RELIED_ON: Final = frozenset((Reason.DANGLING, Reason.NOT_TIERED))
"""Why segments go that the local disk might rely on: no other has their records."""
LOOKED_AT_A_TURN: Final = 500
"""How many segments are looked at in one turn of the loop."""

logger = logging.getLogger(__name__)


class Expirer:
    """Deletes segments of the partitions that this node leads."""

    def __init__(
        self,
        node_id: BrokerId,
        metadata: LedMetadata,
        remover: Remover,
        store: ObjectStore,
        *,
        now_ms: Callable[[], int],
        checkpoint: Callable[[], Awaitable[None]],
        copies: Collection[SegmentId] = (),
    ) -> None:
        """`copies` are those that this node is writing."""
        self.counts = dict.fromkeys(Reason, 0)
        """How many segments were deleted for each reason."""
        self.look_seconds = 0.0
        """How long it took to look through the segments of partitions, in all."""
        self._node_id = node_id
        self._metadata = metadata
        self._remover = remover
        self._store = store
        self._now_ms = now_ms
        self._checkpoint = checkpoint
        self._copies = copies
        self._lost: dict[PartitionKey, object] = {}
        """What was last reported as lost."""

    def is_due(self, tiered: TieredPartition) -> bool:
        """Return whether there may be something to do for a partition."""
        if not tiered.is_leader or tiered.is_stopped:
            return False
        settings = tiered.partition.log.settings
        if not (settings.is_tiered or settings.remote_delete_on_disable):
            return False
        if tiered.has_changed or tiered.seen != _basis(tiered):
            return True
        if tiered.due_ms is not None and tiered.due_ms <= self._now_ms():
            return True
        due_bytes = tiered.due_bytes
        return due_bytes is not None and (
            tiered.remote_bytes + tiered.uncopied_bytes() >= due_bytes
        )

    async def expire(self, tiered: TieredPartition) -> None:
        """Delete what is to be deleted of a partition."""
        try:
            await tiered.catch_up(self._metadata)
            expiry = await self._plan(tiered)
            if expiry is None:
                return
            go_on = self._checker(tiered, expiry)
            go_on()
            await self._check_forgotten(tiered, expiry)
            go_on()
            self._report_lost(tiered, expiry)
            if expiry.start_offset is not None:
                self._raise_start(tiered, expiry.start_offset)
            if any(each.reason in BY_START for each in expiry.deletions):
                await self._checkpoint()
                go_on()
            await self._delete(tiered, expiry.deletions, go_on)
            if expiry.is_foreign:
                raise ForeignTier(tiered.name)
        except NotLeading as error:
            logger.info("deleting from the tier ends: %s", error)
        except BaseException:
            tiered.has_changed = True  # or nobody would look again
            raise

    async def _plan(self, tiered: TieredPartition) -> Expiry | None:
        log = tiered.partition.log
        if log.is_being_cut:
            return None
        began = asyncio.get_running_loop().time()
        tiered.has_changed, tiered.seen = False, _basis(tiered)
        await tiered.relearn_remote_end(self._metadata)
        cuts, plan = log.cuts, ExpiryPlan(self._terms(tiered))
        number = 0
        for number, segment in enumerate(self._metadata.segments(tiered.key), 1):
            plan.look_at(segment)
            if number % LOOKED_AT_A_TURN == 0:
                await asyncio.sleep(0)
                tiered.check_leading(cuts)
        if number < LOOKED_AT_A_TURN:
            expiry = plan.finish()
        else:
            expiry = await asyncio.get_running_loop().run_in_executor(None, plan.finish)
            tiered.check_leading(cuts)
        self.look_seconds += asyncio.get_running_loop().time() - began
        tiered.due_ms, tiered.due_bytes = expiry.due_ms, expiry.due_bytes
        tiered.remote_count, tiered.remote_bytes = expiry.kept_count, expiry.kept_bytes
        return expiry

    def _terms(self, tiered: TieredPartition) -> Terms:
        log, key = tiered.partition.log, tiered.key
        settings = log.settings
        has_limits = settings.is_deleted_by_age
        return Terms(
            lineage=tiered.lineage,
            leader_epoch=tiered.leader_epoch,
            start_offset=log.start_offset,
            local_start_offset=tiered.disk_start,
            uncopied_bytes=tiered.uncopied_bytes(),
            retention_ms=settings.retention_ms if has_limits else -1,
            retention_bytes=settings.retention_bytes if has_limits else -1,
            is_tiered=settings.is_tiered,
            now_ms=self._now_ms(),
            is_copying=lambda segment_id: self._is_copying(tiered, segment_id),
            find=lambda epoch, offset: self._metadata.find(key, epoch, offset),
        )

    def _is_copying(self, tiered: TieredPartition, segment_id: SegmentId) -> bool:
        """Return whether this node writes a copy; then it is looked at again."""
        tiered.has_changed |= segment_id in self._copies
        return segment_id in self._copies

    async def _check_forgotten(self, tiered: TieredPartition, expiry: Expiry) -> None:
        """Raise ForgottenSegments if the store has what the log is about to give up for lost."""
        gap = expiry.lost
        if gap is None or expiry.start_offset is None or expiry.start_offset <= gap.start:
            return
        known = {each.id for each in self._metadata.segments(tiered.key)}
        epochs = tiered.partition.log.epochs
        found = await find_forgotten(self._store, tiered.id, known, epochs, gap)
        if found is not None:
            raise ForgottenSegments(tiered.name, gap, found)

    def _report_lost(self, tiered: TieredPartition, expiry: Expiry) -> None:
        if expiry.lost != self._lost.get(tiered.key):
            self._lost[tiered.key] = expiry.lost
            if expiry.lost is not None:
                logger.error(
                    "%s: offsets %d to %d are neither on this disk nor in the tier",
                    *(tiered.name, *expiry.lost),
                )

    def _raise_start(self, tiered: TieredPartition, offset: int) -> None:
        partition = tiered.partition
        offset = min(offset, partition.log.high_watermark)
        if offset > partition.log.start_offset:
            delete_records(partition.log, offset)
            logger.info("%s: starts at offset %d now", tiered.name, offset)
            partition.on_start_moved()

    async def _delete(
        self,
        tiered: TieredPartition,
        deletions: tuple[Deletion, ...],
        go_on: Callable[[], None],
    ) -> None:
        states = self._states(tiered)
        reasons = {
            segment: reason
            for segment, reason in deletions
            if reason is not Reason.DANGLING
            or states.get(segment.id) is SegmentState.COPY_STARTED  # it may have been finished
        }
        # What was announced, and nobody knows whether that was heard.
        in_doubt = {each for each in tiered.doomed if each in states}
        tiered.doomed = frozenset(in_doubt)
        if not reasons:
            return
        tiered.has_changed = True  # until all are gone
        tiered.delete_lag = _size_of(reasons)
        doomed = {each.id for each, reason in reasons.items() if reason in RELIED_ON}
        tiered.doomed = frozenset(doomed | in_doubt)
        try:
            if doomed:
                await tiered.relearn_remote_end(self._metadata)
            for segment in [each for each in reasons if reasons[each] is Reason.DANGLING]:
                go_on()
                if not await self._take_over(segment):
                    del reasons[segment]
            gone = await self._remover.delete(list(reasons), go_on)
        finally:
            tiered.doomed = frozenset(in_doubt | (doomed & self._remover.in_doubt))
        tiered.delete_lag = _size_of(reasons.keys() - set(gone))
        for segment in gone:
            self.counts[reasons[segment]] += 1
            logger.debug("deleted segment %s: %s", segment.text, reasons[segment].value)

    async def _take_over(self, segment: RemoteSegment) -> bool:
        """Keep everybody from finishing a copy; return False if it is not one to delete after all.

        A node may not know yet that it leads no more. That it finished the copy must not come
        between this decision and its announcement: others would free their disks for a segment
        that is about to be deleted. To announce a copy again is possible only while it is not
        finished, and who announced it last alone may finish it: so either this is refused, or that.
        """
        announced = replace(segment, broker_id=self._node_id, event_timestamp_ms=self._now_ms())
        try:
            await self._metadata.add(announced)
        except InvalidTransition:
            return False
        return True

    def _checker(self, tiered: TieredPartition, expiry: Expiry) -> Callable[[], None]:
        """Return what raises NotLeading if a plan is moot: what is not announced by then stays.

        That is so if this node leads no more, if the topic came back to the tier, or if a tool has
        begun to restore it: then the log is empty, and is to begin behind what is announced.
        """
        log = tiered.partition.log
        is_leaving = any(each.reason is Reason.NOT_TIERED for each in expiry.deletions)
        restored_to = max(
            (each.next_offset for each, _ in expiry.deletions if is_being_restored(each)), default=0
        )

        def check() -> None:
            tiered.check_leading()
            if restored_to > log.end_offset and log.is_empty:
                raise NotLeading(f"{tiered.name} is being restored")
            if is_leaving and log.settings.is_tiered:
                raise NotLeading(f"the topic of {tiered.name} is in the tier again")

        return check

    def _states(self, tiered: TieredPartition) -> dict[SegmentId, SegmentState]:
        return {each.id: each.state for each in self._metadata.segments(tiered.key)}


def _size_of(segments: Collection[RemoteSegment]) -> tuple[int, int]:
    return len(segments), sum(segment.size_bytes for segment in segments)


def _basis(tiered: TieredPartition) -> object:
    """Return what a look goes by, beside the tier's segments and the time."""
    log = tiered.partition.log
    return log.settings, log.start_offset, log.cuts, len(log.epochs)
