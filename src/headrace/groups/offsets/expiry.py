"""Offsets that end: too old, or of topics that are gone; and groups that end with their offsets.

Every `offsets.retention.check.interval.ms` all groups are looked at. An offset grows old from its
commit, or from when its group lost its last member, as the group's kind says (KIP-211); topics that
a member is subscribed to keep theirs. A group without members and without offsets is deleted.
"""

from itertools import islice
from typing import Final

from headrace import config
from headrace.coordinator.machine import NOTHING, Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.groups.kinds import all_groups, find_group, rules_of
from headrace.groups.offsets.store import Place
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
    """Have offsets looked at when the interval has passed."""
    interval_ms = state.settings[config.OFFSETS_RETENTION_CHECK_INTERVAL_MS]
    state.deadlines.set((OFFSET_EXPIRY,), now_ms + interval_ms)
    return NOTHING


def expire_offsets(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Delete what is too old: look at a bounded part of all groups, and at the rest after that."""
    rest = state.unexamined
    if not rest:
        rest += [group.group_id for group in all_groups(state)]
    records: list[CoordinatorRecord] = []
    looks = 0
    while rest and looks < LOOKS_AT_ONCE and len(records) < TOMBSTONES_AT_ONCE:
        group = find_group(state, rest[-1])
        if group is None:
            rest.pop()
            continue
        expired, kept_count = _expired(state, group, now_ms)
        looks += 1 + len(expired) + kept_count
        room = TOMBSTONES_AT_ONCE - len(records)
        records += [offset_tombstone(group.group_id, *place) for place in expired[:room]]
        if len(expired) > room:
            break  # it is looked at again, as it may commit meanwhile
        rest.pop()
        if group.is_empty and not kept_count:
            records += rules_of(group).tombstones(group)
    if rest:
        state.deadlines.set(key, now_ms)
    else:
        schedule_expiry(state, now_ms)
    return Outcome(tuple(records), is_divisible=True)


def _expired(state: GroupsState, group: Group, now_ms: int) -> tuple[list[Place], int]:
    """Return what a group has that is too old, and how much else it has."""
    undecided = state.offsets.undecided(group.group_id)
    expired: list[Place] = []
    kept_count = len(undecided)
    retained_from_ms = rules_of(group).retained_from_ms
    committed_ms = now_ms - state.settings[config.OFFSETS_RETENTION_MINUTES] * _MINUTE_MS
    for topic, partitions in state.offsets.committed(group.group_id).items():
        if group.is_subscribed_to(topic):
            kept_count += 1
            continue
        for index, offset in partitions.items():
            from_ms = retained_from_ms(group, offset)
            if from_ms is None or (topic, index) in undecided:
                is_old = False
            elif offset.expire_timestamp_ms is not None:
                is_old = offset.expire_timestamp_ms <= now_ms
            else:
                is_old = from_ms <= committed_ms
            if is_old:
                expired.append((topic, index))
            else:
                kept_count += 1
    return expired, kept_count


def forget_topic(state: GroupsState, topic: str, now_ms: int) -> Outcome:
    """Delete what all groups have committed for a topic that was deleted."""
    return delete_topic_offsets(state, (TOPIC_DELETION, topic, str(now_ms)), now_ms)


def delete_topic_offsets(state: GroupsState, key: DeadlineKey, now_ms: int) -> Outcome:
    """Delete a bounded part of a topic's offsets; the rest follows at once.

    What is committed later than the deletion is of another topic that has the name by now.
    """
    _, topic, deleted_ms = key
    rest = state.unforgotten.get(key)
    if rest is None:
        rest = state.unforgotten[key] = list(state.offsets.groups_of(topic))
    records: list[CoordinatorRecord] = []
    looks = 0
    while rest and looks < LOOKS_AT_ONCE and len(records) < TOMBSTONES_AT_ONCE:
        group_id = rest[-1]
        known = state.offsets.of_topic(group_id, topic)
        partitions = {
            index
            for index, offset in known.items()
            if offset.commit_timestamp_ms <= int(deleted_ms)
        }
        partitions |= state.offsets.undecided_of_topic(group_id, topic)
        looks += 1 + len(known)
        room = TOMBSTONES_AT_ONCE - len(records)
        records += [offset_tombstone(group_id, topic, index) for index in sorted(partitions)[:room]]
        if len(partitions) > room:
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
