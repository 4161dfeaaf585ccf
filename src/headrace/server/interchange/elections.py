"""ElectLeader: the replica that is asked for leads, or the preferred one.

Elections are clean: only a replica in the ISR whose broker is up can be elected, or one of the ELR
if nobody of the ISR is up. A replica that leads already is no error. The preferred replica is
elected by Kafka's ElectLeaders; another one, or any that has all records for a partition without a
leader whose preferred replica is away, by a conditional change of our own.
"""

from typing import Final

from headrace.cluster.protocol import (
    ClusterErrorCode,
    PartitionName,
    ResponseHeader,
    node_id_of,
    requests,
    responses,
)
from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition
from headrace.server.broker import Broker
from headrace.server.interchange.call import ClusterCall, Forwarded, Handled
from headrace.server.interchange.nodes import find_broker, is_up
from headrace.server.interchange.refusals import Refusal, check, require_partition, shown
from headrace.server.proposals import propose_each
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from headrace.wire.messages.elect_leaders_response import ElectLeadersResponse

ELECT_LEADERS_VERSION: Final = 2
PREFERRED: Final = 0


def elect_leader(broker: Broker, call: ClusterCall) -> Handled:
    asked: requests.ElectLeader = call.asked  # type: ignore[assignment]
    image, name = broker.image, asked.partition
    topic, row = require_partition(image, name)
    leader = _wanted(image, row, asked)
    if row.leader == leader:
        return _elected(broker, call, name)
    if leader not in _eligible(image, row):
        require_eligible(image, name, row, leader)
    if leader == row.replicas[0]:
        return _by_kafka(broker, call, name)
    isr = row.isr
    if leader not in isr:
        isr = (leader,)
    elif row.leader == NO_LEADER:
        isr = tuple(each for each in isr if is_up(image, each))
    change = ChangePartition(
        topic.topic_id,
        name.partition,
        expected_partition_epoch=row.partition_epoch,
        leader=leader,
        isr=None if isr == row.isr else isr,
    )
    return _propose(broker, call, name, change)


def require_eligible(image: Image, name: PartitionName, row: Partition, leader: BrokerId) -> None:
    """Refuse a leader that is no replica, or that may lack records or is not there."""
    place = f"{name.topic}-{name.partition}"
    if leader not in row.replicas:
        raise Refusal(
            ClusterErrorCode.NOT_REPLICA_FOR_PARTITION,
            f"node {leader} is no replica of {place}: {list(row.replicas)} are",
        )
    if leader not in row.isr or not is_up(image, leader):
        raise Refusal(
            ClusterErrorCode.INELIGIBLE_REPLICA, f"node {leader} is not up and in sync of {place}"
        )


def _wanted(image: Image, row: Partition, asked: requests.ElectLeader) -> BrokerId:
    text = asked.preferred_leader
    if text is not None:
        leader = find_broker(image, text)
        if leader is None:
            raise Refusal(
                ClusterErrorCode.NOT_REPLICA_FOR_PARTITION, f"node {shown(text)} is not registered"
            )
        return leader
    eligible = _eligible(image, row)
    preferred = row.replicas[0]
    if row.leader != NO_LEADER or preferred in eligible:
        return preferred
    if not eligible:
        raise Refusal(
            ClusterErrorCode.LEADER_NOT_AVAILABLE,
            f"none of the replicas in sync of {asked.partition.topic}-{asked.partition.partition} "
            "is up",
        )
    return eligible[0]


def _eligible(image: Image, row: Partition) -> list[BrokerId]:
    """Return who may lead a partition, by preference: of the ISR, or else of the ELR."""
    up = [each for each in row.replicas if is_up(image, each)]
    in_sync = [each for each in up if each in row.isr]
    return in_sync or [each for each in up if each in row.elr]


def _by_kafka(broker: Broker, call: ClusterCall, name: PartitionName) -> Forwarded:
    body = ElectLeadersRequest(
        election_type=PREFERRED,
        topic_partitions=[TopicPartitions(topic=name.topic, partitions=[name.partition])],
        timeout_ms=call.timeout_ms,
    )

    def translate(answer: ElectLeadersResponse) -> responses.ElectLeader:
        check(answer.error_code, None)
        row = answer.replica_election_results[0].partition_result[0]
        if row.error_code != ErrorCode.ELECTION_NOT_NEEDED:
            check(row.error_code, row.error_message)
        return _elected(broker, call, name)

    return Forwarded(body, ELECT_LEADERS_VERSION, translate)


async def _propose(
    broker: Broker, call: ClusterCall, name: PartitionName, change: ChangePartition
) -> responses.ElectLeader:
    (refused,) = await propose_each(broker, [change], call.timeout_ms, call)
    if refused is not None:
        raise refused
    return _elected(broker, call, name)


def _elected(broker: Broker, call: ClusterCall, name: PartitionName) -> responses.ElectLeader:
    _, row = require_partition(broker.image, name)
    leader = None if row.leader == NO_LEADER else node_id_of(row.leader)
    header = ResponseHeader(call.correlation_id)
    return responses.ElectLeader(header, name, leader, row.leader_epoch)
