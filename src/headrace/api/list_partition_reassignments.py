"""ListPartitionReassignments: API key 46, version 0.

KIP-455. A null list of topics means all that are being reassigned.
"""

from collections.abc import Coroutine, Iterator
from typing import Any

from headrace.ids import PartitionIndex, TopicName
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.metadata.image import Image
from headrace.replication.moves import is_moving
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from headrace.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    broker: Broker, request: Request
) -> ListPartitionReassignmentsResponse | Coroutine[Any, Any, ListPartitionReassignmentsResponse]:
    return in_slices(list_reassignments(broker, request.body))


def list_reassignments(
    broker: Broker, body: ListPartitionReassignmentsRequest
) -> Slices[ListPartitionReassignmentsResponse]:
    """List the requested partitions that are being reassigned."""
    image = broker.image
    rows: dict[str, list[OngoingPartitionReassignment]] = {}
    current = Slice()
    for name, index in _asked(image, body):
        row = image.partition(name, index)
        if row is not None and is_moving(row):
            rows.setdefault(name, []).append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(row.replicas),
                    adding_replicas=list(row.adding),
                    removing_replicas=list(row.removing),
                )
            )
        if current.spend():
            yield
    topics = [
        OngoingTopicReassignment(name=name, partitions=partitions)
        for name, partitions in rows.items()
    ]
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _asked(
    image: Image, body: ListPartitionReassignmentsRequest
) -> Iterator[tuple[TopicName, PartitionIndex]]:
    if body.topics is None:
        return ((slot.topic.name, slot.partition) for slot in image.moving())
    return (
        (TopicName(each.name), PartitionIndex(index))
        for each in body.topics
        for index in each.partition_indexes
    )
