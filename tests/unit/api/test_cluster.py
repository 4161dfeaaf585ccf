"""DescribeCluster and UnregisterBroker."""

from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from tests.unit.harness import Harness

BROKERS, CONTROLLERS = 1, 2


@pytest.mark.parametrize("version", range(3))
def test_every_version_names_the_cluster_its_controller_and_its_brokers(
    harness: Harness, version: int
) -> None:
    answer = harness.ask(DescribeClusterRequest(), version)
    me = harness.broker.node_id
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert answer.cluster_id == harness.broker.image.state.cluster_id
    assert answer.controller_id == me
    (row,) = answer.brokers
    assert (row.broker_id, row.host) == (me, "127.0.0.1")
    assert row.port == harness.node.listeners[0].port
    assert answer.cluster_authorized_operations == -(2**31)


def test_authorised_operations_are_given_on_request(harness: Harness) -> None:
    answer = harness.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_other_endpoints_than_brokers_are_not_to_be_had_here(
    harness: Harness, kind: int, code: ErrorCode
) -> None:
    answer = harness.ask(DescribeClusterRequest(endpoint_type=kind), 1)
    assert answer.error_code == code
    assert answer.brokers == []


def test_fenced_brokers_are_shown_on_request_only(harness: Harness, register: Any) -> None:
    me = harness.broker.node_id
    register(me + 1, is_fenced=True, rack="b")
    assert len(harness.ask(DescribeClusterRequest(), 2).brokers) == 1
    answer = harness.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(each.broker_id, each.is_fenced, each.rack) for each in answer.brokers] == [
        (me, False, None),
        (me + 1, True, "b"),
    ]


def unregister(harness: Harness, broker_id: int) -> Any:
    return harness.ask(UnregisterBrokerRequest(broker_id=broker_id), 0)


@pytest.mark.parametrize("broker_id", [99, -1])
def test_a_broker_that_is_not_registered_cannot_be_unregistered(
    harness: Harness, broker_id: int
) -> None:
    answer = unregister(harness, broker_id)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert str(broker_id) in answer.error_message


def test_a_broker_that_is_down_and_empty_is_unregistered(harness: Harness, register: Any) -> None:
    down = harness.broker.node_id + 1
    register(down, is_fenced=True)
    answer = unregister(harness, down)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert harness.broker.image.broker(BrokerId(down)) is None


def test_a_broker_that_is_up_or_keeps_replicas_stays(
    harness: Harness, register: Any, place: Any
) -> None:
    me = harness.broker.node_id
    register(me + 1, is_fenced=True)
    place("orders", [me, me + 1], isr=[me], leader=me)
    for broker_id, words in ((me, "stop it"), (me + 1, "replicas")):
        answer = unregister(harness, broker_id)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert words in answer.error_message
        assert harness.broker.image.broker(BrokerId(broker_id)) is not None
