"""StreamsGroupHeartbeat, by which members of streams groups join, work and leave (KIP-1071).

A member sends its topology when it joins and its current tasks from then on; it receives its
assigned tasks and any problem with the application's topics. Read `streams.group` for the group
itself, `streams.topology` for the topics it needs, `streams.target` for the target assignment,
`streams.reconciliation` for how members reach it and `streams.leave` for how they leave.
"""

from collections.abc import Mapping
from dataclasses import replace

from headrace.coordinator.machine import NOTHING, Outcome, Reply, Told, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.rebalance import dissolve
from headrace.groups.classic.records import group_tombstone
from headrace.groups.configs import group_config
from headrace.groups.heartbeats import JOINING_EPOCH, NOT_GIVEN, Sender
from headrace.groups.state import GroupId, GroupKind, GroupsState, MemberId, check_stays
from headrace.groups.streams.deadlines import keep_session, watch_revocation
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.leave import leave
from headrace.groups.streams.members import Endpoint, StreamsMember
from headrace.groups.streams.reconciliation import reconcile
from headrace.groups.streams.records import (
    current_record,
    group_record,
    member_record,
    topology_record,
)
from headrace.groups.streams.requests import (
    check_epoch,
    check_heartbeat,
    check_reported,
    check_room,
    find_member,
    find_streams_group,
)
from headrace.groups.streams.responses import HeartbeatAnswer, View, answer_heartbeat
from headrace.groups.streams.target import basis_of, initial_delay_key, update_target
from headrace.groups.streams.tasks import NOTHING_TO_RUN, Tasks, read_reported
from headrace.groups.streams.topology import check_topology, read_topology
from headrace.wire.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from headrace.wire.messages.streams_group_topology_value import StreamsGroupTopologyValue


def heartbeat(
    state: GroupsState,
    request: StreamsGroupHeartbeatRequest,
    sender: Sender,
    now_ms: int,
    reply: Reply[HeartbeatAnswer],
) -> Outcome:
    """Handle a heartbeat; the reply is a `HeartbeatAnswer`."""
    check_heartbeat(request)
    if request.member_epoch < JOINING_EPOCH:
        return leave(state, request, reply)
    group = _find_or_begin(state, request)
    reported = read_reported(request)
    topology, member = _admit(state, group, request, reported)
    updated = _updated(member, request, sender)
    basis = basis_of(state, group, topology)
    check_reported(group, reported)

    # From here on nothing is refused, and notes may be taken.
    records, replies = _take_over(state, group.group_id)
    is_changed = updated.described() != member.described() or member.epoch == JOINING_EPOCH
    if is_changed:
        records.append(member_record(group.group_id, updated))
    if group.topology is None:
        records.append(topology_record(group.group_id, topology))
    epoch = group.epoch
    former = (group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
    if is_changed or basis != former:
        epoch += 1
        records.append(group_record(group.group_id, epoch, *basis))
        _delay_first_target(state, group, now_ms)

    members = group.members | {updated.member_id: updated}
    target = update_target(state, group, epoch, members, now_ms)
    records += target.records
    wanted = target.tasks.get(updated.member_id, NOTHING_TO_RUN)
    after = reconcile(group, updated, wanted, target.epoch, reported)
    if after.progress() != updated.progress():
        records.append(current_record(group.group_id, after))
        watch_revocation(state, group.group_id, after, now_ms)
    keep_session(state, group.group_id, after.member_id, now_ms)
    if request.shutdown_application and group.shutdown_by is None:
        group.shutdown_by = after.member_id
    view = View(group, topology, members | {after.member_id: after}, target.delay, reported)
    answer = answer_heartbeat(view, request, member, after)
    answer.response.heartbeat_interval_ms = group_config(
        state, group.group_id, "streams.heartbeat.interval.ms"
    )
    replies = (*replies, told(reply, answer), *target.replies)
    return Outcome(tuple(records), replies, notes=target.notes)


def note_topic_creation(state: GroupsState, group_id: str, failures: Mapping[str, str]) -> Outcome:
    """Record which internal topics could not be created, and why, for the next heartbeat."""
    group = state.groups.get(GroupId(group_id))
    if isinstance(group, StreamsGroup):
        group.creation_failures = dict(failures)
    return NOTHING


# Joining


def _find_or_begin(state: GroupsState, request: StreamsGroupHeartbeatRequest) -> StreamsGroup:
    """Return the group; a joining member creates it or replaces an empty classic one."""
    group_id = GroupId(request.group_id)
    check_stays(state, group_id)
    group = state.groups.get(group_id)
    is_free = group is None or (group.kind is GroupKind.CLASSIC and group.is_empty)
    if is_free and request.member_epoch == JOINING_EPOCH:
        return StreamsGroup(group_id)
    return find_streams_group(state, group_id)


def _take_over(
    state: GroupsState, group_id: GroupId
) -> tuple[list[CoordinatorRecord], tuple[Told, ...]]:
    """End the classic group that there was, if any."""
    former = state.groups.get(group_id)
    if not isinstance(former, ClassicGroup):
        return [], ()
    return [group_tombstone(group_id)], dissolve(state, former)


def _admit(
    state: GroupsState,
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    reported: Tasks | None,
) -> tuple[StreamsGroupTopologyValue, StreamsMember]:
    """Return the group's topology and the member of a heartbeat, which may be new."""
    if request.topology is None:
        member = find_member(group, request.member_id)
        check_epoch(member, request.member_epoch, reported)
        assert group.topology is not None, "a group with members has a topology"
        return group.topology, member
    known = group.members.get(MemberId(request.member_id))
    if known is None:
        check_room(state, group)
    brought = read_topology(request.topology)
    if group.topology is not None and 0 <= brought.epoch < group.topology.epoch:
        pass  # it is told that its topology is stale
    elif group.topology is None:
        check_topology(brought)
    elif brought != group.topology:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"group {group.group_id!r} has another topology, of epoch {group.topology.epoch}, and "
            "cannot change it: delete the group, or use another application id",
        )
    return group.topology or brought, known or StreamsMember(MemberId(request.member_id))


def _updated(
    member: StreamsMember, request: StreamsGroupHeartbeatRequest, sender: Sender
) -> StreamsMember:
    """Return the member updated from the request; absent fields keep their values."""
    timeout_ms, endpoint, tags = (
        request.rebalance_timeout_ms,
        request.user_endpoint,
        request.client_tags,
    )
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=sender.client_id,
        client_host=sender.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms
        ),
        topology_epoch=request.topology.epoch if request.topology else member.topology_epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=member.endpoint if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=(
            member.client_tags
            if tags is None
            else tuple(sorted((each.key, each.value) for each in tags))
        ),
    )


def _delay_first_target(state: GroupsState, group: StreamsGroup, now_ms: int) -> None:
    """Make a new group wait for more members."""
    delay_ms = group_config(state, group.group_id, "streams.initial.rebalance.delay.ms")
    if group.is_empty and delay_ms:
        state.deadlines.set(initial_delay_key(group.group_id), now_ms + delay_ms)
