"""OffsetDelete: API key 47, version 0.

KIP-496. Topics that a member is subscribed to are GROUP_SUBSCRIBED_TO_TOPIC.

The work is in `groups.administration`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, TypeAlias

from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import (
    delete_offsets,
)
from headrace.ids import TopicName
from headrace.metadata.image import Image
from headrace.server.broker import Broker
from headrace.server.gathering import (
    ask_in_slices,
    ask_shard,
)
from headrace.server.request import Request
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

OFFSETS_AT_ONCE: Final = 500
"""How many offsets are deleted in one turn of the loop."""
_Offsets: TypeAlias = list[tuple[str, list[int]]]
"""Topics, and partitions of each."""


async def handle(broker: Broker, request: Request) -> OffsetDeleteResponse:
    body: OffsetDeleteRequest = request.body
    if not body.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    existing = [(each.name, _existing_indexes(broker.image, each)) for each in body.topics]

    def delete(part: _Offsets, reply: Reply[set[str]]) -> None:
        ask_shard(
            partial(broker.groups.shard, body.group_id),
            lambda reply: (
                lambda machine, _: delete_offsets(machine.state, body.group_id, part, reply)
            ),
            reply,
        )

    subscribed: set[str] = set()
    for number, answer in enumerate(
        await ask_in_slices(list(_offset_slices(existing)), delete, at_once=1)
    ):
        if not isinstance(answer, KafkaError):
            subscribed |= answer
        elif number == 0 or answer.code != ErrorCode.GROUP_ID_NOT_FOUND:
            return OffsetDeleteResponse(error_code=answer.code)
        # A group without members goes with the last of its offsets.
    topics = [
        _offset_delete_row(topic, set(indexes), is_subscribed=topic.name in subscribed)
        for topic, (_, indexes) in zip(body.topics, existing, strict=True)
        if topic.partitions
    ]
    return OffsetDeleteResponse(topics=topics)


def _offset_slices(offsets: _Offsets) -> Iterator[_Offsets]:
    """Yield the same offsets in lists of a bounded size, at least one."""
    some: _Offsets = []
    room = OFFSETS_AT_ONCE
    for topic, indexes in offsets:
        for start in range(0, max(len(indexes), 1), OFFSETS_AT_ONCE):
            taken = indexes[start : start + OFFSETS_AT_ONCE]
            if len(taken) > room:
                yield some
                some, room = [], OFFSETS_AT_ONCE
            some.append((topic, taken))
            room -= len(taken)
    yield some


def _existing_indexes(image: Image, asked: OffsetDeleteRequestTopic) -> list[int]:
    topic = image.topic(TopicName(asked.name))
    count = 0 if topic is None else len(topic.partitions)
    return [x.partition_index for x in asked.partitions if 0 <= x.partition_index < count]


def _offset_delete_row(
    asked: OffsetDeleteRequestTopic, existing: set[int], *, is_subscribed: bool
) -> OffsetDeleteResponseTopic:
    """Return the row of a topic: partitions that there are not come first, as Kafka has it."""
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
    indexes = [each.partition_index for each in asked.partitions]
    missing = [each for each in indexes if each not in existing]
    row = OffsetDeleteResponseTopic(name=asked.name)
    row.partitions = [
        OffsetDeleteResponsePartition(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for each in missing
    ] + [OffsetDeleteResponsePartition(each, code) for each in indexes if each in existing]
    return row
