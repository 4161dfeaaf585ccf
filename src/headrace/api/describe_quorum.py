"""DescribeQuorum: API key 55, versions 0 to 2.

KIP-595, KIP-836 (when members fetched and caught up, from 1), KIP-853 (directories and nodes, from
2). The one partition with a quorum is __cluster_metadata-0, here the metadata log: an index of it
is the offset before. Any node responds, with what the leader knows; if none says so in time, with
REQUEST_TIMED_OUT, as Kafka's brokers do if no controller takes what they forward.

The work is in `cluster.quorum_members`.
"""

from typing import Final

from headrace.cluster import words
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.loop.slices import Slice, Slices, finish
from headrace.server.broker import Broker
from headrace.server.reach import CONTROLLER_LISTENER, node_address
from headrace.server.request import Request
from headrace.wire.messages.describe_quorum_request import DescribeQuorumRequest
from headrace.wire.messages.describe_quorum_request import TopicData as DescribeQuorumTopic
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
UNKNOWN_TIME: Final = -1
FIRST_WITH_NODES: Final = 2
"""And with the directories of members."""
DESCRIBE_TIMEOUT_MS: Final = 20_000
"""The request has no timeout; clients wait 30 seconds."""


async def handle(broker: Broker, request: Request) -> DescribeQuorumResponse:
    body: DescribeQuorumRequest = request.body
    if not _is_asked_alone(body.topics):
        return await finish(refuse(body.topics))
    try:
        quorum = await broker.members.describe(DESCRIBE_TIMEOUT_MS)
    except KafkaError as error:
        return DescribeQuorumResponse(error_code=error.code, error_message=error.message)
    voters = [member for member in quorum.members if member.is_voter]
    row = PartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=quorum.leader,
        leader_epoch=quorum.term,
        high_watermark=quorum.commit + 1,
        current_voters=[_describe(broker, request, member) for member in voters],
        observers=[
            _describe(broker, request, member) for member in quorum.members if not member.is_voter
        ],
    )
    response = DescribeQuorumResponse(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[row])]
    )
    if request.version >= FIRST_WITH_NODES:
        response.nodes = [_node(broker, BrokerId(member.node)) for member in voters]
    return response


def _is_asked_alone(topics: list[DescribeQuorumTopic]) -> bool:
    """Return whether a request names the one partition that has a quorum, and no other."""
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC:
        return False
    partitions = topics[0].partitions
    return len(partitions) == 1 and partitions[0].partition_index == METADATA_PARTITION


def refuse(topics: list[DescribeQuorumTopic]) -> Slices[DescribeQuorumResponse]:
    """Respond that there is no such quorum; as in Kafka one wrong name fails all."""
    refused = []
    current = Slice()
    for topic in topics:
        rows = []
        for asked in topic.partitions:
            rows.append(
                PartitionData(
                    partition_index=asked.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=f"only {METADATA_TOPIC}-{METADATA_PARTITION} has a quorum",
                )
            )
            if current.spend():
                yield
        refused.append(TopicData(topic_name=topic.topic_name, partitions=rows))
        if current.spend():
            yield
    return DescribeQuorumResponse(topics=refused)


def _describe(broker: Broker, request: Request, member: words.QuorumMember) -> ReplicaState:
    """Return a member's progress, with the leader's durations as times of this node."""
    now_ms = broker.clock.now_ms()
    replica = ReplicaState(
        replica_id=member.node,
        log_end_offset=member.match_index + 1,
        last_fetch_timestamp=now_ms - member.silent_ms if member.silent_ms >= 0 else UNKNOWN_TIME,
        last_caught_up_timestamp=(
            now_ms - member.behind_ms if member.behind_ms >= 0 else UNKNOWN_TIME
        ),
    )
    registered = broker.image.broker(BrokerId(member.node))
    if request.version >= FIRST_WITH_NODES and registered is not None and registered.log_dirs:
        replica.replica_directory_id = registered.log_dirs[0]
    return replica


def _node(broker: Broker, node: BrokerId) -> Node:
    address = node_address(broker.image, node)
    if address is None:
        return Node(node_id=node)
    host, port = address
    return Node(node_id=node, listeners=[Listener(name=CONTROLLER_LISTENER, host=host, port=port)])
