"""Batches that take long to validate: off the loop, in order, and few at once."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.api.produce import TURN_COST_MAX
from headrace.errors import ErrorCode
from headrace.ids import TopicName
from headrace.loop import inflating
from headrace.metadata.ddl import SetConfigs
from headrace.metadata.state import ResourceType
from headrace.records.builder import BatchBuilder
from headrace.records.compression import Compression, compress
from headrace.records.header import HEADER_BYTES, BatchHeader, read_headers, seal
from headrace.records.validation import TopicRules, finish_validation
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.unit.api.transactional_producer import begin
from tests.unit.harness import Harness

LATE_MS = 10**10
COMPACTED = {"cleanup.policy": "compact"}
WAIT_SECONDS_MAX = 10


class Gate:
    """Stands before the work in threads, until the test opens it."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.opened.set()
        self.entered = threading.Semaphore(0)
        self.inside = 0
        self.inside_max = 0
        self.threads: set[int] = set()
        self._lock = threading.Lock()

    def finish(self, batch: memoryview, header: BatchHeader, rules: TopicRules, now: int) -> Any:
        with self._lock:
            self.inside += 1
            self.inside_max = max(self.inside_max, self.inside)
            self.threads.add(threading.get_ident())
        self.entered.release()
        assert self.opened.wait(WAIT_SECONDS_MAX)
        with self._lock:
            self.inside -= 1
        return finish_validation(batch, header, rules, now)

    async def wait_entered(self) -> None:
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, self.entered.acquire, True, WAIT_SECONDS_MAX)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(inflating, "finish_validation", gate.finish)
    yield gate
    gate.opened.set()


def costly(harness: Harness, value: bytes = b"", *, late_ms: int = 0, **header: Any) -> bytes:
    """A small batch that inflates to much more than is inflated on the loop."""
    builder = BatchBuilder(Compression.ZSTD)
    builder.append(harness.clock.now_ms() + late_ms, b"key", value + bytes(100_000))
    return bytes(builder.build(**header))


def cheap(harness: Harness, value: bytes = b"", **header: Any) -> bytes:
    builder = BatchBuilder()
    builder.append(harness.clock.now_ms(), b"key", value)
    return bytes(builder.build(**header))


def produce(*batches: tuple[str, int, bytes], acks: int = -1, **fields: Any) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=index, records=records)]
        )
        for topic, index, records in batches
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics, **fields)


def rows(response: Any) -> list[Any]:
    return [row for topic in response.responses for row in topic.partition_responses]


def sequences(harness: Harness, topic: str) -> list[int]:
    log = harness.partition(TopicName(topic), 0).log
    found = log.read(0, 10**7, up_to=log.end_offset, may_block=True)
    assert found is not None
    return [header.base_sequence for _, header in read_headers(found)]


def test_a_late_timestamp_is_looked_for_off_the_loop(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders")
    (row,) = rows(harness.ask(produce(("orders", 0, costly(harness, late_ms=LATE_MS))), 9))
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in row.record_errors] == [0]
    assert gate.threads
    assert threading.get_ident() not in gate.threads


@pytest.mark.parametrize("acks", [1, -1])
def test_a_compacted_topic_takes_what_a_thread_has_validated(
    harness: Harness, gate: Gate, acks: int
) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    request = produce(("orders", 0, costly(harness)), acks=acks)
    assert [rows(harness.ask(request, 9))[0].base_offset for _ in range(2)] == [0, 1]
    assert gate.threads


def test_with_acks_0_too(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    assert harness.ask(produce(("orders", 0, costly(harness)), acks=0), 9) is None
    assert sequences(harness, "orders") == [-1]


def test_the_time_of_an_append_is_that_of_the_records(harness: Harness, gate: Gate) -> None:
    configs = {**COMPACTED, "message.timestamp.type": "LogAppendTime"}
    harness.create_topic("orders", configs=configs)
    (row,) = rows(harness.ask(produce(("orders", 0, costly(harness))), 9))
    log = harness.partition(TopicName("orders"), 0).log
    assert row.log_append_time_ms == log.segments[0].largest_timestamp


def test_a_produce_to_very_many_partitions_lets_others_have_their_turn(harness: Harness) -> None:
    count = 2 * TURN_COST_MAX + 1
    harness.create_topic("wide", partitions=count)
    request = produce(*(("wide", index, cheap(harness)) for index in range(count)))

    async def run() -> tuple[list[int], Any]:
        asked, appended = asyncio.ensure_future(harness.ask_async(request, 9)), list[int]()
        while not asked.done():
            await asyncio.sleep(0)
            logs = (partition.log for partition in harness.broker.replicas)
            appended.append(sum(log.end_offset for log in logs))
        return appended, asked.result()

    appended, response = harness.run(run())
    assert [row.index for row in rows(response)] == list(range(count))
    assert {row.error_code for row in rows(response)} == {ErrorCode.NONE}
    assert appended[0] <= TURN_COST_MAX
    assert appended[-1] == count


def test_batches_behind_a_costly_one_are_appended_behind_it(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    harness.create_topic("other")
    of: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}
    request = produce(
        ("orders", 0, costly(harness, base_sequence=0, **of)),
        ("other", 0, cheap(harness)),
        ("orders", 0, cheap(harness, base_sequence=1, **of)),
        ("orders", 0, costly(harness, base_sequence=2, **of)),
    )
    answered = rows(harness.ask(request, 9))
    assert [row.error_code for row in answered] == [0, 0, 0, 0]
    assert [row.base_offset for row in answered] == [0, 0, 1, 2]
    assert sequences(harness, "orders") == [0, 1, 2]


def test_one_bad_batch_does_not_take_the_others_along(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    spoiled = bytearray(costly(harness))
    spoiled[-3] ^= 1
    request = produce(
        ("orders", 0, costly(harness, late_ms=LATE_MS)),
        ("orders", 0, bytes(spoiled)),
        ("orders", 0, costly(harness)),
    )
    codes = [row.error_code for row in rows(harness.ask(request, 9))]
    assert codes == [ErrorCode.INVALID_TIMESTAMP, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]


def test_later_produces_wait_and_other_requests_do_not(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    harness.create_topic("other")
    gate.opened.clear()

    async def play() -> None:
        ask = harness.ask_async
        first = asyncio.ensure_future(ask(produce(("orders", 0, costly(harness))), 9))
        await gate.wait_entered()
        await ask(produce(("other", 0, cheap(harness))), 9)
        assert not first.done()
        gate.opened.set()
        assert rows(await first)[0].base_offset == 0

    harness.run(play())


def test_a_partition_that_is_led_elsewhere_by_then_takes_nothing(
    harness: Harness, gate: Gate
) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    gate.opened.clear()

    async def play() -> int:
        first = asyncio.ensure_future(harness.ask_async(produce(("orders", 0, costly(harness))), 9))
        await gate.wait_entered()
        harness.partition(TopicName("orders"), 0).stop()
        gate.opened.set()
        code: int = rows(await first)[0].error_code
        return code

    assert harness.run(play()) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nothing_more_is_validated_for_a_client_that_is_gone(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    gate.opened.clear()
    request = produce(*[("orders", 0, costly(harness))] * 5)

    async def play() -> None:
        first = asyncio.ensure_future(harness.ask_async(request, 9))
        await gate.wait_entered()
        harness.peer.is_closed = True
        gate.opened.set()
        await first

    harness.run(play())
    assert len(sequences(harness, "orders")) == 1


@pytest.mark.parametrize("harness", [{"headrace.inflating.threads": "2"}], indirect=True)
def test_only_so_many_batches_are_inflated_at_once(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders", 8, configs=COMPACTED)
    gate.opened.clear()

    async def play() -> None:
        requests = [
            asyncio.ensure_future(harness.ask_async(produce(("orders", index, costly(harness))), 9))
            for index in range(8)
        ]
        await gate.wait_entered()
        await gate.wait_entered()
        gate.opened.set()
        await asyncio.gather(*requests)

    harness.run(play())
    assert gate.inside_max == 2


def test_a_failure_of_ours_is_answered_and_logged(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(inflating, "finish_validation", fail)
    harness.create_topic("orders", configs=COMPACTED)
    request = produce(("orders", 0, costly(harness)), ("orders", 0, cheap(harness)))
    first, second = rows(harness.ask(request, 9))
    assert (first.error_code, second.error_code) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert "orders-0: records could not be appended" in caplog.text


@pytest.mark.parametrize("version", [11, 12])
def test_transactional_batches_join_once_they_are_validated(
    harness: Harness, gate: Gate, version: int
) -> None:
    producer = begin(harness)
    harness.create_topic("ledger", configs=COMPACTED)
    if version < 12:
        producer.add("ledger", 0)
    of: dict[str, Any] = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    of["is_transactional"] = True
    request = produce(
        ("ledger", 0, costly(harness, base_sequence=0, **of)),
        ("ledger", 0, cheap(harness, base_sequence=1, **of)),
        transactional_id="payments",
    )
    answered = rows(harness.ask(request, version))
    assert [(row.error_code, row.base_offset) for row in answered] == [(0, 0), (0, 1)]


def test_the_bound_on_inflation_may_change_while_the_node_runs(harness: Harness) -> None:
    harness.create_topic("orders", configs=COMPACTED)
    request = produce(("orders", 0, costly(harness)))
    assert rows(harness.ask(request, 9))[0].error_code == ErrorCode.NONE

    async def change() -> None:
        configs: dict[str, str | None] = {"headrace.inflated.batch.max.bytes": "50000"}
        await harness.broker.quorum.propose(SetConfigs(ResourceType.BROKER, "", configs))
        await harness.broker.replicas.settle()

    harness.run(change())
    assert rows(harness.ask(request, 9))[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("harness", [{"headrace.produce.validation": "records"}], indirect=True)
def test_a_node_may_be_told_to_check_every_record(harness: Harness, gate: Gate) -> None:
    harness.create_topic("orders")
    good = costly(harness)
    bad = bytearray(good[:HEADER_BYTES] + compress(Compression.ZSTD, bytes(100_000)))
    bad[8:12] = (len(bad) - 12).to_bytes(4)
    seal(bad)
    request = produce(("orders", 0, good), ("orders", 0, bytes(bad)))
    codes = [row.error_code for row in rows(harness.ask(request, 9))]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]
    assert gate.threads
