"""Our own consumer in groups of both protocols, against Headrace and Kafka: who reads what."""

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from headrace.client import (
    ClientSettings,
    CommittedOffset,
    Consumer,
    Start,
    TopicPartition,
)
from headrace.client.errors import UnsupportedApi
from headrace.client.fetched import ConsumedRecord
from headrace.client.group_members import describe_group
from headrace.errors import KafkaError
from tests.clients.awaiting import run, until
from tests.clients.conftest import QUICK_GROUPS
from tests.clients.group_members import Reading, both, fill, is_shared, make_topic, member, reading
from tests.headrace_process import HeadraceProcess


@both
def test_members_share_partitions_and_take_over_from_one_that_leaves(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 4)
        async with reading(any_bootstrap, new_name, new_name, protocol) as first:
            await until(lambda: is_shared([first], 4))
            async with reading(any_bootstrap, new_name, new_name, protocol) as second:
                await until(lambda: is_shared([first, second], 4))
            await until(lambda: is_shared([first], 4))

    run(work())


@pytest.mark.parametrize(
    ("protocol", "assignors"),
    [
        ("consumer", ("range",)),  # the coordinator's own
        ("classic", ("range",)),
        ("classic", ("cooperative-sticky",)),
        ("classic", ("roundrobin",)),
    ],
)
def test_no_record_is_lost_or_comes_twice_while_members_come_and_go(
    any_bootstrap: str, new_name: str, protocol: str, assignors: tuple[str, ...]
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 6)
        total, is_over = 0, asyncio.Event()
        rows: list[Reading] = []
        options = {"assignors": assignors, "auto_commit_interval_ms": 50}

        async def produce() -> None:
            nonlocal total
            while not is_over.is_set():
                await fill(any_bootstrap, new_name, 100, 6, total)
                total += 100
                await asyncio.sleep(0.05)

        producing = asyncio.create_task(produce())

        async def read(stop: asyncio.Event) -> None:
            async with member(any_bootstrap, new_name, protocol, **options) as consumer:
                row = Reading(consumer)
                await row.stop()
                rows.append(row)
                await consumer.subscribe(new_name)
                while not stop.is_set():
                    for record in await consumer.poll(100, 7):
                        await asyncio.sleep(0)
                        row.records.append(record)

        stops = [asyncio.Event() for _ in range(4)]
        tasks = []
        for stop in stops[:3]:
            tasks.append(asyncio.create_task(read(stop)))
            await until(lambda: len(rows) == len(tasks) and bool(rows[-1].records))
        stops[0].set()
        await tasks[0]
        tasks.append(asyncio.create_task(read(stops[3])))
        stops[1].set()
        await tasks[1]
        await until(lambda: len(rows) == 4 and bool(rows[3].records))
        is_over.set()
        await producing
        await until(lambda: sum(len(row.records) for row in rows) >= total)
        for stop in stops:
            stop.set()
        await asyncio.gather(*tasks)
        counts = Counter(value for row in rows for value in row.values)
        assert counts == Counter(range(total))
        for row in rows:
            for index in range(6):
                offsets = [one.offset for one in row.records if one.partition == index]
                assert offsets == sorted(offsets)

    run(work())


@both
def test_callbacks_tell_of_partitions_in_order_and_may_commit_and_seek(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 2)
        await fill(any_bootstrap, new_name, 20, 2)
        events: list[tuple[str, list[int]]] = []
        async with member(any_bootstrap, new_name, protocol, auto_commit=False) as consumer:

            async def on_assigned(partitions: list[TopicPartition]) -> None:
                events.append(("assigned", [row.partition for row in partitions]))
                for row in partitions:
                    consumer.seek(row, 5)

            async def on_revoked(partitions: list[TopicPartition]) -> None:
                events.append(("revoked", [row.partition for row in partitions]))
                await consumer.commit(dict.fromkeys(partitions, 7))

            await consumer.subscribe(new_name, on_assigned=on_assigned, on_revoked=on_revoked)
            found: list[ConsumedRecord] = []
            while len(found) < 10:
                found += await consumer.poll()
            assert min(record.offset for record in found) == 5
            await consumer.unsubscribe()
            assert consumer.assignment == frozenset()
            flat = [(name, index) for name, indexes in events for index in sorted(indexes)]
            assert sorted(flat[:2]) == [("assigned", 0), ("assigned", 1)]
            assert sorted(flat[2:]) == [("revoked", 0), ("revoked", 1)]
            places = [TopicPartition(new_name, index) for index in range(2)]
            assert await consumer.committed(places) == dict.fromkeys(places, CommittedOffset(7))

    run(work())


@both
def test_a_static_member_restarts_without_a_rebalance(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 4)
        async with reading(any_bootstrap, new_name, new_name, protocol, instance_id="a") as kept:
            async with reading(
                any_bootstrap, new_name, new_name, protocol, instance_id="b"
            ) as first:
                await until(lambda: is_shared([kept, first], 4))
                before = set(first.owned)
            events = len(kept.events)
            async with reading(
                any_bootstrap, new_name, new_name, protocol, instance_id="b"
            ) as again:
                await until(lambda: again.owned == before)
                await fill(any_bootstrap, new_name, 40, 4)
                await until(lambda: len(kept.records) + len(again.records) == 40)
            assert len(kept.events) == events

    run(work())


@both
def test_topics_that_match_a_pattern_are_read_new_ones_too(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, f"{new_name}-a")
        await make_topic(any_bootstrap, f"other-{new_name}-a")
        for topic in (f"{new_name}-a", f"other-{new_name}-a"):
            await fill(any_bootstrap, topic, 3)
        settings = ClientSettings(metadata_max_age_ms=300)
        async with Consumer(
            any_bootstrap, settings, group=new_name, protocol=protocol, reset=Start.BEGINNING
        ) as consumer:
            await consumer.subscribe(pattern=f"{new_name}-.*")
            row = Reading(consumer)
            await until(lambda: len(row.records) == 3)
            assert {record.topic for record in row.records} == {f"{new_name}-a"}
            if protocol == "classic":  # a broker looks for new topics when it finds the time
                await make_topic(any_bootstrap, f"{new_name}-b")
                await fill(any_bootstrap, f"{new_name}-b", 2)
                await until(lambda: len(row.records) == 5)
            await row.stop()

    run(work())


@both
def test_other_topics_may_be_subscribed_to_and_a_topic_may_come_later(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        first, second = f"{new_name}-1", f"{new_name}-2"
        await make_topic(any_bootstrap, first)
        await fill(any_bootstrap, first, 3)
        async with reading(any_bootstrap, new_name, [first], protocol) as row:
            await until(lambda: len(row.records) == 3)
            await row.consumer.subscribe([first, second])
            await make_topic(any_bootstrap, second)
            await fill(any_bootstrap, second, 2)
            await until(lambda: len(row.records) == 5)
            await row.consumer.subscribe([second])
            await until(lambda: {topic for topic, _ in row.consumer.assignment} == {second})

    run(work())


@both
def test_a_confluent_consumer_is_a_member_like_others(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 4)
        classic = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 200}
        other = ConfluentConsumer(
            {
                "bootstrap.servers": any_bootstrap,
                "group.id": new_name,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                **(classic if protocol == "classic" else {}),
            }
        )
        found: list[int] = []
        theirs: list[Any] = []
        stop = threading.Event()

        def poll() -> None:
            other.subscribe([new_name])
            while not stop.is_set():
                message = other.poll(0.05)
                theirs[:] = other.assignment()
                if message is not None and message.error() is None:
                    found.append(int(message.value()))
            other.close()

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            async with reading(any_bootstrap, new_name, new_name, protocol) as ours:
                await until(lambda: len(theirs) == len(ours.owned) == 2)
                await fill(any_bootstrap, new_name, 100, 4)
                await until(lambda: len(ours.records) + len(found) == 100)
                assert sorted(ours.values + found) == list(range(100))
                stop.set()
                await until(lambda: is_shared([ours], 4))
        finally:
            stop.set()
            await asyncio.to_thread(thread.join)

    run(work())


def test_members_of_both_protocols_share_a_group(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 4)
        async with reading(any_bootstrap, new_name, new_name, "classic") as old:
            await until(lambda: is_shared([old], 4))
            async with reading(any_bootstrap, new_name, new_name, "consumer") as new:
                await until(lambda: is_shared([old, new], 4))
                await fill(any_bootstrap, new_name, 40, 4)
                await until(lambda: len(old.records) + len(new.records) == 40)

    run(work())


def test_a_broker_without_kip_848_is_joined_by_the_classic_protocol(tmp_path: Path) -> None:
    async def work() -> None:
        settings = {**QUICK_GROUPS, "group.coordinator.rebalance.protocols": "classic"}
        node = HeadraceProcess(tmp_path / "data", settings)
        try:
            await make_topic(node.bootstrap, "orders", 2)
            await fill(node.bootstrap, "orders", 20, 2)
            async with reading(node.bootstrap, "billing", "orders") as row:
                await until(lambda: len(row.records) == 20)
                described = await describe_group(row.consumer.cluster, "billing")
                assert described.group_type == "classic"
            async with member(node.bootstrap, "billing", "consumer") as consumer:
                with pytest.raises((KafkaError, UnsupportedApi), match='protocol="classic"'):
                    await consumer.subscribe("orders")
        finally:
            node.kill()

    run(work())
