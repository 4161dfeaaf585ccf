"""Consumer groups: the heartbeat that does everything (KIP-848), and what happens without one.

A member joins, says what it wants and what it reads, learns what it should read and leaves, all by
ConsumerGroupHeartbeat. Read `consumer_group` for what a group is, `consumer_targets` for what it
aims at, `consumer_reconciliation` for how members get there, `consumer_members` for who is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from headrace.coordinator.machine import NOTHING, Outcome, Reply
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer_departures import (
    REBALANCE,
    SESSION,
    forget_deadlines,
    leave,
    on_rebalance_end,
    on_session_end,
    watch_revocation,
)
from headrace.groups.consumer_draft import Draft
from headrace.groups.consumer_group import (
    JOINING_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    EpochsByPartition,
)
from headrace.groups.consumer_members import (
    Owned,
    check_epoch,
    check_room,
    find_member,
    find_replaced_member,
    find_static_member,
    not_consumer,
)
from headrace.groups.consumer_reconciliation import Progress, reconcile
from headrace.groups.consumer_records import (
    RECORD_KEYS,
    current_record,
    member_record,
    member_tombstones,
    pattern_tombstone,
    replay_record,
    target_record,
)
from headrace.groups.consumer_requests import NOT_GIVEN, check_heartbeat
from headrace.groups.consumer_targets import (
    bump_epoch,
    group_interval_ms,
    match_patterns,
    update_target,
    wanted_topics,
)
from headrace.groups.state import DeadlineKey, GroupId, GroupKind, GroupsState, MemberId
from headrace.groups.subscriptions import check_pattern
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.schema import Message


class Sender(NamedTuple):
    """Where a request comes from."""

    version: int
    client_id: str
    client_host: str


def heartbeat(
    state: GroupsState,
    request: ConsumerGroupHeartbeatRequest,
    sender: Sender,
    now_ms: int,
    reply: Reply,
) -> Outcome:
    """Take a heartbeat; the answer is a ConsumerGroupHeartbeatResponse."""
    check_heartbeat(request, sender.version, state.settings)
    if request.member_epoch < JOINING_EPOCH:
        return leave(state, request, reply)
    draft, owned = _draft(state, request), _owned(request)
    member = _admit(state, draft, request, owned)
    before = draft.group.members.get(member.member_id)
    updated = _updated(member, request, sender)
    is_new = _subscribe(state, draft, before, updated, now_ms)
    update_target(state, draft, now_ms)

    group = draft.group
    after = current = group.members[updated.member_id]
    if is_new or not current.is_reconciled_to(group.assignment_epoch):
        wanted = wanted_topics(group, current, state.image)
        after = reconcile(group, current, Progress(wanted, owned, is_new))
    if after != current:
        draft.write_last(current_record(group.group_id, after))
        watch_revocation(state, group.group_id, after, now_ms)
    session_ms = group_interval_ms(state, group.group_id, "consumer.session.timeout.ms")
    state.deadlines.set((SESSION, group.group_id, after.member_id), now_ms + session_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=group_interval_ms(
            state, group.group_id, "consumer.heartbeat.interval.ms"
        ),
    )
    if _is_full(request) or not _is_same(after.assigned, member.assigned):
        response.assignment = _assignment(after.assigned)
    return Outcome(tuple(draft.records), ((reply, response),))


# Joining


def _draft(state: GroupsState, request: ConsumerGroupHeartbeatRequest) -> Draft:
    """Give the group to work on; one who joins begins it, or takes over an empty classic one."""
    group_id, is_joining = GroupId(request.group_id), request.member_epoch == JOINING_EPOCH
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return Draft(group)
    is_classic = group.kind is GroupKind.CLASSIC if group else group_id in state.offsets
    if group is not None or is_classic:
        if not is_joining or not is_classic or not (group is None or group.is_empty):
            raise not_consumer(group_id)
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
    """Give the member that a heartbeat speaks for: one there was, or a new one."""
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
    return new if former is None else _replace(state, draft, former, new.member_id)


def _replace(
    state: GroupsState, draft: Draft, former: ConsumerMember, member_id: MemberId
) -> ConsumerMember:
    """Let a static member that came back have what it had, under the id that it has now."""
    group_id, target = draft.group.group_id, draft.group.target_of(former.member_id)
    successor = replace(
        former, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
    )
    draft.write(
        *member_tombstones(group_id, former.member_id),
        member_record(group_id, successor),
        target_record(group_id, member_id, target),
        current_record(group_id, successor),
    )
    forget_deadlines(state, group_id, former.member_id)
    return successor


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, sender: Sender
) -> ConsumerMember:
    """Give the member with what the request says of it; what it does not say stays."""
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


def _subscribe(
    state: GroupsState,
    draft: Draft,
    before: ConsumerMember | None,
    updated: ConsumerMember,
    now_ms: int,
) -> bool:
    """Write what the member wants, and the group epoch that follows.

    Gives whether it wants other topics than before, as far as it is known what it wants.
    """
    group_id = draft.group.group_id
    had_topics = frozenset(draft.group.topics_of(before)) if before else frozenset()
    had_pattern = before.topic_pattern if before else ""
    had_names = before.topic_names if before else ()
    if before is None or before.described() != updated.described():
        if updated.topic_pattern and updated.topic_pattern != had_pattern:
            check_pattern(updated.topic_pattern)
        draft.write(member_record(group_id, updated))
        if had_pattern and had_pattern not in draft.group.subscribed_patterns:
            draft.write(pattern_tombstone(group_id, had_pattern))
    has_matched = match_patterns(state, draft, now_ms)
    group = draft.group
    is_changed = had_topics != frozenset(group.topics_of(updated))
    bump_epoch(state, draft, is_due=is_changed or has_matched or had_names != updated.topic_names)
    is_unresolved = bool(updated.topic_pattern) and updated.topic_pattern not in group.patterns
    return is_changed and not is_unresolved


# Time


def on_loaded(state: GroupsState, now_ms: int) -> Outcome:
    """Give every member a session from now on: nobody knows when it was last heard of."""
    for group in state.groups.values():
        if not isinstance(group, ConsumerGroup):
            continue
        session_ms = group_interval_ms(state, group.group_id, "consumer.session.timeout.ms")
        for member in group.members.values():
            state.deadlines.set((SESSION, group.group_id, member.member_id), now_ms + session_ms)
            watch_revocation(state, group.group_id, member, now_ms)
    return NOTHING


def waiting(state: GroupsState) -> Iterable[Reply]:
    """Give nobody: heartbeats are answered at once."""
    return ()


# Requests and answers


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    return {TopicId(each.topic_id): frozenset(each.partitions) for each in request.topic_partitions}


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a member says everything: it may not know what it was told before."""
    if request.member_epoch == JOINING_EPOCH:
        return True
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    return (
        request.rebalance_timeout_ms != NOT_GIVEN
        and (names is not None or pattern is not None)
        and request.topic_partitions is not None
    )


def _is_same(one: EpochsByPartition, other: EpochsByPartition) -> bool:
    return one.keys() == other.keys() and all(
        one[topic].keys() == other[topic].keys() for topic in one
    )


def _assignment(assigned: EpochsByPartition) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )


REPLAY: Final[Mapping[type[Message], Callable[[GroupsState, CoordinatorRecord], None]]] = (
    dict.fromkeys(RECORD_KEYS, replay_record)
)
ON_DEADLINE: Final[Mapping[str, Callable[[GroupsState, DeadlineKey, int], Outcome]]] = {
    SESSION: on_session_end,
    REBALANCE: on_rebalance_end,
}
