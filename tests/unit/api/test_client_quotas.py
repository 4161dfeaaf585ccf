"""DescribeClientQuotas and AlterClientQuotas, and what limits do to requests."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.metadata.image import Image
from headrace.node.backups import NodeBackups
from headrace.security.principals import ANONYMOUS, NODE
from headrace.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from tests.unit.api.test_fetch import append, fetch
from tests.unit.api.test_produce import batch, produce
from tests.unit.harness import Harness

Names = Mapping[str, str | None]
EVERYBODY: Names = {"user": None}


def alter(
    harness: Harness,
    names: Names,
    *,
    validate_only: bool = False,
    **limits: float | None,
) -> Any:
    entry = EntryData(
        [EntityData(kind, name) for kind, name in names.items()],
        [OpData(key, value or 0.0, remove=value is None) for key, value in limits.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    (row,) = harness.ask(request, 1).entries
    return row


def describe(harness: Harness, *components: ComponentData, strict: bool = False) -> Any:
    answer = harness.ask(DescribeClientQuotasRequest([*components], strict), 1)
    assert answer.error_code == ErrorCode.NONE
    return {
        tuple((part.entity_type, part.entity_name) for part in row.entity): {
            limit.key: limit.value for limit in row.values
        }
        for row in answer.entries
    }


def limit(harness: Harness, names: Names | None = None, **limits: float) -> None:
    row = alter(harness, names or EVERYBODY, validate_only=False, **limits)
    assert row.error_code == ErrorCode.NONE, row.error_message


# The APIs


def test_quotas_are_described_once_they_are_altered_and_after_a_restart(harness: Harness) -> None:
    limit(harness, {"user": "ann", "client-id": None}, producer_byte_rate=1000)
    limit(harness, {"ip": "10.0.0.1"}, connection_creation_rate=5)
    expected = {
        (("client-id", None), ("user", "ann")): {"producer_byte_rate": 1000},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5},
    }
    assert describe(harness) == expected
    harness.restart()
    assert describe(harness) == expected
    assert harness.node.quotas.clients.is_active
    alter(harness, {"user": "ann", "client-id": None}, producer_byte_rate=None)
    alter(harness, {"ip": "10.0.0.1"}, connection_creation_rate=None)
    assert describe(harness) == {}
    assert not harness.node.quotas.clients.is_active
    assert harness.node.traffic.pace is None


def test_quotas_are_restored_from_a_backup(harness: Harness) -> None:
    limit(harness, {"user": None, "client-id": "app"}, request_percentage=50.5)
    limit(harness, {"ip": None}, connection_creation_rate=100)
    before = describe(harness)
    backups = NodeBackups(harness.broker)
    data = harness.run(backups.take())
    alter(harness, {"user": None, "client-id": "app"}, request_percentage=None)
    alter(harness, {"ip": None}, connection_creation_rate=None)
    assert describe(harness) == {}
    assert harness.run(backups.restore(data, False, ())).quotas == 2
    assert describe(harness) == before
    assert harness.node.quotas.clients.is_active
    assert harness.node.traffic.pace is not None


def test_quotas_of_a_snapshot_take_the_place_of_those_before(harness: Harness) -> None:
    limit(harness, {"client-id": "test"}, request_percentage=0.000001)
    harness.node.quotas.clients.change((("user", None),), {"producer_byte_rate": 1.0})
    harness.node.quotas.connections.change(None, 1.0)

    async def restore() -> None:
        harness.node._on_restored(harness.broker.image)

    harness.run(restore())
    budgets = harness.node.quotas.clients.budgets("ann", "test", 0)
    assert (budgets.produce, budgets.request is not None) == (None, True)
    assert harness.node.traffic.pace is None
    assert harness.ask(ListGroupsRequest(), 3).throttle_time_ms > 0


def test_very_many_quotas_hold_once_all_are_taken_with_what_changed_meanwhile(
    harness: Harness,
) -> None:
    limit(harness, {"client-id": "before"}, producer_byte_rate=1)
    image, quotas = harness.broker.image, harness.node.quotas
    ann, bob = (("client-id", "app-0"),), (("client-id", "app-1"),)
    near, far = (("ip", "10.0.0.1"),), (("ip", "10.0.0.2"),)

    def rate_of(client_id: str) -> float | None:
        budget = quotas.clients.budgets("u", client_id, 0).produce
        return None if budget is None else budget.limit

    def waits(address: str) -> bool:
        return any(quotas.connections.admit("L", address, 0) for _ in range(20))

    def change(entity: Any, limits: dict[str, float]) -> None:
        if limits:
            image.state.quotas[entity] = limits
        else:
            del image.state.quotas[entity]
        quotas.note(image, entity)

    async def restore() -> None:
        image.state.quotas.clear()
        for number in range(3000):
            image.state.quotas[("client-id", f"app-{number}"),] = {"producer_byte_rate": 2.0}
        image.state.quotas[far] = {"connection_creation_rate": 1.0}
        harness.node._on_restored(image)
        assert (rate_of("before"), rate_of("app-2999")) == (1, None), "the former ones hold"
        change(ann, {"producer_byte_rate": 3.0})
        change(bob, {})
        change(near, {"connection_creation_rate": 1.0})
        change(far, {})
        assert rate_of("app-0") == 3
        await quotas.settle()

    harness.run(restore())
    found = [rate_of(each) for each in ("before", "app-0", "app-1", "app-2", "app-2999")]
    assert found == [None, 3, None, 2, 2]
    assert (waits("10.0.0.1"), waits("10.0.0.2")) == (True, False)


def test_quotas_of_an_older_snapshot_do_not_come_after_those_of_a_newer_one(
    harness: Harness,
) -> None:
    quotas = harness.node.quotas
    older, newer = Image(), Image()
    for number in range(3000):
        older.state.quotas[("client-id", f"app-{number}"),] = {"producer_byte_rate": 2.0}

    async def restore() -> None:
        quotas.take(older)
        quotas.take(newer)
        await quotas.settle()
        for _ in range(10):
            await asyncio.sleep(0)

    harness.run(restore())
    assert not quotas.clients.is_active


def test_validation_changes_nothing(harness: Harness) -> None:
    row = alter(harness, EVERYBODY, validate_only=True, producer_byte_rate=1000)
    assert (row.error_code, row.error_message) == (ErrorCode.NONE, None)
    assert describe(harness) == {}


def test_removing_what_is_not_there_is_no_error(harness: Harness) -> None:
    assert alter(harness, EVERYBODY, producer_byte_rate=None).error_code == ErrorCode.NONE
    assert alter(harness, EVERYBODY, whatever=None).error_code == ErrorCode.NONE


def test_an_entity_is_changed_as_a_whole_or_not_at_all(harness: Harness) -> None:
    row = alter(harness, EVERYBODY, producer_byte_rate=1000, request_percentage=-1)
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert "request_percentage" in row.error_message
    assert describe(harness) == {}


def test_what_comes_twice_is_refused_and_others_are_not(harness: Harness) -> None:
    def entry(user: str, *keys: str) -> EntryData:
        return EntryData([EntityData("user", user)], [OpData(key, 7.0, False) for key in keys])

    request = AlterClientQuotasRequest(
        entries=[
            entry("ann", "producer_byte_rate", "producer_byte_rate"),
            entry("bob", "producer_byte_rate"),
            entry("cid", "producer_byte_rate"),
            entry("bob", "consumer_byte_rate"),
        ]
    )
    rows = harness.ask(request, 0).entries
    assert [(row.entity[0].entity_name, row.error_code) for row in rows] == [
        ("ann", ErrorCode.INVALID_REQUEST),
        ("bob", ErrorCode.INVALID_REQUEST),
        ("cid", ErrorCode.NONE),
    ]
    assert describe(harness) == {(("user", "cid"),): {"producer_byte_rate": 7}}


def test_an_invalid_filter_has_its_error_and_no_entries(harness: Harness) -> None:
    request = DescribeClientQuotasRequest([ComponentData("group", 0, "g")])
    answer = harness.ask(request, 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.entries is None


def test_a_filter_by_name_and_type(harness: Harness) -> None:
    limit(harness, {"user": "ann"}, producer_byte_rate=1)
    limit(harness, {"user": "ann", "client-id": "app"}, producer_byte_rate=2)
    ann = ComponentData("user", 0, "ann")
    assert len(describe(harness, ann)) == 2
    assert describe(harness, ann, strict=True) == {(("user", "ann"),): {"producer_byte_rate": 1}}


# Produce


def test_a_producer_hears_how_long_it_is_held_back_and_is(harness: Harness) -> None:
    harness.create_topic("orders")
    limit(harness, {"client-id": "test"}, producer_byte_rate=100)
    records = batch(b"x" * 1500)
    answer = harness.ask(produce(records), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    # 1500 bytes and the header, of 1000 that may go at once: five seconds and a little.
    assert 5000 < answer.throttle_time_ms < 8000
    assert harness.peer.muted_ms == [answer.throttle_time_ms]
    assert harness.node.counters.quotas["produce"].throttled == 1


def test_a_producer_that_wants_no_response_is_held_back_too(harness: Harness) -> None:
    harness.create_topic("orders")
    limit(harness, {"client-id": "test"}, producer_byte_rate=100)
    assert harness.ask(produce(batch(b"x" * 1500), acks=0), 9) is None
    assert len(harness.peer.muted_ms) == 1


def test_others_are_not_held_back(harness: Harness) -> None:
    harness.create_topic("orders")
    limit(harness, {"client-id": "other"}, producer_byte_rate=1)
    limit(harness, {"user": "ann"}, producer_byte_rate=1)
    assert harness.ask(produce(batch(b"x" * 1500)), 9).throttle_time_ms == 0
    assert harness.peer.muted_ms == []
    assert harness.node.quotas.clients.meter_count == 0


def test_nothing_is_measured_once_the_last_quota_is_gone(harness: Harness) -> None:
    harness.create_topic("orders")
    limit(harness, producer_byte_rate=1)
    dispatcher = harness.node.dispatcher
    assert dispatcher._handle != dispatcher.handle
    alter(harness, EVERYBODY, producer_byte_rate=None)
    assert dispatcher._handle == dispatcher.handle
    assert harness.ask(produce(batch(b"x" * 1500)), 9).throttle_time_ms == 0


def test_nodes_are_not_held_back(harness: Harness) -> None:
    harness.create_topic("orders")
    limit(harness, producer_byte_rate=1, request_percentage=0.0001)
    harness.client_id = "headrace-node-2-letters"
    assert harness.ask(produce(batch(b"x" * 1500)), 9).throttle_time_ms == 0
    harness.client_id = "test"
    # Where nodes authenticate, what a client calls itself does not help.
    harness.node.quotas._node_listener = "NODES"
    harness.client_id = "headrace-node-2-letters"
    assert harness.ask(produce(batch(b"x" * 1500)), 9).throttle_time_ms > 0
    harness.peer.principal = NODE
    assert harness.ask(produce(batch(b"x" * 1500)), 9).throttle_time_ms == 0


# Fetch


def records_of(answer: Any) -> int:
    return sum(len(row.records or b"") for topic in answer.responses for row in topic.partitions)


def test_a_fetch_beyond_the_quota_has_no_records_and_reads_them_later(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    for _ in range(3):
        append(harness, b"x" * 700)
    limit(harness, consumer_byte_rate=100)
    first = harness.ask(fetch(topic_id, 0), 13)
    # No more than ten seconds' worth is read, so two batches of three do not fit together.
    assert 700 < records_of(first) <= 1000
    assert first.throttle_time_ms < 1000
    harness.peer.muted_ms.clear()
    second = harness.ask(fetch(topic_id, 1), 13)
    assert second.responses == []
    assert second.error_code == ErrorCode.NONE
    assert second.throttle_time_ms > 0
    assert harness.peer.muted_ms == [second.throttle_time_ms]
    alter(harness, EVERYBODY, consumer_byte_rate=None)
    assert records_of(harness.ask(fetch(topic_id, 1), 13)) > 1400


def test_a_batch_that_is_larger_than_a_client_may_have_at_once_comes_all_the_same(
    harness: Harness,
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"x" * 50_000)
    limit(harness, consumer_byte_rate=100)
    answer = harness.ask(fetch(topic_id, 0), 13)
    assert records_of(answer) > 50_000
    assert answer.throttle_time_ms > 400_000
    assert harness.ask(fetch(topic_id, 0), 13).responses == []


def test_nobody_waits_for_records_that_another_quota_keeps_back(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"x" * 50_000)
    limit(harness, consumer_byte_rate=100, request_percentage=0.000001)
    harness.ask(ListGroupsRequest(), 3)
    answer = harness.ask(fetch(topic_id, 0), 13)
    assert answer.throttle_time_ms > 400_000
    assert records_of(answer) > 50_000
    again = harness.ask(fetch(topic_id, 0), 13)
    assert again.responses == []


def test_a_session_loses_nothing_when_it_is_held_back(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"x" * 900)
    begun = harness.ask(fetch(topic_id, 1, session_id=0, session_epoch=0), 13)
    assert begun.session_id != 0
    limit(harness, consumer_byte_rate=100)
    append(harness, b"x" * 900)
    append(harness, b"x" * 900)
    session = begun.session_id
    one = harness.ask(fetch(topic_id, 1, session_id=session, session_epoch=1), 13)
    assert records_of(one) > 900
    two = harness.ask(fetch(topic_id, 2, session_id=session, session_epoch=2), 13)
    assert (two.session_id, two.responses) == (session, [])
    assert two.throttle_time_ms > 0
    alter(harness, EVERYBODY, consumer_byte_rate=None)
    request = FetchRequest(min_bytes=1, max_wait_ms=0, session_id=session, session_epoch=3)
    three = harness.ask(request, 13)
    assert records_of(three) > 900
    assert three.responses[0].partitions[0].high_watermark == 3


def test_a_session_does_not_begin_with_an_empty_response(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"x" * 900)
    limit(harness, consumer_byte_rate=10)
    harness.ask(fetch(topic_id, 0), 13)
    held = harness.ask(fetch(topic_id, 0, session_id=0, session_epoch=0), 13)
    assert held.throttle_time_ms > 0
    assert (held.session_id, held.responses) == (0, [])
    assert len(harness.broker.fetch_sessions) == 0


def test_a_fetch_that_waits_for_more_than_it_may_have_does_not_wait_for_ever(
    harness: Harness,
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"x" * 1100)
    limit(harness, consumer_byte_rate=100)
    answer = harness.ask(fetch(topic_id, 0, min_bytes=5000, max_wait_ms=5000), 13)
    assert records_of(answer) > 1100


def test_followers_are_not_held_back(harness: Harness) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"x" * 5000)
    limit(harness, consumer_byte_rate=1, request_percentage=0.0001)
    request = fetch(topic_id, 0)
    request.replica_state.replica_id = 2
    assert harness.ask(request, 17).throttle_time_ms == 0
    assert harness.peer.muted_ms == []
    harness.peer.principal = NODE
    harness.node.quotas._node_listener = "NODES"
    assert harness.ask(request, 17).throttle_time_ms == 0


@pytest.mark.parametrize(
    ("node_listener", "principal"),
    [("NODES", ANONYMOUS), ("NODES", "User:ann"), (None, "User:ann")],
)
def test_a_client_that_calls_itself_a_node_is_held_back(
    harness: Harness, node_listener: str | None, principal: str
) -> None:
    topic_id = harness.create_topic("orders")
    append(harness, b"x" * 5000)
    limit(harness, consumer_byte_rate=1, request_percentage=0.0001)
    limit(harness, {"user": "ann"}, consumer_byte_rate=1, request_percentage=0.0001)
    harness.node.quotas._node_listener = node_listener
    harness.peer.principal = principal
    harness.peer.muted_ms.clear()
    new, old = fetch(topic_id, 0), fetch(topic_id, 0)
    new.replica_state.replica_id = 2
    old.replica_id = 2
    for request, version in ((new, 17), (old, 13)):
        assert harness.ask(request, version).throttle_time_ms > 0
    markers = harness.ask(WriteTxnMarkersRequest(markers=[]), 1)
    assert markers is not None
    assert len(harness.peer.muted_ms) == 3


# Requests


def test_a_client_that_takes_too_much_of_the_loop_waits_for_a_window(harness: Harness) -> None:
    limit(harness, request_percentage=0.000001)
    answer = harness.ask(ListGroupsRequest(), 3)
    assert answer.throttle_time_ms == 1000
    assert harness.peer.muted_ms[-1] == 1000
    assert harness.node.counters.quotas["request"].throttled > 0


@pytest.mark.parametrize("harness", [{"quota.window.size.seconds": "3"}], indirect=True)
def test_a_window_is_as_long_as_the_settings_say(harness: Harness) -> None:
    limit(harness, request_percentage=0.000001)
    assert harness.ask(ListGroupsRequest(), 3).throttle_time_ms == 3000


def test_a_task_is_measured_while_it_works(harness: Harness) -> None:
    limit(harness, request_percentage=0.000001)
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    answer = harness.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms == 1000


# Changes of metadata


def create(harness: Harness, name: str, partitions: int, version: int = 7) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return harness.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), version)


def test_changes_beyond_the_quota_are_refused_with_an_error_that_newer_clients_know(
    harness: Harness,
) -> None:
    limit(harness, controller_mutation_rate=1)
    assert create(harness, "large", 20).topics[0].error_code == ErrorCode.NONE
    refused = create(harness, "small", 1)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert "controller_mutation_rate=1" in refused.topics[0].error_message
    # 20 partitions of 11 that may be created at once.
    assert 8000 < refused.throttle_time_ms <= 9000
    assert harness.peer.muted_ms[-1] == refused.throttle_time_ms
    assert not harness.has_topic("small")

    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="large", count=21, assignments=None)], timeout_ms=5000
    )
    answer = harness.ask(grown, 3)
    assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="large")], timeout_ms=5000)
    answer = harness.ask(deleted, 6)
    assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.responses[0].error_message
    assert harness.has_topic("large")


def test_older_clients_get_what_they_ask_for_and_wait(harness: Harness) -> None:
    limit(harness, controller_mutation_rate=1)
    create(harness, "large", 20)
    answer = create(harness, "small", 1, version=5)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert 9000 < answer.throttle_time_ms <= 10_000
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="large", count=21, assignments=None)], timeout_ms=5000
    )
    assert harness.ask(grown, 2).results[0].error_code == ErrorCode.NONE
    deleted = DeleteTopicsRequest(topic_names=["large"], timeout_ms=5000)
    answer = harness.ask(deleted, 4)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms > 30_000


def test_topics_of_one_request_are_charged_one_by_one(harness: Harness) -> None:
    limit(harness, controller_mutation_rate=1)
    topics = [CreatableTopic(name=name, num_partitions=6, replication_factor=1) for name in "abc"]
    rows = harness.ask(CreateTopicsRequest(topics=topics, timeout_ms=5000), 7).topics
    assert {row.name: row.error_code for row in rows} == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.NONE,
        "c": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }


def test_topics_created_on_demand_are_charged(harness: Harness) -> None:
    limit(harness, controller_mutation_rate=1)
    create(harness, "large", 20)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=True
    )
    answer = harness.ask(request, 9)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.throttle_time_ms > 0
    assert not harness.has_topic("orders")


@pytest.mark.parametrize(
    "harness",
    [{"controller.quota.window.num": "2", "controller.quota.window.size.seconds": "5"}],
    indirect=True,
)
def test_windows_of_changes_are_those_of_the_settings(harness: Harness) -> None:
    limit(harness, controller_mutation_rate=1)
    create(harness, "large", 12)
    assert 1000 < create(harness, "small", 1).throttle_time_ms <= 2000
