"""Reading from the tier: the same records as from a log.

`test_reading_faults` has what a store can do to it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.log.epochs import EpochStart, LeaderEpochs
from headrace.log.log import Log
from headrace.log.lookup import find
from headrace.log.settings import LogSettings
from headrace.records.header import read_header, read_headers
from headrace.remote.layout import ObjectKind
from headrace.remote.store import StoreError
from headrace.testing.disk import SimulatedDisk
from headrace.tier.read_limits import ReadLimits
from tests.unit.log.logs import NOW_MS, append, end_transaction, open_simulated
from tests.unit.tier.tiers import NO_END, ORDERS, SMALL, CopiedLog, small_log

T = TypeVar("T")

TINY_CHUNKS = ReadLimits(chunk_bytes=256, chunk_cache_bytes=4096, read_ahead_bytes_max=1024)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


# Random logs

steps = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.integers(1, 4), st.integers(0, 120)),
        st.tuples(st.just("begin"), st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("end"), st.booleans(), st.integers(1, 3)),
        st.tuples(st.just("epoch"), st.just(0), st.just(0)),
        st.tuples(st.just("gap"), st.integers(1, 5), st.just(0)),
    ),
    min_size=5,
    max_size=60,
)


def written(plan: list[Any]) -> Log:
    """A log with several segments, transactions, leaders, and offsets that are missing."""
    log = open_simulated(SimulatedDisk(), SMALL)
    epoch = 0
    sequences: dict[int, int] = {}
    open_ones: set[int] = set()
    for number, (kind, first, second) in enumerate(plan):
        timestamp = NOW_MS + number * 10
        if kind == "plain":
            append(log, *[b"v" * second] * first, leader_epoch=epoch, timestamp=timestamp)
        elif kind == "begin":
            append(
                log,
                *[b"t" * 20] * first,
                leader_epoch=epoch,
                timestamp=timestamp,
                producer_id=second,
                producer_epoch=0,
                base_sequence=sequences.get(second, 0),
                is_transactional=True,
            )
            sequences[second] = sequences.get(second, 0) + first
            open_ones.add(second)
        elif kind == "end" and second in open_ones:
            end_transaction(log, second, is_commit=first, leader_epoch=epoch)
            open_ones.discard(second)
        elif kind == "epoch":
            epoch += 1
        elif kind == "gap":
            log.end_offset += first
    for producer_id in open_ones:
        end_transaction(log, producer_id, is_commit=False, leader_epoch=epoch)
    append(log, b"last", leader_epoch=epoch)
    log.advance_high_watermark(log.end_offset)
    return log


async def consume(
    read: Callable[[int], Coroutine[Any, Any, memoryview | None]], start: int, end: int
) -> bytes:
    """Read as a consumer does: whole batches, then on from the offset after them."""
    taken = b""
    offset = start
    while offset < end:
        records = await read(offset)
        if not records:
            break
        batches = list(read_headers(records))
        assert batches, "the first batch is whole"
        for position, header in batches:
            taken += bytes(records[position : position + header.size_bytes])
            offset = header.next_offset
    return taken


@pytest.mark.slow
@given(steps, st.data())
@settings(max_examples=60)
def test_a_log_reads_the_same_from_the_tier(plan: list[Any], data: st.DataObject) -> None:
    log = written(plan)
    copied = CopiedLog(log, len(log.segments))
    limits = ReadLimits(
        chunk_bytes=data.draw(st.sampled_from([64, 200, 1000, 5000])),
        chunk_cache_bytes=data.draw(st.sampled_from([0, 300, 10_000])),
        read_ahead_bytes_max=data.draw(st.sampled_from([0, 400, 3000])),
    )
    up_to = data.draw(st.one_of(st.just(log.end_offset), st.integers(0, log.end_offset)))

    async def both() -> None:
        reader = copied.reader(limits)
        for offset in range(log.end_offset):
            bytes_max = data.draw(st.integers(0, 900))

            async def remote(at: int, limit: int = bytes_max) -> memoryview:
                found = await reader.read(ORDERS, log.epochs, at, limit, up_to=up_to)
                return found.records

            async def local(at: int, limit: int = bytes_max) -> memoryview | None:
                return log.read(at, limit, up_to=up_to, may_block=True)

            assert await consume(remote, offset, up_to) == await consume(local, offset, up_to)
        await reader.close()

    run(both())


@given(steps, st.data())
@settings(max_examples=60)
def test_a_store_that_fails_now_and_then_never_leads_to_other_records(
    plan: list[Any], data: st.DataObject
) -> None:
    log = written(plan)
    copied = CopiedLog(log, len(log.segments))
    limits = ReadLimits(chunk_bytes=200, chunk_cache_bytes=600, read_ahead_bytes_max=400)

    async def both() -> None:
        reader = copied.reader(limits)

        async def remote(at: int) -> memoryview:
            while True:
                fails = data.draw(st.lists(st.booleans(), max_size=3))
                copied.objects.errors = [StoreError("503") if each else None for each in fails]
                try:
                    return (await reader.read(ORDERS, log.epochs, at, 300, up_to=NO_END)).records
                except KafkaError as error:
                    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR  # noqa: PT017

        async def local(at: int) -> memoryview | None:
            return log.read(at, 300, up_to=NO_END, may_block=True)

        assert await consume(remote, 0, NO_END) == await consume(local, 0, NO_END)
        await reader.close()

    run(both())


@given(steps, st.data())
@settings(max_examples=60)
def test_aborted_transactions_are_those_of_the_local_log(
    plan: list[Any], data: st.DataObject
) -> None:
    log = written(plan)
    remote_count = data.draw(st.integers(1, len(log.segments)))
    copied = CopiedLog(log, remote_count)
    chunk_bytes = data.draw(st.sampled_from([200, 10_000]))
    remote_end = copied.segments[-1].next_offset

    async def both() -> None:
        reader = copied.reader(ReadLimits(chunk_bytes=chunk_bytes))
        for offset in range(remote_end):
            bytes_max = data.draw(st.integers(0, 900))
            found = await reader.read(
                ORDERS, log.epochs, offset, bytes_max, up_to=log.end_offset, with_aborted=True
            )
            if not found.records:
                assert found.is_past_tier
                continue
            aborted = found.aborted
            if found.asks_local is not None:
                aborted = aborted + log.aborted_transactions(*found.asks_local)
            assert aborted == log.aborted_in(found.records, offset, log.end_offset)
        await reader.close()

    run(both())


@given(steps, st.data())
@settings(max_examples=60)
def test_times_are_found_as_in_a_local_log(plan: list[Any], data: st.DataObject) -> None:
    log = written(plan)
    copied = CopiedLog(log, len(log.segments), has_max_timestamps=data.draw(st.booleans()))
    chunk_bytes = data.draw(st.sampled_from([64, 300, 10_000]))
    log.start_offset = data.draw(st.integers(0, log.end_offset - 1))

    async def both() -> None:
        reader = copied.reader(ReadLimits(chunk_bytes=chunk_bytes))
        for timestamp in range(NOW_MS - 5, NOW_MS + 10 * len(plan) + 10, 5):
            found = await reader.find_time(
                ORDERS,
                log.epochs,
                timestamp,
                start_offset=log.start_offset,
                up_to=log.end_offset,
            )
            assert found == find(log, timestamp)
        await reader.close()

    run(both())


# One by one


def test_the_first_batch_is_whole_only_if_it_has_to_be() -> None:
    async def scenario() -> None:
        log = small_log()
        reader = CopiedLog(log).reader()
        whole = await reader.read(ORDERS, log.epochs, 5, 10, up_to=NO_END)
        batch = read_header(whole.records)
        assert (batch.base_offset, batch.size_bytes) == (5, len(whole.records))
        part = await reader.read(ORDERS, log.epochs, 5, 10, up_to=NO_END, is_first_whole=False)
        assert part.records == whole.records[:10]

    run(scenario())


def test_a_batch_larger_than_many_chunks_is_read() -> None:
    async def scenario() -> None:
        log = open_simulated(SimulatedDisk(), LogSettings(segment_bytes=100_000))
        for _ in range(5):
            append(log, b"large" * 5000)
        log.roll(log.end_offset)
        reader = CopiedLog(log).reader(TINY_CHUNKS)
        for offset in range(4):
            found = await reader.read(ORDERS, log.epochs, offset, 1, up_to=NO_END)
            local = log.read(offset, 1, up_to=NO_END, may_block=True)
            assert found.records == local

    run(scenario())


def test_a_read_at_a_limit_that_lies_in_a_chunk_far_away_does_not_fetch_it() -> None:
    async def scenario() -> None:
        log = small_log(400, segment_bytes=100_000)
        log.roll(log.end_offset)
        copied = CopiedLog(log)
        reader = copied.reader(ReadLimits(chunk_bytes=1000, read_ahead_bytes_max=0))
        await reader.read(ORDERS, log.epochs, 0, 500, up_to=300)
        assert copied.objects.requests == [(0, 1000)]

    run(scenario())


def test_a_gap_at_the_end_of_the_tier_is_the_local_logs() -> None:
    async def scenario() -> None:
        log = small_log(20, segment_bytes=100_000)
        log.end_offset += 5
        log.roll(log.end_offset)
        append(log, b"local")
        reader = CopiedLog(log).reader()
        for up_to in (25, NO_END):
            found = await reader.read(ORDERS, log.epochs, 22, 100, up_to=up_to)
            assert not found.records
            assert found.is_past_tier

    run(scenario())


def test_a_tier_without_the_partition_says_so_and_not_that_the_offset_is_out_of_range() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log, 0)
        found = await copied.reader().read(ORDERS, log.epochs, 3, 100, up_to=NO_END)
        assert found.is_past_tier

    run(scenario())


def test_records_of_a_deposed_leader_are_not_read() -> None:
    async def scenario() -> None:
        log = small_log(40, segment_bytes=100_000)
        log.roll(log.end_offset)
        copied = CopiedLog(log)
        own = LeaderEpochs([EpochStart(0, 0), EpochStart(1, 30)])
        reader = copied.reader()
        found = await reader.read(ORDERS, own, 10, 100_000, up_to=NO_END)
        assert [header.base_offset for _, header in read_headers(found.records)] == [*range(10, 30)]
        beyond = await reader.read(ORDERS, own, 30, 100_000, up_to=NO_END)
        assert beyond.is_past_tier
        assert (
            await reader.find_time(ORDERS, own, NOW_MS + 35, start_offset=0, up_to=NO_END) is None
        )

    run(scenario())


def test_a_second_read_needs_no_store_and_does_not_wait() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        reader = copied.reader()
        for _ in range(2):
            await reader.read(ORDERS, log.epochs, 5, 300, up_to=NO_END, with_aborted=True)
        again = reader.read(ORDERS, log.epochs, 5, 300, up_to=NO_END, with_aborted=True)
        with pytest.raises(StopIteration):
            again.send(None)

    run(scenario())


def test_a_sequential_reader_needs_one_request_for_each_chunk_and_index() -> None:
    async def scenario() -> None:
        log = small_log(600, segment_bytes=5000)
        copied = CopiedLog(log)
        reader = copied.reader(
            ReadLimits(chunk_bytes=512, chunk_cache_bytes=4096, read_ahead_bytes_max=2048)
        )

        async def read(offset: int) -> memoryview:
            return (await reader.read(ORDERS, log.epochs, offset, 200, up_to=NO_END)).records

        await consume(read, 0, NO_END)
        chunk_count = sum(-(-each.size_bytes // 512) for each in copied.segments)
        assert len(copied.objects.requests) == chunk_count
        assert copied.objects.index_requests == {ObjectKind.OFFSET_INDEX: len(copied.segments)}
        assert reader.chunks.wasted_count == 0
        await reader.close()

    run(scenario())


def test_what_is_kept_of_deleted_segments_goes() -> None:
    async def scenario() -> None:
        log = small_log()
        copied = CopiedLog(log)
        now_ms = 0
        reader = copied.reader(now_ms=lambda: now_ms)
        for segment in copied.segments:
            await reader.read(ORDERS, log.epochs, segment.start_offset + 1, 100, up_to=NO_END)
        copied.metadata.remove(copied.segments[0])
        await reader.tidy()
        kept = {each.id for each in copied.segments[1:]}
        assert set(reader.chunks.segments_of(ORDERS.key)) == kept
        assert set(reader.indexes.segments_of(ORDERS.key)) == kept
        reader.forget(ORDERS.key)
        assert reader.chunks.held_bytes == reader.indexes.held_bytes == 0
        await reader.close()
        assert copied.metadata.on_changed == []

    run(scenario())
