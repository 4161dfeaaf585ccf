"""The target assignment of a share group: when a new epoch is due, and its target.

Only partitions with an initialized state are assigned (`share.states`), so the group gets a new
epoch, and with it a new target, when a state becomes initialized.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from headrace.coordinator.machine import NOTHING, Outcome, Told, effect
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.assigning import (
    Assigning,
    assigned_group,
    is_current,
    note_assigning,
    place_for,
)
from headrace.groups.assignors import Assignment, MemberSpec
from headrace.groups.assignors.simple import assign_simply
from headrace.groups.configs import group_config
from headrace.groups.metadata_hash import metadata_hash
from headrace.groups.share.deadlines import answer_held_soon
from headrace.groups.share.group import ShareGroup, subscribed_topics
from headrace.groups.share.members import ShareMember
from headrace.groups.share.records import group_record, target_epoch_record, target_record
from headrace.groups.state import GroupsState, MemberId
from headrace.ids import TopicId, TopicName
from headrace.metadata.image import Image

Members = Mapping[MemberId, ShareMember]


class Target(NamedTuple):
    """What members should have."""

    epoch: int
    assignments: Mapping[MemberId, Assignment]
    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[Told, ...] = ()
    """The request to compute a newer target in a thread, if it is large."""
    notes: tuple[Callable[[], None], ...] = ()
    """The state to keep about that request."""


def next_epoch(
    state: GroupsState, group: ShareGroup, members: Members, *, is_due: bool
) -> tuple[int, tuple[CoordinatorRecord, ...]]:
    """Return the epoch of a group with these members, and its record if it is new.

    It is new if one is due, if the group's topics changed, or if there are partitions to assign
    that the target lacks.
    """
    image = state.image
    is_due = is_due or _has_new_partitions(group, members, image)
    if not is_due and group.checked_index == image.applied_index:
        return group.epoch, ()
    hashed = metadata_hash(subscribed_topics(members), image)
    if is_due or hashed != group.metadata_hash:
        epoch = group.epoch + 1
        return epoch, (group_record(group.group_id, epoch, hashed),)
    group.checked_index = image.applied_index
    return group.epoch, ()


def update_target(
    state: GroupsState, group: ShareGroup, epoch: int, members: Members, now_ms: int
) -> Target:
    """Return the target of a group with these members, a new one if its epoch has no target yet.

    There is a minimum interval between targets: a group that many members join would otherwise
    compute one per member. The old target holds until then. An empty target, computed before any
    state was initialized, does not count.
    """
    former = Target(group.assignment_epoch, group.targets)
    if epoch <= group.assignment_epoch or group.group_id in state.assigning:
        return former
    image = state.image
    interval_ms = group_config(state, group.group_id, "share.assignment.interval.ms")
    if now_ms < group.assignment_timestamp_ms + interval_ms and not (
        group.states.initialized
        and not any(group.targets.values())
        and any(_assignable(group, members, image).values())
    ):
        return former
    wanted = {names: _wanted(names, image) for names in {x.topic_names for x in members.values()}}
    specs: dict[str, MemberSpec] = {
        member_id: MemberSpec(wanted[member.topic_names], None, group.target_of(member_id))
        for member_id, member in members.items()
    }
    partitions = _assignable(group, members, image)
    step_count = sum(map(len, partitions.values())) + sum(
        1 + len(each.topics) for each in specs.values()
    )
    compute = partial(assign_simply, specs, partitions)
    if (elsewhere := place_for(state, step_count)) is not None:
        assigning = Assigning(group.group_id, epoch, frozenset(specs), compute, write_target)
        notes = (partial(note_assigning, state, assigning),)
        return former._replace(replies=(effect(elsewhere, assigning),), notes=notes)
    found = compute()
    assignments = {member_id: found[member_id] for member_id in members}
    return Target(epoch, assignments, _target_records(group, epoch, assignments, now_ms))


def write_target(
    state: GroupsState,
    assigning: Assigning,
    targets: Mapping[str, Assignment] | None,
    now_ms: int,
) -> Outcome:
    """Write a target that was computed in a thread, for the members that are still there."""
    group = assigned_group(state, assigning, ShareGroup)
    if group is None:
        return NOTHING
    answer_held_soon(state, group.group_id, now_ms)
    if targets is None or not is_current(group, assigning):
        return NOTHING
    assignments = {each: targets[each] for each in group.members if each in targets}
    return Outcome(_target_records(group, assigning.epoch, assignments, now_ms))


def _target_records(
    group: ShareGroup, epoch: int, assignments: Mapping[MemberId, Assignment], now_ms: int
) -> tuple[CoordinatorRecord, ...]:
    changed = [
        target_record(group.group_id, member_id, assignment)
        for member_id, assignment in assignments.items()
        if group.targets.get(member_id) != assignment
    ]
    return (*changed, target_epoch_record(group.group_id, epoch, now_ms))


def _has_new_partitions(group: ShareGroup, members: Members, image: Image) -> bool:
    """Whether there are partitions to assign that the target lacks, and no new one is due yet."""
    if not group.may_have_new_states or group.epoch > group.assignment_epoch:
        return False
    given: dict[TopicId, set[int]] = {}
    for target in group.targets.values():
        for topic_id, indexes in target.items():
            given.setdefault(topic_id, set()).update(indexes)
    has_new = any(
        not indexes <= given.get(topic_id, set())
        for topic_id, indexes in _assignable(group, members, image).items()
    )
    group.may_have_new_states = has_new
    return has_new


def _assignable(group: ShareGroup, members: Members, image: Image) -> dict[TopicId, frozenset[int]]:
    """Return the partitions of subscribed topics that exist and have a state."""
    initialized = group.states.initialized
    found = (image.topic(TopicName(name)) for name in subscribed_topics(members))
    return {
        topic.topic_id: frozenset(
            index
            for index in initialized[topic.topic_id].partitions
            if index < len(topic.partitions)
        )
        for topic in found
        if topic is not None and topic.topic_id in initialized
    }


def _wanted(names: Iterable[str], image: Image) -> frozenset[TopicId]:
    """Return those of the topics that exist."""
    found = (image.topic(TopicName(name)) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)
