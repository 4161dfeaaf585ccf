"""The members of the metadata log: described and changed through any node of three."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client import Admin
from headrace.client.cluster import Cluster
from headrace.client.nodes import QuorumDescription
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.state import NodeState
from headrace.testing.cluster import TestCluster
from headrace.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from headrace.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from headrace.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from headrace.wire.messages.describe_quorum_response import DescribeQuorumResponse
from headrace.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from headrace.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from headrace.wire.messages.update_raft_voter_request import (
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
)
from headrace.wire.messages.update_raft_voter_request import Listener as VoterListener
from headrace.wire.messages.update_raft_voter_response import UpdateRaftVoterResponse
from headrace.wire.schema import Message

ELSEWHERE = "A" * 21 + "Q"
"""A directory id that no node has."""


@pytest.fixture
def cluster() -> Iterator[TestCluster]:
    with TestCluster(nodes=3) as cluster:
        yield cluster


def ask(cluster: TestCluster, node: int, body: Message, answer_type: Any) -> Any:
    """Send one request to one node."""

    async def work() -> Any:
        client = Cluster(cluster.nodes[node].bootstrap)
        await client.connect()
        try:
            return await client.ask(body, answer_type, patience_ms=30_000)
        finally:
            await client.close()

    return cluster.run(work())


def describe(cluster: TestCluster, node: int) -> QuorumDescription:
    async def work() -> QuorumDescription:
        async with Admin(cluster.nodes[node].bootstrap) as admin:
            return await admin.describe_quorum()

    return cluster.run(work())


def change(cluster: TestCluster, node: int, method: str, *arguments: object) -> ErrorCode:
    """Call a method of an admin client that knows one node; return the code of its refusal."""

    async def work() -> ErrorCode:
        async with Admin(cluster.nodes[node].bootstrap) as admin:
            try:
                await getattr(admin, method)(*arguments)
            except KafkaError as error:
                return ErrorCode(error.code)
        return ErrorCode.NONE

    return cluster.run(work())


def voters(cluster: TestCluster, node: int) -> set[int]:
    return {member.node_id for member in describe(cluster, node).voters}


def folder_id(cluster: TestCluster, node: int) -> bytes:
    _, other = next(cluster.running())
    broker = other.node.broker.image.broker(BrokerId(node))
    assert broker is not None
    return broker.log_dirs[0]


def test_every_node_describes_the_quorum_as_the_leader_knows_it(cluster: TestCluster) -> None:
    cluster.create_topic("orders")
    fourth = cluster.add()
    leader = cluster.controller
    for node in cluster.nodes:

        def is_described(node: int = node) -> bool:
            quorum = describe(cluster, node)
            assert quorum.leader_id == leader
            assert [each.node_id for each in quorum.voters] == [1, 2, 3]
            assert [each.node_id for each in quorum.observers] == [fourth]
            return all(
                each.log_end_offset >= quorum.high_watermark > 1
                for each in (*quorum.voters, *quorum.observers)
            )

        cluster.wait_for(is_described, f"node {node} to see all caught up")
        now_ms = cluster.clock.now_ms()
        quorum = describe(cluster, node)
        for each in (*quorum.voters, *quorum.observers):
            assert 0 < each.last_fetch_timestamp <= now_ms + 60_000
            assert each.last_fetch_timestamp > now_ms - 60_000
            assert each.last_caught_up_timestamp > now_ms - 60_000
        topics = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData()])]
        answer = ask(cluster, node, DescribeQuorumRequest(topics=topics), DescribeQuorumResponse)
        (row,) = answer.topics[0].partitions
        for each in (*row.current_voters, *row.observers):
            assert each.replica_directory_id == folder_id(cluster, each.replica_id)
        addresses = {
            each.node_id: [(name.name, f"{name.host}:{name.port}") for name in each.listeners]
            for each in answer.nodes
        }
        assert addresses == {
            each: [("CONTROLLER", cluster.nodes[each].node.cluster.address)] for each in (1, 2, 3)
        }


def test_a_member_that_is_gone_lags(cluster: TestCluster) -> None:
    gone = next(node for node in cluster.nodes if node != cluster.controller)
    cluster.kill(gone)
    other = next(node for node, _ in cluster.running() if node != cluster.controller)
    cluster.nodes[other].create_topic("while-it-is-gone")
    quorum = describe(cluster, other)
    (member,) = (each for each in quorum.voters if each.node_id == gone)
    assert member.log_end_offset < quorum.high_watermark
    (leader,) = (each for each in quorum.voters if each.node_id == quorum.leader_id)
    assert member.last_fetch_timestamp < leader.last_fetch_timestamp
    assert member.last_caught_up_timestamp < leader.last_caught_up_timestamp


def test_a_description_waits_for_the_next_leader(cluster: TestCluster) -> None:
    lost = cluster.controller
    cluster.kill(lost)
    for node, _ in cluster.running():
        assert describe(cluster, node).leader_id != lost


def test_a_removed_voter_follows_until_it_is_added_again(cluster: TestCluster) -> None:
    """A removed voter does not come back by itself (KAFKA-19850)."""
    removed = next(node for node in cluster.nodes if node != cluster.controller)
    asked = next(node for node in cluster.nodes if node not in (removed, cluster.controller))
    assert change(cluster, asked, "remove_raft_voter", removed) is ErrorCode.NONE
    assert voters(cluster, asked) == {1, 2, 3} - {removed}
    assert [each.node_id for each in describe(cluster, removed).observers] == [removed]
    assert change(cluster, asked, "remove_raft_voter", removed) is ErrorCode.VOTER_NOT_FOUND
    cluster.nodes[removed].create_topic("through-the-observer")
    cluster.restart(removed)
    cluster.nodes[removed].create_topic("after-its-restart")
    assert voters(cluster, removed) == {1, 2, 3} - {removed}
    for node in cluster.nodes:
        row = cluster.nodes[node].node.broker.image.node(BrokerId(removed))
        assert row is not None
        assert row.state is NodeState.ACTIVE
    assert change(cluster, removed, "add_raft_voter", removed) is ErrorCode.NONE
    assert voters(cluster, removed) == {1, 2, 3}
    assert change(cluster, asked, "add_raft_voter", removed) is ErrorCode.DUPLICATE_VOTER


def test_a_leader_that_is_removed_hands_over(cluster: TestCluster) -> None:
    removed = cluster.controller
    assert change(cluster, removed, "remove_raft_voter", removed) is ErrorCode.NONE
    assert cluster.controller != removed
    for node in cluster.nodes:
        assert voters(cluster, node) == {1, 2, 3} - {removed}
        cluster.nodes[node].create_topic(f"of-{node}")
    assert change(cluster, removed, "add_raft_voter", removed) is ErrorCode.NONE
    assert voters(cluster, removed) == {1, 2, 3}


def test_an_observer_is_made_a_voter_beyond_those_that_become_one_by_themselves(
    cluster: TestCluster,
) -> None:
    fourth = cluster.add()
    fifth = cluster.add()
    cluster.wait_for(lambda: len(describe(cluster, 1).observers) == 2, "both to follow")
    assert change(cluster, 2, "add_raft_voter", fourth) is ErrorCode.NONE
    assert change(cluster, fourth, "add_raft_voter", fifth) is ErrorCode.NONE
    assert voters(cluster, fifth) == {1, 2, 3, 4, 5}
    cluster.kill(1)
    cluster.kill(2)
    cluster.create_topic("by-the-majority-of-five")


def test_what_is_not_a_member_is_refused(cluster: TestCluster) -> None:
    assert change(cluster, 2, "remove_raft_voter", 9, ELSEWHERE) is ErrorCode.VOTER_NOT_FOUND
    assert change(cluster, 2, "remove_raft_voter", 3, ELSEWHERE) is ErrorCode.VOTER_NOT_FOUND
    assert change(cluster, 2, "add_raft_voter", 3, ELSEWHERE) is ErrorCode.DUPLICATE_VOTER
    assert voters(cluster, 1) == {1, 2, 3}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 9}, ErrorCode.REQUEST_TIMED_OUT),
        ({"voter_directory_id": b"another-folder.."}, ErrorCode.REQUEST_TIMED_OUT),
        ({"listeners": [Listener(name="PLAIN", host="a", port=1)]}, ErrorCode.INVALID_REQUEST),
        ({"listeners": [Listener(name="CONTROLLER", host="a", port=1)]}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_voter_is_added_as_it_has_joined_or_not_at_all(
    observed: TestCluster, fields: dict[str, Any], code: ErrorCode
) -> None:
    body = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=200,
        voter_id=4,
        voter_directory_id=folder_id(observed, 4),
    )
    for name, value in fields.items():
        setattr(body, name, value)
    answer = ask(observed, 2, body, AddRaftVoterResponse)
    assert answer.error_code == code
    assert answer.error_message
    assert voters(observed, 2) == {1, 2, 3}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": b"another-folder.."}, ErrorCode.VOTER_NOT_FOUND),
        ({"voter_id": 4}, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_a_voter_is_removed_by_its_id_and_directory(
    observed: TestCluster, fields: dict[str, Any], code: ErrorCode
) -> None:
    body = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=3, voter_directory_id=folder_id(observed, 3)
    )
    for name, value in fields.items():
        setattr(body, name, value)
    answer = ask(observed, 2, body, RemoveRaftVoterResponse)
    assert answer.error_code == code
    assert answer.error_message
    assert voters(observed, 2) == {1, 2, 3}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 999_999}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"kraft_version_feature": KRaftVersionFeature()}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": 4}, ErrorCode.VOTER_NOT_FOUND),
        ({"voter_directory_id": b"another-folder.."}, ErrorCode.VOTER_NOT_FOUND),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        ({"listeners": [VoterListener(name="CONTROLLER", host="a", port=1)]}, 42),
    ],
)
def test_an_update_of_a_voter_confirms_what_is_so(
    observed: TestCluster, fields: dict[str, Any], code: int
) -> None:
    quorum = describe(observed, 3)
    host, _, port = observed.nodes[3].node.cluster.address.rpartition(":")
    body = UpdateRaftVoterRequest(
        cluster_id=None,
        current_leader_epoch=quorum.leader_epoch,
        voter_id=3,
        voter_directory_id=folder_id(observed, 3),
        listeners=[VoterListener(name="CONTROLLER", host=host, port=int(port))],
        kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )
    for name, value in fields.items():
        setattr(body, name, value)
    answer = ask(observed, 3, body, UpdateRaftVoterResponse)
    leader = answer.current_leader
    assert answer.error_code == code
    assert (leader.leader_id, leader.leader_epoch) == (quorum.leader_id, quorum.leader_epoch)
    assert f"{leader.host}:{leader.port}" == observed.nodes[leader.leader_id].node.cluster.address


@pytest.fixture(scope="module")
def observed() -> Iterator[TestCluster]:
    """Three voters and an observer, which tests leave as they are."""
    with TestCluster(nodes=4) as cluster:
        cluster.wait_for(lambda: len(describe(cluster, 1).observers) == 1, "the observer")
        yield cluster


def test_the_last_voter_stays() -> None:
    with TestCluster(nodes=1) as cluster:
        assert change(cluster, 1, "remove_raft_voter", 1) is ErrorCode.INVALID_REQUEST
        assert voters(cluster, 1) == {1}
