"""Days on which the store is away, slow, refused, or changed by somebody."""

import asyncio
import os
from pathlib import Path

import pytest

from headrace.client import Admin, Consumer, Start, TopicPartition
from headrace.client.outcomes import values_of
from headrace.errors import HeadraceError
from headrace.remote import folder_store
from headrace.testing.broker import TestBroker
from headrace.testing.store import SimulatedStore
from headrace.wire.schema import Buffer
from tests.tier.brokers import (
    COUNT,
    TIERED,
    VALUES,
    fill,
    objects,
    produce_all,
    tiered_broker,
    until,
)

NO_CACHE = {"headrace.tier.chunk.cache.bytes": "0", "headrace.tier.read.ahead.max.bytes": "0"}

IMPATIENT = {
    "remote.log.manager.task.retry.backoff.ms": "10",
    "remote.log.manager.task.retry.backoff.max.ms": "100",
}


def produce(broker: TestBroker, topic: str = "orders") -> None:
    produce_all(broker, topic)


def segment_count(broker: TestBroker, topic: str = "orders") -> int:
    partition = broker.node.broker.replicas.find(topic, 0)  # type: ignore[arg-type]
    assert partition is not None
    return len(partition.log.segments)


def moved(broker: TestBroker) -> None:
    until(lambda: segment_count(broker) == 1, "the move to the tier")


def test_nothing_is_lost_while_the_store_is_away() -> None:
    store = SimulatedStore()
    with TestBroker(settings=NO_CACHE, store=store) as broker:
        broker.create_topic("orders", configs=TIERED)
        until(lambda: ".headrace/cluster.json" in store.objects)
        store.go_away()
        produce(broker)
        broker.restart()
        assert segment_count(broker) > 5, "uncopied segments stay"
        assert [record.value for record in broker.consume("orders")] == VALUES
        store.come_back()
        moved(broker)
        assert [record.value for record in broker.consume("orders")] == VALUES


def test_a_reader_waits_for_a_store_that_is_away_and_skips_nothing() -> None:
    store = SimulatedStore()
    with TestBroker(settings=NO_CACHE, store=store) as broker:
        broker.create_topic("orders", configs=TIERED)
        produce(broker)
        moved(broker)

        async def read() -> list[int]:
            # A client that would go to the end if its offset was out of range.
            async with Consumer(broker.bootstrap, reset=Start.END) as consumer:
                await consumer.assign("orders", Start.BEGINNING)
                store.go_away()
                first = asyncio.ensure_future(anext(aiter(consumer)))
                failures = store.counts.errors
                await asyncio.sleep(0)
                while not first.done() and store.counts.errors < failures + 3:
                    await asyncio.sleep(0.05)
                assert not first.done()
                store.come_back()
                offsets = [(await first).offset]
                return offsets + [(await anext(aiter(consumer))).offset for _ in range(COUNT - 1)]

        assert broker.run(read()) == list(range(COUNT))


class Rendezvous(SimulatedStore):
    """A store that responds to nobody before it is asked for every topic."""

    def __init__(self, *topics: str) -> None:
        super().__init__()
        self.missing = set(topics)
        self.is_on = False

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> Buffer:
        if self.is_on:
            self.missing.discard(key.partition("-")[0])
            while self.missing:
                await asyncio.sleep(0.01)
        return await super().get(key, begin, end)


def test_look_ups_by_time_do_not_wait_for_each_other() -> None:
    topics = ("orders", "pairs", "queues")
    store = Rendezvous(*topics)
    with TestBroker(settings=NO_CACHE, store=store) as broker:
        for topic in topics:
            broker.create_topic(topic, configs=TIERED)
            produce(broker, topic)
        until(lambda: all(segment_count(broker, topic) == 1 for topic in topics))

        async def look_up() -> list[int]:
            async with Admin(broker.bootstrap) as admin:
                store.is_on = True
                found = await admin.list_offsets({TopicPartition(each, 0): 1 for each in topics})
                return [each.offset for each in values_of(found).values()]

        assert broker.run(look_up()) == [0, 0, 0]


def test_a_store_that_is_away_at_the_very_first_start_is_claimed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.node.node_tier.CLAIM_RETRY_SECONDS", 0.05)
    store = SimulatedStore()
    store.go_away()
    with TestBroker(tmp_path, store=store) as broker:
        broker.create_topic("orders", configs=TIERED)
        produce(broker)
        broker.restart()
        assert [record.value for record in broker.consume("orders")] == VALUES
        store.come_back()
        moved(broker)
        assert [record.value for record in broker.consume("orders")] == VALUES


def test_a_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    store = SimulatedStore()
    with TestBroker(store=store):
        pass
    with pytest.raises(HeadraceError, match="belongs to cluster"), TestBroker(store=store):
        pass


def test_a_store_that_refuses_the_credentials_keeps_the_node_from_starting() -> None:
    store = SimulatedStore()
    store.refuse("the key is not known")
    with pytest.raises(HeadraceError, match=r"headrace\.tier\.store"), TestBroker(store=store):
        pass


def test_random_failures_leave_nothing_behind() -> None:
    store = SimulatedStore(seed=3)
    with TestBroker(settings={**NO_CACHE, **IMPATIENT}, store=store) as broker:
        broker.create_topic("orders", configs=TIERED)
        until(lambda: ".headrace/cluster.json" in store.objects)
        store.fail_randomly(0.05)
        produce(broker)
        moved(broker)
        store.fail_randomly(0)
        assert [record.value for record in broker.consume("orders")] == VALUES
        until(lambda: _is_settled(store), "the deletion of failed copies")


def _is_settled(store: SimulatedStore) -> bool:
    """Return whether every segment is there whole, and each once."""
    logs = [key for key in store.objects if key.endswith(".log")]
    starts = [key.rpartition("/")[2].partition("-")[0] for key in logs]
    epochs = [key for key in store.objects if key.endswith(".leader_epoch_checkpoint")]
    return len(set(starts)) == len(logs) == len(epochs)


def test_a_folder_that_is_unmounted_while_the_node_runs_gets_nothing(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    with tiered_broker(tmp_path, **IMPATIENT) as broker:
        broker.create_topic("orders", configs=TIERED)
        produce(broker)
        moved(broker)
        folder.rename(elsewhere)
        folder.mkdir()  # the mount point
        produce(broker)
        tier = broker.node.tier
        assert tier is not None
        until(lambda: tier.tier.copiers.failures > 3, "failures")
        assert segment_count(broker) > 5
        assert not list(folder.iterdir())
        folder.rmdir()
        elsewhere.rename(folder)
        moved(broker)
        assert [record.value for record in broker.consume("orders")] == VALUES * 2


def test_a_node_stops_while_the_file_system_of_its_store_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_store, "CLOSE_SECONDS_MAX", 0.01)
    with tiered_broker(tmp_path) as broker:
        fill(broker, tmp_path)
        broker.restart()
        stuck = tmp_path / "store" / objects(tmp_path)[0]
        stuck.unlink()
        os.mkfifo(stuck)

        async def read() -> None:
            async with Consumer(broker.bootstrap) as consumer:
                await consumer.assign("orders", Start.BEGINNING)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(1):
                        await anext(aiter(consumer))

        broker.run(read())
        broker.stop()
        os.close(os.open(stuck, os.O_WRONLY))  # let the thread go
