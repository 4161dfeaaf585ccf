"""Segments in the store: Kafka's RemoteStorageManager.

Every attempt to copy a segment has an id of its own, so objects are written once and never
overwritten. A copy that failed leaves some of them: whoever announced it deletes it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple

from crc32c import crc32c

from headrace.remote.fingerprints import (
    Fingerprint,
    Fingerprints,
    decode_fingerprints,
    encode_fingerprints,
)
from headrace.remote.layout import WRITE_ORDER, ObjectKind, object_key
from headrace.remote.segments import RemoteSegment
from headrace.remote.store import DamagedObject, NoSuchObject, ObjectStore, StoreCounts
from headrace.wire.schema import Buffer


class SegmentFiles(NamedTuple):
    """The files of a local segment that is copied."""

    log: Callable[[], AsyncIterator[Buffer]]
    """Begins to read the log's file: parts in order, of any size, that do not change afterwards."""
    log_bytes: int
    offset_index: Buffer
    time_index: Buffer
    txn_index: Buffer | None
    """None if no transaction was aborted in the segment."""
    producer_snapshot: Buffer
    leader_epochs: Buffer
    """The checkpoint's text, up to the end of the segment."""


class SegmentObjects:
    """The objects of segments in a store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    @property
    def counts(self) -> StoreCounts:
        """What the store was asked for since it was opened."""
        return self.store.counts

    async def copy(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Write the objects of a segment and return its custom metadata.

        Everything is durable on return. The log is streamed; memory holds a few parts of it. Raise
        DamagedObject if the store has not what it took: nothing may be deleted for such a copy.
        """
        log = _Summed(files.log())
        async with aclosing(log.parts()) as parts:
            await self.store.put(object_key(segment, ObjectKind.LOG), parts, files.log_bytes)
        written: Fingerprints = {ObjectKind.LOG: Fingerprint(files.log_bytes, log.crc32c)}
        for kind, data in (
            (ObjectKind.OFFSET_INDEX, files.offset_index),
            (ObjectKind.TIME_INDEX, files.time_index),
            (ObjectKind.TXN_INDEX, files.txn_index),
            (ObjectKind.PRODUCER_SNAPSHOT, files.producer_snapshot),
            (ObjectKind.LEADER_EPOCHS, files.leader_epochs),
        ):
            if data is not None:
                await self.store.put(object_key(segment, kind), data, len(data))
                written[kind] = Fingerprint(len(data), crc32c(data))
        await self._check_there(segment, written)
        return encode_fingerprints(written)

    async def _check_there(self, segment: RemoteSegment, written: Fingerprints) -> None:
        """Raise DamagedObject unless the store has each object with its size.

        The last byte of each is read: a listing may lag behind, and costs more.
        """
        for kind, (size_bytes, _) in written.items():
            key, begin = object_key(segment, kind), max(0, size_bytes - 1)
            try:
                end_bytes = len(await self.store.get(key, begin, size_bytes + 1))
            except NoSuchObject:
                raise DamagedObject(
                    f"{self.store.url} confirmed that it wrote {key}, and does not have it"
                ) from None
            if begin + end_bytes != size_bytes:
                raise DamagedObject(
                    f"{self.store.url} confirmed that it wrote {size_bytes} bytes to {key}, and "
                    "it has another size there"
                )

    async def fetch(self, segment: RemoteSegment, begin: int, end: int) -> Buffer:
        """Return the bytes of the log from `begin` up to, not including, `end`.

        Raise DamagedObject if the object ends before. `end` is at most the segment's size.
        """
        if not 0 <= begin <= end <= segment.size_bytes:
            raise ValueError(
                f"bytes {begin} to {end} of segment {segment.text} of {segment.size_bytes} bytes"
            )
        if begin == end:
            return b""
        key = object_key(segment, ObjectKind.LOG)
        data = await self.store.get(key, begin, end)
        if len(data) != end - begin:
            raise DamagedObject(
                f"{key} in {self.store.url} ends at {begin + len(data)}, "
                f"its segment has {segment.size_bytes} bytes"
            )
        return data

    async def fetch_index(self, segment: RemoteSegment, kind: ObjectKind) -> Buffer:
        """Return an object other than the log, whole.

        The index of transactions is empty where none was aborted. Raise DamagedObject if the
        object is not the one that was written; only segments that Kafka copied cannot be checked.
        """
        if kind is ObjectKind.LOG:
            raise ValueError("the log is fetched in parts")
        written = decode_fingerprints(segment.custom_metadata)
        if kind is ObjectKind.TXN_INDEX and (
            segment.is_txn_index_empty or (written is not None and kind not in written)
        ):
            return b""
        key = object_key(segment, kind)
        try:
            data = await self.store.get(key)
        except NoSuchObject:
            if kind is ObjectKind.TXN_INDEX and written is None:
                return b""  # as in Kafka, which copies no file that is not there
            raise
        if written is not None and kind in written:
            _check(f"{key} in {self.store.url}", data, written[kind])
        return data

    async def delete(self, segment: RemoteSegment) -> None:
        """Delete the objects of a segment; those that are not there are fine.

        The leader epochs go first: what is left after a failure never looks complete.
        """
        await self.hide(segment)
        await self.delete_hidden(segment)

    async def hide(self, segment: RemoteSegment) -> None:
        """Delete the leader epochs: whoever looks at the store alone sees no segment any more."""
        await self.store.delete([object_key(segment, WRITE_ORDER[-1])])

    async def delete_hidden(self, segment: RemoteSegment) -> None:
        """Delete the other objects of a segment."""
        await self.store.delete([object_key(segment, kind) for kind in WRITE_ORDER[:-1]])


class _Summed:
    """The parts of a body, and the checksum of those that were taken."""

    def __init__(self, source: AsyncIterator[Buffer]) -> None:
        self._source = source
        self.crc32c = 0

    async def parts(self) -> AsyncGenerator[Buffer, None]:
        try:
            async for part in self._source:
                self.crc32c = crc32c(part, self.crc32c)
                yield part
        finally:
            if isinstance(self._source, AsyncGenerator):
                await self._source.aclose()


def _check(name: str, data: Buffer, written: Fingerprint) -> None:
    if len(data) != written.size_bytes:
        raise DamagedObject(
            f"{name} has {len(data)} bytes, {written.size_bytes} were written: it was changed"
        )
    if crc32c(data) != written.crc32c:
        raise DamagedObject(f"{name} does not have the checksum it was written with")
