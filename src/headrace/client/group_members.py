"""Group members and their assignments, in one form for all four types of groups."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.coordinators import CoordinatorType, ask_coordinator
from headrace.client.errors import UnsupportedApi, refusal
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.wire import WireError, decode
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
)
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import (
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_describe_response import Assignment as ShareAssignment
from headrace.wire.messages.share_group_describe_response import ShareGroupDescribeResponse
from headrace.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from headrace.wire.messages.streams_group_describe_response import Assignment as StreamsAssignment
from headrace.wire.messages.streams_group_describe_response import StreamsGroupDescribeResponse
from headrace.wire.schema import Buffer, Message

_CONSUMER_PROTOCOL: Final = "consumer"
_DEAD: Final = "Dead"
_CLASSIC_MEMBER: Final = 0


class GroupMember(msgspec.Struct, frozen=True):
    """One member. Classic groups know no epochs, and show assignments only when they are stable."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    rack: str | None = None
    subscription: tuple[str, ...] = ()
    """Names of topics, or a regular expression."""
    assignment: tuple[TopicPartition, ...] = ()
    """Partitions; tasks (subtopology and partition) in a streams group."""
    target: tuple[TopicPartition, ...] | None = None
    """What the member is to have in the end, where the broker decides that."""
    epoch: int | None = None
    is_classic: bool = False
    """Whether it speaks the classic protocol."""


class GroupDescription(msgspec.Struct, frozen=True):
    """A group and its members."""

    group_id: str
    group_type: str
    """classic, consumer, streams or share."""
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def check_empty(self) -> None:
        """Raise NON_EMPTY_GROUP with the members unless it is empty."""
        if self.members:
            names = (f"{row.member_id} ({row.client_id} at {row.host})" for row in self.members)
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {self.group_id!r} is in use by {', '.join(names)}; stop them first",
            )


async def describe_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Return its coordinator's description of a group; raise GROUP_ID_NOT_FOUND if there is none.

    Each type is requested in turn: for a group of another type the response is "not found".
    """
    missing = refusal(ErrorCode.GROUP_ID_NOT_FOUND, None, f"group {group_id!r}")
    asks: tuple[Callable[[Cluster, str], Awaitable[GroupDescription]], ...] = (
        _describe_consumer,
        _describe_classic,
        _describe_streams,
        describe_share_group,
    )
    for ask in asks:
        try:
            return await ask(cluster, group_id)
        except UnsupportedApi:
            continue
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
    raise missing


async def _describe_classic(cluster: Cluster, group_id: str) -> GroupDescription:
    request = DescribeGroupsRequest(groups=[group_id])
    row = await _ask_for_row(cluster, group_id, request, DescribeGroupsResponse)
    if row.group_state == _DEAD:  # how versions before 6 say that there is no such group
        raise refusal(ErrorCode.GROUP_ID_NOT_FOUND, None, f"group {group_id!r}")
    is_consumer = row.protocol_type == _CONSUMER_PROTOCOL
    return GroupDescription(
        row.group_id,
        "classic",
        row.group_state,
        row.protocol_type,
        row.protocol_data,
        tuple(_classic_member(member, is_consumer=is_consumer) for member in row.members),
    )


async def _describe_consumer(cluster: Cluster, group_id: str) -> GroupDescription:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    row = await _ask_for_row(cluster, group_id, request, ConsumerGroupDescribeResponse)
    members = (
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            member.rack_id,
            tuple(filter(None, [*member.subscribed_topic_names, member.subscribed_topic_regex])),
            _partitions(member.assignment),
            _partitions(member.target_assignment),
            member.member_epoch,
            member.member_type == _CLASSIC_MEMBER,
        )
        for member in row.members
    )
    return _described(row, _CONSUMER_PROTOCOL, row.assignor_name, members)


async def _describe_streams(cluster: Cluster, group_id: str) -> GroupDescription:
    request = StreamsGroupDescribeRequest(group_ids=[group_id])
    row = await _ask_for_row(cluster, group_id, request, StreamsGroupDescribeResponse)
    members = (
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            member.instance_id,
            member.rack_id,
            (),
            _tasks(member.assignment),
            _tasks(member.target_assignment),
            member.member_epoch,
            member.is_classic,
        )
        for member in row.members
    )
    return _described(row, "streams", "", members)


async def describe_share_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Return a share group; GROUP_ID_NOT_FOUND if there is none, or if it is of another type."""
    request = ShareGroupDescribeRequest(group_ids=[group_id])
    row = await _ask_for_row(cluster, group_id, request, ShareGroupDescribeResponse)
    members = (
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            None,
            member.rack_id,
            tuple(member.subscribed_topic_names),
            _partitions(member.assignment),
            None,
            member.member_epoch,
        )
        for member in row.members
    )
    return _described(row, "share", row.assignor_name, members)


async def _ask_for_row(
    cluster: Cluster, group_id: str, request: Message, response: type[Message]
) -> Any:
    """Return the response's row of the one requested group."""
    answer: Any = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        request,
        response,
        code_of=lambda answer: answer.groups[0].error_code,
    )
    row = answer.groups[0]
    if row.error_code:
        raise refusal(row.error_code, row.error_message, f"group {group_id!r}")
    return row


def _described(
    row: Any, kind: str, assignor: str, members: Iterable[GroupMember]
) -> GroupDescription:
    """Return a group of a protocol that the broker leads."""
    return GroupDescription(
        row.group_id,
        kind,
        row.group_state,
        kind,
        assignor,
        tuple(members),
        row.group_epoch,
        row.assignment_epoch,
    )


def _classic_member(member: DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    """Read what consumers tell each other through the broker; other protocols stay opaque."""
    topics: tuple[str, ...] = ()
    assignment: Iterable[TopicPartition] = ()
    if is_consumer:
        subscription = _consumer_message(ConsumerProtocolSubscription, member.member_metadata)
        if isinstance(subscription, ConsumerProtocolSubscription):
            topics = tuple(sorted(subscription.topics))
        assigned = _consumer_message(ConsumerProtocolAssignment, member.member_assignment)
        if isinstance(assigned, ConsumerProtocolAssignment):
            assignment = (
                TopicPartition(row.topic, index)
                for row in assigned.assigned_partitions
                for index in row.partitions
            )
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        subscription=topics,
        assignment=tuple(sorted(assignment)),
        is_classic=True,
    )


def _consumer_message(
    kind: type[ConsumerProtocolSubscription] | type[ConsumerProtocolAssignment], data: Buffer
) -> object:
    """Return the message after its two bytes of version, or None if it cannot be read."""
    raw = bytes(data)
    if len(raw) < 2:
        return None
    version = min(int.from_bytes(raw[:2], "big"), 3)
    try:
        return decode(kind, raw[2:], version)
    except WireError:
        return None


def _partitions(assignment: Assignment | ShareAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(row.topic_name, index)
            for row in assignment.topic_partitions
            for index in row.partitions
        )
    )


def _tasks(assignment: StreamsAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(row.subtopology_id, index)
            for row in assignment.active_tasks
            for index in row.partitions
        )
    )
