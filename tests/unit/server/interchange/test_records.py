"""Append and Fetch of seed 002: what is appended when, and what may be read."""

import asyncio
import threading
from typing import Any

import pytest

from headrace.client import Consumer, Producer, Start
from headrace.cluster.protocol import Acks, ClusterErrorCode, responses
from headrace.log.flushing import Flush
from headrace.records.compression import Compression
from tests.unit.harness import ColdFiles, Harness
from tests.unit.server.interchange.programs import NOW_MS, Program, ask, batch, talk


def code(response: Any) -> int:
    found: int = response.header.error_code
    return found


@pytest.mark.parametrize("acks", Acks)
def test_an_append_is_told_where_its_records_are(harness: Harness, acks: Acks) -> None:
    harness.create_topic("orders")
    first = ask(harness, lambda program: program.append(batch(b"a", b"b"), acks))
    second = ask(harness, lambda program: program.append(batch(b"c"), acks))
    assert isinstance(first, responses.Append)
    assert (first.header.is_success, first.base_offset, first.log_append_time) == (True, 0, -1)
    assert (second.base_offset, second.partition.topic) == (2, "orders")
    assert harness.partition("orders").log.high_watermark == 3


def test_the_bytes_that_were_appended_are_fetched(harness: Harness) -> None:
    harness.create_topic("orders")
    records = batch(b"a", b"b", compression=Compression.GZIP)

    async def work(program: Program) -> Any:
        await program.ask(program.append(records))
        return await program.ask(program.fetch())

    answer = talk(harness, work)
    assert isinstance(answer, responses.Fetch)
    assert (answer.high_watermark, answer.log_start_offset) == (2, 0)
    # The broker sets the base offset and the leader epoch, which no checksum covers.
    assert bytes(answer.records)[16:] == records[16:]


def test_a_client_of_kafka_reads_what_was_appended(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> Any:
        await program.ask(program.append(batch(b"a", b"b")))
        async with Consumer(harness.node.bootstrap, reset=Start.BEGINNING) as consumer:
            await consumer.assign("orders")
            return [(await anext(aiter(consumer))).value for _ in range(2)]

    assert talk(harness, work) == [b"a", b"b"]


def test_what_a_client_of_kafka_produced_is_fetched(harness: Harness) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> Any:
        async with Producer(harness.node.bootstrap) as producer:
            await producer.deliver("orders", b"from kafka")
        return await program.ask(program.fetch())

    assert b"from kafka" in bytes(talk(harness, work).records)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (b"", ClusterErrorCode.CORRUPT_MESSAGE),
        (b"no batch", ClusterErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1], ClusterErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1] + b"!", ClusterErrorCode.CORRUPT_MESSAGE),
        (batch() + batch(), ClusterErrorCode.CORRUPT_MESSAGE),
        (batch(bytes(2000)), ClusterErrorCode.INVALID_REQUEST),
        (
            batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
            ClusterErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_records_that_a_produce_would_refuse_are_refused(
    harness: Harness, records: bytes, expected: ClusterErrorCode
) -> None:
    harness.create_topic("orders", configs={"max.message.bytes": "1000"})
    answer = ask(harness, lambda program: program.append(records))
    assert isinstance(answer, responses.Error)
    assert code(answer) == expected
    assert harness.partition("orders").log.end_offset == 0


@pytest.mark.parametrize("acks", Acks)
def test_a_compacted_topic_refuses_records_without_key(harness: Harness, acks: Acks) -> None:
    harness.create_topic("table", configs={"cleanup.policy": "compact"})
    answer = ask(harness, lambda program: program.append(batch(key=None), acks, topic="table"))
    assert code(answer) == ClusterErrorCode.CORRUPT_MESSAGE


def test_an_idempotent_append_that_is_repeated_is_in_the_log_once(harness: Harness) -> None:
    harness.create_topic("orders")
    records = batch(producer_id=7, producer_epoch=0, base_sequence=0)

    async def work(program: Program) -> list[Any]:
        program.send(*[program.append(records) for _ in range(3)])
        return [await program.receive() for _ in range(3)]

    assert [each.base_offset for each in talk(harness, work)] == [0, 0, 0]
    assert harness.partition("orders").log.end_offset == 1


def test_internal_topics_are_not_appended_to(harness: Harness) -> None:
    harness.create_topic("__consumer_offsets")
    answer = ask(
        harness,
        lambda program: program.append(batch(), topic="__consumer_offsets"),
        source="__admin_client",
    )
    assert code(answer) == ClusterErrorCode.INVALID_REQUEST
    assert harness.partition("__consumer_offsets").log.end_offset == 0


def test_partitions_that_are_not_led_here_are_refused_by_code(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me], isr=[me], leader=me)
    place("theirs", [me + 1], isr=[me + 1], leader=me + 1)
    place("nobodys", [me], isr=[me], leader=-1)
    expected = {
        ("nothing", 0): ClusterErrorCode.UNKNOWN_TOPIC,
        ("orders", 1): ClusterErrorCode.INVALID_PARTITION,
        ("orders", 2**32 - 1): ClusterErrorCode.INVALID_PARTITION,
        ("theirs", 0): ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
        ("nobodys", 0): ClusterErrorCode.LEADER_NOT_AVAILABLE,
    }

    async def work(program: Program) -> dict[Any, tuple[int, int]]:
        return {
            (topic, index): (
                code(await program.ask(program.append(batch(), topic=topic, index=index))),
                code(await program.ask(program.fetch(topic=topic, index=index))),
            )
            for topic, index in expected
        }

    assert talk(harness, work) == {key: (each, each) for key, each in expected.items()}


def test_all_needs_min_insync_replicas_and_the_others_do_not(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me], leader=me)
    harness.partition("orders").require_in_sync(2)

    async def work(program: Program) -> list[Any]:
        return [await program.ask(program.append(batch(), acks)) for acks in Acks]

    answers = talk(harness, work)
    assert [code(each) for each in answers] == [0, 0, ClusterErrorCode.NOT_ENOUGH_REPLICAS]
    assert harness.partition("orders").log.end_offset == 2


def test_all_waits_for_the_last_offset_and_times_out(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me)
    log = harness.partition("orders").log

    async def work(program: Program) -> list[int]:
        records = batch(b"a", b"b")
        codes = [code(await program.ask(program.append(records, acks))) for acks in list(Acks)[:2]]
        late = await program.ask(program.append(records, timeout_ms=50))
        waiting = program.append(records)
        program.send(waiting)
        while log.end_offset < 8:
            await asyncio.sleep(0)
        led = harness.partition("orders")
        log.advance_high_watermark(7)  # one record short
        led.tell_of_change()
        assert led.produce_waiters
        log.advance_high_watermark(8)
        led.tell_of_change()
        return [*codes, code(late), code(await program.receive())]

    assert talk(harness, work) == [0, 0, ClusterErrorCode.REQUEST_TIMED_OUT, 0]


@pytest.mark.parametrize("harness", [{"log.flush.interval.messages": "1"}], indirect=True)
def test_none_does_not_wait_for_the_disk(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.create_topic("orders")
    may_sync = threading.Event()
    run = Flush.run

    def wait(flush: Flush) -> Any:
        assert may_sync.wait(20)
        return run(flush)

    monkeypatch.setattr(Flush, "run", wait)

    async def work(program: Program) -> list[int]:
        answers = [await program.ask(program.append(batch(), Acks.NONE))]
        program.send(program.append(batch(), Acks.LEADER))
        while harness.partition("orders").log.end_offset < 2:
            await asyncio.sleep(0)
        assert harness.partition("orders").log.high_watermark == 0
        may_sync.set()
        answers.append(await program.receive())
        return [each.base_offset for each in answers]

    try:
        assert talk(harness, work) == [0, 1]
    finally:
        may_sync.set()


def test_nothing_above_the_high_watermark_is_shown(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1)
    place("orders", [me, me + 1], isr=[me, me + 1], leader=me)

    async def work(program: Program) -> list[Any]:
        for value in (b"seen", b"not seen"):
            await program.ask(program.append(batch(value), Acks.LEADER))
        harness.partition("orders").log.advance_high_watermark(1)
        return [await program.ask(program.fetch(offset)) for offset in (0, 1, 2)]

    first, *rest = talk(harness, work)
    assert b"not seen" not in bytes(first.records)
    assert b"seen" in bytes(first.records)
    assert [(code(each), each.high_watermark, bytes(each.records)) for each in rest] == [
        (0, 1, b"")
    ] * 2


@pytest.mark.parametrize("offset", [2, 2**63, 2**64 - 1])
def test_an_offset_out_of_range_is_told_where_the_log_is(harness: Harness, offset: int) -> None:
    harness.create_topic("orders")

    async def work(program: Program) -> Any:
        await program.ask(program.append(batch()))
        return await program.ask(program.fetch(offset))

    answer = talk(harness, work)
    assert code(answer) == ClusterErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.log_start_offset, bytes(answer.records)) == (1, 0, b"")


@pytest.mark.parametrize("max_bytes", [0, 1, 150, 2**32 - 1])
def test_a_fetch_has_whole_batches_up_to_its_size_and_always_the_first(
    harness: Harness, max_bytes: int
) -> None:
    harness.create_topic("orders")
    records = batch(b"v")

    async def work(program: Program) -> Any:
        for _ in range(3):
            await program.ask(program.append(records))
        return await program.ask(program.fetch(max_bytes=max_bytes))

    got = len(talk(harness, work).records)
    assert got >= len(records)
    assert got <= max(max_bytes, len(records))


def test_a_batch_that_fits_no_response_is_refused(harness: Harness) -> None:
    limit = 20 * 1024 * 1024
    harness.create_topic("orders", configs={"max.message.bytes": str(limit)})
    log = harness.partition("orders")
    log.append(memoryview(bytearray(batch(bytes(17 * 1024 * 1024)))), NOW_MS, needs_replicas=False)
    answer = ask(harness, lambda program: program.fetch())
    assert code(answer) == ClusterErrorCode.INVALID_REQUEST


def test_records_that_are_not_in_the_page_cache_are_fetched(
    harness: Harness, cold_files: ColdFiles
) -> None:
    harness.create_topic("orders")
    ask(harness, lambda program: program.append(batch(b"cold")))
    cold_files.drop(harness, "orders", 0)
    assert b"cold" in bytes(ask(harness, lambda program: program.fetch()).records)
    assert cold_files.waits


@pytest.mark.parametrize("harness", [{"headrace.produce.validation": "records"}], indirect=True)
def test_appends_are_in_order_behind_one_that_a_thread_validates(harness: Harness) -> None:
    harness.create_topic("orders")
    slow = batch(*[bytes(1000)] * 2000, compression=Compression.GZIP)

    async def work(program: Program) -> list[int]:
        program.send(program.append(slow), program.append(batch(b"after")), program.fetch(2000))
        answers = [await program.receive() for _ in range(3)]
        assert b"after" in bytes(answers[2].records)
        return [each.base_offset for each in answers[:2]]

    assert talk(harness, work) == [0, 2000]
