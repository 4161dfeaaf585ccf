"""ListPartitionReassignments: API key 46, version 0.

KIP-455.
"""

from collections.abc import Coroutine
from typing import Any

from headrace.ids import PartitionIndex, TopicName
from headrace.loop.slices import Slice, Slices, in_slices
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
    if body.topics is None:
        asked = [(topic.name, range(len(topic.partitions))) for topic in image.topics()]
    else:
        asked = [(TopicName(each.name), each.partition_indexes) for each in body.topics]  # type: ignore[misc]
    topics: list[OngoingTopicReassignment] = []
    current = Slice()
    for name, indexes in asked:
        rows = []
        for index in indexes:
            row = image.partition(name, PartitionIndex(index))
            if row is not None and (row.adding or row.removing):
                rows.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(row.replicas),
                        adding_replicas=list(row.adding),
                        removing_replicas=list(row.removing),
                    )
                )
            if current.spend():
                yield
        if rows:
            topics.append(OngoingTopicReassignment(name=name, partitions=rows))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)
