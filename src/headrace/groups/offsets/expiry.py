"""Expiry of offsets that are too old or whose topic was deleted, and of groups without offsets.

All groups are checked every `offsets.retention.check.interval.ms`. The age of an offset counts from
its commit, or from when its group lost its last member, depending on the group's kind (KIP-211);
offsets of topics that a member subscribes to are kept. A group without members and without offsets
is deleted.
"""

from itertools import islice
from typing import Final

from headrace import config
from headrace.coordinator.machine import NOTHING, Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.kinds import all_groups, find_group, rules_of
from headrace.groups.offsets.store import Place
from headrace.groups.offsets.walk import OffsetWalk
from headrace.groups.state import DeadlineKey, Group, GroupsState
from headrace.wire.messages.offset_commit_key import OffsetCommitKey

OFFSET_EXPIRY: Final = "offset-expiry"
TOPIC_DELETION: Final = "topic-deletion"
"""The words of deadlines."""
TOMBSTONES_AT_ONCE: Final = 500
"""How many offsets are deleted together; the rest follows at once."""
LOOKS_AT_ONCE: Final = 2000
"""How many groups and offsets are looked at together."""

_MINUTE_MS: Final = 60_000


def schedule_expiry(state: GroupsState, now_ms: int) -> Outcome:
    """Schedule the next check of offsets after the interval."""
    interval_ms = state.settings[config.OFFSETS_RETENTION_CHECK_INTERVAL_MS]
    state.deadlines.set((OFFSET_EXPIRY,), now_ms + interval_ms)
    return NOTHING


def expire_offsets(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Delete what is too old: look at a bounded part of all offsets, and at the rest after that."""
    rest = state.unexamined
    if not rest:
        rest += [group.group_id for group in all_groups(state)]
    records: list[CoordinatorRecord] = []
    looks = 0
    while rest and looks < LOOKS_AT_ONCE and len(records) < TOMBSTONES_AT_ONCE:
        looks += 1
        group = find_group(state, rest[-1])
        if group is None:
            rest.pop()
            continue
        walk = state.examination
        if walk is None or walk.group_id != group.group_id:
            walk = state.examination = OffsetWalk(group.group_id, state.offsets)
        room = TOMBSTONES_AT_ONCE - len(records)
        looks_max = LOOKS_AT_ONCE - looks
        expired, looks_taken = _next_expired(
            state, group, walk, now_ms, room=room, looks_max=looks_max
        )
        looks += looks_taken
        records += [offset_tombstone(group.group_id, *place) for place in expired]
        if walk.topic is not None:
            break  # the walk goes on from here
        rest.pop()
        state.examination = None
        if group.is_empty and state.offsets.has_only(group.group_id, len(expired)):
            records += rules_of(group).tombstones(group)
    if rest:
        state.deadlines.set(key, now_ms)
    else:
        schedule_expiry(state, now_ms)
    return Outcome(tuple(records), is_divisible=True)


def _next_expired(
    state: GroupsState, group: Group, walk: OffsetWalk, now_ms: int, *, room: int, looks_max: int
) -> tuple[list[Place], int]:
    """Return what a group has that is too old, from where the walk is, and the looks it took.

    The walk stops when as many were found as there is room for, and after so many looks.
    """
    offsets, group_id = state.offsets, group.group_id
    retained_from_ms = rules_of(group).retained_from_ms
    committed_ms = now_ms - state.settings[config.OFFSETS_RETENTION_MINUTES] * _MINUTE_MS
    transaction_count = offsets.transaction_count(group_id)
    expired: list[Place] = []
    looks = 0
    while (topic := walk.topic) is not None and looks < looks_max:
        looks += 1
        if group.is_subscribed_to(topic):
            walk.leave_topic()
            continue
        known = offsets.of_topic(group_id, topic)
        while looks < looks_max and len(expired) < room:
            index = walk.next_partition(offsets)
            if index is None:
                walk.leave_topic()
                break
            looks += 1
            offset = known.get(index)
            if offset is None:
                continue  # it was deleted meanwhile
            from_ms = retained_from_ms(group, offset)
            if from_ms is None:
                continue
            if offset.expire_timestamp_ms is not None:
                is_old = offset.expire_timestamp_ms <= now_ms
            else:
                is_old = from_ms <= committed_ms
            if is_old and transaction_count:
                looks += transaction_count
                is_old = not offsets.is_undecided(group_id, topic, index)
            if is_old:
                expired.append((topic, index))
        if len(expired) >= room:
            break
    return expired, looks


def forget_topic(state: GroupsState, topic: str, now_ms: int) -> Outcome:
    """Delete what all groups have committed for a topic that was deleted."""
    return delete_topic_offsets(state, (TOPIC_DELETION, topic, str(now_ms)), now_ms)


def delete_topic_offsets(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Delete a bounded part of a topic's offsets; the rest follows at once.

    What is committed later than the deletion is of another topic that has the name by now.
    """
    _, topic, deleted_ms = key
    before_ms = int(deleted_ms)
    rest = state.unforgotten.get(key)
    if rest is None:
        rest = state.unforgotten[key] = list(state.offsets.groups_of(topic))
    records: list[CoordinatorRecord] = []
    looks = 0
    while rest and looks < LOOKS_AT_ONCE and len(records) < TOMBSTONES_AT_ONCE:
        group_id = rest[-1]
        known = state.offsets.of_topic(group_id, topic)
        room = TOMBSTONES_AT_ONCE - len(records)
        former = (index for index, each in known.items() if each.commit_timestamp_ms <= before_ms)
        found = dict.fromkeys(islice(former, room + 1))
        if len(found) <= room:
            found |= dict.fromkeys(state.offsets.undecided_of_topic(group_id, topic))
        looks += 1 + len(found)
        records += [offset_tombstone(group_id, topic, index) for index in islice(found, room)]
        if len(found) > room:
            break
        rest.pop()
    if rest:
        state.deadlines.set(key, now_ms)
    else:
        del state.unforgotten[key]
    return Outcome(tuple(records), is_divisible=True)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the record that deletes an offset."""
    return CoordinatorRecord(OffsetCommitKey(group_id, topic, partition), None)


def all_offset_tombstones(
    state: GroupsState, group_id: str, count_max: int
) -> list[CoordinatorRecord]:
    """Return records that delete offsets of a group, decided or not: of all, up to a number."""
    committed = state.offsets.committed(group_id)
    places = ((topic, index) for topic in committed for index in committed[topic])
    found = dict.fromkeys(islice(places, count_max))
    if len(found) < count_max:
        found |= dict.fromkeys(sorted(state.offsets.undecided(group_id)))
    return [offset_tombstone(group_id, *place) for place in islice(found, count_max)]
