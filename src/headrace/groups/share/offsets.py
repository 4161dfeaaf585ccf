"""Operations of tools on the offsets of a share group: describe, alter, delete.

The offsets themselves are in the states of share partitions; this module decides which states these
are, and whether they may be changed. A group with members refuses changes. Each change is two
operations: one that returns what to do with the states, and records it, and one that records that
it is done.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.share.group import ShareGroup, StateTopic
from headrace.groups.share.records import states_record
from headrace.groups.share.requests import find_share_group
from headrace.groups.share.states import (
    Beginning,
    all_topics,
    with_begun,
    with_deleting,
    without_topics,
)
from headrace.groups.state import GroupId, GroupsState
from headrace.ids import PartitionIndex, SharePartitionKey, TopicId, TopicName

NewOffsets = Mapping[str, Mapping[int, int]]
"""Where each partition of each topic is to begin."""


class KnownTopic(NamedTuple):
    """A topic that a group has states of."""

    name: str
    topic_id: TopicId
    partitions: tuple[int, ...]

    def keys(self, group_id: str) -> list[SharePartitionKey]:
        return [
            SharePartitionKey(group_id, self.topic_id, PartitionIndex(index))
            for index in self.partitions
        ]


# Looking


def known_offsets(state: GroupsState, group_id: str, reply: Reply[list[KnownTopic]]) -> Outcome:
    """Find what a group has offsets of; the answer is a list of `KnownTopic`.

    It is empty for what is no share group, as in Kafka: nothing is known of it.
    """
    group = state.groups.get(GroupId(group_id))
    topics = group.states.initialized if isinstance(group, ShareGroup) else {}
    found = [
        KnownTopic(topic.name, topic_id, tuple(sorted(topic.partitions)))
        for topic_id, topic in sorted(topics.items())
    ]
    return Outcome(replies=(told(reply, found),))


# Setting


def begin_alteration(
    state: GroupsState, group_id: str, offsets: NewOffsets, reply: Reply[list[Beginning]]
) -> Outcome:
    """Begin to set offsets; the answer is a list of `Beginning`, for what exists.

    A group that is not there begins with it. `states.note_begun` is what follows. KafkaError if
    the group is another kind's, or has members.
    """
    is_taken = group_id in state.groups or group_id in state.offsets
    group = find_share_group(state, group_id) if is_taken else ShareGroup(GroupId(group_id))
    _refuse_members(group)
    begun: dict[TopicId, StateTopic] = {}
    found: list[Beginning] = []
    for name, starts in offsets.items():
        topic = state.image.topic(TopicName(name))
        if topic is None:
            continue
        existing = {index for index in starts if 0 <= index < len(topic.partitions)}
        if existing:
            begun[topic.topic_id] = StateTopic(name, frozenset(existing))
        found += [
            Beginning(
                SharePartitionKey(group.group_id, topic.topic_id, PartitionIndex(index)),
                group.epoch,
                starts[index],
            )
            for index in sorted(existing)
        ]
    records = (states_record(group_id, with_begun(group.states, begun)),) if found else ()
    return Outcome(records, (told(reply, found),))


# Deleting


def begin_deletion(
    state: GroupsState, group_id: str, topics: Sequence[str], reply: Reply[list[KnownTopic]]
) -> Outcome:
    """Begin to delete offsets of topics; the answer is a list of `KnownTopic`.

    Topics that nothing is known of are not in it. `note_deleted` is what follows. KafkaError if
    there is no such group, or if it has members.
    """
    group = find_share_group(state, group_id)
    _refuse_members(group)
    wanted = frozenset(topics)
    found = [each for each in _all_known(state, group) if each.name in wanted]
    return _begin_deletion(group, found, reply)


def begin_group_deletion(
    state: GroupsState, group_id: str, reply: Reply[list[KnownTopic]]
) -> Outcome:
    """Begin to delete all offsets of a group, before the group itself is.

    The answer is a list of `KnownTopic`; an empty one for groups of other kinds. NON_EMPTY_GROUP
    if it has members.
    """
    group = state.groups.get(GroupId(group_id))
    if not isinstance(group, ShareGroup):
        return Outcome(replies=(told(reply, []),))
    _refuse_members(group)
    return _begin_deletion(group, _all_known(state, group), reply)


def _begin_deletion(
    group: ShareGroup, found: list[KnownTopic], reply: Reply[list[KnownTopic]]
) -> Outcome:
    states = with_deleting(group.states, {each.topic_id: each.name for each in found})
    records = () if states == group.states else (states_record(group.group_id, states),)
    return Outcome(records, (told(reply, found),))


def note_deleted(
    state: GroupsState, group_id: str, topics: Iterable[TopicId], reply: Reply[None]
) -> Outcome:
    """Record topics whose states are deleted; the reply is None.

    One that is wanted again meanwhile is left alone.
    """
    answers = (told(reply, None),)
    group = state.groups.get(GroupId(group_id))
    if not isinstance(group, ShareGroup):
        return Outcome(replies=answers)
    gone = group.states.deleting.keys() & set(topics)
    if not gone:
        return Outcome(replies=answers)
    record = states_record(group_id, without_topics(group.states, gone))
    return Outcome((record,), answers)


def _all_known(state: GroupsState, group: ShareGroup) -> list[KnownTopic]:
    """Return all topics of a group. For half-deleted ones the partitions are unknown."""
    found = []
    for topic_id, known in sorted(all_topics(group.states).items()):
        indexes: Iterable[int] = known.partitions
        if topic_id in group.states.deleting:
            topic = state.image.topic_by_id(topic_id)
            indexes = range(0 if topic is None else len(topic.partitions))
        found.append(KnownTopic(known.name, topic_id, tuple(sorted(indexes))))
    return found


def _refuse_members(group: ShareGroup) -> None:
    if not group.is_empty:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.group_id!r} has {len(group.members)} members: its offsets can be "
            "changed when they have left",
        )
