"""Validation of heartbeats of share groups, before and after their member is known."""

from headrace import config
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.heartbeats import JOINING_EPOCH, LEAVING_EPOCH
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.members import ShareMember
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest


def check_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """INVALID_REQUEST if no group could accept this heartbeat."""
    if not request.member_id.strip():
        raise _invalid("the member id is empty")
    if not request.group_id.strip():
        raise _invalid("the group id is empty")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("the rack id is empty; null stands for none")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise _invalid("who joins has to say which topics it wants")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid(f"member epoch {request.member_epoch}: must be at least {LEAVING_EPOCH}")


def find_share_group(state: GroupsState, group_id: str) -> ShareGroup:
    """Return a share group; GROUP_ID_NOT_FOUND if there is none of that name."""
    group = state.groups.get(GroupId(group_id))
    if isinstance(group, ShareGroup):
        return group
    is_other = group is not None or group_id in state.offsets
    raise KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group_id} is not a share group." if is_other else f"Group {group_id} not found.",
    )


def find_member(group: ShareGroup, member_id: str) -> ShareMember:
    """Return a member; UNKNOWN_MEMBER_ID if it does not exist."""
    member = group.members.get(MemberId(member_id))
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def check_epoch(member: ShareMember, epoch: int) -> None:
    """FENCED_MEMBER_EPOCH if a member is not where the group thinks it is.

    It may be one epoch behind: an answer gets lost now and then.
    """
    if epoch in (member.epoch, member.previous_epoch) and epoch <= member.epoch:
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id!r} has epoch {member.epoch}, not {epoch}: it has to give up all "
        "its partitions and join again",
    )


def check_room(state: GroupsState, group: ShareGroup) -> None:
    """GROUP_MAX_SIZE_REACHED if a group takes no more members."""
    most = state.settings[config.GROUP_SHARE_MAX_SIZE]
    if len(group.members) >= most:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.group_id!r} has {most} members, the most that group.share.max.size "
            "allows",
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
