"""OffsetDelete: API key 47, version 0.

KIP-496. Topics that a member is subscribed to are GROUP_SUBSCRIBED_TO_TOPIC.

The work is in `groups.administration`.
"""

from functools import partial
from typing import Final, TypeAlias

from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import (
    delete_offsets,
)
from headrace.ids import TopicName
from headrace.loop.slices import Slice, Slices, finish
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
    existing = await finish(_existing(broker.image, body.topics))

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
        await ask_in_slices(await finish(_offset_slices(existing)), delete, at_once=1)
    ):
        if not isinstance(answer, KafkaError):
            subscribed |= answer
        elif number == 0 or answer.code != ErrorCode.GROUP_ID_NOT_FOUND:
            return OffsetDeleteResponse(error_code=answer.code)
        # A group without members goes with the last of its offsets.
    rows = await finish(_rows(body.topics, existing, subscribed))
    return OffsetDeleteResponse(topics=rows)


def _offset_slices(offsets: _Offsets) -> Slices[list[_Offsets]]:
    """Return the same offsets in lists of a bounded size, at least one."""
    parts: list[_Offsets] = []
    some: _Offsets = []
    room = OFFSETS_AT_ONCE
    current = Slice()
    for topic, indexes in offsets:
        for start in range(0, max(len(indexes), 1), OFFSETS_AT_ONCE):
            taken = indexes[start : start + OFFSETS_AT_ONCE]
            if len(taken) > room:
                parts.append(some)
                some, room = [], OFFSETS_AT_ONCE
            some.append((topic, taken))
            room -= len(taken)
            if current.spend():
                yield
    return [*parts, some]


def _existing(image: Image, topics: list[OffsetDeleteRequestTopic]) -> Slices[_Offsets]:
    """Return the partitions that are asked for and exist."""
    existing: _Offsets = []
    current = Slice()
    for asked in topics:
        topic = image.topic(TopicName(asked.name))
        count = 0 if topic is None else len(topic.partitions)
        indexes: list[int] = []
        for each in asked.partitions:
            if 0 <= each.partition_index < count:
                indexes.append(each.partition_index)
            if current.spend():
                yield
        existing.append((asked.name, indexes))
        if current.spend():
            yield
    return existing


def _rows(
    topics: list[OffsetDeleteRequestTopic], existing: _Offsets, subscribed: set[str]
) -> Slices[list[OffsetDeleteResponseTopic]]:
    """Return a row for each topic: partitions that there are not come first, as Kafka has it."""
    rows: list[OffsetDeleteResponseTopic] = []
    current = Slice()
    for asked, (_, indexes) in zip(topics, existing, strict=True):
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if asked.name in subscribed else ErrorCode.NONE
        there = iter(indexes)
        following = next(there, None)
        missing: list[OffsetDeleteResponsePartition] = []
        found: list[OffsetDeleteResponsePartition] = []
        for each in asked.partitions:  # those that exist come in the same order
            index = each.partition_index
            if index == following:
                found.append(OffsetDeleteResponsePartition(index, code))
                following = next(there, None)
            else:
                missing.append(
                    OffsetDeleteResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                )
            if current.spend():
                yield
        if asked.partitions:
            rows.append(OffsetDeleteResponseTopic(asked.name, missing + found))
        if current.spend():
            yield
    return rows
