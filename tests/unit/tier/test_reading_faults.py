"""What a store, a damaged object or a late description does to reads: never wrong records."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.records.aborted import AbortedTransaction, encode_entry
from headrace.records.header import read_headers
from headrace.remote.fingerprints import Fingerprint, encode_fingerprints
from headrace.remote.layout import ObjectKind
from headrace.remote.store import DamagedObject, StoreError, StoreRefused
from headrace.tier.awaited import AWAITED_MS
from headrace.tier.ports import RemoteRecords
from headrace.tier.read_limits import ReadLimits
from headrace.tier.reading import RemoteReader
from tests.unit.log.logs import append, end_transaction
from tests.unit.tier.tier_nodes import run_tier
from tests.unit.tier.tiers import NO_END, ORDERS, CopiedLog, small_log


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def read(reader: RemoteReader, log: Log, offset: int = 5) -> RemoteRecords:
    return await reader.read(ORDERS, log.epochs, offset, 300, up_to=NO_END, with_aborted=True)


async def read_fails(reader: RemoteReader, log: Log, offset: int = 5) -> None:
    with pytest.raises(KafkaError) as caught:
        await read(reader, log, offset)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError) as caught:
        await reader.find_time(ORDERS, log.epochs, 1, start_offset=offset, up_to=NO_END)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    "error", [StoreError("503"), StoreRefused("who are you"), DamagedObject("")]
)
def test_trouble_with_the_store_is_retriable_and_forgotten(error: StoreError) -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader()
        copied.objects.errors = [error] * 20
        for _ in range(3):
            await read_fails(reader, log)
        copied.objects.errors.clear()
        assert (await read(reader, log)).records
        assert reader.error_count == 6

    run(scenario())


def test_trouble_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader()
        copied.objects.errors = [StoreError("503")] * 20
        for _ in range(5):
            await read_fails(reader, log)
        copied.objects.errors.clear()
        await read(reader, log)
        await read(reader, log, 20)

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_descriptions_that_were_not_read_yet_are_retriable() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        copied.metadata.is_caught_up = False
        reader = copied.reader()
        await read_fails(reader, log)
        copied.metadata.is_caught_up = True
        assert (await read(reader, log)).records

    run(scenario())


@pytest.mark.parametrize(
    "damage", ["short", "other", "shifted", "index", "torn index", "far index"]
)
def test_a_changed_object_is_never_read(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        segment = copied.segments[0]
        index_key = (segment.id, ObjectKind.OFFSET_INDEX)
        good, good_index = copied.objects.logs[segment.id], copied.objects.indexes[index_key]
        match damage:
            case "short":
                copied.objects.logs[segment.id] = good[:-1]
            case "other":
                other = bytes(copied.objects.logs[copied.segments[1].id])
                copied.objects.logs[segment.id] = other[: len(good)].ljust(len(good), b"\0")
            case "shifted":
                copied.objects.logs[segment.id] = b"\0" + bytes(good[:-1])
            case "index":
                copied.objects.indexes[index_key] = b"\0\0\0\1\0\0\0\7" * (len(good_index) // 8)
            case "torn index":
                copied.objects.indexes[index_key] = good_index[:-3]
            case "far index":
                # An entry that leads behind what it stands for: records would be skipped.
                last = segment.size_bytes - len(good) // (segment.end_offset + 1)
                copied.objects.indexes[index_key] = b"\0\0\0\1" + last.to_bytes(4)
        reader = copied.reader()
        await read_fails(reader, log, segment.start_offset + 3)
        await read_fails(reader, log, segment.start_offset + 3)
        assert (await read(reader, log, copied.segments[1].start_offset)).records
        copied.objects.logs[segment.id] = good
        copied.objects.indexes[index_key] = good_index
        assert (await read(reader, log, segment.start_offset + 3)).records

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize(
    "index", [b"x" * 33, encode_entry(AbortedTransaction(1, 5, 10**6, 0))], ids=["torn", "other"]
)
def test_an_index_of_transactions_that_is_not_the_segments_is_never_believed(
    index: bytes,
) -> None:
    async def scenario() -> None:
        log = small_log()
        append(log, b"begin", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=1)
        end_transaction(log, 1, is_commit=False)
        log.roll(log.end_offset)
        copied = CopiedLog(log)
        segment = copied.segments[-1]
        assert (await read(copied.reader(), log, segment.start_offset)).aborted
        copied.objects.indexes[segment.id, ObjectKind.TXN_INDEX] = index
        with pytest.raises(KafkaError) as caught:
            await read(copied.reader(), log, segment.start_offset)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario())


def test_an_object_that_is_lost_is_an_error_and_not_the_end() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        del copied.objects.logs[copied.segments[0].id]
        await read_fails(copied.reader(), log)

    run(scenario())


def test_a_segment_that_is_deleted_during_a_read_leads_to_the_next_one() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader()
        copied.objects.gate = asyncio.Event()
        reading = asyncio.ensure_future(read(reader, log, 0))
        while not copied.objects.under_way:
            await asyncio.sleep(0)
        gone = copied.segments[0]
        del copied.objects.logs[gone.id]
        copied.metadata.remove(gone)
        copied.objects.gate.set()
        found = await reading
        assert int.from_bytes(found.records[:8]) == gone.next_offset
        await reader.close()

    run(scenario())


def test_a_fetch_that_times_out_leaves_the_fill_for_the_next_one() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader()
        copied.objects.gate = asyncio.Event()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(reader, log, 0), 0.01)
        copied.objects.gate.set()
        assert (await read(reader, log, 0)).records
        assert len(copied.objects.requests) == 1
        await reader.close()

    run(scenario())


def test_too_many_readers_are_told_to_come_again() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader(ReadLimits(fills_max=2, pending_max=3))
        copied.objects.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(read(reader, log, 0)) for _ in range(5)]
        while not copied.objects.under_way:
            await asyncio.sleep(0)
        found = await read(reader, log, 0)
        assert found.is_throttled
        assert not found.records
        copied.objects.gate.set()
        assert all(each.records for each in await asyncio.gather(*waiting))
        assert (await read(reader, log, 0)).records
        assert reader.throttled_count == 1
        await reader.close()

    run(scenario())


def test_a_quota_gives_empty_records_without_an_error() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        now_ms = 0
        limits = ReadLimits(bytes_per_second=1, quota_windows=2, read_ahead_bytes_max=0)
        reader = copied.reader(limits, now_ms=lambda: now_ms)
        assert (await read(reader, log, 0)).records
        second = copied.segments[1].start_offset
        found = await read(reader, log, second)
        assert found.is_throttled
        assert not found.records
        assert (await read(reader, log, 0)).records  # it is at hand
        now_ms = 10**9
        assert (await read(reader, log, second)).records

    run(scenario())


def test_partitions_are_read_at_the_same_time() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader()
        copied.objects.gate = asyncio.Event()
        reads = [
            asyncio.ensure_future(read(reader, log, each.start_offset)) for each in copied.segments
        ]
        while len(copied.objects.requests) < min(10, len(copied.segments)):
            await asyncio.sleep(0)
        copied.objects.gate.set()
        assert all(each.records for each in await asyncio.gather(*reads))
        await reader.close()

    run(scenario())


def test_a_closed_reader_ends_what_waits_with_an_error() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader()
        copied.objects.gate = asyncio.Event()
        waiting = asyncio.ensure_future(read(reader, log, 0))
        while not copied.objects.under_way:
            await asyncio.sleep(0)
        await reader.close()
        with pytest.raises(KafkaError):
            await waiting
        assert copied.objects.under_way == 0

    run(scenario())


@pytest.mark.parametrize("cache_bytes", [0, 256])
@pytest.mark.parametrize("index_cache_bytes", [0, 10**6])
def test_a_reader_that_gives_up_sooner_than_the_store_responds_gets_there(
    cache_bytes: int, index_cache_bytes: int
) -> None:
    """However small the caches: a read may need an index and several chunks, one after another."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        log = small_log(100, segment_bytes=3000)
        copied = CopiedLog(log)
        copied.objects.latency_seconds = 0.7
        limits = ReadLimits(
            chunk_bytes=128,
            chunk_cache_bytes=cache_bytes,
            index_cache_bytes=index_cache_bytes,
            read_ahead_bytes_max=0,
            fill_bytes_max=2000,
        )
        reader = copied.reader(limits, now_ms=lambda: round(loop.time() * 1000))
        offset, end, attempts = 0, copied.segments[-1].next_offset, 0
        while offset < end:
            attempts += 1
            assert attempts < 20 * end, f"nobody gets beyond {offset}"
            try:
                async with asyncio.timeout(0.5):
                    found = await read(reader, log, offset)
            except TimeoutError:
                continue
            offset = [header.next_offset for _, header in read_headers(found.records)][-1]
        copied.objects.latency_seconds = 0
        await asyncio.sleep(AWAITED_MS / 1000)
        await reader.tidy()
        assert reader.chunks.held_bytes <= cache_bytes
        await reader.close()

    run_tier(scenario())


@pytest.mark.parametrize("chunk_bytes", [64, 100, 256, 1000, 10**6])
def test_a_changed_record_is_never_served_and_those_before_it_are(chunk_bytes: int) -> None:
    """Many clients check no checksum. Wherever the batch is, and how many chunks it is in."""

    async def scenario() -> None:
        log = small_log(30, segment_bytes=10_000)
        log.roll(log.end_offset)
        copied = CopiedLog(log)
        (segment,) = copied.segments
        good = bytes(copied.objects.logs[segment.id])
        limits = ReadLimits(chunk_bytes=chunk_bytes, read_ahead_bytes_max=1000)
        for position, header in read_headers(good):
            changed = bytearray(good)
            changed[position + header.size_bytes - 3] ^= 1
            copied.objects.logs[segment.id] = bytes(changed)
            reader = copied.reader(limits)
            offset = 0
            while offset < header.base_offset:
                found = (await read(reader, log, offset)).records
                headers = [each for _, each in read_headers(found)]
                assert headers[0].base_offset == offset
                offset = headers[-1].next_offset
                assert offset <= header.base_offset
            await read_fails(reader, log, header.base_offset)
            copied.objects.logs[segment.id] = good
            assert (await read(reader, log, header.base_offset)).records
            await reader.close()

    run_tier(scenario())


def test_batches_that_changed_places_are_not_served() -> None:
    async def scenario() -> None:
        log = small_log(30, segment_bytes=10_000)
        log.roll(log.end_offset)
        copied = CopiedLog(log)
        (segment,) = copied.segments
        good = bytes(copied.objects.logs[segment.id])
        (a, first), (b, second), (end, _) = list(read_headers(good))[5:8]
        swapped = good[:a] + good[b:end] + good[a:b] + good[end:]
        copied.objects.logs[segment.id] = swapped
        reader = copied.reader()
        for offset in (0, first.base_offset, second.base_offset):
            await read_fails(reader, log, offset)
        await reader.close()

    run_tier(scenario())


def test_a_batch_in_anothers_place_is_not_served_where_a_chunk_has_the_whole_segment() -> None:
    """No checksum of a batch has its offset; that of the log is checked where all of it is here."""

    async def scenario() -> None:
        log = small_log(30, segment_bytes=10_000)
        log.roll(log.end_offset)
        copied = CopiedLog(log)
        (segment,) = copied.segments
        good = bytes(copied.objects.logs[segment.id])
        written = {ObjectKind.LOG: Fingerprint(len(good), crc32c(good))}
        custom = encode_fingerprints(written)
        copied.metadata.all = [msgspec.structs.replace(segment, custom_metadata=custom)]
        reader = copied.reader()
        assert (await read(reader, log, 0)).records
        await reader.close()
        (a, _), (b, _), (end, _) = list(read_headers(good))[5:8]
        forged = good[:b] + good[b : b + 8] + good[a + 8 : b] + good[end:]  # the sixth one twice
        assert len(forged) == len(good)
        copied.objects.logs[segment.id] = forged
        reader = copied.reader()
        for offset in (0, 5, 6, 20):
            await read_fails(reader, log, offset)
        await reader.close()

    run_tier(scenario())
