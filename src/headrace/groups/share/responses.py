"""Responses to members of a share group: the assignment and the heartbeat interval."""

from typing import Final

from headrace import config
from headrace.groups.assignors import Assignment
from headrace.groups.configs import group_config
from headrace.groups.heartbeats import soon_ms
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.members import ShareMember
from headrace.groups.share.states import beginning_topics
from headrace.groups.state import GroupsState
from headrace.wire.messages.share_group_heartbeat_response import Assignment as AssignmentRows
from headrace.wire.messages.share_group_heartbeat_response import (
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "share.assignment.interval.ms"


def respond(
    state: GroupsState, group: ShareGroup, member: ShareMember, epoch: int, now_ms: int
) -> ShareGroupHeartbeatResponse:
    """Return the response to a heartbeat, without an assignment. `epoch` is that of the group.

    A member that has nothing and is about to have something should ask again soon.
    """
    interval_ms = group_config(state, group.group_id, HEARTBEAT_INTERVAL)
    if not member.assigned and state.settings[config.GROUP_FIRST_ASSIGNMENT_WAIT_MS]:
        if epoch > member.epoch:
            spacing_ms = group_config(state, group.group_id, ASSIGNMENT_INTERVAL)
            due_ms = group.assignment_timestamp_ms + spacing_ms
            interval_ms = min(interval_ms, soon_ms(len(group.members), due_ms - now_ms))
        elif not beginning_topics(state, group).isdisjoint(member.topic_names):
            interval_ms = min(interval_ms, soon_ms(len(group.members), 0))
    return ShareGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=member.epoch, heartbeat_interval_ms=interval_ms
    )


def assignment_rows(assigned: Assignment) -> AssignmentRows:
    return AssignmentRows(
        [TopicPartitions(topic_id, sorted(assigned[topic_id])) for topic_id in sorted(assigned)]
    )
