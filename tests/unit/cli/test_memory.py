"""The collector's pauses are bounded by what is new, not by what there is."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from headrace.cli import memory
from headrace.ids import TopicName
from headrace.testing.broker import TestBroker
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest
from tests.broker.peers import ask, ask_on, wait_until
from tests.differential.connection import Connection


@pytest.fixture
def settled() -> Iterator[None]:
    thresholds = gc.get_threshold()
    memory.settle_collector()
    yield
    gc.callbacks.remove(memory._on_collection)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_what_survived_a_full_collection_is_not_looked_at_again() -> None:
    kept: list[list[list[int]]] = [[[]] for _ in range(100_000)]
    gc.collect()
    assert len(gc.get_objects(generation=2)) < len(kept) // 10


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_a_collection_of_the_young_keeps_them_in_sight() -> None:
    frozen = gc.get_freeze_count()
    gc.collect(1)
    assert gc.get_freeze_count() <= frozen


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_an_old_connection_is_freed_without_the_collector(headrace: TestBroker) -> None:
    with Connection(headrace.bootstrap) as connection:
        ask_on(connection, ApiVersionsRequest(), 0)
        [served] = headrace.node.traffic.connections
        reference = weakref.ref(served)
        del served
        gc.collect()
        gc.disable()
    try:
        wait_until(lambda: reference() is None, "the connection is freed")
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("settled")
def test_the_log_of_a_deleted_topic_is_freed_without_the_collector(headrace: TestBroker) -> None:
    headrace.create_topic("orders")
    headrace.produce("orders", "one")
    replicas = headrace.node.broker.replicas
    partition = replicas.find(TopicName("orders"), 0)
    assert partition is not None
    reference = weakref.ref(partition.log)
    del partition
    gc.collect()
    gc.disable()
    try:
        ask(headrace.bootstrap, DeleteTopicsRequest(topic_names=["orders"], timeout_ms=9000), 5)
        wait_until(lambda: reference() is None, "the log is freed")
    finally:
        gc.enable()
