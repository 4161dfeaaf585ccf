"""ConsumerGroupHeartbeat, by which members of consumer groups do everything (KIP-848).

A member joins, sends its subscription and its owned partitions, receives its assignment and leaves.
Read `consumer.group` for the group itself, `consumer.target` for the target assignment,
`consumer.reconciliation` for how members reach it, `consumer.regex_subscriptions` for subscriptions
by pattern, `consumer.requests` for what is refused, `consumer.leave` for how members leave,
`consumer.classic_members` for members of the classic protocol, and `migration` for how groups with
such members are converted.
"""

from dataclasses import replace

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.responses import to_join_again
from headrace.groups.consumer.deadlines import end_classic_waits, keep_session
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.leave import leave
from headrace.groups.consumer.members import ConsumerMember, Owned
from headrace.groups.consumer.membership import advance, subscribe, take_place
from headrace.groups.consumer.requests import (
    check_epoch,
    check_heartbeat,
    check_room,
    find_member,
    find_replaced_member,
    find_static_member,
    not_consumer,
)
from headrace.groups.consumer.responses import respond
from headrace.groups.heartbeats import JOINING_EPOCH, NOT_GIVEN, Sender
from headrace.groups.migration import upgrade
from headrace.groups.state import GroupId, GroupKind, GroupsState, MemberId, check_stays
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.wire.messages.group_metadata_key import GroupMetadataKey


def heartbeat(
    state: GroupsState,
    request: ConsumerGroupHeartbeatRequest,
    sender: Sender,
    now_ms: int,
    reply: Reply[ConsumerGroupHeartbeatResponse],
) -> Outcome:
    """Handle a heartbeat; the reply is a ConsumerGroupHeartbeatResponse."""
    check_heartbeat(request, sender.version, state.settings)
    if request.member_epoch < JOINING_EPOCH:
        return leave(state, request, now_ms, reply)
    former = state.groups.get(GroupId(request.group_id))
    draft, owned = _draft(state, request, now_ms), _owned(request)
    member = _admit(state, draft, request, owned)
    before = draft.group.members.get(member.member_id)
    updated = _updated(member, request, sender)
    is_new = subscribe(state, draft, before, updated, now_ms)
    after = advance(state, draft, member.member_id, owned, now_ms, is_subscription_new=is_new)

    group = draft.group
    if before is not None and before.is_classic:
        end_classic_waits(state, group.group_id, member.member_id)
    if former is None or isinstance(former, ConsumerGroup):
        keep_session(state, group.group_id, after, now_ms)
    else:
        for each in group.members.values():
            keep_session(state, group.group_id, each, now_ms)
    response = respond(state, draft, request, now_ms, before=member, after=after)
    waiting = to_join_again(former) if isinstance(former, ClassicGroup) else ()
    replies = (told(reply, response), *waiting, *draft.replies)
    return Outcome(tuple(draft.records), replies, notes=draft.notes)


# Joining


def _draft(state: GroupsState, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Draft:
    """Return the group; a joining member creates it or converts a classic one."""
    group_id, is_joining = GroupId(request.group_id), request.member_epoch == JOINING_EPOCH
    check_stays(state, group_id)
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return Draft(group)
    is_classic = group.kind is GroupKind.CLASSIC if group else group_id in state.offsets
    if group is not None or is_classic:
        if not is_joining or not is_classic:
            raise not_consumer(group_id)
        if isinstance(group, ClassicGroup) and not group.is_empty:
            return upgrade(state, group, now_ms)
    elif not is_joining:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    draft = Draft(ConsumerGroup(group_id))
    if is_classic:
        draft.write_last(CoordinatorRecord(GroupMetadataKey(group=group_id), None))
    return draft


def _admit(
    state: GroupsState,
    draft: Draft,
    request: ConsumerGroupHeartbeatRequest,
    owned: Owned | None,
) -> ConsumerMember:
    """Return the member of a heartbeat: an existing one or a new one."""
    group, member_id, instance_id = draft.group, request.member_id, request.instance_id
    if request.member_epoch != JOINING_EPOCH:
        member = (
            find_member(group, member_id)
            if instance_id is None
            else find_static_member(group, member_id, instance_id)
        )
        check_epoch(member, request.member_epoch, owned)
        return member
    check_room(group, member_id, state.settings)
    new = ConsumerMember(MemberId(member_id or state.new_id()))
    if instance_id is None:
        return group.members.get(new.member_id, new)
    former = find_replaced_member(group, new.member_id, instance_id)
    return new if former is None else take_place(state, draft, former, new.member_id)


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, sender: Sender
) -> ConsumerMember:
    """Return the member updated from the request; absent fields keep their values."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    pattern = request.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms
        ),
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
        topic_pattern=member.topic_pattern if pattern is None else pattern,
        client_id=sender.client_id,
        client_host=sender.client_host,
        classic_metadata=None,
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    return {TopicId(each.topic_id): frozenset(each.partitions) for each in request.topic_partitions}
