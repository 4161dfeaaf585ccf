"""OffsetForLeaderEpoch: API key 23, versions 2 to 4.

KIP-320: where an epoch ended, for clients that check whether their position was truncated.

The work is in `log.epochs`.
"""

from collections.abc import Coroutine
from typing import Any, Final

from headrace.errors import KafkaError
from headrace.ids import TopicName
from headrace.loop.slices import Slice, Slices, in_slices
from headrace.server.broker import Broker
from headrace.server.request import Request
from headrace.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from headrace.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

EPOCH_COST: Final = 2
"""What a row of OffsetForLeaderEpoch costs, in units of `slices`."""


def handle(
    broker: Broker, request: Request
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    return in_slices(_ends_of_epochs(broker, request.body))


def _ends_of_epochs(
    broker: Broker, body: OffsetForLeaderEpochRequest
) -> Slices[OffsetForLeaderEpochResponse]:
    current, topics = Slice(), []
    for topic in body.topics:
        rows: list[EpochEndOffset] = []
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        for asked in topic.partitions:
            rows.append(_end_of_epoch(broker, TopicName(topic.topic), asked))
            if current.spend(EPOCH_COST):
                yield
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_of_epoch(
    broker: Broker, topic: TopicName, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    row = EpochEndOffset(partition=asked.partition)
    try:
        partition = broker.replicas.find_leader(topic, asked.partition, asked.current_leader_epoch)
    except KafkaError as error:
        row.error_code = error.code
        return row
    log = partition.log
    row.leader_epoch, row.end_offset = log.epochs.end_offset_for(asked.leader_epoch, log.end_offset)
    return row
