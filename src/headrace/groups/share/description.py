"""A share group as ShareGroupDescribe shows it."""

from typing import Final

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.members import ShareMember
from headrace.groups.share.requests import find_share_group
from headrace.groups.state import GroupsState
from headrace.metadata.image import Image
from headrace.wire.messages.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

ASSIGNOR: Final = "simple"
"""The name of the only assignor that there is."""


def describe_share_group(
    state: GroupsState, group_id: str, reply: Reply[DescribedGroup]
) -> Outcome:
    """Describe a group; the answer is ShareGroupDescribe's row. KafkaError if it is none."""
    group: ShareGroup = find_share_group(state, group_id)
    row = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(member, state.image) for member in group.members.values()],
    )
    return Outcome(replies=(told(reply, row),))


def _member(member: ShareMember, image: Image) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=Assignment(
            [
                TopicPartitions(topic_id, topic.name, sorted(member.assigned[topic_id]))
                for topic_id in sorted(member.assigned)
                if (topic := image.topic_by_id(topic_id)) is not None
            ]
        ),
    )
