"""Reading a share partition: batches of the log by their headers, and their bytes."""

import logging
from bisect import bisect_left
from operator import attrgetter
from struct import Struct as Layout
from typing import Final, NamedTuple

from headrace.errors import KafkaError
from headrace.records.aborted import AbortedRanges
from headrace.records.compression import Compression, inflated_bytes_bound
from headrace.records.errors import CorruptBatch
from headrace.records.header import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    read_headers,
)
from headrace.records.scan import RECORD_BYTES_MIN
from headrace.share.led_partition import LedSharePartition, TieredRecords
from headrace.share.partition.types import Acquired, FetchedBatch

CHUNK_BYTES_MIN: Final = 4 * 1024
CHUNK_GROWTH: Final = 4
_EMPTY: Final = memoryview(b"")

logger = logging.getLogger(__name__)


class ShareRead(NamedTuple):
    """The part of a share partition that could be acquired, and its bytes."""

    led: LedSharePartition
    offset: int
    """Where the read started."""
    records: memoryview
    ends: list[int]
    """Where each batch ends in the bytes."""
    fetched: list[FetchedBatch]


def read_share(
    led: LedSharePartition,
    offset: int,
    now_ms: int,
    *,
    bytes_max: int,
    records_max: int,
    is_first: bool,
    may_block: bool,
) -> ShareRead | None:
    """Read from `offset` on, as returned by `next_offset`; None if that would wait.

    It waits for the disk, for a first look at many aborted transactions, or for the tier:
    `LedSharePartition.tiered` is what was read there.

    Returns whole batches, until `records_max` offsets can be acquired, however many offsets that
    other members hold lie between them. With `is_first` the first batch may be larger than
    `bytes_max`, or it could never be delivered.
    """
    log, settings = led.partition.log, led.configs.known
    if offset < log.local_start_offset:
        return _read_tiered(led, offset, now_ms, records_max)
    up_to = log.last_stable_offset if settings.is_committed else log.high_watermark
    enough_offset = led.machine.reach(offset, records_max, now_ms)
    # A client's byte limit is most often far more than its number of records needs.
    chunk_bytes = led.bytes_a_record * (enough_offset - offset + 1) + CHUNK_BYTES_MIN
    chunk_bytes = min(bytes_max, chunk_bytes)
    while True:
        records = log.read(
            offset, chunk_bytes, up_to=up_to, is_first_whole=is_first, may_block=may_block
        )
        if records is None:
            return None
        ends, fetched, transactional = _batches(records, enough_offset)
        is_enough = bool(fetched) and fetched[-1].last_offset >= enough_offset
        if is_enough or len(records) < chunk_bytes or chunk_bytes >= bytes_max:
            break
        chunk_bytes = min(chunk_bytes * CHUNK_GROWTH, bytes_max)
    if fetched:
        last_offset = fetched[-1].last_offset
        led.bytes_a_record = ends[-1] // (last_offset - fetched[0].first_offset + 1) + 1
        if transactional and settings.is_committed:
            end_offset = min(last_offset + 1, up_to)
            aborted = log.aborted_at_once(offset, end_offset)
            if aborted is None and not may_block:
                return None
            if aborted is None:
                aborted = log.aborted_transactions(offset, end_offset)
            _withhold(fetched, transactional, AbortedRanges(aborted))
    return ShareRead(led, offset, records, ends, fetched)


def _read_tiered(
    led: LedSharePartition, offset: int, now_ms: int, records_max: int
) -> ShareRead | None:
    """Read from what the tier has given; None if it has to be asked. Raise its KafkaError, once."""
    led.partition.log.check_offset(offset)
    found, led.tiered = led.tiered, None
    if isinstance(found, KafkaError):
        raise found
    if found is None or offset < found.offset:
        return None
    begin = _skip_to(found.records, offset)
    records = found.records[begin:]
    enough_offset = led.machine.reach(offset, records_max, now_ms)
    ends, fetched, transactional = _batches(records, enough_offset)
    if not fetched:
        return None  # all of it is before the offset
    led.tiered = TieredRecords(offset, records, found.aborted)
    _withhold(fetched, transactional, AbortedRanges(found.aborted))
    return ShareRead(led, offset, records, ends, fetched)


def _skip_to(records: memoryview, offset: int) -> int:
    """Return where the first batch begins that ends with an offset or a later one."""
    for position, header in read_headers(records):
        if header.last_offset >= offset:
            return position
    return len(records)


def covering(read: ShareRead, acquired: list[Acquired]) -> memoryview:
    """Return the bytes of the batches from the first to the last that was acquired."""
    if not acquired:
        return _EMPTY
    fetched, ends = read.fetched, read.ends
    first = bisect_left(fetched, acquired[0].first_offset, key=_last_offset)
    last = bisect_left(fetched, acquired[-1].last_offset, first, key=_last_offset)
    begin = ends[first - 1] if first else 0
    return read.records[begin : ends[min(last, len(ends) - 1)]]


def _batches(
    records: memoryview, enough_offset: int
) -> tuple[list[int], list[FetchedBatch], list[tuple[int, int]]]:
    """Return where each whole batch ends, and the batches up to the one with `enough_offset`.

    Also return the indexes and producers of those with transactional records. Only the needed
    fields are read: there may be as many batches as records. Raise CorruptBatch if the first one
    is invalid.
    """
    ends: list[int] = []
    fetched: list[FetchedBatch] = []
    transactional: list[tuple[int, int]] = []
    position, size_bytes = 0, len(records)
    while position + HEADER_BYTES <= size_bytes:
        first, length, magic, attributes, delta, producer_id, count = _FIELDS.unpack_from(
            records, position
        )
        if magic != MAGIC or length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            if fetched:
                break  # the batches before the damage are readable
            raise CorruptBatch(f"at offset {first}: magic {magic}, batch length {length}")
        begin, position = position, position + length + LENGTH_PREFIX_BYTES
        if position > size_bytes:
            break
        # Markers of transactions are acquired, as in Kafka: clients acknowledge them as gaps.
        if attributes & _TRANSACTION_BITS == TRANSACTIONAL_BIT:
            transactional.append((len(ends), producer_id))
        ends.append(position)
        last = first + delta
        if count > length and not _is_possible(records[begin:position], attributes, count):
            logger.error(
                "offsets %d to %d cannot be read: %d bytes do not hold %d records; share groups "
                "skip them",
                *(first, last, length, count),
            )
            fetched.append(FetchedBatch(first, last, is_deliverable=False, is_readable=False))
        else:
            fetched.append(FetchedBatch(first, last))
        if last >= enough_offset:
            break
    return ends, fetched, transactional


def _is_possible(batch: memoryview, attributes: int, count: int) -> bool:
    """Return whether a batch can hold that many records, given its maximum decompressed size.

    Produce checks this now; older versions accepted any number, and one small batch would keep
    the members of a group busy for hours with offsets that have no records.
    """
    code = attributes & COMPRESSION_MASK
    if code > max(Compression):
        return False
    return (
        count <= inflated_bytes_bound(Compression(code), batch[HEADER_BYTES:]) // RECORD_BYTES_MIN
    )


def _withhold(
    fetched: list[FetchedBatch], transactional: list[tuple[int, int]], aborted: AbortedRanges
) -> None:
    """Mark the batches of aborted transactions as withheld."""
    for number, producer_id in transactional:
        batch = fetched[number]
        if aborted.hold(producer_id, batch.first_offset):
            fetched[number] = batch._replace(is_deliverable=False)


_FIELDS: Final = Layout(">qi4xb4xhi16xq6xi")
"""Header fields: base offset, length, magic, attributes, last offset delta, producer id, count."""
_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_last_offset: Final = attrgetter("last_offset")
