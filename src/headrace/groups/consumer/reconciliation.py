"""How a member moves from its current to its target assignment: one step per heartbeat (KIP-848).

`members.TRANSITIONS` has the states and what moves a member between them (see docs/states.md).

A member revokes first and is assigned later: its epoch stays behind until it has confirmed that it
revoked what the target takes away. A partition is assigned to it only when no other member may
still be reading it, so that no partition ever has two readers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.groups.assignors import Assignment
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.members import (
    NO_PARTITIONS,
    TRANSITIONS,
    ConsumerMember,
    EpochsByPartition,
    MemberState,
)
from headrace.ids import TopicId


@dataclass(frozen=True, slots=True)
class Progress:
    """What a heartbeat says of the member's way."""

    wanted: frozenset[TopicId]
    """The topics that it is subscribed to."""
    owned: Mapping[TopicId, frozenset[int]] | None = None
    """What it reads; None if it did not say."""
    is_subscription_new: bool = False
    """Whether this heartbeat changed what it is subscribed to."""


def reconcile(group: ConsumerGroup, member: ConsumerMember, progress: Progress) -> ConsumerMember:
    """Return the member after one step, or itself if there is none to make."""
    changed = _step(group, member, progress)
    assert changed.state in TRANSITIONS[member.state], (member.state, changed.state)
    return changed


def _step(group: ConsumerGroup, member: ConsumerMember, progress: Progress) -> ConsumerMember:
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _reads_any(progress, member.revoking):
            return _drop_unwanted(member, progress)
        return _advance(group, member, progress)
    if not member.is_reconciled_to(group.assignment_epoch):
        return _advance(group, member, progress)
    return _drop_unwanted(member, progress)


def _advance(group: ConsumerGroup, member: ConsumerMember, progress: Progress) -> ConsumerMember:
    """Go towards the target; what was to be revoked is given up."""
    target = group.target_of(member.member_id)
    # It may have unsubscribed since the target was computed.
    target = {topic: target[topic] for topic in target if topic in progress.wanted}
    kept, revoking = _split(member.assigned, target)
    if revoking and _reads_any(progress, revoking):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    assigned: dict[TopicId, Mapping[int, int]] = {}
    is_waiting = False
    for topic_id, indexes in target.items():
        former = kept.get(topic_id, {})
        got = dict(former)
        for index in indexes:
            if index in former:
                continue
            if group.is_free(topic_id, index, member.member_id):
                got[index] = group.assignment_epoch
            else:
                is_waiting = True
        if got:
            assigned[topic_id] = got
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return replace(
        member,
        state=state,
        epoch=group.assignment_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking=NO_PARTITIONS,
    )


def _drop_unwanted(member: ConsumerMember, progress: Progress) -> ConsumerMember:
    """Revoke topics that the member has just unsubscribed from, before a new target does."""
    if not progress.is_subscription_new:
        return member
    unwanted = {
        topic: indexes for topic, indexes in member.assigned.items() if topic not in progress.wanted
    }
    if not unwanted:
        return member
    kept = {topic: each for topic, each in member.assigned.items() if topic not in unwanted}
    if not _reads_any(progress, unwanted):
        return replace(member, previous_epoch=member.epoch, assigned=kept)
    revoking = dict(member.revoking)
    for topic, indexes in unwanted.items():
        revoking[topic] = {**revoking.get(topic, {}), **indexes}
    return replace(
        member,
        state=MemberState.UNREVOKED_PARTITIONS,
        previous_epoch=member.epoch,
        assigned=kept,
        revoking=revoking,
    )


def _split(
    assigned: EpochsByPartition, target: Assignment
) -> tuple[dict[TopicId, dict[int, int]], dict[TopicId, dict[int, int]]]:
    """Return which of a member's partitions it keeps, and which it has to revoke."""
    kept: dict[TopicId, dict[int, int]] = {}
    revoking: dict[TopicId, dict[int, int]] = {}
    for topic_id, epochs in assigned.items():
        indexes = target.get(topic_id, frozenset())
        for index, epoch in epochs.items():
            place = kept if index in indexes else revoking
            place.setdefault(topic_id, {})[index] = epoch
    return kept, revoking


def _reads_any(progress: Progress, partitions: EpochsByPartition) -> bool:
    """Whether a member may be reading one of these: it does unless it says otherwise."""
    if progress.owned is None:
        return bool(partitions)
    return any(
        index in progress.owned.get(topic_id, ())
        for topic_id, indexes in partitions.items()
        for index in indexes
    )
