"""DescribeQuorum: API key 55, versions 0 to 2.

KIP-595, KIP-836 (when members fetched and caught up, from 1), KIP-853 (directories and nodes, from
2). The one partition with a quorum is __cluster_metadata-0, here the metadata log: an index of it
is the offset before. A node that does not lead names the leader.

The work is in `metadata.quorum`.
"""

import asyncio
from typing import Final

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.raft.state import Role
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.describe_quorum_request import DescribeQuorumRequest
from headrace.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0
NO_NODE: Final = -1
UNKNOWN_TIME: Final = -1
FIRST_WITH_NODES: Final = 2
"""And with the directories of members."""


def handle(broker: Broker, request: Request) -> DescribeQuorumResponse:
    body: DescribeQuorumRequest = request.body
    asked = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in body.topics
    ]
    if asked != [(METADATA_TOPIC, [METADATA_PARTITION])]:
        return _refuse(asked)
    quorum = broker.quorum.driver.state
    if quorum.role is not Role.LEADER:
        row = PartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message=f"node {broker.node_id} does not lead, node {quorum.leader} does",
            leader_id=NO_NODE if quorum.leader is None else quorum.leader,
            leader_epoch=quorum.term,
        )
        return DescribeQuorumResponse(
            topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[row])]
        )
    members = quorum.membership
    row = PartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=quorum.node,
        leader_epoch=quorum.term,
        high_watermark=quorum.log.commit + 1,
        current_voters=[_describe(broker, request, node) for node in members.voters],
        observers=[_describe(broker, request, node) for node in members.learners],
    )
    response = DescribeQuorumResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[row])]
    )
    if request.version >= FIRST_WITH_NODES:
        response.nodes = [_node(broker, node) for node in members.voters]
    return response


def _refuse(asked: list[tuple[str, list[int]]]) -> DescribeQuorumResponse:
    """Respond that there is no such quorum; as in Kafka one wrong name fails all."""
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=name,
                partitions=[
                    PartitionData(
                        partition_index=index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=f"only {METADATA_TOPIC}-{METADATA_PARTITION} has a quorum",
                    )
                    for index in indexes
                ],
            )
            for name, indexes in asked
        ],
    )


def _describe(broker: Broker, request: Request, node: BrokerId) -> ReplicaState:
    """Return a member's progress, as the leader knows it."""
    now_ms, quorum = broker.clock.now_ms(), broker.quorum.driver.state
    replica = ReplicaState(
        replica_id=node,
        log_end_offset=quorum.log.last_index + 1,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    registered = broker.image.broker(node)
    if request.version >= FIRST_WITH_NODES and registered is not None and registered.log_dirs:
        replica.replica_directory_id = registered.log_dirs[0]
    progress = quorum.progress.get(node)
    if node != quorum.node and progress is not None:
        silent_ms = int(asyncio.get_running_loop().time() * 1000) - progress.contact_ms
        is_caught_up = progress.match_index >= quorum.log.last_index
        replica.log_end_offset = progress.match_index + 1
        replica.last_fetch_timestamp = now_ms - silent_ms
        replica.last_caught_up_timestamp = now_ms - silent_ms if is_caught_up else UNKNOWN_TIME
    return replica


def _node(broker: Broker, node: BrokerId) -> Node:
    registered = broker.image.broker(node)
    endpoints = registered.endpoints if registered is not None else ()
    return Node(
        node_id=node,
        listeners=[
            Listener(name=each.listener, host=each.host, port=each.port) for each in endpoints
        ],
    )
