"""Admin requests for groups: lists, members, committed offsets.

A group has one of four types, each with its own describe request; here they have one form, in which
fields that a type lacks are empty.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from headrace.client.cluster import ANY_NODE, Cluster
from headrace.client.coordinators import CoordinatorType, ask_coordinator
from headrace.client.errors import raise_for, refusal
from headrace.client.leaders import by_topic
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.wire import ApiKey
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_groups_response import DeleteGroupsResponse
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListGroupsResponse
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_commit_response import OffsetCommitResponse
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_delete_response import OffsetDeleteResponse
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.offset_fetch_response import OffsetFetchResponse

TOPIC_NAMES_UP_TO = 9
"""The last version of offset requests that names topics; later ones have their ids."""
_MANY_GROUPS_FROM = 8


class ListedGroup(msgspec.Struct, frozen=True):
    """A group in a list. Type and state are empty where the broker is too old to say."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    coordinator: int


class CommittedOffset(msgspec.Struct, frozen=True):
    """A group's committed offset of a partition, with its metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupMetadata(msgspec.Struct, frozen=True):
    """A consumer as its group knows it: what the group's coordinator checks a commit against.

    For a KIP-848 member `generation` is its member epoch. The defaults are those of a commit from
    outside the group, which the coordinator takes only while the group has no members.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


async def list_groups(
    cluster: Cluster, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[ListedGroup]:
    """Return the groups of all nodes, sorted by name; of some states or types if any are named."""
    await cluster.refresh()
    body = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    node_ids = sorted(cluster.view.nodes)
    answers = await asyncio.gather(
        *(
            cluster.ask(
                body,
                ListGroupsResponse,
                node_id=node_id,
                code_of=lambda answer: answer.error_code,
            )
            for node_id in node_ids
        )
    )
    found = []
    for node_id, answer in zip(node_ids, answers, strict=True):
        raise_for(answer.error_code, None, f"the groups of node {node_id}")
        found += [
            ListedGroup(
                row.group_id,
                row.group_type.lower(),
                row.protocol_type,
                row.group_state,
                node_id,
            )
            for row in answer.groups
        ]
    return sorted(found, key=lambda group: group.group_id)


async def fetch_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, CommittedOffset]:
    """Return a group's committed offsets, sorted; of some partitions if named.

    With `require_stable`, wait for offsets of the named partitions that a transaction is about to
    commit, up to the API timeout; then raise UNSTABLE_OFFSET_COMMIT. Without names, Kafka's brokers
    omit partitions that had no earlier commit.
    """
    names = None if partitions is None else by_topic(partitions)
    connection = await cluster.connection(ANY_NODE)
    is_old = connection.version_of(ApiKey.OFFSET_FETCH) < _MANY_GROUPS_FROM
    if is_old:
        body = OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if names is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in names.items()
            ],
        )
    else:
        row = OffsetFetchRequestGroup(
            group_id=group_id,
            topics=None
            if names is None
            else [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in names.items()
            ],
        )
        body = OffsetFetchRequest(groups=[row])
    body.require_stable = require_stable

    def code_of(answer: OffsetFetchResponse) -> int:
        whole = answer if is_old else answer.groups[0]
        rows = (row.error_code for topic in whole.topics for row in topic.partitions)
        unstable = require_stable and ErrorCode.UNSTABLE_OFFSET_COMMIT in rows
        return ErrorCode.UNSTABLE_OFFSET_COMMIT if unstable else whole.error_code

    answer = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        body,
        OffsetFetchResponse,
        code_of=code_of,
        version_max=TOPIC_NAMES_UP_TO,
    )
    raise_for(code_of(answer), None, f"the offsets of group {group_id!r}")
    found = {
        TopicPartition(topic.name, row.partition_index): CommittedOffset(
            row.committed_offset, row.committed_leader_epoch, row.metadata or ""
        )
        for topic in (answer.topics if is_old else answer.groups[0].topics)
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE and row.committed_offset >= 0
    }
    return dict(sorted(found.items()))


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
) -> Outcomes[TopicPartition, None]:
    """Commit offsets for a group without members; return an outcome for each partition."""
    rows = {
        TopicPartition(*partition): CommittedOffset(each) if isinstance(each, int) else each
        for partition, each in offsets.items()
    }
    body = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    _offset_row(index, rows[TopicPartition(topic, index)]) for index in indexes
                ],
            )
            for topic, indexes in by_topic(rows).items()
        ],
    )
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        body,
        OffsetCommitResponse,
        code_of=lambda answer: _first_retriable(
            row.error_code for topic in answer.topics for row in topic.partitions
        ),
        version_max=TOPIC_NAMES_UP_TO,
    )
    return {
        TopicPartition(topic.name, row.partition_index): refusal(
            row.error_code, None, f"{group_id!r} at {topic.name}-{row.partition_index}"
        )
        if row.error_code
        else None
        for topic in answer.topics
        for row in topic.partitions
    }


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> Outcomes[TopicPartition, None]:
    """Forget what a group has committed for partitions; an outcome for each.

    GROUP_SUBSCRIBED_TO_TOPIC for one that a member subscribes to.
    """
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        ),
        OffsetDeleteResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, None, f"the offsets of group {group_id!r}")
    return {
        TopicPartition(topic.name, row.partition_index): refusal(
            row.error_code, None, f"{group_id!r} at {topic.name}-{row.partition_index}"
        )
        if row.error_code
        else None
        for topic in answer.topics
        for row in topic.partitions
    }


async def remove_members(
    cluster: Cluster,
    group_id: str,
    member_ids: Iterable[str] = (),
    instance_ids: Iterable[str] = (),
    *,
    reason: str | None = None,
) -> Outcomes[str, None]:
    """Remove members from a group, by member id or by instance id; an outcome for each id."""
    members = [
        *(MemberIdentity(member_id=each, reason=reason) for each in member_ids),
        *(MemberIdentity(group_instance_id=each, reason=reason) for each in instance_ids),
    ]
    if not members:
        return {}
    answer = await ask_coordinator(
        cluster,
        CoordinatorType.GROUP,
        group_id,
        LeaveGroupRequest(group_id=group_id, members=members),
        LeaveGroupResponse,
        code_of=lambda answer: answer.error_code,
    )
    raise_for(answer.error_code, None, f"group {group_id!r}")
    outcomes: Outcomes[str, None] = {}
    for asked, row in zip(members, answer.members, strict=True):
        name = asked.group_instance_id or asked.member_id
        about = f"member {name!r} of group {group_id!r}"
        outcomes[name] = refusal(row.error_code, None, about) if row.error_code else None
    return outcomes


async def delete_groups(cluster: Cluster, group_ids: Sequence[str]) -> Outcomes[str, None]:
    """Delete groups with their offsets; one that has members is refused."""
    outcomes: Outcomes[str, None] = {}
    for group_id in group_ids:
        try:
            answer = await ask_coordinator(
                cluster,
                CoordinatorType.GROUP,
                group_id,
                DeleteGroupsRequest(groups_names=[group_id]),
                DeleteGroupsResponse,
                code_of=lambda answer: answer.results[0].error_code,
            )
            code = answer.results[0].error_code
            outcomes[group_id] = refusal(code, None, f"group {group_id!r}") if code else None
        except KafkaError as error:
            outcomes[group_id] = error
    return outcomes


def _offset_row(index: int, committed: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        committed_metadata=committed.metadata,
    )


def _first_retriable(codes: Iterable[int]) -> int:
    """Return a code after which the whole request is worth sending again."""
    return next(
        (code for code in codes if code and refusal(code, None, "").is_retriable), ErrorCode.NONE
    )
