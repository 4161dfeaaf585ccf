"""Our own consumer in groups, when things go wrong: in the group, at the broker, in the program."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.client import (
    Admin,
    ClientSettings,
    Consumer,
    ShareConsumer,
    TopicPartition,
)
from headrace.client.group_members import describe_group
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.broker import TestBroker
from tests.clients.awaiting import run, until
from tests.clients.conftest import QUICK_GROUPS
from tests.clients.group_members import Reading, both, fill, is_shared, make_topic, member, reading
from tests.headrace_process import HeadraceProcess


@both
def test_a_member_that_dies_without_a_word_is_replaced(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 4)
        async with reading(any_bootstrap, new_name, new_name, protocol) as first:
            await until(lambda: is_shared([first], 4))
            options = {"session_timeout_ms": 6000} if protocol == "classic" else {}
            dead = member(any_bootstrap, new_name, protocol, **options)
            await dead.subscribe(new_name)
            row = Reading(dead)
            await until(lambda: is_shared([first, row], 4))
            await row.stop()
            session = dead._group
            assert session is not None
            membership = session._membership
            assert membership is not None
            await membership.stop()
            await session._background.stop()
            session._membership = None
            if protocol == "consumer":
                # Its session lasts 45 s: say goodbye for it, as a session that ends does.
                await membership._say_goodbye()  # type: ignore[call-arg]
            await until(lambda: is_shared([first], 4))
            await dead.close()

    run(work())


def test_who_is_put_out_hears_of_it_and_joins_again(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 2)
        async with reading(any_bootstrap, new_name, new_name, "consumer") as row:
            await until(lambda: row.owned == {0, 1})
            session = row.consumer._group
            assert session is not None
            membership = session._membership
            assert membership is not None
            await membership._say_goodbye()  # type: ignore[call-arg]  # as if its session had ended
            await until(lambda: ("lost", [0, 1]) in row.events)
            await until(lambda: row.owned == {0, 1})
            await fill(any_bootstrap, new_name, 4, 2)
            await until(lambda: len(row.records) == 4)
            assert [name for name, _ in row.events] == ["assigned", "lost", "assigned"]

    run(work())


def test_a_second_consumer_with_the_same_instance_id_is_refused_while_the_first_lives(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        hurried = ClientSettings(api_timeout_ms=2000)
        async with reading(
            any_bootstrap, new_name, new_name, "consumer", instance_id="till"
        ) as first:
            await until(lambda: first.owned == {0})
            async with member(
                any_bootstrap, new_name, "consumer", instance_id="till", settings=hurried
            ) as second:
                with pytest.raises(KafkaError, match="live member with instance_id 'till'"):
                    await second.subscribe(new_name)
            await fill(any_bootstrap, new_name, 3)
            await until(lambda: len(first.records) == 3)

    run(work())


def test_who_is_replaced_under_its_instance_id_hears_of_it_from_the_poll(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with member(any_bootstrap, new_name, "classic", instance_id="till") as first:
            await first.subscribe(new_name)
            assert await first.poll(100) == []
            await until(lambda: first.group_metadata.generation > 0)
            async with reading(
                any_bootstrap, new_name, new_name, "classic", instance_id="till"
            ) as second:
                await until(lambda: second.owned == {0})
                for _ in range(2):
                    with pytest.raises(KafkaError, match="took over instance_id 'till'"):
                        await first.poll()

    run(work())


def test_a_pattern_that_is_none_is_refused(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        async with member(any_bootstrap, new_name, "consumer") as consumer:
            with pytest.raises(KafkaError) as refused:
                await consumer.subscribe(pattern="orders-[")
            assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION

    run(work())


@both
def test_who_does_not_ask_for_records_in_time_leaves_and_comes_back_with_the_next_poll(
    any_bootstrap: str, new_name: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 1)
        events: list[str] = []
        async with member(
            any_bootstrap, new_name, protocol, max_poll_interval_ms=1000, auto_commit=False
        ) as consumer:
            await consumer.subscribe(
                new_name,
                on_assigned=lambda _: events.append("assigned"),
                on_lost=lambda _: events.append("lost"),
            )
            assert len(await consumer.poll()) == 1

            async def has_members() -> bool:
                return bool((await describe_group(consumer.cluster, new_name)).members)

            while await has_members():
                await asyncio.sleep(0.05)  # polls the broker, not the consumer
            assert events == ["assigned"]
            assert len(await consumer.poll()) == 1
            assert events == ["assigned", "lost", "assigned"]

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "max_poll_interval_ms=1000" in caplog.text


def test_slow_steps_of_an_iteration_are_signs_of_life(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 6)
        events: list[str] = []
        async with member(any_bootstrap, new_name, max_poll_interval_ms=2000) as consumer:
            await consumer.subscribe(new_name, on_lost=lambda _: events.append("lost"))
            async for record in consumer:
                await asyncio.sleep(0.5)  # work that takes its time
                if record.offset == 5:
                    break
        assert events == []

    run(work())


def test_a_group_of_another_type_is_named_as_such(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with ShareConsumer(any_bootstrap, new_name, [new_name]):
            async with member(any_bootstrap, new_name, "consumer") as consumer:
                with pytest.raises(KafkaError, match="another type"):
                    await consumer.subscribe(new_name)
            async with member(any_bootstrap, new_name, "classic") as consumer:
                await consumer.subscribe(new_name)
                with pytest.raises(KafkaError, match="another type"):
                    await consumer.poll()

    run(work())


def test_what_a_callback_raises_is_raised_by_the_poll_and_the_group_goes_on(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 3)
        async with member(any_bootstrap, new_name) as consumer:

            async def on_assigned(_: list[TopicPartition]) -> None:
                with pytest.raises(RuntimeError, match="callback"):
                    await consumer.close()
                with pytest.raises(RuntimeError, match=r"callback|another task"):
                    await consumer.poll()
                raise LookupError("mine")

            await consumer.subscribe(new_name, on_assigned=on_assigned)
            with pytest.raises(LookupError, match="mine"):
                await consumer.poll()
            assert len(await consumer.poll()) == 3

    run(work())


def test_two_polls_at_once_are_refused_and_a_cancelled_one_loses_nothing(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        async with member(any_bootstrap, new_name) as consumer:
            await consumer.subscribe(new_name)
            waiting = asyncio.create_task(consumer.poll())
            await until(lambda: bool(consumer.assignment))
            with pytest.raises(RuntimeError, match="another task"):
                await consumer.poll()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            found: list[int] = []
            producing = asyncio.create_task(fill(any_bootstrap, new_name, 200))
            while len(found) < 200:
                poll = asyncio.create_task(consumer.poll(records_max=5))
                await asyncio.sleep(0)
                poll.cancel()
                for rows in await asyncio.gather(poll, return_exceptions=True):
                    found += [] if isinstance(rows, BaseException) else [row.offset for row in rows]
                found += [record.offset for record in await consumer.poll(5, 5)]
            assert found == list(range(200))
            await producing

    run(work())


@both
def test_a_consumer_is_closed_while_it_joins(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        for turns in (0, 1, 2, 5, 20, 200):
            consumer = member(any_bootstrap, new_name, protocol)
            joining = asyncio.create_task(consumer.subscribe(new_name))
            for _ in range(turns):
                await asyncio.sleep(0)
            await consumer.close()
            await asyncio.gather(joining, return_exceptions=True)
        await fill(any_bootstrap, new_name, 1)
        async with member(any_bootstrap, new_name, protocol) as last:
            await last.subscribe(new_name)
            assert len(await last.poll()) == 1

    run(work())


@both
def test_a_subscribe_that_is_cancelled_when_it_is_done_leaves_the_group(
    headrace: TestBroker, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(headrace.bootstrap, "orders")
        async with member(headrace.bootstrap, "readers", protocol) as consumer:
            session = consumer._group
            assert session is not None

            async def cancel_in_time() -> None:
                while session._joining is None or not session._joining.done():
                    await asyncio.sleep(0)
                subscribing.cancel()

            cancelling = asyncio.create_task(cancel_in_time())
            subscribing = asyncio.create_task(consumer.subscribe("orders"))
            await cancelling
            with pytest.raises(asyncio.CancelledError):
                await subscribing
            assert asyncio.all_tasks() == {asyncio.current_task()}
            async with Admin(headrace.bootstrap) as admin:
                groups = await admin.list_groups()
                described = [await describe_group(admin.cluster, row.group_id) for row in groups]
                assert not any(group.members for group in described)
            await consumer.subscribe("orders")

    run(work())


@pytest.mark.parametrize(
    ("protocol", "api"),
    [
        ("consumer", "ConsumerGroupHeartbeat"),
        ("classic", "LeaveGroup"),
        ("share", "ShareGroupHeartbeat"),
    ],
)
def test_a_goodbye_is_said_again_while_the_coordinator_moves(protocol: str, api: str) -> None:
    async def work(broker: TestBroker) -> None:
        rows: Consumer | ShareConsumer
        if protocol == "share":
            rows = ShareConsumer(broker.bootstrap, "g", ["t"])
            await rows.start()
        else:
            rows = member(broker.bootstrap, "g", protocol)
            await rows.subscribe("t")
        while not rows.assignment:
            await rows.poll(10)
        broker.faults.fail(api, ErrorCode.NOT_COORDINATOR, times=2)
        await rows.close()
        async with Admin(broker.bootstrap) as admin:
            assert not (await admin.describe_group("g")).members

    intervals = [f"group.{each}.heartbeat.interval.ms" for each in ("consumer", "share")]
    with TestBroker(settings=dict.fromkeys(intervals, "5000")) as broker:
        broker.create_topic("t")
        run(work(broker))


@both
def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 50)
        async with (
            Admin(any_bootstrap) as admin,
            reading(any_bootstrap, new_name, new_name, protocol, auto_commit_interval_ms=50) as row,
        ):
            await until(lambda: len(row.records) == 50)
            await admin.delete_topic(new_name)
            created = False
            while not created:
                with suppress(KafkaError):  # until the old one is gone
                    await admin.create_topic(new_name, 1, 1)
                    created = True
            await fill(any_bootstrap, new_name, 10, start=100)
            await until(lambda: len(row.records) >= 60)
            assert row.values[50:] == list(range(100, 110))

    run(work())


@both
def test_a_broker_that_is_gone_for_a_while_is_waited_for(tmp_path: Path, protocol: str) -> None:
    async def work() -> None:
        node = HeadraceProcess(tmp_path / "data", QUICK_GROUPS)
        port = node.port
        try:
            await make_topic(node.bootstrap, "orders", 2)
            await fill(node.bootstrap, "orders", 20, 2)
            async with reading(
                node.bootstrap, "billing", "orders", protocol, auto_commit_interval_ms=50
            ) as row:
                await until(lambda: len(row.records) == 20)
                for start in (100, 200):
                    await asyncio.to_thread(node.kill if start == 200 else node.stop)
                    await asyncio.sleep(1.5)  # so long nobody is there
                    node = await asyncio.to_thread(
                        HeadraceProcess, tmp_path / "data", QUICK_GROUPS, port=port
                    )
                    await fill(node.bootstrap, "orders", 20, 2, start)
                    wanted = set(range(start, start + 20))
                    await until(lambda wanted=wanted: wanted <= set(row.values))  # type: ignore[misc]
        finally:
            node.kill()

    run(work())
