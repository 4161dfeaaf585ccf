"""DescribeTopicPartitions: API key 75, version 0.

KIP-966. Topics are sorted by name, each once; an empty list means all. A response holds as many
partitions as the client wants, up to max.request.partition.size.limit, and a cursor for the next
one. A cursor that names a topic which is not asked for, or a partition below zero, is
INVALID_REQUEST for every topic. Authorized operations are always there.

Different from Kafka: a topic without a name is INVALID_TOPIC_EXCEPTION; Kafka fails with
UNKNOWN_SERVER_ERROR.
"""

from bisect import bisect_left
from collections.abc import Coroutine, Iterable
from heapq import merge
from itertools import chain
from typing import Any, Final

from headrace import config
from headrace.errors import ErrorCode
from headrace.ids import TopicName
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.metadata.state import Partition, Topic
from headrace.server.broker import Broker
from headrace.server.operations import TOPIC_OPERATIONS
from headrace.server.reach import Reach
from headrace.server.request import Request
from headrace.topics.validation import INTERNAL_TOPICS, explain_illegal_name
from headrace.wire.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
)
from headrace.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

SORTED_AT_ONCE: Final = 500
"""How many names are sorted at once; what is sorted is merged name by name."""
SORT_UNITS: Final = 400
"""What that costs, in units of a slice."""
NAME_UNITS: Final = 2
"""What the next name costs."""


def handle(
    broker: Broker, request: Request
) -> DescribeTopicPartitionsResponse | Coroutine[Any, Any, DescribeTopicPartitionsResponse]:
    return in_slices(describe_topic_partitions(broker, request))


def describe_topic_partitions(
    broker: Broker, request: Request
) -> Slices[DescribeTopicPartitionsResponse]:
    """Put the response together."""
    body: DescribeTopicPartitionsRequest = request.body
    cursor, image = body.cursor, broker.image
    current = Slice()
    asked: dict[str, None] = {}
    for each in body.topics:
        asked[each.name] = None
        if current.spend():
            yield
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)
    ):
        return (yield from _refused(list(asked), current))
    wanted = list(asked) or (yield from _all_names(list(image.topics()), current))
    first_name = "" if cursor is None else cursor.topic_name
    names = yield from _sorted(wanted, first_name, current)
    room = broker.settings[config.MAX_REQUEST_PARTITION_SIZE_LIMIT]
    room = max(1, min(room, body.response_partition_limit))
    reach = Reach(image, request.peer.listener)
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        if not room:
            response.next_cursor = Cursor(topic_name=name)
            break
        topic = image.topic(TopicName(name))
        if current.spend(NAME_UNITS):
            yield
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        goes_on = cursor is not None and cursor.topic_name == name
        first = cursor.partition_index if cursor is not None and goes_on else 0
        row = yield from _topic_row(
            topic, reach, topic.partitions[first : first + room], first, current
        )
        response.topics.append(row)
        room -= len(row.partitions)
        if (end := first + len(row.partitions)) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _topic_row(
    topic: Topic, reach: Reach, partitions: list[Partition], first: int, current: Slice
) -> Slices[DescribeTopicPartitionsResponseTopic]:
    rows = []
    for index, row in enumerate(partitions, first):
        if current.spend():
            yield
        leader, code = reach.leader(row)
        rows.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=leader,
                leader_epoch=row.leader_epoch,
                replica_nodes=list(row.replicas),
                isr_nodes=list(row.isr),
                eligible_leader_replicas=list(row.elr),
                last_known_elr=list(row.last_known_elr),
                offline_replicas=reach.offline(row.replicas),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=rows,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_legal = explain_illegal_name(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        ),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _all_names(topics: list[Topic], current: Slice) -> Slices[list[str]]:
    names: list[str] = []
    for start in range(0, len(topics), SORTED_AT_ONCE):
        names += [topic.name for topic in topics[start : start + SORTED_AT_ONCE]]
        if current.spend(SORT_UNITS):
            yield
    return names


def _sorted(names: list[str], first: str, current: Slice) -> Slices[Iterable[str]]:
    """Return names in order, from one on: sorted in runs, which whoever takes them merges."""
    runs: list[list[str]] = []
    for start in range(0, len(names), SORTED_AT_ONCE):
        run = sorted(names[start : start + SORTED_AT_ONCE])
        runs.append(run[bisect_left(run, first) :])
        if current.spend(SORT_UNITS):
            yield
    return merge(*runs) if len(runs) > 1 else chain(*runs)


def _refused(names: list[str], current: Slice) -> Slices[DescribeTopicPartitionsResponse]:
    code = ErrorCode.INVALID_REQUEST
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    for name in (yield from _sorted(names, "", current)):
        rows.append(DescribeTopicPartitionsResponseTopic(error_code=code, name=name))
        if current.spend(NAME_UNITS):
            yield
    return DescribeTopicPartitionsResponse(topics=rows)
