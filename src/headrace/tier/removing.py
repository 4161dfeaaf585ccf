"""Deleting segments from the tier: a step, the objects, a step. Each may be repeated.

Readers that go to the store themselves leave leases there. A deletion is announced first, and the
segment hidden from those who ask no broker; then the leases are read, then the objects go: whoever
saw a segment as complete before has a lease by then (`remote.leases`). A segment that is leased
stays announced and hidden, and goes later.

A copy that a crash cut short may have left an upload that no listing of objects shows, and that
costs as much: it goes with its segment.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from headrace.errors import HeadraceError
from headrace.ids import BrokerId
from headrace.remote.layout import segment_prefix
from headrace.remote.leases import Leases, read_leases
from headrace.remote.segment_objects import SegmentObjects
from headrace.remote.segments import (
    RemoteSegment,
    SegmentId,
    SegmentState,
    SegmentUpdate,
    TierError,
)
from headrace.remote.store import StoreError, StoreRefused, UploadsUnknown
from headrace.tier.ports import RemoteMetadata

BATCH: Final = 100
"""How many deletions are announced before the leases are read."""
_BEGUN: Final = (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)
_BEGUN_COPIES: Final = (SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED)
"""States of segments whose copy may never have been finished."""

logger = logging.getLogger(__name__)


class LeasesUnknown(TierError):
    """Nobody knows what is being read, so nothing is deleted."""


class Remover:
    """Deletes segments by legal transitions only, so that a crash at any step leaks nothing."""

    def __init__(
        self,
        node_id: BrokerId,
        metadata: RemoteMetadata,
        objects: SegmentObjects,
        now_ms: Callable[[], int],
    ) -> None:
        self.requests = 0
        """Segments that were to be deleted, those that failed, and the bytes of the others."""
        self.errors = 0
        self.deleted_bytes = 0
        self.leased = 0
        """How often a lease kept a segment."""
        self.on_deleted: list[Callable[[RemoteSegment], None]] = []
        """Called when a segment goes: nothing of it is worth keeping."""
        self.in_doubt: set[SegmentId] = set()
        """Segments whose deletion was announced, and nobody knows yet whether that was heard."""
        self._node_id = node_id
        self._metadata = metadata
        self._objects = objects
        self._now_ms = now_ms

    async def delete(
        self, segments: Sequence[RemoteSegment], go_on: Callable[[], None] = lambda: None
    ) -> list[RemoteSegment]:
        """Delete segments in any state; return those that are gone.

        Those that are leased stay for now. One that fails does not keep the others: the first
        error is raised at the end, and what is left is to be deleted again. `go_on` is called
        before each and raises what ends the work.
        """
        gone: list[RemoteSegment] = []
        errors: list[Exception] = []
        for first in range(0, len(segments), BATCH):
            batch = []
            for segment in segments[first : first + BATCH]:
                go_on()
                self.requests += 1
                if await self._attempt(self._announce, segment, errors):
                    batch.append(segment)
            leases = await self._read_leases() if batch else None
            for segment in batch:
                go_on()
                if leases and leases.protecting(
                    segment.key, segment.start_offset, segment.next_offset
                ):
                    self.leased += 1
                elif await self._attempt(self._finish, segment, errors):
                    self.deleted_bytes += segment.size_bytes
                    gone.append(segment)
        if errors:
            raise errors[0]
        return gone

    async def _attempt(
        self,
        step: Callable[[RemoteSegment], Awaitable[None]],
        segment: RemoteSegment,
        errors: list[Exception],
    ) -> bool:
        """Do a step; return whether it succeeded."""
        try:
            await step(segment)
        except (HeadraceError, OSError) as error:
            self.errors += 1
            errors.append(error)
            return False
        return True

    async def _announce(self, segment: RemoteSegment) -> None:
        if segment.state not in _BEGUN:
            self.in_doubt.add(segment.id)
            await self._step(segment, SegmentState.DELETE_STARTED)
            self.in_doubt.discard(segment.id)
        await self._objects.hide(segment)

    async def _finish(self, segment: RemoteSegment) -> None:
        for forget in self.on_deleted:
            forget(segment)
        await self._objects.delete_hidden(segment)
        if segment.state in _BEGUN_COPIES and segment.custom_metadata is None:
            await self._drop_uploads(segment)
        await self._step(segment, SegmentState.DELETE_FINISHED)
        self.in_doubt.discard(segment.id)

    async def _drop_uploads(self, segment: RemoteSegment) -> None:
        """Abort uploads of a copy that was not finished; fsck finds what may not be listed."""
        store = self._objects.store
        prefix = segment_prefix(segment.partition, segment.start_offset, segment.id)
        try:
            uploads = await store.list_uploads()
        except (UploadsUnknown, StoreRefused) as error:
            logger.debug("uploads of segment %s may be left: %s", segment.text, error)
            return
        for upload in uploads:
            if upload.key.startswith(prefix):
                await store.abort_upload(upload)

    async def _step(self, segment: RemoteSegment, state: SegmentState) -> None:
        await self._metadata.update(
            SegmentUpdate(segment.partition, segment.id, self._now_ms(), state, self._node_id)
        )

    async def _read_leases(self) -> Leases:
        try:
            return await read_leases(self._objects.store, self._now_ms())
        except StoreError:
            raise
        except ValueError as error:
            raise LeasesUnknown(f"nothing is deleted from the tier: {error}") from error
