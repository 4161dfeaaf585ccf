"""ElectLeaders: API key 43, versions 0 to 2.

KIP-183 (the preferred replica), KIP-460 (an unclean leader, which may lack records), KIP-966 (one
of the ELR before that). A null list of partitions means all; partitions that need no election are
then left out of the response, which still names their topics. An unclean election is for partitions
without a leader only. The rules are those of the controller (`replication.elections`).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition
from headrace.replication.elections import Roles, elect, is_active
from headrace.server.broker import Broker
from headrace.server.proposals import propose_planned, timed_out
from headrace.server.request import Request
from headrace.wire.messages.elect_leaders_request import ElectLeadersRequest
from headrace.wire.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

FIRST_WITH_ERROR_CODE: Final = 1


class ElectionType(IntEnum):
    """Whom to elect."""

    PREFERRED = 0
    UNCLEAN = 1


async def handle(broker: Broker, request: Request) -> ElectLeadersResponse:
    body: ElectLeadersRequest = request.body
    refusal = _explain_refusal(body)
    if refusal is not None:
        return _refused(request, refusal)
    results: list[ReplicaElectionResult] = []
    planned = await finish(_plan_each(broker, body, results))
    changes = [each.change for each in planned]

    def plan_again(position: int) -> ChangePartition | None:
        row, name, _ = planned[position]
        try:
            return plan_election(broker.image, name, row.partition_id, body.election_type)
        except KafkaError as error:
            if error.code is ErrorCode.ELECTION_NOT_NEEDED:
                return None  # that is what overtook it
            raise

    errors = await propose_planned(broker, changes, plan_again, body.timeout_ms, request)
    for each, refused in zip(planned, errors, strict=True):
        _set_error(each.row, refused)
    return ElectLeadersResponse(replica_election_results=results)


class _Planned(NamedTuple):
    """What is to be proposed for a row of the response."""

    row: PartitionResult
    topic: str
    change: ChangePartition


def _plan_each(
    broker: Broker, body: ElectLeadersRequest, results: list[ReplicaElectionResult]
) -> Slices[list[_Planned]]:
    """Return the changes with their rows; `results` gets all rows, by topic."""
    wants_all = body.topic_partitions is None
    planned: list[_Planned] = []
    current = Slice()
    for name, partitions in _asked(broker.image, body):
        rows: list[PartitionResult] = []
        for index in partitions:
            if current.spend(5):
                yield
            row = PartitionResult(partition_id=index, error_message=None)
            try:
                change = plan_election(broker.image, name, index, body.election_type)
                planned.append(_Planned(row, name, change))
            except KafkaError as error:
                if wants_all and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                _set_error(row, error)
            rows.append(row)
        results.append(ReplicaElectionResult(topic=name, partition_result=rows))
        if current.spend():
            yield
    return planned


def plan_election(image: Image, name: str, index: int, election_type: int) -> ChangePartition:
    """Return the change that elects a leader; raise KafkaError if none is needed or possible."""
    topic = image.topic(TopicName(name))
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {shorten(name)}")
    row = image.partition(topic.name, PartitionIndex(index))
    if row is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {name} has {len(topic.partitions)} partitions, no {index}",
        )
    choose = _preferred if election_type == ElectionType.PREFERRED else _unclean
    leader, isr = choose(image, topic.name, f"{name}-{index}", row)
    return ChangePartition(
        topic.topic_id,
        PartitionIndex(index),
        expected_partition_epoch=row.partition_epoch,
        leader=leader,
        isr=None if isr == row.isr else isr,
    )


def _preferred(image: Image, topic: TopicName, name: str, row: Partition) -> Roles:
    first = row.replicas[0]
    if row.leader == first:
        raise _not_needed(name, row)
    if first in row.isr and is_active(image, first):
        isr = row.isr
        if row.leader == NO_LEADER:
            isr = tuple(each for each in isr if is_active(image, each))
        return Roles(first, isr)
    found = elect(image, topic, row)
    if found.leader in (row.leader, NO_LEADER):
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {first}, the preferred leader of {name}, is not up and in sync",
        )
    return found  # there was none: any that has all records is better


def _unclean(image: Image, topic: TopicName, name: str, row: Partition) -> Roles:
    if row.leader != NO_LEADER:
        raise _not_needed(name, row)
    # One that is in sync has everything: unclean is what is allowed, not what is wanted.
    found = elect(image, topic, row, allows_unclean=lambda _: True)
    if found.leader == NO_LEADER:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {list(row.replicas)} of {name} is up",
        )
    return found


def _not_needed(name: str, row: Partition) -> KafkaError:
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {row.leader} leads {name}")


def _asked(image: Image, body: ElectLeadersRequest) -> list[tuple[str, Iterable[int]]]:
    if body.topic_partitions is not None:
        return [(each.topic, each.partitions) for each in body.topic_partitions]
    return [(topic.name, range(len(topic.partitions))) for topic in image.topics()]


def _explain_refusal(body: ElectLeadersRequest) -> KafkaError | None:
    if body.election_type not in set(ElectionType):
        return KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"election type {body.election_type}: must be 0 (preferred) or 1 (unclean)",
        )
    return timed_out(body.timeout_ms) if body.timeout_ms <= 0 else None


def _refused(request: Request, error: KafkaError) -> ElectLeadersResponse:
    body: ElectLeadersRequest = request.body
    return ElectLeadersResponse(
        error_code=error.code if request.version >= FIRST_WITH_ERROR_CODE else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=index, error_code=error.code, error_message=error.message
                    )
                    for index in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )


def _set_error(row: PartitionResult, error: KafkaError | None) -> None:
    if error is not None:
        row.error_code, row.error_message = error.code, error.message
