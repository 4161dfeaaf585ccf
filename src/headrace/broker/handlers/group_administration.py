"""ListGroups v0 to 5, DescribeGroups v0 to 6, DeleteGroups v0 to 2, OffsetDelete v0.

ListGroups: KIP-518 (filter by state, from 4), KIP-848 (filter by type, from 5); what this node
coordinates. DescribeGroups: classic groups; what is none is Dead, and from 6 on (KIP-1043)
GROUP_ID_NOT_FOUND with a message. DeleteGroups: KIP-229; a name twice is answered once.
OffsetDelete: KIP-496; topics that a member is subscribed to are GROUP_SUBSCRIBED_TO_TOPIC.
"""

from functools import partial
from typing import Any, Final

from headrace.broker.broker import Broker
from headrace.broker.handlers.gathering import Gathering, ask_all, ask_each
from headrace.broker.handlers.operations import GROUP_OPERATIONS
from headrace.broker.handlers.share_offsets import delete_group_states
from headrace.broker.request import LATER, Answer, Handler, Request
from headrace.coordinator.machine import Operation, Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.administration import (
    DEAD,
    GroupFilter,
    delete_group,
    delete_offsets,
    describe_group,
    list_groups,
)
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

FIRST_WITH_MISSING_GROUPS: Final = 6
"""The version of DescribeGroups that says that a group is not there."""


def handle_list_groups(broker: Broker, request: Request) -> Answer:
    body: ListGroupsRequest = request.body
    wanted = GroupFilter(
        frozenset(map(str.lower, body.states_filter)),
        frozenset(map(str.lower, body.types_filter)),
    )

    def on_rows(answers: list[Any]) -> None:
        # A shard that is not in service hides its groups; a client that is told so asks again.
        failed = [each for each in answers if isinstance(each, KafkaError)]
        if failed:
            request.answer(ListGroupsResponse(error_code=failed[0].code))
            return
        rows = [
            ListedGroup(row.group_id, row.protocol_type, row.state, row.kind)
            for answer in answers
            for row in answer
        ]
        request.answer(ListGroupsResponse(groups=rows))

    ask_all(
        broker.groups,
        lambda reply: lambda machine, now_ms: list_groups(machine.state, wanted, reply),
        on_rows,
    )
    return LATER


def handle_describe_groups(broker: Broker, request: Request) -> Answer:
    body: DescribeGroupsRequest = request.body

    def on_rows(answers: list[Any]) -> None:
        rows = [
            _described(answer, group_id, request.version)
            for group_id, answer in zip(body.groups, answers, strict=True)
        ]
        if body.include_authorized_operations:
            for row in rows:
                if row.error_code == ErrorCode.NONE:
                    row.authorized_operations = GROUP_OPERATIONS
        request.answer(DescribeGroupsResponse(groups=rows))

    def describe(group_id: str, reply: Reply) -> Operation:
        return lambda machine, now_ms: describe_group(machine.state, group_id, reply)

    ask_each(
        [(partial(broker.groups.shard, each), partial(describe, each)) for each in body.groups],
        on_rows,
    )
    return LATER


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


def handle_delete_groups(broker: Broker, request: Request) -> Answer:
    names = list(dict.fromkeys(request.body.groups_names))

    def on_deleted(answers: list[Any]) -> None:
        results = [
            DeletableGroupResult(name, answer.code if answer is not None else ErrorCode.NONE)
            for name, answer in zip(names, answers, strict=True)
        ]
        request.answer(DeleteGroupsResponse(results=results))

    gathering = Gathering(len(names), on_deleted)
    for position, group_id in enumerate(names):
        _delete_group(broker, group_id, partial(gathering.take, position))
    return LATER


def _delete_group(broker: Broker, group_id: str, reply: Reply) -> None:
    """Delete a group, and before it the states of its partitions if it is a share group."""

    def on_group(answers: list[Any]) -> None:
        reply(answers[0])

    def on_states(answer: KafkaError | None) -> None:
        if answer is not None:
            reply(answer)
        else:
            ask_each([(find, delete)], on_group)

    def delete(reply: Reply) -> Operation:
        # A group of which something cannot be read is deleted with that, and is served again then.
        unreadable = find().set_aside.tombstones(group_id)
        return lambda machine, now_ms: delete_group(machine.state, group_id, reply, unreadable)

    find = partial(broker.groups.shard, group_id, is_served=False)
    delete_group_states(broker, group_id, on_states)


def handle_offset_delete(broker: Broker, request: Request) -> Answer:
    body: OffsetDeleteRequest = request.body
    if not body.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    existing = [(each.name, _existing_indexes(broker.image, each)) for each in body.topics]

    def on_deleted(answers: list[Any]) -> None:
        (answer,) = answers
        if isinstance(answer, KafkaError):
            request.answer(OffsetDeleteResponse(error_code=answer.code))
            return
        topics = [
            _offset_delete_row(topic, set(indexes), is_subscribed=topic.name in answer)
            for topic, (_, indexes) in zip(body.topics, existing, strict=True)
            if topic.partitions
        ]
        request.answer(OffsetDeleteResponse(topics=topics))

    def delete(reply: Reply) -> Operation:
        return lambda machine, now_ms: delete_offsets(machine.state, body.group_id, existing, reply)

    ask_each([(partial(broker.groups.shard, body.group_id), delete)], on_deleted)
    return LATER


def _existing_indexes(image: Image, asked: OffsetDeleteRequestTopic) -> list[int]:
    topic = image.topic(TopicName(asked.name))
    count = 0 if topic is None else len(topic.partitions)
    return [x.partition_index for x in asked.partitions if 0 <= x.partition_index < count]


def _offset_delete_row(
    asked: OffsetDeleteRequestTopic, existing: set[int], *, is_subscribed: bool
) -> OffsetDeleteResponseTopic:
    """Give the row of a topic: partitions that there are not come first, as Kafka has it."""
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
