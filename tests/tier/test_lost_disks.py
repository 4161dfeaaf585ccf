"""A partition's only disk is lost, or its store is not there: what the tier has must not suffer."""

import shutil
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.ids import REMOTE_METADATA_TOPIC
from headrace.testing.broker import TestBroker
from headrace.testing.store import SimulatedStore
from tests.tier.brokers import COUNT, TIERED, VALUES, produce_all, until


def moved(broker: TestBroker) -> int:
    """Wait until all but the last segment left the disk; return the offset after them."""
    partition = broker.node.broker.replicas.find("orders", 0)  # type: ignore[arg-type]
    assert partition is not None
    until(lambda: len(partition.log.segments) == 1, "the move to the tier")
    return partition.log.local_start_offset


def fill(broker: TestBroker) -> int:
    broker.create_topic("orders", configs=TIERED)
    produce_all(broker, "orders")
    return moved(broker)


@pytest.mark.parametrize("leaves_dangling_copy", [False, True])
def test_records_after_the_loss_of_the_disk_come_behind_those_of_the_tier(
    tmp_path: Path, leaves_dangling_copy: bool
) -> None:
    store = SimulatedStore()
    with TestBroker(tmp_path, store=store) as broker:
        end = fill(broker)
        if leaves_dangling_copy:
            store.fail("put", "*.leader_epoch_checkpoint", times=10**6)
            store.fail("delete", times=10**6)
            calls = len(store.calls)
            broker.produce("orders", *[b"y" * 1000] * 4)
            until(
                lambda: any(
                    operation == "put" and key.endswith(".log")
                    for operation, key in store.calls[calls:]
                )
            )
        broker.crash()
        store.heal()
        shutil.rmtree(tmp_path / "orders-0")
        broker.start()
        (offset,) = broker.produce("orders", b"after the loss")
        assert offset == end
        records = broker.consume("orders")
        assert [record.value for record in records] == [*VALUES[:end], b"after the loss"]
        assert [record.offset for record in records] == list(range(end + 1))


def test_an_empty_topic_takes_records_after_a_restart_though_the_store_is_away(
    tmp_path: Path,
) -> None:
    store = SimulatedStore()
    with TestBroker(tmp_path, store=store) as broker:
        broker.create_topic("orders", configs=TIERED)
        broker.crash()
        store.go_away()
        broker.start()
        assert broker.produce("orders", b"first") == [0]
        store.come_back()


def test_a_store_that_lost_its_marker_is_refused(tmp_path: Path) -> None:
    """As a folder that is not mounted."""
    store = SimulatedStore()
    with TestBroker(tmp_path, store=store) as broker:
        fill(broker)
        assert [record.value for record in broker.consume("orders")] == VALUES
        broker.stop()
        empty = TestBroker(tmp_path, store=SimulatedStore())
        with pytest.raises(HeadraceError, match=r"no \.headrace/cluster\.json"):
            empty.start()
        broker.start()
        assert len(broker.consume("orders")) == COUNT


def test_what_is_announced_survives_a_power_loss(tmp_path: Path) -> None:
    """Or a copy would count as unfinished, and be deleted, after its segment has left the disk."""
    with TestBroker(tmp_path, store=SimulatedStore()) as broker:
        fill(broker)
        replicas = broker.node.broker.replicas
        events = [each.log for each in replicas if each.topic == REMOTE_METADATA_TOPIC]
        assert any(log.end_offset for log in events)
        assert [log.recovery_point for log in events] == [log.high_watermark for log in events]
