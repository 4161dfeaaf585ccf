"""ListGroups v0 to 5, DescribeGroups v0 to 6, DeleteGroups v0 to 2, OffsetDelete v0.

ListGroups: KIP-518 (filter by state, from 4), KIP-848 (filter by type, from 5); what this node
coordinates. DescribeGroups: classic groups; what is none is Dead, and from 6 on (KIP-1043)
GROUP_ID_NOT_FOUND with a message. DeleteGroups: KIP-229; a name twice is answered once.
OffsetDelete: KIP-496; topics that a member is subscribed to are GROUP_SUBSCRIBED_TO_TOPIC.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import (
    answer_each,
    ask_in_slices,
    ask_shard,
)
from headrace.broker.handlers.operations import GROUP_OPERATIONS
from headrace.broker.handlers.share_offsets import delete_group_states
from headrace.broker.request import Answer, Handler, Request
from headrace.coordinator.machine import Operation, Outcome, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import (
    DEAD,
    GroupFilter,
    delete_group,
    delete_offsets,
    describe_group,
    give_up_deletion,
    group_ids,
    list_groups,
)
from headrace.groups.machine import GroupsMachine
from headrace.ids import TopicName
from headrace.metadata.image import Image
from headrace.wire import ApiKey
from headrace.wire.messages.delete_groups_response import (
    DeletableGroupResult,
    DeleteGroupsResponse,
)
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import (
    DescribedGroup,
    DescribeGroupsResponse,
)
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from headrace.wire.schema import Message

OFFSETS_AT_ONCE: Final = 500
"""How many offsets are deleted in one turn of the loop."""
GROUPS_AT_ONCE: Final = 500
"""How many groups are listed in one turn of the loop."""
_Offsets: TypeAlias = list[tuple[str, list[int]]]
"""Topics, and partitions of each."""
FIRST_WITH_MISSING_GROUPS: Final = 6
"""The version of DescribeGroups that says that a group is not there."""


async def handle_list_groups(broker: Broker, request: Request) -> ListGroupsResponse:
    body: ListGroupsRequest = request.body
    wanted = GroupFilter(
        frozenset(map(str.lower, body.states_filter)),
        frozenset(map(str.lower, body.types_filter)),
    )
    shards = tuple(broker.groups)
    found = await ask_in_slices(shards, lambda shard, reply: _ask(shard, group_ids, reply))
    slices = [
        (shard, ids[start : start + GROUPS_AT_ONCE])
        for shard, ids in zip(shards, found, strict=True)
        if not isinstance(ids, KafkaError)
        for start in range(0, len(ids), GROUPS_AT_ONCE)
    ]

    def list_slice(each: tuple[Shard[GroupsMachine], list[str]], reply: Reply) -> None:
        shard, ids = each
        _ask(shard, partial(list_groups, wanted=wanted, group_ids=ids), reply)

    listed = await ask_in_slices(slices, list_slice, at_once=1)
    # A shard that is not in service hides its groups; a client that is told so asks again.
    for answer in (*found, *listed):
        if isinstance(answer, KafkaError):
            return ListGroupsResponse(error_code=answer.code)
    return ListGroupsResponse(groups=[ListedGroup(*row) for rows in listed for row in rows])


def _ask(shard: Shard[GroupsMachine], operation: Callable[..., Outcome], reply: Reply) -> None:
    shard.write(lambda machine, now_ms: operation(machine.state, reply=reply), reply)


def handle_describe_groups(
    broker: Broker, request: Request
) -> Answer | Coroutine[Any, Any, Message]:
    body: DescribeGroupsRequest = request.body

    def describe(group_id: str, reply: Reply) -> None:
        ask_shard(
            partial(broker.groups.shard, group_id),
            lambda reply: lambda machine, _: describe_group(machine.state, group_id, reply),
            reply,
        )

    def row(group_id: str, answer: DescribedGroup | KafkaError) -> DescribedGroup:
        described = _described(answer, group_id, request.version)
        if body.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = GROUP_OPERATIONS
        return described

    return answer_each(
        request, body.groups, describe, row, lambda rows: DescribeGroupsResponse(groups=rows)
    )


def _described(answer: DescribedGroup | KafkaError, group_id: str, version: int) -> DescribedGroup:
    if not isinstance(answer, KafkaError):
        return answer
    if answer.code != ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=answer.code)
    if version < FIRST_WITH_MISSING_GROUPS:
        return DescribedGroup(group_id=group_id, group_state=DEAD)
    return DescribedGroup(
        error_code=answer.code,
        error_message=answer.message,
        group_id=group_id,
        group_state=DEAD,
    )


def handle_delete_groups(broker: Broker, request: Request) -> Answer | Coroutine[Any, Any, Message]:
    def row(group_id: str, answer: KafkaError | None) -> DeletableGroupResult:
        return DeletableGroupResult(group_id, ErrorCode.NONE if answer is None else answer.code)

    return answer_each(
        request,
        list(dict.fromkeys(request.body.groups_names)),
        partial(_delete_group, broker),
        row,
        lambda rows: DeleteGroupsResponse(results=rows),
    )


def _delete_group(broker: Broker, group_id: str, reply: Reply) -> None:
    """Delete a group, and before it the states of its partitions if it is a share group."""

    def on_states(answer: KafkaError | None) -> None:
        if answer is not None:
            reply(answer)
        else:
            ask_shard(find, delete, on_deleted)

    def delete(reply: Reply) -> Operation:
        # A group of which something cannot be read is deleted with that, and is served again then.
        unreadable = find().set_aside.tombstones(group_id)
        return lambda machine, now_ms: delete_group(machine.state, group_id, reply, unreadable)

    def give_up(reply: Reply) -> Operation:
        return lambda machine, now_ms: give_up_deletion(machine.state, group_id, reply)

    def on_deleted(answer: bool | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            ask_shard(find, give_up, _ignore)
            reply(answer)
        elif answer:
            reply(None)
        else:  # it has more offsets than are deleted in one turn
            asyncio.get_running_loop().call_soon(ask_shard, find, delete, on_deleted)

    find = partial(broker.groups.shard, group_id, is_served=False)
    delete_group_states(broker, group_id, on_states)


def _ignore(_: object) -> None:
    """Nobody waits."""


async def handle_offset_delete(broker: Broker, request: Request) -> OffsetDeleteResponse:
    body: OffsetDeleteRequest = request.body
    if not body.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    existing = [(each.name, _existing_indexes(broker.image, each)) for each in body.topics]

    def delete(part: _Offsets, reply: Reply) -> None:
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


HANDLERS: Final[dict[ApiKey, Handler]] = {
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.OFFSET_DELETE: handle_offset_delete,
}
