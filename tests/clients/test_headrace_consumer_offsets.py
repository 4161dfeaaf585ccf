"""Our own consumer in groups: where it reads, what it commits, and when."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from headrace.client import (
    CommitFailed,
    CommittedOffset,
    Consumer,
    GroupMetadata,
    Producer,
    Start,
    TopicPartition,
)
from headrace.client.fetched import ConsumedRecord
from headrace.client.settings import ConsumerSettings
from headrace.errors import KafkaError
from tests.clients.awaiting import run, until
from tests.clients.group_members import both, fill, is_shared, make_topic, member, reading


@both
def test_a_group_goes_on_behind_what_it_was_done_with(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 3)
        await fill(any_bootstrap, new_name, 90, 3)
        async with reading(any_bootstrap, new_name, new_name, protocol) as first:
            await until(lambda: len(first.records) == 90)
            assert first.consumer.group_metadata.generation > 0
            assert first.consumer.group_metadata.member_id
        await fill(any_bootstrap, new_name, 30, 3, 90)
        async with reading(any_bootstrap, new_name, new_name, protocol) as second:
            await until(lambda: len(second.records) >= 30)
            assert sorted(second.values) == list(range(90, 120))

    run(work())


@both
def test_a_record_that_is_still_worked_on_is_not_committed_and_comes_again(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    class Crash(Exception):
        pass

    async def work() -> None:
        place = TopicPartition(new_name, 0)
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 10)
        with suppress(Crash):
            async with member(
                any_bootstrap, new_name, protocol, auto_commit_interval_ms=20
            ) as consumer:
                await consumer.subscribe(new_name)
                async for record in consumer:
                    if record.offset == 4:
                        while await consumer.committed([place]) != {place: CommittedOffset(4)}:
                            await asyncio.sleep(0.01)  # polls, up to the deadline
                        await asyncio.sleep(0.1)  # it would be committed meanwhile, if it were
                        assert await consumer.committed([place]) == {place: CommittedOffset(4)}
                        raise Crash
        async with member(any_bootstrap, new_name, protocol) as consumer:
            await consumer.subscribe(new_name)
            assert (await consumer.poll())[0].offset == 4

    run(work())


@both
def test_commits_of_who_lost_its_place_are_refused(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 5)
        async with member(any_bootstrap, new_name, protocol, auto_commit=False) as consumer:
            await consumer.subscribe(new_name)
            count = 0
            while count < 5:
                count += len(await consumer.poll())
            session = consumer._group
            assert session is not None
            membership: Any = session._membership
            await membership._say_goodbye(*(["test"] if protocol == "classic" else []))
            with pytest.raises(CommitFailed, match=r"another member's by now|not in group"):
                await consumer.commit()
            while count < 10:  # joins again, and gets the records again
                count += len(await consumer.poll())
            await consumer.commit()
            place = TopicPartition(new_name, 0)
            assert await consumer.committed([place]) == {place: CommittedOffset(5)}

    run(work())


@both
def test_nobody_commits_for_a_partition_that_another_member_has(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name, 2)
        options = {"auto_commit": False}
        async with reading(any_bootstrap, new_name, new_name, protocol, **options) as first:
            await until(lambda: first.owned == {0, 1})
            async with reading(any_bootstrap, new_name, new_name, protocol, **options) as second:
                await until(lambda: is_shared([first, second], 2))
                (place,) = second.consumer.assignment
                await second.consumer.commit({place: 7})
                with pytest.raises(CommitFailed, match="another member's by now"):
                    await first.consumer.commit({place: 3})
                assert await second.consumer.committed([place]) == {place: CommittedOffset(7)}

    run(work())


@both
def test_a_callback_may_commit_what_a_close_gives_up(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        place = TopicPartition(new_name, 0)
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 5)
        async with member(any_bootstrap, new_name, protocol, auto_commit=False) as consumer:

            async def commit(_: list[TopicPartition]) -> None:
                await consumer.commit()

            await consumer.subscribe(new_name, on_revoked=commit)
            count = 0
            while count < 5:
                count += len(await consumer.poll())
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.commit()
        async with member(any_bootstrap, new_name, protocol) as consumer:
            assert await consumer.committed([place]) == {place: CommittedOffset(5)}

    run(work())


@both
def test_nothing_waits_behind_a_fetch_that_waits_for_records(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    async def work() -> None:
        place = TopicPartition(new_name, 0)
        await make_topic(any_bootstrap, new_name)
        limits = ConsumerSettings(max_wait_ms=60_000)
        async with member(
            any_bootstrap, new_name, protocol, limits=limits, auto_commit=False
        ) as consumer:
            await consumer.subscribe(new_name)
            waiting = asyncio.create_task(consumer.poll(50_000))
            await until(lambda: place in consumer.positions)
            await asyncio.sleep(0.1)  # the fetch is on its way
            await consumer.commit({place: 0})
            assert await consumer.committed([place]) == {place: CommittedOffset(0)}
            assert not waiting.done()  # it gives up before the broker does
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    run(work())


def test_paused_partitions_wait_and_others_go_on(any_bootstrap: str, new_name: str) -> None:
    async def work() -> None:
        zero, one = TopicPartition(new_name, 0), TopicPartition(new_name, 1)
        await make_topic(any_bootstrap, new_name, 2)
        await fill(any_bootstrap, new_name, 100, 2)
        async with member(any_bootstrap, new_name) as consumer:
            await consumer.subscribe(new_name)
            first = (await consumer.poll(records_max=1))[0]
            paused = TopicPartition(first.topic, first.partition)
            (other,) = {zero, one} - {paused}
            consumer.pause(paused)
            assert consumer.paused == {paused}
            found: list[ConsumedRecord] = []
            while len(found) < 50:
                found += await consumer.poll(records_max=3)
            assert {record.partition for record in found} == {other.partition}
            assert await consumer.poll(100) == []
            assert consumer.positions == {paused: 1, other: 50}
            assert consumer.lags == {paused: 49, other: 0}
            consumer.resume(paused)
            rest: list[ConsumedRecord] = []
            while len(rest) < 49:
                rest += await consumer.poll()
            assert [record.offset for record in rest] == list(range(1, 50))

    run(work())


def test_a_member_seeks_by_offset_time_beginning_and_end(any_bootstrap: str, new_name: str) -> None:
    base_ms = int(time.time() * 1000) - 100_000

    async def work() -> None:
        place = TopicPartition(new_name, 0)
        await make_topic(any_bootstrap, new_name)
        async with Producer(any_bootstrap) as producer:
            for number in range(10):
                await producer.send(new_name, b"x", timestamp_ms=base_ms + 1000 * number)
        async with member(any_bootstrap, new_name) as consumer:
            await consumer.subscribe(new_name)

            async def next_offset() -> int:
                return (await consumer.poll(records_max=1))[0].offset

            assert await next_offset() == 0
            consumer.seek(place, 7)
            assert await next_offset() == 7
            consumer.seek(place, Start.BEGINNING)
            assert await next_offset() == 0
            await consumer.seek_to_time(base_ms + 3500)
            assert await next_offset() == 4
            consumer.seek(place, Start.END)
            assert await consumer.poll(100) == []
            assert consumer.positions == {place: 10}
            await consumer.seek_to_time(base_ms + 10**7, [place])
            assert consumer.positions == {place: 10}
            with pytest.raises(ValueError, match="negative"):
                consumer.seek(place, -5)
            with pytest.raises(ValueError, match="not assigned"):
                consumer.seek(TopicPartition(new_name, 9), 0)

    run(work())


def test_without_a_commit_and_a_reset_the_error_names_the_partition(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        place = TopicPartition(new_name, 0)
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 3)
        async with member(any_bootstrap, new_name, reset=None) as consumer:
            await consumer.subscribe(new_name)
            for _ in range(2):
                with pytest.raises(KafkaError, match=f"{new_name}-0.*reset=Start.BEGINNING"):
                    await consumer.poll()
            consumer.seek(place, 1)
            assert (await consumer.poll())[0].offset == 1
            await consumer.commit({place: CommittedOffset(2, metadata="two")})
        async with member(any_bootstrap, new_name, reset=None) as consumer:
            found = await consumer.committed([place])
            assert found == {place: CommittedOffset(3)}  # the close committed
            await consumer.subscribe(new_name)
            assert await consumer.poll(200) == []

    run(work())


def test_partitions_by_name_may_be_committed_for_a_group_too(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        place = TopicPartition(new_name, 0)
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 5)
        async with member(any_bootstrap, new_name, auto_commit=False) as consumer:
            assert consumer.group_metadata == GroupMetadata(new_name)
            await consumer.assign(new_name)
            assert len(await consumer.poll(records_max=2)) == 2
            await consumer.commit()
            assert await consumer.committed([place]) == {place: CommittedOffset(2)}
            with pytest.raises(ValueError, match="assigned to it by name"):
                await consumer.subscribe(new_name)
            await consumer.unsubscribe()
            await consumer.subscribe(new_name)
            assert (await consumer.poll())[0].offset == 2
            with pytest.raises(ValueError, match="its group gives it"):
                await consumer.assign(new_name)
        async with Consumer(any_bootstrap) as consumer:
            with pytest.raises(ValueError, match="make the consumer with group="):
                await consumer.subscribe(new_name)

    run(work())


def test_closing_ends_a_loop_and_commits_only_what_is_done(
    any_bootstrap: str, new_name: str
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 5)
        consumer = member(any_bootstrap, new_name)
        await consumer.subscribe(new_name)
        at_work, go_on = asyncio.Event(), asyncio.Event()

        async def read() -> int:
            count = 0
            async for record in consumer:
                count += 1
                if record.offset == 2:
                    at_work.set()
                    await go_on.wait()
            return count

        task = asyncio.create_task(read())
        await at_work.wait()
        await consumer.close()
        go_on.set()
        assert await task == 3
        with pytest.raises(RuntimeError, match="closed"):
            await consumer.poll()
        async with member(any_bootstrap, new_name) as again:
            await again.subscribe(new_name)
            assert (await again.poll())[0].offset == 2  # it was still worked on

    run(work())


@both
def test_a_transaction_commits_what_a_member_read_exactly_once(
    any_bootstrap: str, new_name: str, protocol: str
) -> None:
    source, target = f"{new_name}-in", f"{new_name}-out"

    async def work() -> None:
        await make_topic(any_bootstrap, source, 2)
        await make_topic(any_bootstrap, target)
        await fill(any_bootstrap, source, 200, 2)
        copied = 0
        while copied < 200:
            async with (
                member(
                    any_bootstrap, new_name, protocol, auto_commit=False, read_committed=True
                ) as consumer,
                Producer(any_bootstrap, transactional_id=new_name) as producer,
            ):
                await consumer.subscribe(source)
                for is_aborted in (False, False, True):
                    records = await consumer.poll(1000, 40)
                    with suppress(LookupError):
                        async with producer.transaction() as transaction:
                            for record in records:
                                await producer.send(target, record.value)
                            await transaction.send_offsets(
                                consumer.positions, consumer.group_metadata
                            )
                            if is_aborted:
                                raise LookupError
                    copied += 0 if is_aborted else len(records)
        async with Consumer(any_bootstrap, read_committed=True) as reader:
            await reader.assign(target, until_end=True)
            found = [int(record.value or b"") async for record in reader]
        assert sorted(found) == list(range(200))

    run(work())


@pytest.mark.parametrize("records_max", [0, -1])
def test_a_poll_for_no_records_is_refused_and_loses_none(
    any_bootstrap: str, new_name: str, records_max: int
) -> None:
    async def work() -> None:
        await make_topic(any_bootstrap, new_name)
        await fill(any_bootstrap, new_name, 5)
        async with Consumer(any_bootstrap) as consumer:
            await consumer.assign(new_name, until_end=True)
            found = await consumer.poll(records_max=2)
            with pytest.raises(ValueError, match=f"records_max is {records_max}"):
                await consumer.poll(records_max=records_max)
            found += await consumer.poll()
            assert [record.offset for record in found] == [0, 1, 2, 3, 4]

    run(work())
