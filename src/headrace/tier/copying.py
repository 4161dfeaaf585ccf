"""Copying finished segments of partitions that this node leads to the tier, oldest first.

A copy is announced, written, and announced as finished. If anything goes wrong in between it is
deleted; if that goes wrong too, or this node dies, `expiring` finds it. Another attempt has another
id, so attempts never meet.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Final

from headrace import config
from headrace.config import LiveSettings
from headrace.ids import BrokerId
from headrace.log.disk import DiskFile
from headrace.loop.quota import Quota
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import (
    InvalidTransition,
    RemoteSegment,
    SegmentId,
    SegmentNotFound,
    SegmentState,
    SegmentUpdate,
    TierError,
)
from headrace.remote.store import StoreError
from headrace.tier.life import LocalSegment, choose_copy
from headrace.tier.removing import Remover
from headrace.tier.segment_files import prepare
from headrace.tier.swappable import LedMetadata
from headrace.tier.tiered_partition import NotLeading, TieredPartition
from headrace.wire.schema import Buffer

LOOKED_AT_MAX: Final = 64
"""How many segments without a batch are passed over at once."""
PART_BYTES_MIN: Final = 4096
"""How little is read at a time, however small the quota is."""
WAIT_SECONDS_MAX: Final = 1.0
"""How long a copy waits for the quota before it looks whether it is still wanted."""
TAKE_AWAY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""How long it waits between attempts to delete what nobody else will delete."""

logger = logging.getLogger(__name__)


class CustomMetadataTooLarge(TierError):
    """The store wants to keep more with a description than is allowed."""


class Copier:
    """Copies segments; one of a partition at a time."""

    def __init__(
        self,
        node_id: BrokerId,
        settings: LiveSettings,
        metadata: LedMetadata,
        objects: SegmentObjects,
        remover: Remover,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self.requests = 0
        """Copies that were begun, those that failed, and the bytes of those that were finished."""
        self.errors = 0
        self.copied_bytes = 0
        self.under_way: set[SegmentId] = set()
        """Copies that this node is writing, also in a role that it had before."""
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._objects = objects
        self._remover = remover
        self._now_ms = now_ms
        self._quota = Quota(
            window_count=settings[config.REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM],
            window_ms=1000 * settings[config.REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS],
        )
        self._part_bytes = settings[config.TIER_COPY_PART_BYTES]

    def next_segment(self, tiered: TieredPartition) -> LocalSegment | None:
        """Return the segment that is to be copied next, None if nothing is to do."""
        log = tiered.partition.log
        if not (tiered.is_leader and log.settings.is_copied):
            return None
        if tiered.is_stopped or log.is_being_cut:
            return None
        offset = max(log.remote_end_offset, log.local_start_offset)
        return choose_copy(
            tiered.local_segments(offset, LOOKED_AT_MAX),
            remote_end=log.remote_end_offset,
            start_offset=log.start_offset,
            stable_offset=tiered.stable_offset,
        )

    async def copy_all(self, tiered: TieredPartition) -> None:
        """Copy what is to be copied of a partition; return early if this node leads no more."""
        try:
            await tiered.catch_up(self._metadata)
            tiered.learn_remote_end(self._metadata)
            tiered.check_shared(self._metadata)
            while (local := self.next_segment(tiered)) is not None:
                await self._copy(tiered, local)
                tiered.learn_remote_end(self._metadata)
                if tiered.partition.log.remote_end_offset < local.next_offset:
                    return  # it has been deleted already: the next look decides
        except NotLeading as error:
            logger.info("a copy to the tier ends: %s", error)

    async def _copy(self, tiered: TieredPartition, local: LocalSegment) -> None:
        self.requests += 1
        try:
            cuts = tiered.partition.log.cuts

            def parts(file: DiskFile, size_bytes: int) -> AsyncGenerator[Buffer]:
                return self._parts(tiered, cuts, file, size_bytes)

            segment, files = await prepare(
                tiered, local, node_id=self._node_id, now_ms=self._now_ms(), parts=parts
            )
            tiered.copying = segment.id
            self.under_way.add(segment.id)
            try:
                await self._metadata.add(segment)
                try:
                    custom = await self._objects.copy(segment, files)
                    tiered.check_leading(cuts)
                    self._check_custom(custom)
                except Exception:
                    await self._give_up(segment)
                    raise
                await self._finish(segment, custom)
            finally:
                tiered.copying = None
                self.under_way.discard(segment.id)
        except BaseException:
            self.errors += 1
            raise
        self.copied_bytes += local.size_bytes
        logger.debug("%s: offsets up to %d are in the tier", tiered.name, local.next_offset)

    async def _finish(self, segment: RemoteSegment, custom: bytes | None) -> None:
        """Announce that a copy is there.

        If nobody knows whether that was heard, the copy stays: the next look sees what it is.
        """
        update = SegmentUpdate(
            segment.partition,
            segment.id,
            self._now_ms(),
            SegmentState.COPY_FINISHED,
            self._node_id,
            custom,
        )
        try:
            await self._metadata.update(update)
        except (InvalidTransition, SegmentNotFound):  # another leader has deleted it
            await self._take_away(segment)
            raise

    async def _give_up(self, segment: RemoteSegment) -> None:
        """Delete a copy that failed; if that fails too, `expiring` will do it."""
        try:
            await self._remover.delete([segment])
        except (InvalidTransition, SegmentNotFound):  # another leader has deleted it
            await self._take_away(segment)
        except Exception as error:
            logger.debug("the rest of segment %s stays for now: %s", segment.text, error)

    async def _take_away(self, segment: RemoteSegment) -> None:
        """Delete what was written of a segment after another leader had deleted it.

        No event names it any more: if this node dies over it, `orphans` finds it much later.
        """
        for seconds in (*TAKE_AWAY_SECONDS, None):
            try:
                await self._objects.delete(segment)
                return
            except StoreError as error:
                if seconds is None:
                    logger.warning(
                        "objects of segment %s may be left: %s; the leader deletes them after "
                        "headrace.tier.orphan.grace.ms",
                        *(segment.text, error),
                    )
                    return
                await asyncio.sleep(seconds)

    def _check_custom(self, custom: bytes | None) -> None:
        bytes_max = self._settings[config.REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES]
        if custom is not None and len(custom) > bytes_max:
            raise CustomMetadataTooLarge(
                f"the store has {len(custom)} bytes of metadata for a segment, more than "
                f"remote.log.metadata.custom.metadata.max.bytes={bytes_max}"
            )

    async def _parts(
        self, tiered: TieredPartition, cuts: int, file: DiskFile, size_bytes: int
    ) -> AsyncGenerator[Buffer]:
        """Yield a file in parts, as the quota allows, while this node leads."""
        loop = asyncio.get_running_loop()
        position = 0
        while position < size_bytes:
            await self._wait_for_quota(tiered, cuts)
            # At most what goes in a second: windows forget what is much more.
            second = max(self._rate_max, PART_BYTES_MIN)
            count = min(self._part_bytes, second, size_bytes - position)
            self._quota.record(count, self._now_ms())
            part = await loop.run_in_executor(None, file.read, position, count)
            tiered.check_leading(cuts)
            if len(part) < count:
                raise TierError(f"{file.path} ends at {position + len(part)}, not at {size_bytes}")
            yield part
            position += count

    @property
    def _rate_max(self) -> int:
        return self._settings[config.REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND]

    async def _wait_for_quota(self, tiered: TieredPartition, cuts: int) -> None:
        while True:
            tiered.check_leading(cuts)
            wait_ms = self._quota.wait_ms(self._rate_max, self._now_ms())
            if not wait_ms:
                return
            await asyncio.sleep(min(wait_ms / 1000, WAIT_SECONDS_MAX))
