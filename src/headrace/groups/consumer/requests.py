"""Validation of requests to a consumer group, before and after their member is known.

A heartbeat may lack required fields (KIP-848). Requests of unknown, stale and fenced members are
refused; static members (KIP-345) are known by their instance id.
"""

from typing import Final

from headrace import config
from headrace.config import AnySettings
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember, EpochsByPartition, Owned
from headrace.groups.heartbeats import JOINING_EPOCH, LEAVING_EPOCH, NOT_GIVEN, STATIC_LEAVING_EPOCH
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

FIRST_WITH_OWN_ID: Final = 1
"""The version from which members choose their own id (KIP-1082)."""


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, settings: AnySettings
) -> None:
    """KafkaError if no group could accept this heartbeat."""
    epoch = request.member_epoch
    if version >= FIRST_WITH_OWN_ID or epoch != JOINING_EPOCH:
        _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    _refuse_blank(request.instance_id, "InstanceId")
    _refuse_blank(request.rack_id, "RackId")
    if epoch == JOINING_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVING_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    known = known_assignors(settings)
    if request.server_assignor is not None and request.server_assignor not in known:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(known)}.",
        )


def known_assignors(settings: AnySettings) -> tuple[str, ...]:
    """Return the assignors that members may ask for, the default first."""
    return settings[config.GROUP_CONSUMER_ASSIGNORS]


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == NOT_GIVEN:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def _refuse_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# Who may speak for a member


def find_consumer_group(state: GroupsState, group_id: str) -> ConsumerGroup:
    group = state.groups.get(GroupId(group_id))
    if isinstance(group, ConsumerGroup):
        return group
    if group is not None or group_id in state.offsets:
        raise not_consumer(group_id)
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def not_consumer(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


def find_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(MemberId(member_id))
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def find_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the member with an instance id; KafkaError if unknown or if its id differs."""
    owner = group.static_members.get(instance_id)
    if owner is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by "
            f"member {owner}.",
        )
    return group.members[owner]


def find_replaced_member(
    group: ConsumerGroup, member_id: str, instance_id: str
) -> ConsumerMember | None:
    """Return the member that a client joining with an instance id replaces.

    KafkaError if it has not left: two processes have been given the same instance id. Members of
    the classic protocol do not say that they leave for a while, so that they are replaced at once.
    """
    owner = group.static_members.get(instance_id)
    if owner is None:
        return None
    former = group.members[owner]
    if former.epoch != STATIC_LEAVING_EPOCH and not former.is_classic:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {owner} member.",
        )
    return former


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """KafkaError if a heartbeat is not of the member's epoch.

    That of the epoch before is accepted from a member that has nothing which it should not have:
    the answer that would have brought it on was lost.
    """
    if epoch > member.epoch:
        raise _fenced("greater", epoch, member.epoch)
    if epoch < member.epoch and not (
        epoch == member.previous_epoch and owned is not None and _is_within(owned, member.assigned)
    ):
        raise _fenced("smaller", epoch, member.epoch)


def check_room(group: ConsumerGroup, member_id: str, settings: AnySettings) -> None:
    """KafkaError if a group has as many members as it may have and this would be another."""
    members_max = settings[config.GROUP_CONSUMER_MAX_SIZE]
    if len(group.members) >= members_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {members_max} members.",
        )


def _is_within(owned: Owned, assigned: EpochsByPartition) -> bool:
    return all(indexes <= assigned.get(topic, {}).keys() for topic, indexes in owned.items())


def _fenced(how: str, epoch: int, known: int) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {how} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )
