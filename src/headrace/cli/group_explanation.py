"""An explanation of why a group is not stable: what it waits for, which members are late. Pure."""

from collections.abc import Iterator
from typing import Final

from headrace.cli.group_history import GroupHistory
from headrace.client.group_members import GroupDescription, GroupMember
from headrace.client.topics import TopicPartition

SHOWN_PARTITIONS_MAX: Final = 8


def explain(group: GroupDescription, history: GroupHistory, now_ms: int) -> list[str]:
    """Return sentences about a group: the cause first, then late members and what to do."""
    if group.group_type == "classic":
        return list(_explain_classic(group, history, now_ms))
    return list(_explain_epochs(group, history, now_ms))


def _explain_classic(group: GroupDescription, history: GroupHistory, now_ms: int) -> Iterator[str]:
    count = _count(len(group.members), "member")
    since = _since(history.changed_ms, now_ms)
    agreed = "" if history.generation is None else f" on generation {history.generation}"
    match group.state:
        case "Stable":
            yield f"{group.group_id} is stable: {count} agreed{agreed}{since and ','}{since}."
        case "Empty":
            yield f"{group.group_id} has no members. Its offsets are kept."
        case "PreparingRebalance":
            yield (
                f"{group.group_id} is rebalancing: it waits for its {count} to join again. "
                f"It last agreed{agreed}{since and ','}{since or ', it is not known here when'}."
            )
            yield from _changed_members(group, history)
            longest_ms = max(history.rebalance_timeout_ms.values(), default=-1)
            limit = f" ({_duration(longest_ms)})" if longest_ms >= 0 else ""
            yield (
                "A classic group does not show which of them have joined. A member that has not "
                f"within its rebalance timeout, max.poll.interval.ms of consumers{limit}, is "
                "removed: look for one that takes long to process what it polled."
            )
        case "CompletingRebalance":
            yield (
                f"{group.group_id} is rebalancing: {count} joined and wait for the assignment "
                "that the leader among them computes."
            )
            yield from _changed_members(group, history)
            yield "If this lasts, the leader is stuck or gone; its session timeout ends it."
        case other:
            yield f"{group.group_id} is {other}."


def _changed_members(group: GroupDescription, history: GroupHistory) -> Iterator[str]:
    """Name the members that joined or left since the last generation, causing the rebalance."""
    if history.generation is None:
        return
    now, before = {member.member_id for member in group.members}, set(history.former_members)
    for member in group.members:
        if member.member_id not in before:
            yield f"New since then: {_name(member)}."
    for member_id in sorted(before - now):
        yield f"Gone since then: {member_id}; it left, or its session timed out."
    if now == before:
        yield "The members are the same: one of them rejoined, or its topics changed."


def _explain_epochs(group: GroupDescription, history: GroupHistory, now_ms: int) -> Iterator[str]:
    count = _count(len(group.members), "member")
    since = _since(history.changed_ms, now_ms)
    if group.is_empty:
        yield f"{group.group_id} has no members. Its offsets are kept."
        return
    late = [member for member in group.members if is_late(group, member)]
    if group.epoch != group.assignment_epoch:
        yield (
            f"{group.group_id} is rebalancing: epoch {group.epoch}, begun{since or ' of late'}, "
            f"has no assignment yet; the last one is of epoch {group.assignment_epoch}."
        )
    elif late:
        yield (
            f"{group.group_id} is rebalancing: {len(late)} of {count} do not have what epoch "
            f"{group.epoch} gives them; it began{since or ' at a time that is not known here'}."
        )
    else:
        began = f", which began{since}" if since else ""
        yield f"{group.group_id} is stable: {count} at epoch {group.epoch}{began}."
    owners = {partition: member for member in group.members for partition in member.assignment}
    for member in late:
        yield from _explain_late(member, owners, history, now_ms)
    old = [member for member in group.members if member.is_classic]
    if old and len(old) < len(group.members):
        yield (
            f"{_count(len(old), 'member')} of {len(group.members)} speak the classic protocol: "
            "the group is migrating between protocols."
        )


def is_late(group: GroupDescription, member: GroupMember) -> bool:
    """Return whether a member has not reached its target."""
    if member.epoch is not None and group.epoch is not None and member.epoch < group.epoch:
        return True
    return member.target is not None and set(member.target) != set(member.assignment)


def _explain_late(
    member: GroupMember,
    owners: dict[TopicPartition, GroupMember],
    history: GroupHistory,
    now_ms: int,
) -> Iterator[str]:
    target = set(member.assignment if member.target is None else member.target)
    surplus = sorted(set(member.assignment) - target)
    missing = sorted(target - set(member.assignment))
    moved = _since(history.moved_ms.get(member.member_id), now_ms)
    yield f"Late: {_name(member)}, at epoch {member.epoch}{moved and ', to which it moved'}{moved}."
    if surplus:
        timeout_ms = history.rebalance_timeout_ms.get(member.member_id, -1)
        limit = (
            f" It is fenced {_duration(timeout_ms)} after it was asked to."
            if timeout_ms > 0
            else ""
        )
        yield f"  It has to give up {_partitions(surplus)}, and has not confirmed that.{limit}"
    for partition in missing[:SHOWN_PARTITIONS_MAX]:
        owner = owners.get(partition)
        if owner is not None and owner is not member:
            yield f"  It waits for {partition}, which {_name(owner)} still has."
    free = [partition for partition in missing if partition not in owners]
    if free:
        yield f"  It may take {_partitions(free)} with its next heartbeat."
    if member.target is None:
        yield "  It gets its assignment with its next heartbeat."
    elif not surplus and not missing:
        yield "  It has its partitions and has not confirmed the epoch with a heartbeat."


def _name(member: GroupMember) -> str:
    label = member.instance_id or member.client_id
    return f"{member.member_id} ({label} at {member.host.removeprefix('/')})"


def _partitions(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(map(str, partitions[:SHOWN_PARTITIONS_MAX]))
    more = len(partitions) - SHOWN_PARTITIONS_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _since(at_ms: int | None, now_ms: int) -> str:
    return "" if at_ms is None else f" {_duration(max(now_ms - at_ms, 0))} ago"


def _duration(duration_ms: int) -> str:
    seconds = duration_ms // 1000
    if seconds < 120:
        return f"{duration_ms / 1000:.1f} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"
