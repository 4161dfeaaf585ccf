"""Replicas, leaders, voters and nodes of a cluster of three, whichever of them is asked."""

from typing import Final

from headrace.wire import ApiKey
from headrace.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.messages.describe_cluster_request import DescribeClusterRequest
from headrace.wire.messages.describe_cluster_response import DescribeClusterResponse
from headrace.wire.messages.describe_quorum_request import DescribeQuorumRequest, TopicData
from headrace.wire.messages.describe_quorum_request import PartitionData as AskedPartition
from headrace.wire.messages.describe_quorum_response import DescribeQuorumResponse, PartitionData
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from headrace.wire.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from headrace.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from headrace.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from tests.differential.conversation import Conversation
from tests.differential.pairs.pair import BEHIND, TIMES, Pair
from tests.differential.requests import TIMEOUT_MS, creatable, create, metadata

PREFERRED: Final = 0
QUORUM: Final = DescribeQuorumRequest(topics=[TopicData("__cluster_metadata", [AskedPartition(0)])])


def order_of_reassignments(talk: Conversation) -> None:
    """Where replicas go, and who leads, is known as soon as it is decided."""
    for turn in range(TIMES):
        name = talk.name(f"t{turn}")
        _, made, first, moving, moves, second, turned, elected, after = talk.quietly_at_once(
            [
                create(creatable(name, -1, -1, assignments={0: [1, 2]})),
                metadata(name),
                move(name, 1, 2, 3),
                metadata(name),
                ListPartitionReassignmentsRequest(topics=None),
                move(name, 2, 1),
                metadata(name),
                ElectLeadersRequest(
                    election_type=PREFERRED,
                    topic_partitions=[TopicPartitions(name, [0])],
                    timeout_ms=TIMEOUT_MS,
                ),
                metadata(name),
            ]
        )
        assert partition_of(made).replica_nodes == [1, 2]
        rows = [answer.responses[0].partitions[0] for answer in (first, second)]
        assert [row.error_code for row in rows] == [0, 0], rows
        assert sorted(partition_of(moving).replica_nodes) == [1, 2, 3]
        if moves.topics:  # else it is copied already
            assert moves.topics[0].partitions[0].adding_replicas == [3]
        assert partition_of(turned).replica_nodes == [2, 1]
        assert elected.replica_election_results[0].partition_result[0].error_code == 0
        assert partition_of(after).leader_id == 2


def order_of_voters(talk: Conversation) -> None:
    """Who votes is known as soon as it is decided."""
    quorum = talk.quietly(QUORUM, DescribeQuorumResponse)
    row = quorum_of(quorum)
    other = next(each for each in row.current_voters if each.replica_id != row.leader_id)
    directory = other.replica_directory_id
    (at,) = next(each for each in quorum.nodes if each.node_id == other.replica_id).listeners
    removed, without, added, again = talk.quietly_at_once(
        [
            RemoveRaftVoterRequest(None, other.replica_id, directory),
            QUORUM,
            AddRaftVoterRequest(
                None,
                TIMEOUT_MS,
                other.replica_id,
                directory,
                [Listener(at.name, at.host, at.port)],
            ),
            QUORUM,
        ]
    )
    assert [removed.error_code, added.error_code] == [0, 0], (removed, added)
    assert other.replica_id not in voters_of(without)
    assert voters_of(again) == {each.replica_id for each in row.current_voters}


def order_of_unregistrations(talk: Conversation) -> None:
    """A node that is gone for good is known no more once it is unregistered. Node 3 is down."""
    everybody = DescribeClusterRequest(include_fenced_brokers=True)
    talk.until(
        everybody,
        DescribeClusterResponse,
        lambda found: any(each.is_fenced for each in found.brokers),
    )
    before, gone, after, again = talk.quietly_at_once(
        [everybody, UnregisterBrokerRequest(3), everybody, UnregisterBrokerRequest(3)]
    )
    assert gone.error_code == 0, gone
    assert again.error_code != 0
    assert {each.broker_id for each in before.brokers} == {1, 2, 3}
    assert {each.broker_id for each in after.brokers} == {1, 2}


def move(name: str, *replicas: int) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=0, replicas=list(replicas))]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=name, partitions=partitions)]
    )


def partition_of(found: MetadataResponse) -> MetadataResponsePartition:
    return found.topics[0].partitions[0]


def quorum_of(described: DescribeQuorumResponse) -> PartitionData:
    return described.topics[0].partitions[0]


def voters_of(described: DescribeQuorumResponse) -> set[int]:
    return {each.replica_id for each in quorum_of(described).current_voters}


PAIRS: Final = (
    Pair(
        order_of_reassignments,
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS),
        BEHIND,
    ),
    Pair(order_of_voters, (ApiKey.REMOVE_RAFT_VOTER, ApiKey.ADD_RAFT_VOTER), BEHIND),
)
"""For three nodes that are up."""
LOSSES: Final = (Pair(order_of_unregistrations, (ApiKey.UNREGISTER_BROKER,), BEHIND),)
"""For a cluster whose third node is down."""
