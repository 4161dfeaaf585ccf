"""Operations of tools on groups of any kind: list, describe, delete, delete their offsets.

DescribeGroups dates from when all groups were classic: it reports other groups as not existing.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.kinds import all_groups, find_group, rules_of
from headrace.groups.offsets.expiry import (
    TOMBSTONES_AT_ONCE,
    all_offset_tombstones,
    offset_tombstone,
)
from headrace.groups.state import Group, GroupsState, not_found
from headrace.wire.messages.describe_groups_response import DescribedGroup

DEAD: Final = "Dead"
"""The state of a group that is none, as it is shown and as a group that ends is in."""


class GroupRow(NamedTuple):
    """What a list of groups shows."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


class GroupFilter(NamedTuple):
    """Which groups are to be listed; empty is all."""

    states: AbstractSet[str] = frozenset()
    kinds: AbstractSet[str] = frozenset()
    """Both in small letters, as the case does not matter; what nothing is called matches nothing"""


def group_ids(state: GroupsState, reply: Reply[list[str]]) -> Outcome:
    """Look up which groups there are; the answer is a list of ids."""
    ids: list[str] = [*state.groups]
    ids += [each for each in state.offsets.groups() if each not in state.groups]
    return Outcome(replies=(told(reply, ids),))


def list_groups(
    state: GroupsState,
    wanted: GroupFilter,
    reply: Reply[list[GroupRow]],
    group_ids: Iterable[str] | None = None,
) -> Outcome:
    """List groups, all or of those named that still are some; the answer is their rows."""
    if group_ids is None:
        groups: Iterable[Group | None] = all_groups(state)
    else:
        groups = (find_group(state, each) for each in group_ids)
    rows = [
        GroupRow(group.group_id, group.protocol_type, group.state_name, group.kind.value)
        for group in groups
        if group is not None
        and (not wanted.states or group.state_name.lower() in wanted.states)
        and (not wanted.kinds or group.kind.value in wanted.kinds)
    ]
    return Outcome(replies=(told(reply, rows),))


def describe_group(state: GroupsState, group_id: str, reply: Reply[DescribedGroup]) -> Outcome:
    """Describe a classic group; the answer is DescribeGroups' row. KafkaError if it is none."""
    group = find_group(state, group_id)
    if group is None or group.state_name == DEAD:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    describe = rules_of(group).describe
    if describe is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
    return Outcome(replies=(told(reply, describe(group)),))


def delete_group(
    state: GroupsState,
    group_id: str,
    reply: Reply[bool],
    unreadable: Sequence[CoordinatorRecord] = (),
) -> Outcome:
    """Delete a group with its offsets, those of transactions under way too.

    The answer is whether all is deleted: of a group with many offsets some are, and it is to be
    asked for again. Nobody joins it or commits until then, or until `give_up_deletion`.
    `unreadable` are the tombstones of what could not be read of it. KafkaError if there is no such
    group, or if it has members.
    """
    group = find_group(state, group_id)
    if group is None or group.state_name == DEAD:
        if unreadable:
            return Outcome(tuple(unreadable), (told(reply, True),))
        raise not_found(group_id)
    if not group.is_empty:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group_id!r} is {group.state_name}: it can be deleted when its members left",
        )
    offsets = all_offset_tombstones(state, group_id, TOMBSTONES_AT_ONCE + 1)
    if len(offsets) > TOMBSTONES_AT_ONCE:
        begin = partial(state.ending.add, group_id)
        return Outcome(
            tuple(offsets[:-1]), (told(reply, False),), is_divisible=True, notes=(begin,)
        )
    records = (*unreadable, *offsets, *rules_of(group).tombstones(group))
    end = partial(state.ending.discard, group_id)
    return Outcome(records, (told(reply, True),), is_divisible=True, notes=(end,))


def give_up_deletion(state: GroupsState, group_id: str, reply: Reply[None]) -> Outcome:
    """Serve a group again whose deletion failed on its way; the answer is None."""
    state.ending.discard(group_id)
    return Outcome(replies=(told(reply, None),))


def delete_offsets(
    state: GroupsState,
    group_id: str,
    topics: Sequence[tuple[str, Sequence[int]]],
    reply: Reply[set[str]],
) -> Outcome:
    """Delete offsets of a group; the answer is the set of topics that it is subscribed to.

    Their offsets stay. Where nothing is committed there is nothing to do. KafkaError if there is
    no such group, or if its members are no consumers, of whose topics nothing is known.
    """
    group = find_group(state, group_id)
    if group is None or group.state_name == DEAD:
        raise not_found(group_id)
    rules_of(group).check_offset_deletion(group)
    subscribed = {topic for topic, _ in topics if group.is_subscribed_to(topic)}
    undecided = state.offsets.undecided(group_id)
    records: list[CoordinatorRecord] = []
    for topic, indexes in topics:
        known = state.offsets.of_topic(group_id, topic)
        if topic not in subscribed:
            records += [
                offset_tombstone(group_id, topic, index)
                for index in indexes
                if index in known or (topic, index) in undecided
            ]
    return Outcome(tuple(records), (told(reply, subscribed),))
