"""Requests of group members, in few words, and the wait for a group's coordinator."""

from typing import Final

from headrace.errors import ErrorCode
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import DescribeGroupsResponse
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import FindCoordinatorResponse
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from headrace.wire.messages.sync_group_response import SyncGroupResponse
from tests.differential.conversation import Conversation
from tests.differential.requests import Topic

GROUP: Final = 0
SESSION_TIMEOUT_MS: Final = 30_000


def subscription(*topics: str) -> bytes:
    """What a consumer tells of itself: version 0, its topics, no user data."""
    names = [topic.encode() for topic in topics]
    rows = b"".join(len(name).to_bytes(2) + name for name in names)
    return b"\x00\x00" + len(names).to_bytes(4) + rows + b"\xff" * 4


SUBSCRIPTION: Final = subscription()
RANGE: Final = ("range", SUBSCRIPTION)

_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


def group_coordinator(talk: Conversation) -> None:
    """Wait until groups are served: the first who asks has their topic created."""
    talk.until(
        FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[talk.name("any")]),
        FindCoordinatorResponse,
        lambda m: m.coordinators[0].error_code == 0,
    )
    talk.until(
        DescribeGroupsRequest(groups=[talk.name("any")]),
        DescribeGroupsResponse,
        lambda m: m.groups[0].error_code not in _NOT_READY,
    )


def join(
    group: str,
    member_id: str = "",
    *protocols: tuple[str, bytes],
    instance: str | None = None,
    protocol_type: str = "consumer",
    session_ms: int = SESSION_TIMEOUT_MS,
    rebalance_ms: int = SESSION_TIMEOUT_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in protocols or (RANGE,)
        ],
    )


def sync(
    group: str,
    generation: int,
    member_id: str,
    *assignments: tuple[str, bytes],
    instance: str | None = None,
    protocol_type: str | None = None,
    protocol: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=assignment)
            for member, assignment in assignments
        ],
    )


def heartbeat(
    group: str, generation: int, member_id: str, instance: str | None = None
) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
    )


def leave(group: str, *members: MemberIdentity, version: int = 5) -> LeaveGroupRequest:
    """One member leaves by its id before version 3, any number of them from there on."""
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=members[0].member_id)
    return LeaveGroupRequest(group_id=group, members=list(members))


def commit(
    group: str,
    topic: Topic,
    *rows: tuple[int, int] | tuple[int, int, str | None],
    member: tuple[str, int] = ("", -1),
    instance: str | None = None,
    leader_epoch: int = -1,
) -> OffsetCommitRequest:
    """Commit rows of partition, offset and metadata; a member is its id and its epoch."""
    return OffsetCommitRequest(
        group_id=group,
        member_id=member[0],
        generation_id_or_member_epoch=member[1],
        group_instance_id=instance,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=row[0],
                        committed_offset=row[1],
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=row[2] if len(row) > 2 else "",
                    )
                    for row in rows
                ],
            )
        ],
    )


def joined(
    talk: Conversation,
    group: str,
    *protocols: tuple[str, bytes],
    instance: str | None = None,
    protocol_type: str = "consumer",
) -> JoinGroupResponse:
    """Make somebody the one member of a group that waits for no assignment."""
    request = join(group, "", *protocols, instance=instance, protocol_type=protocol_type)
    answer = talk.quietly(request, JoinGroupResponse, 9)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = talk.quietly(request, JoinGroupResponse, 9)
    assert answer.error_code == 0, answer
    talk.plain(answer)  # numbers its id, whatever the next answers say
    return answer


def stable(
    talk: Conversation,
    group: str,
    *protocols: tuple[str, bytes],
    instance: str | None = None,
    protocol_type: str = "consumer",
) -> JoinGroupResponse:
    """Make somebody the one member of a group with an assignment; give how it joined."""
    answer = joined(talk, group, *protocols, instance=instance, protocol_type=protocol_type)
    member = answer.member_id
    synced = talk.quietly(
        sync(group, answer.generation_id, member, (member, b"all"), instance=instance),
        SyncGroupResponse,
        4,
    )
    assert synced.error_code == 0, synced
    return answer
