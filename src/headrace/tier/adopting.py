"""A leader whose log is empty takes over what the tier has of its partition.

That is so after `headrace tier restore`, and after the disk of the only replica was lost. The log
then begins where the tier does, goes on behind it, and knows the leader epochs and producers of the
last segment, like an empty follower's (`replication.fetcher`).

Until that is done nothing of the partition is copied or deleted. A leader whose log is empty takes
no records before it knows what the tier has: they would get offsets that others had. Only that of a
topic that was just created does. Restore announces all segments of a partition before it finishes
the first one: so none of its own may be unfinished.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.log.errors import LogError
from headrace.log.truncating import Cut, begin_behind
from headrace.remote.coverage import Coverage, cover_log
from headrace.remote.repair import is_being_restored
from headrace.remote.segments import SegmentState
from headrace.replication.partition import Partition
from headrace.tier.history import IndexSource, read_history
from headrace.tier.swappable import LedMetadata
from headrace.tier.tiered_partition import NotLeading, TieredPartition

WAITING: Final = "it is empty, and it is not known yet what the tier has of it"
UNFINISHED: Final = (
    "`headrace tier restore` has not finished it: if no such command is running, run it again"
)

logger = logging.getLogger(__name__)


class Adopter:
    """Lets empty logs of leaders begin behind what is in the tier."""

    def __init__(self, metadata: LedMetadata, source: IndexSource) -> None:
        self._metadata = metadata
        self._source = source
        self.start_cut: Callable[[Partition, Cut], asyncio.Task[bool]] | None = None
        """Finishes a cut of a log in a thread; the task says whether that succeeded."""

    def concerns(self, tiered: TieredPartition) -> bool:
        """Return whether a partition has nothing here, and something in the tier."""
        log = tiered.partition.log
        return (
            tiered.is_leader
            and not tiered.is_stopped
            and not tiered.has_all
            and log.settings.is_tiered
            and log.is_empty
            and not log.is_being_cut
            and any(
                each.next_offset > log.end_offset
                and (each.state is SegmentState.COPY_FINISHED or is_being_restored(each))
                for each in self._metadata.segments(tiered.key)
            )
        )

    def trouble_of(self, tiered: TieredPartition) -> str | None:
        """Return what keeps an empty log from taking over what the tier has, if that is known."""
        if (
            self._metadata.is_ready(tiered.key)
            and self.concerns(tiered)
            and any(map(is_being_restored, self._metadata.segments(tiered.key)))
        ):
            return UNFINISHED
        return None

    def holds(self, tiered: TieredPartition, *, is_start: bool) -> bool:
        """Hold the log of a new leader that may have lost what it had; return whether it is so.

        At the start of the node any log may have. Later it is one that was never written, in an
        epoch that is not the partition's first.
        """
        log = tiered.partition.log
        is_doubtful = is_start or (log.end_offset == 0 and tiered.leader_epoch > 0)
        if tiered.is_leader and log.settings.is_tiered and log.is_empty and is_doubtful:
            log.hold(WAITING)
        return log.is_held

    async def adopt(self, tiered: TieredPartition) -> None:
        """Begin the log behind what the tier has; raise KafkaError, which is retried."""
        try:
            await tiered.catch_up(self._metadata)
            coverage = await self._find(tiered)
            if coverage is None:
                return
            if coverage.extents[-1].stop <= tiered.partition.log.end_offset:
                tiered.has_all = True
                return
            first, last = coverage.extents[0], coverage.extents[-1]
            try:
                start_offset = max(first.start, tiered.partition.log.start_offset)
                history = await read_history(self._source, last.segment, start_offset)
            except LogError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.message) from error
            tiered.check_leading()
            if not self.concerns(tiered) or self.start_cut is None:
                return  # a producer was faster
            partition = tiered.partition
            partition.log.release()
            cut = begin_behind(partition.log, history)
            if await self.start_cut(partition, cut):
                partition.on_adopted()
                logger.info(
                    "%s: takes over offsets %d to %d from the tier",
                    *(tiered.name, start_offset, last.stop - 1),
                )
        except NotLeading as error:
            logger.info("taking over from the tier ends: %s", error)

    async def _find(self, tiered: TieredPartition) -> Coverage | None:
        """Return what to take over; None if it is not complete yet."""
        segments = self._metadata.segments(tiered.key)
        if any(map(is_being_restored, segments)):
            return None
        finished = [each for each in segments if each.state is SegmentState.COPY_FINISHED]
        coverage = await asyncio.get_running_loop().run_in_executor(None, cover_log, finished)
        tiered.check_leading()
        if coverage.gaps:
            first, last = coverage.gaps[-1]
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{tiered.name}: the tier lacks offsets {first} to {last}, so it is not taken over",
            )
        return coverage if coverage.extents else None
