"""What clients, operators and bad luck do to a tier, all at the same time."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.client import (
    Admin,
    Consumer,
    Producer,
    Resource,
    ResourceType,
    Start,
    TopicPartition,
)
from headrace.client.outcomes import values_of
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.log.cutting import apply_retention
from headrace.log.fetch import ColdRead
from headrace.log.log import Log
from headrace.log.real_disk import RealFile
from headrace.remote.segments import SegmentState, SegmentUpdate
from headrace.testing.broker import TestBroker
from headrace.testing.store import SimulatedStore
from tests.tier.brokers import COUNT, TIERED, VALUES, until


def log_of(broker: TestBroker, topic: str = "orders") -> Log:
    partition = broker.node.broker.replicas.find(topic, 0)  # type: ignore[arg-type]
    assert partition is not None
    return partition.log


def fill(broker: TestBroker, **configs: str) -> int:
    """Produce records; return where the disk begins when all else is in the tier."""
    broker.create_topic("orders", configs={**TIERED, **configs})
    for value in VALUES:
        broker.produce("orders", value)
    moved(broker)
    return log_of(broker).local_start_offset


def moved(broker: TestBroker) -> None:
    until(lambda: len(log_of(broker).segments) == 1, "the move to the tier")


def set_configs(broker: TestBroker, configs: dict[str, str]) -> None:
    async def alter() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_configs(Resource(ResourceType.TOPIC, "orders"), set=configs)

    broker.run(alter())


def delete_records(broker: TestBroker, offset: int) -> None:
    async def delete() -> None:
        async with Admin(broker.bootstrap) as admin:
            values_of(await admin.delete_records({TopicPartition("orders", 0): offset}))

    broker.run(delete())


@pytest.mark.parametrize("is_folder_left", [False, True])
def test_a_disk_that_is_lost_after_a_clean_stop_costs_nothing_of_the_tier(
    tmp_path: Path, is_folder_left: bool
) -> None:
    """The leader epoch stays; if the folder is there, so does the start of the log."""
    deleted_to = 60 if is_folder_left else 0
    store = SimulatedStore()
    with TestBroker(tmp_path, store=store) as broker:
        end = fill(broker)
        delete_records(broker, deleted_to)
        broker.stop()
        shutil.rmtree(tmp_path / "orders-0")
        if is_folder_left:
            (tmp_path / "orders-0").mkdir()
        broker.start()
        assert broker.produce("orders", b"after the loss") == [end]
        records = broker.consume("orders")
        assert [record.offset for record in records] == list(range(deleted_to, end + 1))
        assert records[0].value == VALUES[deleted_to]
        assert end < COUNT


def test_the_log_starts_behind_what_retention_deleted_while_nothing_was_copied() -> None:
    with TestBroker(store=SimulatedStore()) as broker:
        end = fill(broker)
        set_configs(broker, {"local.retention.bytes": "-2", "remote.log.copy.disable": "true"})
        for value in VALUES:
            broker.produce("orders", value)
        set_configs(broker, {"retention.bytes": "4000"})
        until(lambda: log_of(broker).local_start_offset > end, "the retention")
        until(lambda: log_of(broker).start_offset == log_of(broker).local_start_offset)
        records = broker.consume("orders")
        assert [record.offset for record in records] == list(
            range(log_of(broker).start_offset, 2 * COUNT)
        )


def test_what_may_be_dropped_before_anything_was_copied_is_passed_over() -> None:
    store = SimulatedStore()
    with TestBroker(store=store, settings={"headrace.tier.drop.uncopied": "true"}) as broker:
        broker.create_topic("orders", configs=TIERED)
        until(lambda: ".headrace/cluster.json" in store.objects)
        store.go_away()
        for value in VALUES:
            broker.produce("orders", value)
        moved(broker)
        first = log_of(broker).local_start_offset
        assert [record.value for record in broker.consume("orders")] == VALUES[first:]
        store.come_back()


def test_aborted_records_stay_invisible_as_their_segment_leaves_the_disk_during_a_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TestBroker(store=SimulatedStore()) as broker:
        broker.create_topic("orders", configs={**TIERED, "local.retention.bytes": "-2"})

        async def write() -> None:
            async with Producer(broker.bootstrap, transactional_id="t") as producer:
                with suppress(_Abort):
                    async with producer.transaction():
                        await producer.send("orders", b"aborted")
                        raise _Abort

        broker.run(write())
        for value in VALUES:
            broker.produce("orders", value)
        log = log_of(broker)
        until(lambda: log.remote_end_offset == log.segments[-1].base_offset, "the copies")
        run = ColdRead.run

        def move() -> None:
            log.change_settings(replace(log.settings, local_retention_bytes=1))
            while apply_retention(log, 0):
                pass

        def run_slowly(read: ColdRead) -> None:
            run(read)
            broker.call(move)

        monkeypatch.setattr(RealFile, "read_cached", lambda *_: None)
        monkeypatch.setattr(ColdRead, "run", run_slowly)

        async def read() -> bytes | None:
            async with Consumer(broker.bootstrap, read_committed=True) as consumer:
                await consumer.assign("orders", Start.BEGINNING)
                async with asyncio.timeout(60):
                    return (await anext(aiter(consumer))).value

        assert broker.run(read()) == VALUES[0]
        assert len(log.segments) == 1


def test_offsets_that_are_missing_within_the_tier_are_not_passed_over() -> None:
    """A reader that goes on behind them would never know."""
    with TestBroker(store=SimulatedStore()) as broker:
        fill(broker)
        tier, partition = broker.node.tier, broker.node.broker.replicas.find("orders", 0)  # type: ignore[arg-type]
        assert tier is not None
        assert partition is not None
        metadata = tier.tier.metadata
        lost = metadata.segments((partition.topic_id, partition.index))[3]

        async def lose() -> None:
            for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
                update = SegmentUpdate(lost.partition, lost.id, 0, state, BrokerId(1))
                await metadata.update(update)

        async def read(offset: int) -> int:
            found = await tier.log.read(
                *(partition, offset, 10**6),
                up_to=COUNT,
                is_first_whole=True,
                with_aborted=False,
            )
            return int.from_bytes(found.records[:8])

        broker.run(lose())
        for offset in range(lost.start_offset, lost.next_offset):
            with pytest.raises(KafkaError) as caught:
                broker.run(read(offset))
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.run(read(lost.next_offset)) == lost.next_offset


@pytest.mark.parametrize("pattern", ["*.log", "*.index", "*.leader_epoch_checkpoint"])
def test_a_store_that_loses_what_it_took_costs_no_record(pattern: str) -> None:
    store = SimulatedStore()
    with TestBroker(store=store) as broker:
        broker.create_topic("orders", configs=TIERED)
        store.lose_puts(pattern, times=2)
        for value in VALUES:
            broker.produce("orders", value)
        moved(broker)
        assert log_of(broker).local_start_offset > 0
        assert [record.value for record in broker.consume("orders")] == VALUES


def test_readers_of_the_tier_hear_at_once_that_a_topic_has_left_it() -> None:
    settings = {"remote.log.manager.task.interval.ms": "5000"}
    with TestBroker(store=SimulatedStore(), settings=settings) as broker:
        end = fill(broker)
        left = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        set_configs(broker, left)
        until(lambda: not log_of(broker).settings.is_tiered)

        async def read() -> int:
            # A client that goes to the end if its offset is out of range.
            async with Consumer(broker.bootstrap, reset=Start.END) as consumer:
                await consumer.assign("orders", 10)
                reading = asyncio.ensure_future(anext(aiter(consumer)))
                while not reading.done():
                    async with Producer(broker.bootstrap) as producer:
                        await producer.send("orders", b"new")
                    await asyncio.wait([reading], timeout=0.1)
                return (await reading).offset

        assert broker.run(read()) >= COUNT > end


class _Abort(Exception):
    pass
