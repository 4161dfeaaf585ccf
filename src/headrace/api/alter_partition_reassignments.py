"""AlterPartitionReassignments: API key 45, versions 0 and 1.

KIP-455, KIP-860 (a change of the replication factor can be forbidden, from 1). Replicas that are
the present ones in another order, or some of them that are in sync, are taken at once. New ones are
added to the partition and marked as such: they copy, and the leader ends the reassignment when they
are in sync. Null replicas cancel, which removes those that were being added.

Left out: nodes do not copy from each other yet, so a single node never has a reassignment under
way.
"""

from msgspec.structs import replace

from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image
from headrace.metadata.state import Partition
from headrace.server.broker import Broker
from headrace.server.proposals import propose_each, timed_out
from headrace.server.request import Request
from headrace.topics.validation import check_replicas
from headrace.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from headrace.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(broker: Broker, request: Request) -> AlterPartitionReassignmentsResponse:
    body: AlterPartitionReassignmentsRequest = request.body
    is_too_late = body.timeout_ms <= 0 and bool(body.topics)
    topics: list[ReassignableTopicResponse] = []
    planned = await finish(_plan_each(broker, body, topics, is_too_late=is_too_late))
    errors = await propose_each(broker, [change for _, change in planned], body.timeout_ms)
    for (row, _), refused in zip(planned, errors, strict=True):
        _set_error(row, refused)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=ErrorCode.REQUEST_TIMED_OUT if is_too_late else ErrorCode.NONE,
        error_message=None,
        responses=topics,
    )


def _plan_each(
    broker: Broker,
    body: AlterPartitionReassignmentsRequest,
    topics: list[ReassignableTopicResponse],
    *,
    is_too_late: bool,
) -> Slices[list[tuple[ReassignablePartitionResponse, ChangePartition]]]:
    """Return the changes with their rows; `topics` gets all rows."""
    planned: list[tuple[ReassignablePartitionResponse, ChangePartition]] = []
    current = Slice()
    for topic in body.topics:
        rows: list[ReassignablePartitionResponse] = []
        for asked in topic.partitions:
            if current.spend(5):
                yield
            row = ReassignablePartitionResponse(
                partition_index=asked.partition_index, error_message=None
            )
            rows.append(row)
            try:
                if is_too_late:
                    raise timed_out(body.timeout_ms)
                change = plan_reassignment(
                    broker.image,
                    topic.name,
                    asked,
                    may_change_factor=body.allow_replication_factor_change,
                )
                _check_movable(change)
            except KafkaError as error:
                _set_error(row, error)
            else:
                if change is not None:
                    planned.append((row, change))
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
        if current.spend():
            yield
    return planned


def _check_movable(change: ChangePartition | None) -> None:
    """Refuse to begin what would never end: nodes do not copy partitions from each other yet."""
    if change is not None and change.adding:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"brokers {', '.join(map(str, change.adding))} have no copy of the partition, and "
            "nodes do not copy partitions yet",
        )


def plan_reassignment(
    image: Image, name: str, asked: ReassignablePartition, *, may_change_factor: bool
) -> ChangePartition | None:
    """Return the change that starts, ends or cancels a reassignment; None if nothing changes."""
    topic = image.topic(TopicName(name))
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {shorten(name)}")
    index = PartitionIndex(asked.partition_index)
    row = image.partition(topic.name, index)
    if row is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {name} has {len(topic.partitions)} partitions, no {index}",
        )
    if asked.replicas is None:
        target = _before_reassignment(f"{name}-{index}", row)
    else:
        check_replicas(asked.replicas, image)
        target = tuple(map(BrokerId, asked.replicas))
        _check_factor(f"{name}-{index}", row, target, may_change_factor)
    change = _towards(row, target, ChangePartition(topic.topic_id, index, row.partition_epoch))
    is_there = (
        change.replicas == row.replicas
        and change.adding == row.adding
        and change.removing == row.removing
    )
    return None if is_there else change


def _towards(
    row: Partition, target: tuple[BrokerId, ...], change: ChangePartition
) -> ChangePartition:
    """Return the change that moves a partition to other replicas, or starts to."""
    settled = [each for each in row.replicas if each not in row.adding]
    adding = tuple(each for each in target if each not in settled)
    removing = tuple(each for each in settled if each not in target)
    isr = tuple(each for each in row.isr if each in target)
    if adding or not isr:
        return replace(change, replicas=target + removing, adding=adding, removing=removing)
    leader = None if row.leader in isr else isr[0]
    return replace(change, replicas=target, adding=(), removing=(), isr=isr, leader=leader)


def _before_reassignment(name: str, row: Partition) -> tuple[BrokerId, ...]:
    if not row.adding and not row.removing:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"no reassignment of {name} is in progress"
        )
    return tuple(each for each in row.replicas if each not in row.adding)


def _check_factor(
    name: str, row: Partition, target: tuple[BrokerId, ...], may_change: bool
) -> None:
    current = len(row.replicas) - len(row.adding)
    if not may_change and len(target) != current:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name} has {current} replicas and would have {len(target)}, which the request does "
            "not allow",
        )


def _set_error(row: ReassignablePartitionResponse, error: KafkaError | None) -> None:
    if error is not None:
        row.error_code, row.error_message = error.code, error.message
