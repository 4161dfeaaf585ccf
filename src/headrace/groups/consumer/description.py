"""A consumer group as ConsumerGroupDescribe shows it."""

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.consumer.requests import find_consumer_group, known_assignors
from headrace.groups.state import GroupsState
from headrace.ids import TopicId
from headrace.metadata.image import Image
from headrace.wire.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def describe_consumer_group(
    state: GroupsState, group_id: str, reply: Reply[DescribedGroup]
) -> Outcome:
    """Describe a group; the answer is ConsumerGroupDescribe's row. KafkaError if it is none."""
    group = find_consumer_group(state, group_id)
    row = DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(known_assignors(state.settings)),
        members=[_member(group, member, state.image) for member in group.members.values()],
    )
    return Outcome(replies=(told(reply, row),))


def _member(group: ConsumerGroup, member: ConsumerMember, image: Image) -> Member:
    # What it still may be reading is shown as assigned, as in Kafka.
    held: dict[TopicId, set[int]] = {}
    for topic_id, index in member.held():
        held.setdefault(topic_id, set()).add(index)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_pattern,
        assignment=_assignment(held, image),
        target_assignment=_assignment(group.target_of(member.member_id), image),
        member_type=CONSUMER_MEMBER if member.classic_metadata is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[TopicId, Iterable[int]], image: Image) -> Assignment:
    """Return partitions by topic, of existing topics only."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=topic.name,
                partitions=sorted(partitions[topic_id]),
            )
            for topic_id in sorted(partitions)
            if (topic := image.topic_by_id(topic_id)) is not None
        ]
    )
