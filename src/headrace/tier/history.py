"""What the tier knows about the records that a log does not have: leader epochs and producers.

A log that begins behind a segment of the tier goes on as if it had had those records: a follower
that was empty, or the only replica of a partition after its disk was lost.
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.log.checkpoints import parse_epochs
from headrace.log.epochs import EpochStart
from headrace.log.producer_snapshots import decode_snapshot
from headrace.log.truncating import History
from headrace.remote.layout import ObjectKind
from headrace.remote.segments import RemoteSegment
from headrace.remote.store import StoreError
from headrace.wire.schema import Buffer

LARGE_SNAPSHOT_BYTES: Final = 64 * 1024
"""A snapshot of some thousand producers, which a thread decodes."""


class IndexSource(Protocol):
    """Where objects of a segment come from (`remote.segment_objects.SegmentObjects`)."""

    async def fetch_index(self, segment: RemoteSegment, kind: ObjectKind) -> Buffer: ...


async def read_history(source: IndexSource, segment: RemoteSegment, start_offset: int) -> History:
    """Return the history of a log that goes on behind a segment, and starts at an offset.

    Raise KafkaError, which is retried, if the store does not give it.
    """
    try:
        text, snapshot = await asyncio.gather(
            source.fetch_index(segment, ObjectKind.LEADER_EPOCHS),
            source.fetch_index(segment, ObjectKind.PRODUCER_SNAPSHOT),
        )
    except StoreError as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the history of segment {segment.text}: {error}"
        ) from error
    next_offset = segment.next_offset
    epochs = parse_epochs(bytes(text).decode("ascii", "replace"), f"epochs of {segment.text}")
    decode = partial(decode_snapshot, snapshot, f"producers of {segment.text}")
    if len(snapshot) > LARGE_SNAPSHOT_BYTES:
        producers = await asyncio.get_running_loop().run_in_executor(None, decode)
    else:
        producers = decode()
    kept = [EpochStart(*entry) for entry in epochs if entry.start_offset < next_offset]
    return History(min(start_offset, next_offset), next_offset, kept, producers)
