"""The target assignment of a streams group: when a new epoch is due, and its target (KIP-1071)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from headrace.coordinator.machine import NOTHING, Outcome, Told, effect
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.assigning import (
    Assigning,
    assigned_group,
    is_current,
    note_assigning,
    place_for,
)
from headrace.groups.configs import group_config
from headrace.groups.metadata_hash import metadata_hash
from headrace.groups.state import DeadlineKey, GroupsState, MemberId
from headrace.groups.streams.assignor import MemberSpec, assign
from headrace.groups.streams.group import NOT_VALIDATED, StreamsGroup
from headrace.groups.streams.members import StreamsMember
from headrace.groups.streams.records import target_epoch_record, target_record
from headrace.groups.streams.tasks import NOTHING_TO_RUN, Tasks
from headrace.groups.streams.topology import (
    ConfiguredTopology,
    Problem,
    StatusCode,
    configure,
    topics_of,
)
from headrace.wire.messages.streams_group_topology_value import StreamsGroupTopologyValue

INITIAL_DELAY: Final = "streams-delay"
"""The word of the deadline, with group: members that came at the same time have come by now."""
STANDBY_CONFIG: Final = "num.standby.replicas"
"""The name of the config that the target depends on, as records have it."""


class Basis(NamedTuple):
    """What a group epoch stands for, beside the members."""

    metadata_hash: int
    validated_topology_epoch: int
    configs: tuple[tuple[str, str], ...]


class Target(NamedTuple):
    """What members should have."""

    epoch: int
    tasks: Mapping[MemberId, Tasks]
    records: tuple[CoordinatorRecord, ...] = ()
    delay: Problem | None = None
    """Why there is no newer one yet."""
    replies: tuple[Told, ...] = ()
    """What has a newer one computed elsewhere, if that is large."""
    notes: tuple[Callable[[], None], ...] = ()
    """What to remember of that."""


def initial_delay_key(group_id: str) -> DeadlineKey:
    return INITIAL_DELAY, group_id


def configure_group(
    state: GroupsState, group: StreamsGroup, topology: StreamsGroupTopologyValue
) -> ConfiguredTopology:
    """Put a group's topology and the topics there are together; looks again if those changed."""
    index = state.image.applied_index
    if group.configured is None or group.configured_index != index:
        group.configured = configure(topology, state.image)
        group.configured_hash = metadata_hash(topics_of(topology), state.image)
        group.configured_index = index
    return group.configured


def basis_of(state: GroupsState, group: StreamsGroup, topology: StreamsGroupTopologyValue) -> Basis:
    """Return what the group's epoch should stand for now."""
    configured = configure_group(state, group, topology)
    standbys = group_config(state, group.group_id, "streams.num.standby.replicas")
    return Basis(
        group.configured_hash,
        NOT_VALIDATED if configured.problem else topology.epoch,
        ((STANDBY_CONFIG, str(standbys)),),
    )


def update_target(
    state: GroupsState,
    group: StreamsGroup,
    epoch: int,
    members: Mapping[MemberId, StreamsMember],
    now_ms: int,
) -> Target:
    """Return the target of a group with these members, a new one if its epoch has none yet.

    Not while a new group waits for more members, and not too soon after the last one: the former
    target holds until then.
    """
    if epoch <= group.assignment_epoch or group.group_id in state.assigning:
        return Target(group.assignment_epoch, group.targets)
    delay = _delay(state, group, now_ms)
    if delay is not None:
        return Target(group.assignment_epoch, group.targets, delay=delay)
    return compute_target(state, group, epoch, members, now_ms)


def compute_target(
    state: GroupsState,
    group: StreamsGroup,
    epoch: int,
    members: Mapping[MemberId, StreamsMember],
    now_ms: int,
) -> Target:
    """Return a new target, and the records that say so: of members for whom it is another one.

    A large one is computed elsewhere (`groups.assigning`), and the former holds until then.
    """
    configured = group.configured
    if configured is None or configured.problem is not None:
        tasks = dict.fromkeys(members, NOTHING_TO_RUN)
        return Target(epoch, tasks, _target_records(group, epoch, tasks, now_ms))
    specs = {
        each: MemberSpec(member.process_id, group.target_of(each))
        for each, member in members.items()
    }
    standbys = group_config(state, group.group_id, "streams.num.standby.replicas")
    to_run = configured.tasks()
    compute = partial(assign, specs, to_run, configured.stateful, standbys)
    step_count = len(specs) + len(to_run) * (1 + standbys)
    if (elsewhere := place_for(state, step_count)) is not None:
        assigning = Assigning(group.group_id, epoch, frozenset(specs), compute, write_target)
        notes = (partial(note_assigning, state, assigning),)
        replies = (effect(elsewhere, assigning),)
        return Target(group.assignment_epoch, group.targets, replies=replies, notes=notes)
    tasks = compute()
    return Target(epoch, tasks, _target_records(group, epoch, tasks, now_ms))


def write_target(
    state: GroupsState,
    assigning: Assigning,
    targets: Mapping[MemberId, Tasks] | None,
    now_ms: int,
) -> Outcome:
    """Write a target that was computed in a thread, for the members that are still there."""
    group = assigned_group(state, assigning, StreamsGroup)
    if group is None or targets is None or not is_current(group, assigning):
        return NOTHING
    tasks = {each: targets[each] for each in group.members if each in targets}
    return Outcome(_target_records(group, assigning.epoch, tasks, now_ms))


def _target_records(
    group: StreamsGroup, epoch: int, tasks: Mapping[MemberId, Tasks], now_ms: int
) -> tuple[CoordinatorRecord, ...]:
    changed = [
        target_record(group.group_id, each, target)
        for each, target in tasks.items()
        if group.targets.get(each) != target
    ]
    return (*changed, target_epoch_record(group.group_id, epoch, now_ms))


def _delay(state: GroupsState, group: StreamsGroup, now_ms: int) -> Problem | None:
    due_ms = state.deadlines.due_ms(initial_delay_key(group.group_id))
    if due_ms is not None and now_ms < due_ms:
        return Problem(
            StatusCode.ASSIGNMENT_DELAYED,
            "tasks are assigned when group.streams.initial.rebalance.delay.ms have passed",
        )
    interval_ms = group_config(state, group.group_id, "streams.assignment.interval.ms")
    if now_ms < group.assignment_timestamp_ms + interval_ms:
        return Problem(
            StatusCode.ASSIGNMENT_DELAYED,
            "tasks are assigned again when group.streams.assignment.interval.ms have passed",
        )
    return None
