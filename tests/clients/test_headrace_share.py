"""Our own share consumer against real brokers: Headrace, and Apache Kafka."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer

from headrace.client import (
    Acknowledged,
    AcknowledgeType,
    AcquireMode,
    Admin,
    BlockingShareConsumer,
    Producer,
    Retry,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    share_worker,
)
from headrace.client.configs import Resource, ResourceType
from headrace.client.group_members import describe_share_group
from headrace.client.settings import ConsumerSettings
from headrace.client.share.terms import ShareSettings
from headrace.errors import ErrorCode, KafkaError
from tests.clients.awaiting import DEADLINE_SECONDS, run
from tests.headrace_process import HeadraceProcess, headrace
from tests.jvm.kafka_broker import kafka
from tools.jvm.harness import missing_tools

LOCK_MS = 3000
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
QUICK = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.record.lock.duration.ms": "30000",
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
}
ONE_NODE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
_NUMBERS = count()


@pytest.fixture(
    scope="module",
    params=["headrace", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.timeout(600)])],
)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a Headrace, and of an Apache Kafka: the same must hold with both."""
    folder = tmp_path_factory.mktemp("share") / "data"
    if request.param == "headrace":
        with headrace(folder, QUICK) as address:
            yield address
        return
    if (missing := missing_tools()) is not None:
        pytest.skip(missing)
    with kafka(folder, extra=QUICK | ONE_NODE) as address:
        yield address


async def queue(bootstrap: str, partitions: int = 1, **configs: str) -> tuple[str, str]:
    """Make a topic and a group that reads it from its beginning; give their names."""
    name = f"queue-{os.getpid()}-{next(_NUMBERS)}"
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions, 1)
        await earliest(admin, name, **configs)
    return name, name


async def earliest(admin: Admin, group: str, **configs: str) -> None:
    values = {"share.auto.offset.reset": "earliest"}
    values |= {f"share.{name.replace('_', '.')}": value for name, value in configs.items()}
    await admin.alter_configs(Resource(ResourceType.GROUP, group), set=values)


async def fill(bootstrap: str, topic: str, total: int, partitions: int = 1) -> None:
    async with Producer(bootstrap) as producer:
        sent = [
            await producer.send(topic, str(number).encode(), partition=number % partitions)
            for number in range(total)
        ]
        for delivery in sent:
            await delivery


async def gather(
    consumer: ShareConsumer, total: int, kind: AcknowledgeType | None = None
) -> list[ShareRecord]:
    """Poll until there are that many records; acknowledge them on the way if told how."""
    records: list[ShareRecord] = []
    while len(records) < total:
        polled = await consumer.poll(1000)
        records += polled
        for record in polled if kind is not None else ():
            consumer.acknowledge(record, kind or ACCEPT)
    return records


def values(records: Sequence[ShareRecord]) -> list[int]:
    return sorted(int(record.value or b"-1") for record in records)


def test_every_record_of_every_partition_comes_once(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap, 3)
        await fill(bootstrap, topic, 3000, 3)
        async with ShareConsumer(bootstrap, group, [topic]) as consumer:
            records = await gather(consumer, 3000)
            assert values(records) == list(range(3000))
            assert {record.delivery_count for record in records} == {1}
            assert consumer.assignment == {TopicPartition(topic, index) for index in range(3)}
        async with ShareConsumer(bootstrap, group, [topic]) as consumer:
            assert await consumer.poll(1500) == []

    run(check())


def test_accepted_and_rejected_records_are_gone_and_released_ones_come_again(
    bootstrap: str,
) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, 9)
        kinds = [ACCEPT, RELEASE, REJECT] * 3
        async with ShareConsumer(bootstrap, group, [topic], mode="explicit") as consumer:
            for record in await gather(consumer, 9):
                consumer.acknowledge(record, kinds[record.offset])
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
            again = await gather(consumer, 3, ACCEPT)
            assert [(r.offset, r.delivery_count) for r in again] == [(1, 2), (4, 2), (7, 2)]
            assert await consumer.poll(1000) == []

    run(check())


def test_a_record_is_with_one_member_at_a_time(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap, 2)
        taken: list[list[ShareRecord]] = [[], [], []]

        async def work(records: list[ShareRecord]) -> None:
            mode = AcquireMode.RECORD_LIMIT
            async with ShareConsumer(
                bootstrap, group, [topic], max_poll_records=10, acquire_mode=mode
            ) as consumer:
                while sum(map(len, taken)) < 600:
                    polled = await consumer.poll(200)
                    assert len(polled) <= 10
                    records += polled

        working = asyncio.gather(*map(work, taken))
        await fill(bootstrap, topic, 600, 2)
        await working
        assert values([record for records in taken for record in records]) == list(range(600))

    run(check())


def test_closing_gives_records_back_at_once(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, 5)
        async with ShareConsumer(bootstrap, group, [topic], mode="explicit") as first:
            records = await gather(first, 5)
            first.acknowledge(records[0])
        async with ShareConsumer(bootstrap, group, [topic]) as second:
            again = await gather(second, 4)
            assert [(r.offset, r.delivery_count) for r in again] == [(n, 2) for n in range(1, 5)]

    run(check())


def test_a_lock_that_ran_out_moves_the_record_and_fails_the_late_word(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap, record_lock_duration_ms=str(LOCK_MS))
        await fill(bootstrap, topic, 1)
        told: list[Acknowledged] = []
        async with (
            ShareConsumer(bootstrap, group, [topic], mode="explicit") as slow,
            ShareConsumer(bootstrap, group, [topic]) as quick,
        ):
            slow.on_acknowledged = told.append
            (record,) = await gather(slow, 1)
            assert slow.lock_timeout_ms == LOCK_MS
            (again,) = await gather(quick, 1)
            assert (again.offset, again.delivery_count) == (0, 2)
            slow.acknowledge(record)
            (error,) = (await slow.commit()).values()
            assert error is not None
            assert error.code == ErrorCode.INVALID_RECORD_STATE
            assert [(list(done.offsets), done.error) for done in told] == [([0], error)]

    run(check())


def test_a_renewed_lock_keeps_the_record_here(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap, record_lock_duration_ms=str(LOCK_MS))
        await fill(bootstrap, topic, 1)
        async with (
            ShareConsumer(bootstrap, group, [topic], mode="explicit") as slow,
            ShareConsumer(bootstrap, group, [topic]) as other,
        ):
            records = await gather(slow, 1)
            for _ in range(2):
                slow.acknowledge(records[0], RENEW)
                assert await slow.poll(LOCK_MS) == records
                assert await other.poll(LOCK_MS * 0.6) == []
            slow.acknowledge(records[0])
            assert await slow.commit() == {TopicPartition(topic, 0): None}

    run(check())


def test_a_topic_that_is_made_later_is_read_too(bootstrap: str) -> None:
    async def check() -> None:
        first, group = await queue(bootstrap)
        later = f"{first}-later"
        async with ShareConsumer(bootstrap, group, [first, later]) as consumer:
            await fill(bootstrap, first, 1)
            assert [record.topic for record in await gather(consumer, 1)] == [first]
            async with Admin(bootstrap) as admin:
                await admin.create_topic(later, 1, 1)
            await fill(bootstrap, later, 1)
            assert [record.topic for record in await gather(consumer, 1)] == [later]

    run(check())


def test_markers_of_transactions_do_not_hold_the_queue_up(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap)
        producer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        producer.init_transactions(DEADLINE_SECONDS)
        for number in range(3):
            producer.begin_transaction()
            producer.produce(topic, str(number))
            producer.commit_transaction(DEADLINE_SECONDS)
        told: list[Acknowledged] = []
        async with ShareConsumer(bootstrap, group, [topic], mode="explicit") as consumer:
            consumer.on_acknowledged = told.append
            records = await gather(consumer, 3, ACCEPT)
            assert [record.offset for record in records] == [0, 2, 4]
            await consumer.commit()
            assert [done.error for done in told if done.error is not None] == []
        async with ShareConsumer(bootstrap, group, [topic]) as consumer:
            await fill(bootstrap, topic, 1)
            assert [record.offset for record in await gather(consumer, 1)] == [6]

    run(check())


def test_the_delivery_limit_ends_a_record_that_is_always_released(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap, delivery_count_limit="3")
        await fill(bootstrap, topic, 1)
        async with ShareConsumer(bootstrap, group, [topic], mode="explicit") as consumer:
            counts = [(await gather(consumer, 1, RELEASE))[0].delivery_count for _ in range(3)]
            assert counts == [1, 2, 3]
            assert await consumer.poll(1000) == []

    run(check())


def test_a_worker_handles_every_record_and_retries_what_asked_for_it(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap, 2)
        await fill(bootstrap, topic, 60, 2)
        done: list[int] = []
        retried: list[int] = []
        refused: list[int] = []

        async def handle(record: ShareRecord) -> None:
            number = int(record.value or b"-1")
            if number % 10 == 3 and record.delivery_count == 1:
                retried.append(number)
                raise Retry
            if number % 10 == 7:
                refused.append(number)
                raise ValueError(number)
            done.append(number)

        async with share_worker(
            bootstrap, group, [topic], handle, concurrency=8, retry_timeout_ms=50
        ) as worker:
            await eventually(lambda: len(done) + len(refused) == 60 and not worker.running)
        assert sorted(done) == [number for number in range(60) if number % 10 != 7]
        assert sorted(set(retried)) == list(range(3, 60, 10))
        assert sorted(refused) == list(range(7, 60, 10))
        async with ShareConsumer(bootstrap, group, [topic]) as consumer:
            assert await consumer.poll(1000) == []

    run(check())


def test_a_worker_keeps_a_record_for_longer_than_a_lock(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap, record_lock_duration_ms=str(LOCK_MS))
        await fill(bootstrap, topic, 1)
        begun: list[int] = []

        async def handle(record: ShareRecord) -> None:
            begun.append(record.delivery_count)
            await asyncio.sleep(LOCK_MS * 1.5 / 1000)

        async with (
            share_worker(bootstrap, group, [topic], handle) as worker,
            share_worker(bootstrap, group, [topic], handle) as other,
        ):
            await eventually(lambda: bool(begun))
            await eventually(lambda: not worker.running and not other.running)
        async with ShareConsumer(bootstrap, group, [topic]) as consumer:
            assert await consumer.poll(1000) == []
        assert begun == [1]

    run(check())


def test_a_handler_may_be_a_plain_function(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, 10)
        seen: list[int] = []
        handle: Callable[[ShareRecord], None] = lambda record: seen.append(record.offset)  # noqa: E731
        async with share_worker(bootstrap, group, [topic], handle, concurrency=2):
            await eventually(lambda: sorted(seen) == list(range(10)))

    run(check())


@pytest.mark.parametrize("kind", ["lambda", "partial", "decorated", "object", "future"])
def test_what_a_plain_function_returns_is_awaited(bootstrap: str, kind: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, 3)
        seen: list[int] = []

        async def real(record: ShareRecord) -> None:
            await asyncio.sleep(0)
            seen.append(record.offset)

        class Awaiting:
            def __await__(self) -> Iterator[None]:
                yield
                seen.append(len(seen))

        loop = asyncio.get_running_loop()
        handlers: dict[str, Callable[[ShareRecord], object]] = {
            "lambda": lambda record: real(record),  # noqa: PLW0108  that is the point
            "partial": partial(lambda work, record: work(record), real),
            "decorated": decorated(real),
            "object": lambda record: Awaiting(),
            "future": lambda record: asyncio.run_coroutine_threadsafe(real(record), loop).result(),
        }
        async with share_worker(bootstrap, group, [topic], handlers[kind]):
            await eventually(lambda: sorted(seen) == [0, 1, 2])
        async with ShareConsumer(bootstrap, group, [topic]) as consumer:
            assert await consumer.poll(500) == []

    run(check())


def decorated(work: Callable[[ShareRecord], object]) -> Callable[[ShareRecord], object]:
    @wraps(work)
    def call(record: ShareRecord) -> object:
        return work(record)

    del call.__wrapped__  # or it would be seen through
    return call


def test_as_many_plain_functions_run_as_the_concurrency_allows(bootstrap: str) -> None:
    hands = 24  # more than the threads that a loop has by default

    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, hands)
        all_at_once = threading.Barrier(hands)
        done: list[int] = []

        def handle(record: ShareRecord) -> None:
            all_at_once.wait(DEADLINE_SECONDS)
            done.append(record.offset)

        async with share_worker(bootstrap, group, [topic], handle, concurrency=hands):
            await eventually(lambda: len(done) == hands)

    run(check())


def test_a_plain_function_may_raise_anything(bootstrap: str) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, 2)
        errors = iter([StopIteration(), Retry()])
        done: list[int] = []

        def handle(record: ShareRecord) -> None:
            for error in errors:
                raise error
            done.append(record.offset)

        async with share_worker(bootstrap, group, [topic], handle):
            await eventually(lambda: done == [1])

    run(check())


def test_a_record_that_breaks_its_consumer_takes_none_behind_it_along(bootstrap: str) -> None:
    """What is fetched ahead and given back has lost an attempt: never the last one."""

    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, 8)
        done: list[int] = []

        async def consume() -> None:
            async with ShareConsumer(bootstrap, group, [topic], max_poll_records=2) as consumer:
                while records := await consumer.poll(2 * LOCK_MS):
                    for record in records:
                        if record.offset == 3:
                            await until_idle(consumer)
                            raise ValueError(record)
                        done.append(record.offset)

        broken = 0
        while 7 not in done:
            try:
                await consume()
            except ValueError:
                broken += 1
        assert set(done) == {0, 1, 2, 4, 5, 6, 7}
        assert broken == 5

    run(check())


async def until_idle(consumer: ShareConsumer) -> None:
    """Wait until everything that a consumer asked for is answered."""
    await eventually(lambda: consumer._delivery.is_idle)


def test_a_workers_long_poll_does_not_hold_renewals_up(bootstrap: str) -> None:
    """A broker handles the requests of a connection in order, and a fetch waits for longest."""

    async def check() -> None:
        topic, group = await queue(bootstrap, record_lock_duration_ms=str(LOCK_MS))
        await fill(bootstrap, topic, 2)
        begun: list[tuple[int, int]] = []
        ended: list[int] = []
        limits = ShareSettings(limits=ConsumerSettings(max_wait_ms=30_000))

        async def handle(record: ShareRecord) -> None:
            begun.append((record.offset, record.delivery_count))
            await asyncio.sleep(LOCK_MS * (2.2 if record.offset else 0.1) / 1000)
            ended.append(record.offset)

        async with share_worker(bootstrap, group, [topic], handle, concurrency=3, settings=limits):
            await eventually(lambda: ended == [0, 1])
        async with ShareConsumer(bootstrap, group, [topic]) as consumer:
            assert await consumer.poll(LOCK_MS) == []
        assert sorted(begun) == [(0, 1), (1, 1)]

    run(check())


def test_a_worker_may_say_that_its_group_starts_at_the_beginning(bootstrap: str) -> None:
    async def check() -> None:
        name = f"start-{os.getpid()}-{next(_NUMBERS)}"
        async with Admin(bootstrap) as admin:
            await admin.create_topic(name, 1, 1)
        await fill(bootstrap, name, 3)
        seen: list[int] = []

        async def handle(record: ShareRecord) -> None:
            seen.append(record.offset)

        for _ in range(2):  # a second worker finds it set already
            async with share_worker(bootstrap, name, [name], handle, start="earliest"):
                await eventually(lambda: seen == [0, 1, 2])
        with pytest.raises(KafkaError, match=r"share\.auto\.offset\.reset|INVALID_CONFIG"):
            async with share_worker(bootstrap, name, [name], handle, start="yesterday"):
                pass

    run(check())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_close_in_a_hurry_leaves_the_group_and_no_task(
    bootstrap: str, is_cancelled: bool
) -> None:
    async def check() -> None:
        topic, group = await queue(bootstrap)
        await fill(bootstrap, topic, 3)
        consumer = ShareConsumer(bootstrap, group, [topic])
        await consumer.start()
        await gather(consumer, 3)
        if is_cancelled:
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        else:
            await consumer.close(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with Admin(bootstrap) as admin:
            described = await describe_share_group(admin.cluster, group)
            assert described.members == ()

    run(check())


def test_a_program_without_a_loop_can_do_the_same(bootstrap: str) -> None:
    topic, group = run(queue(bootstrap))
    run(fill(bootstrap, topic, 10))
    told: list[Acknowledged] = []
    with BlockingShareConsumer(bootstrap, group, topic, mode="explicit") as consumer:
        consumer.on_acknowledged = told.append
        records: list[ShareRecord] = []
        while len(records) < 10:
            polled = consumer.poll(1000)
            records += polled
            for record in polled:
                consumer.acknowledge(record, RELEASE if record.offset == 9 else ACCEPT)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
        assert {offset for done in told for offset in done.offsets} == set(range(10))
    with BlockingShareConsumer(bootstrap, group, topic) as consumer:
        for record in consumer:
            assert (record.offset, record.delivery_count) == (9, 2)
            break
    for use in (consumer.poll, consumer.commit, consumer.commit_async, consumer.start):
        with pytest.raises(RuntimeError, match="this consumer is closed"):
            use()
    with pytest.raises(RuntimeError, match="this consumer is closed"):
        next(iter(consumer))
    with pytest.raises(RuntimeError, match="this consumer is closed"):
        consumer.subscribe([topic])
    with pytest.raises(RuntimeError, match="this consumer is closed"):
        consumer.acknowledge(record)
    consumer.close()
    with pytest.raises(RuntimeError, match="not started"):
        BlockingShareConsumer(bootstrap, group, topic).poll()


def test_a_callback_cannot_call_the_consumer_that_calls_it(bootstrap: str) -> None:
    topic, group = run(queue(bootstrap))
    run(fill(bootstrap, topic, 1))
    with BlockingShareConsumer(bootstrap, group, topic) as consumer:
        while not consumer.poll(1000):
            pass
        consumer.on_acknowledged = lambda done: consumer.commit_async()
        with pytest.raises(RuntimeError, match="callback"):
            consumer.commit()
        consumer.on_acknowledged = None


def test_a_consumer_outlives_its_broker(tmp_path: Path) -> None:
    node = HeadraceProcess(tmp_path / "data", QUICK)

    async def check() -> HeadraceProcess:
        topic, group = await queue(node.bootstrap)
        await fill(node.bootstrap, topic, 1)
        async with ShareConsumer(node.bootstrap, group, [topic]) as consumer:
            assert len(await gather(consumer, 1)) == 1
            assert await consumer.commit() == {TopicPartition(topic, 0): None}
            await asyncio.to_thread(node.kill)
            again = await asyncio.to_thread(
                HeadraceProcess, tmp_path / "data", QUICK, port=node.port
            )
            try:
                await fill(again.bootstrap, topic, 5)
                records = await gather(consumer, 5)
                assert [record.offset for record in records] == [1, 2, 3, 4, 5]
            except BaseException:
                again.kill()
                raise
        return again

    try:
        run(check()).kill()
    finally:
        node.kill()


async def eventually(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.02)  # polls, up to the deadline of the test
