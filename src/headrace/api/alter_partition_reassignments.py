"""AlterPartitionReassignments: API key 45, versions 0 and 1.

KIP-455, KIP-860 (a change of the replication factor can be forbidden, from 1). Replicas that are
the present ones in another order, or some of them and all in sync, are taken at once. New ones are
added to the partition and marked as such: they copy, and the controller journals the move and ends
it when all that were asked for are in sync (`replication.move_journal`). Null replicas cancel, by
an abort of the journal: those that were being added go. Another reassignment removes those that it
does not name.

Different from Kafka: a cancellation that leaves no replica in sync is always refused, with
INVALID_REPLICA_ASSIGNMENT; Kafka allows it where unclean leaders are allowed.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from headrace.config.values import shorten
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.loop.slices import Slice, Slices, finish
from headrace.metadata.image import Image, Slot
from headrace.metadata.state import Partition
from headrace.replication.move_journal import Change, plan_cancellation
from headrace.replication.moves import change_to, finished, target_of, towards
from headrace.server.broker import Broker
from headrace.server.proposals import propose_planned, timed_out
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

CANCELLED: Final = "the reassignment was cancelled"
"""The reason in the journal of a move that a client calls off."""


async def handle(broker: Broker, request: Request) -> AlterPartitionReassignmentsResponse:
    body: AlterPartitionReassignmentsRequest = request.body
    is_too_late = body.timeout_ms <= 0 and bool(body.topics)
    topics: list[ReassignableTopicResponse] = []
    planned = await finish(_plan_each(broker, body, topics, is_too_late=is_too_late))
    changes = [each.change for each in planned]
    errors = await propose_planned(
        broker, changes, lambda position: planned[position].again(), body.timeout_ms, request
    )
    for each, refused in zip(planned, errors, strict=True):
        _set_error(each.row, refused)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change,
        error_code=ErrorCode.REQUEST_TIMED_OUT if is_too_late else ErrorCode.NONE,
        error_message=None,
        responses=topics,
    )


class _Planned(NamedTuple):
    """What is to be proposed for a row of the response."""

    row: ReassignablePartitionResponse
    change: Change
    again: Callable[[], Change | None]
    """Plans it from what is so now."""


def _plan_each(
    broker: Broker,
    body: AlterPartitionReassignmentsRequest,
    topics: list[ReassignableTopicResponse],
    *,
    is_too_late: bool,
) -> Slices[list[_Planned]]:
    """Return the changes with their rows; `topics` gets all rows."""
    planned: list[_Planned] = []
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
            plan = partial(
                _plan, broker, topic.name, asked, is_free=body.allow_replication_factor_change
            )
            try:
                if is_too_late:
                    raise timed_out(body.timeout_ms)
                change = plan()
            except KafkaError as error:
                _set_error(row, error)
            else:
                if change is not None:
                    planned.append(_Planned(row, change, plan))
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=rows))
        if current.spend():
            yield
    return planned


def _plan(
    broker: Broker, name: str, asked: ReassignablePartition, *, is_free: bool
) -> Change | None:
    return plan_reassignment(broker.image, name, asked, may_change_factor=is_free)


def plan_reassignment(
    image: Image, name: str, asked: ReassignablePartition, *, may_change_factor: bool
) -> Change | None:
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
    slot = Slot(topic, index)
    if asked.replicas is None:
        return plan_cancellation(image, slot, CANCELLED)
    check_replicas(asked.replicas, image, present=row.replicas)
    target = tuple(map(BrokerId, asked.replicas))
    _check_factor(f"{name}-{index}", row, target, may_change_factor)
    begun = towards(f"{name}-{index}", image, row, target)
    # What is being added is left to the controller, which journals it, also if it is in sync.
    return change_to(slot, begun if begun.adding else finished(image, begun) or begun)


def _check_factor(
    name: str, row: Partition, target: tuple[BrokerId, ...], may_change: bool
) -> None:
    current = len(target_of(row))
    if not may_change and len(target) != current:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name} has {current} replicas and would have {len(target)}, which the request does "
            "not allow",
        )


def _set_error(row: ReassignablePartitionResponse, error: KafkaError | None) -> None:
    if error is not None:
        row.error_code, row.error_message = error.code, error.message
