"""ReplicaState and Heartbeat: what followers and leaders tell each other.

Nodes of ours replicate with Kafka's Fetch, and their ISRs follow that. A report by this protocol
proves nothing of a log, so it changes no ISR: ReplicaState says whether the ISR has the sender.
Heartbeat says whether its sender still leads what it says it leads; if it was registered by
this protocol and this node is the controller, it also renews the sender's session.
"""

from collections.abc import Coroutine
from typing import Any

from headrace.cluster.protocol import ClusterErrorCode, ResponseHeader, requests, responses
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.server.broker import Broker
from headrace.server.interchange.call import ClusterCall
from headrace.server.interchange.nodes import find_broker
from headrace.server.interchange.refusals import Refusal, require_partition, shown


def replica_state(broker: Broker, call: ClusterCall) -> responses.ReplicaStateAck:
    """Report whether a replica is in sync; a stranger gets NotReplicaForPartition."""
    asked: requests.ReplicaState = call.asked  # type: ignore[assignment]
    name = asked.partition
    place = f"{name.topic}-{name.partition}"
    _, row = require_partition(broker.image, name)
    source = find_broker(broker.image, asked.header.source)
    if source not in row.replicas:
        raise Refusal(
            ClusterErrorCode.NOT_REPLICA_FOR_PARTITION,
            f"node {shown(asked.header.source)} is no replica of {place}",
        )
    partition = broker.replicas.find(name.topic, name.partition)
    if row.leader != broker.node_id or partition is None or not partition.is_leader:
        raise Refusal(
            ClusterErrorCode.NOT_LEADER_FOR_PARTITION, f"{place} is led by node {row.leader}"
        )
    if asked.high_watermark > asked.log_end_offset:
        raise Refusal(
            ClusterErrorCode.INVALID_REQUEST,
            f"high watermark {asked.high_watermark} is after the end of the log, "
            f"{asked.log_end_offset}",
        )
    if asked.log_end_offset > partition.log.end_offset:
        raise Refusal(
            ClusterErrorCode.OFFSET_OUT_OF_RANGE,
            f"{place} ends at {partition.log.end_offset}, and the replica's log at "
            f"{asked.log_end_offset}: it has to be truncated",
        )
    header = ResponseHeader(call.correlation_id)
    return responses.ReplicaStateAck(header, name, source in row.isr)


def heartbeat(
    broker: Broker, call: ClusterCall
) -> responses.Heartbeat | Coroutine[Any, Any, responses.Heartbeat]:
    """Acknowledge a node that is registered and leads the partitions that it names.

    NotLeaderForPartition tells a former leader that it was replaced. A leader epoch that this node
    has not heard of is fine: it will.
    """
    return in_slices(_check_heartbeat(broker, call))


def _check_heartbeat(broker: Broker, call: ClusterCall) -> Slices[responses.Heartbeat]:
    asked: requests.Heartbeat = call.asked  # type: ignore[assignment]
    text = asked.header.source
    source = find_broker(broker.image, text)
    if source is None:
        raise Refusal(ClusterErrorCode.UNKNOWN_MEMBER_ID, f"node {shown(text)} is not registered")
    current = Slice()
    for each in asked.partitions:
        name = each.partition
        _, row = require_partition(broker.image, name)
        epoch = each.leader_epoch
        if epoch < row.leader_epoch or (epoch == row.leader_epoch and row.leader != source):
            raise Refusal(
                ClusterErrorCode.NOT_LEADER_FOR_PARTITION,
                f"{name.topic}-{name.partition} is led by node {row.leader} in epoch "
                f"{row.leader_epoch}, not by {shown(text)} in {epoch}",
            )
        if current.spend():
            yield
    broker.hear(source)
    return responses.Heartbeat(ResponseHeader(call.correlation_id))
