"""What a scrape of the metrics costs with many topics, partitions and groups."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.coordinator.shard import State
from headrace.groups.offsets.store import CommittedOffset
from headrace.ids import BrokerId, TopicName
from headrace.txn.state import Status, Transaction
from headrace.web.metrics import NodeMetrics
from tests.growth.slices import assert_slices_are_short, total_steps
from tests.growth.steps import assert_grows_linearly
from tests.unit.harness import Harness
from tests.unit.web.test_group_metrics import empty_groups

COUNT = 3000


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "data", {})
    yield harness
    harness.close()


def add_partitions(node: Harness, count: int) -> None:
    """Let the node count partitions that have no files."""
    log = SimpleNamespace(size_bytes=1, failure=None, high_watermark=100)
    for number in range(count):
        topic = TopicName(f"topic-{number}")
        node.broker.counters.topic(topic).bytes_in = number
        node.broker.replicas._by_name[topic, 0] = SimpleNamespace(  # type: ignore[index,assignment]
            topic=topic,
            is_leader=True,
            isr=(BrokerId(1),),
            min_insync_replicas=1,
            replicas=(1,),
            adding=(),
            is_moving=False,
            leader=BrokerId(1),
            log=log,
        )


def page_of(node: Harness) -> Any:
    return NodeMetrics(node.node).writing()


@pytest.fixture
def counting(node: Harness) -> Iterator[Harness]:
    yield node
    node.broker.replicas._by_name.clear()


def test_partitions_in_a_scrape(counting: Harness) -> None:
    add_partitions(counting, COUNT)
    page = assert_slices_are_short(page_of(counting))
    assert f"headrace_partitions {COUNT}.0".encode() in page


def test_a_scrape_of_twice_as_many_partitions_costs_twice_as_much(counting: Harness) -> None:
    def cost(count: int) -> int:
        counting.broker.replicas._by_name.clear()
        counting.broker.counters.topics.clear()
        add_partitions(counting, count)
        return total_steps(page_of(counting))

    assert_grows_linearly(cost, 500)


def test_groups_in_a_scrape(counting: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = empty_groups()
    add_partitions(counting, 1)
    for number in range(COUNT):
        machine.state.offsets.put(f"group-{number}", ("topic-0", 0), CommittedOffset(number % 100))
    shard = SimpleNamespace(state=State.ACTIVE, machine=machine, load_count=1)
    monkeypatch.setitem(counting.broker.groups._shards, 0, shard)
    page = assert_slices_are_short(page_of(counting))
    assert f'headrace_groups{{protocol="classic",state="Empty"}} {COUNT}.0'.encode() in page


def test_offsets_of_one_group_in_a_scrape(
    counting: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = empty_groups()
    for number in range(COUNT):
        machine.state.offsets.put("g", ("t", number), CommittedOffset(0))
    shard = SimpleNamespace(state=State.ACTIVE, machine=machine, load_count=1)
    monkeypatch.setitem(counting.broker.groups._shards, 0, shard)
    assert_slices_are_short(page_of(counting))


def test_transactional_ids_in_a_scrape(counting: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = {
        str(number): Transaction(str(number), number, 0, 1000, Status.ONGOING)
        for number in range(COUNT)
    }
    machine = SimpleNamespace(state=SimpleNamespace(transactions=transactions))
    shard = SimpleNamespace(state=State.ACTIVE, machine=machine, load_count=1)
    monkeypatch.setitem(counting.broker.transactions._shards, 0, shard)
    page = assert_slices_are_short(page_of(counting))
    assert f"headrace_open_transactions {COUNT}.0".encode() in page


def test_scrapes_at_the_same_time_are_one(counting: Harness) -> None:
    add_partitions(counting, 100)
    metrics = NodeMetrics(counting.node)

    async def scrape() -> list[bytes]:
        return await asyncio.gather(*(metrics.page() for _ in range(20)))

    pages = counting.run(scrape())
    assert all(page is pages[0] for page in pages)
