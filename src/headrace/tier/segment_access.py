"""The bytes and indexes of segments, at hand or from the store, and what it means if they fail."""

import asyncio
import logging
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.records.header import HEADER_BYTES
from headrace.remote.indexes import DamagedSegment
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import RemoteSegment, SegmentState, TierError
from headrace.remote.store import DamagedObject, NoSuchObject, StoreError
from headrace.tier.batches import Batch, Walk
from headrace.tier.chunks import Chunks
from headrace.tier.index_cache import Index, IndexCache
from headrace.tier.ports import RemoteMetadata, Throttled

HEADERS_PER_TURN: Final = 1000
"""How many batches are passed over in one turn of the loop."""
REPORTED_MAX: Final = 1000
"""How many damaged segments are remembered, so as not to be reported again."""

logger = logging.getLogger(__name__)


class Deleted(TierError):
    """A segment that was deleted while it was read."""


class SegmentAccess:
    """What a reader sees of segments."""

    def __init__(self, metadata: RemoteMetadata, chunks: Chunks, indexes: IndexCache) -> None:
        self._metadata = metadata
        self._chunks = chunks
        self._indexes = indexes
        self._reported: set[bytes] = set()
        self._is_in_trouble = False
        self.waiting_max = 0
        """More reads than this do not wait for the store: they are Throttled."""
        self.waiting = 0
        """The reads under way; those that do not wait come and go unseen."""
        self.error_count = 0

    async def bytes(self, segment: RemoteSegment, begin: int, end: int) -> memoryview:
        """Return bytes of a segment; raise TierError."""
        found = self._chunks.view(segment, begin, end)
        if found is None:
            self._admit()
            try:
                found = await self._chunks.read(segment, begin, end)
            except DamagedObject as error:
                raise DamagedSegment(segment, str(error)) from error
            except NoSuchObject as error:
                raise self._missing(segment, error) from error
            self._note_success()
        return found

    async def batches(self, segment: RemoteSegment, begin: int, end: int) -> memoryview:
        """Return the bytes of batches, the first of which begins at a position; raise TierError.

        They are as their producers wrote them, and end where one is not.
        """
        found = await self.bytes(segment, begin, end)
        return await self._chunks.checks.sound(segment, begin, found)

    async def index(self, segment: RemoteSegment, kind: ObjectKind) -> Index:
        """Return an index of a segment; raise TierError."""
        found = self._indexes.peek(segment, kind)
        if found is None:
            self._admit()
            try:
                found = await self._indexes.get(segment, kind)
            except DamagedObject as error:
                raise DamagedSegment(segment, str(error)) from error
            except NoSuchObject as error:
                raise self._missing(segment, error) from error
            self._note_success()
        return found

    def _admit(self) -> None:
        """Raise Throttled if too many reads wait already."""
        if self.waiting > self.waiting_max:
            raise Throttled("too many reads wait for the store")

    def _missing(self, segment: RemoteSegment, error: NoSuchObject) -> TierError:
        """Return what it means that an object is not there: it was deleted, or it is lost."""
        for each in self._metadata.segments(segment.key):
            if each.id == segment.id and each.state == SegmentState.COPY_FINISHED:
                return DamagedSegment(segment, f"an object is missing: {error}")
        return Deleted(f"segment {segment.text} was deleted")

    async def walk(self, segment: RemoteSegment, walk: Walk) -> Batch | None:
        """Walk on to the batch that is wanted; None if the segment has none."""
        chunk_bytes = self._chunks.chunk_bytes
        turns = 0
        while not walk.is_over:
            if turns:
                await asyncio.sleep(0)
            turns += 1
            begin = walk.position
            chunk_end = (begin // chunk_bytes + 1) * chunk_bytes
            end = min(max(chunk_end, begin + HEADER_BYTES), segment.size_bytes)
            batch = walk.step(await self.bytes(segment, begin, end), begin, HEADERS_PER_TURN)
            if batch is not None:
                return batch
        return None

    # Trouble

    def failed(self, error: TierError) -> KafkaError:
        """Return what a client hears, and say it in the log if that is news."""
        self.error_count += 1
        if isinstance(error, DamagedSegment):
            self._chunks.drop_segment(error.segment.id)
            self._indexes.drop_segment(error.segment.id)
            self.report(error.segment, error.what)
        elif isinstance(error, StoreError) and not self._is_in_trouble:
            self._is_in_trouble = True
            logger.warning("reads from the tier fail: %s", error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _note_success(self) -> None:
        if self._is_in_trouble:
            self._is_in_trouble = False
            logger.info("reads from the tier work again")

    def report(self, segment: RemoteSegment, what: str) -> None:
        """Log a fault of a segment, once for each segment."""
        if segment.id in self._reported:
            return
        if len(self._reported) >= REPORTED_MAX:
            self._reported.clear()
        self._reported.add(segment.id)
        logger.error("segment %s in the tier: %s", segment.text, what)
