"""Responses to members of a consumer group: the assignment and the heartbeat interval."""

from headrace import config
from headrace.groups.configs import group_config
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.members import ConsumerMember, EpochsByPartition
from headrace.groups.heartbeats import JOINING_EPOCH, NOT_GIVEN, soon_ms
from headrace.groups.state import GroupsState
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


def respond(
    state: GroupsState,
    draft: Draft,
    request: ConsumerGroupHeartbeatRequest,
    now_ms: int,
    *,
    before: ConsumerMember,
    after: ConsumerMember,
) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a heartbeat: with an assignment if it may be news to the member."""
    response = ConsumerGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.epoch,
        heartbeat_interval_ms=_heartbeat_interval_ms(state, draft, after, now_ms),
    )
    if _is_full(request) or not _is_same(after.assigned, before.assigned):
        response.assignment = _assignment(after.assigned)
    return response


def _heartbeat_interval_ms(
    state: GroupsState, draft: Draft, member: ConsumerMember, now_ms: int
) -> int:
    """Return when a member should send its next heartbeat.

    Sooner than others if it has nothing and a target is due that may have something for it: it
    would be idle for the rest of the interval.
    """
    group = draft.group
    interval_ms = group_config(state, group.group_id, "consumer.heartbeat.interval.ms")
    if member.assigned or member.revoking:
        return interval_ms
    is_matching = group.group_id in state.matching
    is_target_due = group.epoch > group.assignment_epoch or is_matching or draft.replies
    if not is_target_due or not state.settings[config.GROUP_FIRST_ASSIGNMENT_WAIT_MS]:
        return interval_ms
    spacing_ms = group_config(state, group.group_id, "consumer.assignment.interval.ms")
    due_ms = group.assignment_timestamp_ms + spacing_ms
    return min(interval_ms, soon_ms(len(group.members), due_ms - now_ms))


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
