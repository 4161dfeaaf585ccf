"""ShareGroupHeartbeat, by which members of share groups join, stay and leave (KIP-932).

A member sends its subscription and receives the partitions to read; others may receive the same.
Read `share.group` for the group itself, `share.target` for the target assignment, `share.states`
for what is initialized before members read, `share.holding` for delayed responses, `share.leave`
for how members leave, and `share.requests` for what is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from headrace.coordinator.machine import Outcome, Reply, effect, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.heartbeats import JOINING_EPOCH, LEAVING_EPOCH, Sender
from headrace.groups.share.deadlines import keep_session
from headrace.groups.share.group import ShareGroup, subscribed_topics
from headrace.groups.share.holding import hold, may_hold
from headrace.groups.share.leave import leave
from headrace.groups.share.members import ShareMember
from headrace.groups.share.reconciliation import advance
from headrace.groups.share.records import current_record, member_record
from headrace.groups.share.requests import (
    check_epoch,
    check_heartbeat,
    check_room,
    find_member,
    find_share_group,
)
from headrace.groups.share.responses import assignment_rows, respond
from headrace.groups.share.states import Beginning, begin_states
from headrace.groups.share.target import next_epoch, update_target
from headrace.groups.state import GroupId, GroupsState, MemberId
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse


def heartbeat(
    state: GroupsState,
    request: ShareGroupHeartbeatRequest,
    sender: Sender,
    now_ms: int,
    reply: Reply[ShareGroupHeartbeatResponse],
    *,
    begin: Reply[Sequence[Beginning]],
) -> Outcome:
    """Handle a heartbeat. The reply is a ShareGroupHeartbeatResponse, now or later.

    `begin` is told which states should begin, if any.
    """
    check_heartbeat(request)
    if request.member_epoch == LEAVING_EPOCH:
        return leave(state, request, reply)
    group = _find_or_begin(state, request)
    member = _admit(state, group, request)

    # From here on nothing is refused, and notes may be taken.
    group_id, records = group.group_id, list[CoordinatorRecord]()
    updated = _updated(member, request, sender)
    is_new = updated.member_id not in group.members
    if is_new or updated.described() != member.described():
        records.append(member_record(group_id, updated))
    members = group.members | {updated.member_id: updated}
    is_due = is_new or updated.topic_names != member.topic_names
    epoch, begun = next_epoch(state, group, members, is_due=is_due)
    target = update_target(state, group, epoch, members, now_ms)
    records += (*begun, *target.records)
    after = advance(updated, target, state.image)
    if after != updated:
        records.append(current_record(group_id, after))
    wanted = subscribed_topics(members)
    noted, to_begin = begin_states(state, group, epoch, wanted, now_ms)
    records += noted
    keep_session(state, group_id, after.member_id, now_ms)
    replies = ((effect(begin, to_begin),) if to_begin else ()) + target.replies
    if may_hold(state, group, after, target, is_begun=bool(to_begin)):
        held = partial(hold, state, group_id, after.member_id, reply, now_ms)
        return Outcome(tuple(records), replies, notes=(*target.notes, held))
    response = respond(state, group, after, epoch, now_ms)
    if _is_full(request) or after.assigned != member.assigned:
        response.assignment = assignment_rows(after.assigned)
    return Outcome(tuple(records), (told(reply, response), *replies), notes=target.notes)


# Joining


def _find_or_begin(state: GroupsState, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    """Return the group; a joining member creates it if the name is unused."""
    group_id = GroupId(request.group_id)
    is_free = group_id not in state.groups and group_id not in state.offsets
    if is_free and request.member_epoch == JOINING_EPOCH:
        return ShareGroup(group_id)
    return find_share_group(state, group_id)


def _admit(
    state: GroupsState, group: ShareGroup, request: ShareGroupHeartbeatRequest
) -> ShareMember:
    """Return the member of a heartbeat: an existing one or a new one.

    One that joins again under its id is taken back as it was: it may have missed an answer.
    """
    if request.member_epoch != JOINING_EPOCH:
        member = find_member(group, request.member_id)
        check_epoch(member, request.member_epoch)
        return member
    known = group.members.get(MemberId(request.member_id))
    if known is None:
        check_room(state, group)
        return ShareMember(MemberId(request.member_id))
    return known


def _updated(
    member: ShareMember, request: ShareGroupHeartbeatRequest, sender: Sender
) -> ShareMember:
    """Return the member updated from the request; absent fields keep their values."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=sender.client_id,
        client_host=sender.client_host,
        topic_names=member.topic_names if names is None else tuple(sorted(set(names))),
    )


def _is_full(request: ShareGroupHeartbeatRequest) -> bool:
    """Whether a member says everything: it may not know what it was told before."""
    return request.member_epoch == JOINING_EPOCH or request.subscribed_topic_names is not None
