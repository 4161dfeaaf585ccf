"""Responses to members of classic groups."""

from typing import Final

from headrace.coordinator.machine import OnError, Told, told
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.members import ClassicMember
from headrace.groups.state import MemberId
from headrace.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from headrace.wire.messages.sync_group_response import SyncGroupResponse

NO_MEMBER_ID: Final = MemberId("")


def joined(
    group: ClassicGroup, member_id: MemberId, *, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return a member's response for the generation; the leader's has all metadata too."""
    name, rows = group.protocol_name, []
    if member_id == group.leader:
        rows = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(name),
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=name,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=rows,
    )


def join_refused(code: ErrorCode, member_id: str = NO_MEMBER_ID) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, member_id=member_id)


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def rebalancing(group: ClassicGroup) -> KafkaError:
    return KafkaError(
        ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} is rebalancing: rejoin it"
    )


def to_join_again(group: ClassicGroup) -> tuple[Told, ...]:
    """Fail all pending joins and syncs with REBALANCE_IN_PROGRESS."""
    replies: list[OnError] = [*group.join_replies.values(), *group.sync_replies.values()]
    return tuple(told(each, rebalancing(group)) for each in replies)


def superseded(group: ClassicGroup, member: ClassicMember) -> KafkaError:
    return KafkaError(
        ErrorCode.REBALANCE_IN_PROGRESS,
        f"member {member.member_id!r} of group {group.group_id!r} sent another request",
    )
