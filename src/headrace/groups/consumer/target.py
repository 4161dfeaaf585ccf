"""The target assignment of a consumer group: when a new epoch is due, and its target (KIP-848)."""

from collections.abc import Iterable, Mapping
from functools import partial

from headrace.coordinator.machine import NOTHING, Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.assigning import Assigning, assigned_group, is_current, place_for
from headrace.groups.assignors import ASSIGNORS, Assignment, AssignmentSpec, MemberSpec
from headrace.groups.configs import group_config
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import ConsumerMember
from headrace.groups.consumer.records import group_record, target_epoch_record, target_record
from headrace.groups.consumer.requests import known_assignors
from headrace.groups.metadata_hash import metadata_hash
from headrace.groups.state import GroupsState
from headrace.ids import TopicId, TopicName
from headrace.metadata.image import Image


def bump_epoch(state: GroupsState, draft: Draft, *, is_due: bool) -> None:
    """Begin another group epoch if it is due, or if the topics of the group changed."""
    group, image = draft.group, state.image
    if not is_due and group.checked_index == image.applied_index:
        return
    hashed = metadata_hash(group.subscribed_topics, image)
    if is_due or hashed != group.metadata_hash:
        draft.write(group_record(group.group_id, group.epoch + 1, hashed))
    draft.note_hash_checked(image.applied_index)


def update_target(state: GroupsState, draft: Draft, now_ms: int) -> None:
    """Compute the target of the group epoch, unless the last one was computed just now.

    The interval between two keeps a group that many members join from assigning once for each. A
    large target is computed elsewhere (`groups.assigning`).
    """
    group = draft.group
    if group.epoch <= group.assignment_epoch or group.group_id in state.assigning:
        return
    interval_ms = group_config(state, group.group_id, "consumer.assignment.interval.ms")
    if now_ms < group.assignment_timestamp_ms + interval_ms:
        return
    spec = _spec(state.image, group)
    assign = ASSIGNORS[group.preferred_assignor(known_assignors(state.settings))]
    if (elsewhere := place_for(state, _step_count(spec))) is not None:
        assigning = Assigning(
            group.group_id,
            group.epoch,
            frozenset(spec.members),
            partial(assign, spec),
            write_target,
        )
        draft.assign_elsewhere(state, elsewhere, assigning)
        return
    for record in _target_records(group, assign(spec)):
        draft.write(record)
    draft.write(target_epoch_record(group.group_id, group.epoch, now_ms))


def write_target(
    state: GroupsState,
    assigning: Assigning,
    targets: Mapping[str, Assignment] | None,
    now_ms: int,
) -> Outcome:
    """Write a target that was computed in a thread, for the members that are still there."""
    group = assigned_group(state, assigning, ConsumerGroup)
    if group is None or targets is None or not is_current(group, assigning):
        return NOTHING
    last = target_epoch_record(group.group_id, assigning.epoch, now_ms)
    return Outcome((*_target_records(group, targets), last))


def wanted_topics(group: ConsumerGroup, member: ConsumerMember, image: Image) -> frozenset[TopicId]:
    """Return the topics that a member wants and that exist."""
    return _topic_ids(group.topics_of(member), image)


def _topic_ids(names: Iterable[str], image: Image) -> frozenset[TopicId]:
    return frozenset(
        topic.topic_id for name in names if (topic := image.topic(TopicName(name))) is not None
    )


def _spec(image: Image, group: ConsumerGroup) -> AssignmentSpec:
    """Return what a target follows from."""
    wanted = {each: _topic_ids(group.topics_under(each), image) for each in group.subscriptions}
    members: dict[str, MemberSpec] = {
        member_id: MemberSpec(
            wanted[member.subscription], member.instance_id, group.target_of(member_id)
        )
        for member_id, member in group.members.items()
    }
    counts: dict[TopicId, int] = {}
    for topic_id in frozenset[TopicId]().union(*wanted.values()):
        topic = image.topic_by_id(topic_id)
        assert topic is not None
        counts[topic_id] = len(topic.partitions)
    return AssignmentSpec(members, counts)


def _step_count(spec: AssignmentSpec) -> int:
    """Estimate the work of an assignor."""
    partition_count = sum(spec.partition_counts.values())
    return partition_count + sum(1 + len(member.topics) for member in spec.members.values())


def _target_records(
    group: ConsumerGroup, targets: Mapping[str, Assignment]
) -> Iterable[CoordinatorRecord]:
    for member_id in group.members:
        target = targets.get(member_id)
        if target is not None and group.targets.get(member_id) != target:
            yield target_record(group.group_id, member_id, target)
