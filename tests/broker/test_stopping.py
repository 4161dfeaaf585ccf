"""A broker that stops answers what waits, and does not wait for it."""

from confluent_kafka import Consumer, TopicPartition

from headrace.errors import ErrorCode
from headrace.testing.broker import TestBroker
from headrace.wire import ApiKey
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import FetchResponse
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.share_fetch_request import (
    FetchPartition as SharePartition,
)
from headrace.wire.messages.share_fetch_request import FetchTopic as ShareTopic
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse
from headrace.wire.schema import Message
from tests.broker.peers import ask, ask_on, from_start, wait_for_requests, wait_until
from tests.differential.connection import Connection, Ending
from tests.differential.group_requests import join, sync
from tests.differential.requests import metadata

LONG_MS = 60_000
FETCH_VERSION, SHARE_FETCH_VERSION = 12, 1
JOIN_VERSION, SYNC_VERSION = 5, 4


def stop_and_read(
    broker: TestBroker, connection: Connection, request: type, version: int
) -> Message:
    """Stop; return the answer to the request that waits on a connection, which ends then."""
    broker.stop()
    answer = connection.answer(request, version)
    assert not isinstance(answer, Ending), answer
    assert connection.receive() is Ending.CLOSED
    return answer[1]


def find_coordinator(broker: TestBroker, group: str) -> None:
    """Have the topic of groups created, and loaded."""

    def is_found() -> bool:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        found = ask(broker.bootstrap, request, 4)
        assert isinstance(found, FindCoordinatorResponse)
        return found.coordinators[0].error_code == 0

    wait_until(is_found, "a coordinator")


def test_a_fetch_that_waits_for_records_is_answered(headrace: TestBroker) -> None:
    headrace.create_topic("orders")
    request = from_start("orders", max_wait_ms=LONG_MS)
    with Connection(headrace.bootstrap) as connection:
        connection.send(request, FETCH_VERSION)
        wait_for_requests(headrace, ApiKey.FETCH)
        answer = stop_and_read(headrace, connection, FetchRequest, FETCH_VERSION)
    assert isinstance(answer, FetchResponse)
    (row,) = answer.responses[0].partitions
    assert (answer.error_code, row.error_code, row.high_watermark) == (0, 0, 0)


def test_a_share_fetch_that_waits_for_records_is_answered(headrace: TestBroker) -> None:
    headrace.create_topic("orders")
    known = ask(headrace.bootstrap, metadata("orders"), 12)
    topic_id = known.topics[0].topic_id  # type: ignore[attr-defined]
    find_coordinator(headrace, "group")
    with Connection(headrace.bootstrap) as connection:
        beat = ShareGroupHeartbeatRequest(
            group_id="group", member_id="m", member_epoch=0, subscribed_topic_names=["orders"]
        )
        told = ask_on(connection, beat, 1)
        assert isinstance(told, ShareGroupHeartbeatResponse)
        assert (told.error_code, told.error_message) == (0, None)
        request = ShareFetchRequest(
            group_id="group",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=LONG_MS,
            min_bytes=1,
            max_records=10,
            batch_size=10,
            topics=[ShareTopic(topic_id, [SharePartition(0)])],
        )
        connection.send(request, SHARE_FETCH_VERSION)
        wait_for_requests(headrace, ApiKey.SHARE_FETCH)
        answer = stop_and_read(headrace, connection, ShareFetchRequest, SHARE_FETCH_VERSION)
    assert isinstance(answer, ShareFetchResponse)
    assert (answer.error_code, answer.error_message) == (0, None)


def test_a_member_that_waits_for_others_to_join_is_sent_to_find_its_coordinator() -> None:
    with TestBroker(settings={"group.initial.rebalance.delay.ms": str(LONG_MS)}) as broker:
        find_coordinator(broker, "group")
        with Connection(broker.bootstrap) as connection:
            connection.send(join("group", instance="i", rebalance_ms=LONG_MS), JOIN_VERSION)
            wait_for_requests(broker, ApiKey.JOIN_GROUP)
            answer = stop_and_read(broker, connection, JoinGroupRequest, JOIN_VERSION)
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_a_member_that_waits_for_its_assignment_is_sent_to_find_its_coordinator() -> None:
    with TestBroker(settings={"group.initial.rebalance.delay.ms": "300"}) as broker:
        find_coordinator(broker, "group")
        with Connection(broker.bootstrap) as one, Connection(broker.bootstrap) as two:
            members = {"i1": one, "i2": two}
            for instance, each in members.items():
                request = join("group", instance=instance, rebalance_ms=LONG_MS)
                each.send(request, JOIN_VERSION)
            joined = {instance: _joined(each) for instance, each in members.items()}
            (follower,) = (
                instance for instance, each in joined.items() if each.leader != each.member_id
            )
            place = joined[follower]
            members[follower].send(
                sync("group", place.generation_id, place.member_id, instance=follower),
                SYNC_VERSION,
            )
            wait_for_requests(broker, ApiKey.SYNC_GROUP)
            answer = stop_and_read(broker, members[follower], SyncGroupRequest, SYNC_VERSION)
    assert isinstance(answer, SyncGroupResponse)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def _joined(connection: Connection) -> JoinGroupResponse:
    answer = connection.answer(JoinGroupRequest, JOIN_VERSION)
    assert not isinstance(answer, Ending), answer
    assert isinstance(answer[1], JoinGroupResponse)
    assert answer[1].error_code == 0
    return answer[1]


def test_a_delayed_request_is_carried_out(headrace: TestBroker) -> None:
    headrace.faults.delay("DescribeCluster", LONG_MS)
    request = DescribeClusterRequest(endpoint_type=1)
    with Connection(headrace.bootstrap) as connection:
        connection.send(request, 1)
        wait_for_requests(headrace, ApiKey.DESCRIBE_CLUSTER)
        answer = stop_and_read(headrace, connection, DescribeClusterRequest, 1)
    assert answer.error_code == 0  # type: ignore[attr-defined]


def test_a_consumer_goes_on_after_a_restart_in_the_middle_of_its_fetch(
    headrace: TestBroker,
) -> None:
    headrace.create_topic("orders")
    consumer = Consumer(
        {
            "bootstrap.servers": headrace.bootstrap,
            "group.id": "none",
            "fetch.wait.max.ms": 50_000,
            "socket.timeout.ms": 60_000,
            "reconnect.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert consumer.poll(0) is None
    wait_for_requests(headrace, ApiKey.FETCH)
    headrace.restart()
    headrace.produce("orders", "one")
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"one"
