"""DescribeProducers: API key 61, version 0.

KIP-664: what a replica of a partition knows of its producers, the leader's or a follower's.

The work is in `log.producers`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.errors import ErrorCode
from headrace.ids import TopicName
from headrace.log.log import Log
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.topics.validation import explain_illegal_name
from headrace.wire.messages.describe_producers_request import DescribeProducersRequest
from headrace.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

NO_OFFSET: Final = -1
PARTITION_COST: Final = 3
"""What a partition of DescribeProducers costs, in units of `slices`."""


def handle(
    broker: Broker, request: Request
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    return in_slices(_describe_all(broker, request.body))


def _describe_all(
    broker: Broker, body: DescribeProducersRequest
) -> Slices[DescribeProducersResponse]:
    """Describe partitions; a duplicate is described once: it may have very many producers."""
    current = Slice()
    wanted: dict[str, dict[int, None]] = {}
    for topic in body.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, indexes in wanted.items():
        rows: list[PartitionResponse] = []
        topics.append(TopicResponse(name=name, partitions=rows))
        for index in indexes:
            row = yield from _describe(broker, TopicName(name), index, current)
            rows.append(row)
            if current.spend(PARTITION_COST):
                yield
    return DescribeProducersResponse(topics=topics)


def _describe(
    broker: Broker, topic: TopicName, index: int, current: Slice
) -> Slices[PartitionResponse]:
    partition = broker.replicas.find(topic, index)
    if partition is not None:
        producers = yield from active_producers(partition.log, current)
        return PartitionResponse(partition_index=index, active_producers=producers)
    if reason := explain_illegal_name(topic):
        code, message = ErrorCode.INVALID_TOPIC_EXCEPTION, reason
    else:
        missing = broker.replicas.explain_missing(topic, index)
        code, message = missing.code, missing.message
    # Kafka has a message only for topics that it does not know or could not.
    text = message if broker.image.topic(topic) is None else None
    return PartitionResponse(partition_index=index, error_code=code, error_message=text)


def active_producers(log: Log, current: Slice) -> Slices[list[ProducerState]]:
    """Return what a log knows of its producers: hundreds of thousands, if each wrote little."""
    rows = []
    for state in tuple(log.producers):
        first_offset = state.transaction_first_offset
        rows.append(
            ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
            )
        )
        if current.spend():
            yield
    return rows
