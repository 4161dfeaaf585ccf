"""How a member of a consumer group joins and advances, whichever protocol it uses.

A request names the member: a returning static one (KIP-345) takes over its previous place
(`take_place`). Its subscription is written (`subscribe`); the group epoch and the target follow;
the member makes its next step towards the target (`advance`).
"""

from dataclasses import replace

from headrace.groups.consumer.deadlines import forget_deadlines, watch_revocation
from headrace.groups.consumer.draft import Draft
from headrace.groups.consumer.members import ConsumerMember, Owned
from headrace.groups.consumer.reconciliation import Progress, reconcile
from headrace.groups.consumer.records import (
    current_record,
    member_record,
    member_tombstones,
    pattern_tombstone,
    target_record,
)
from headrace.groups.consumer.regex_subscriptions import match_patterns
from headrace.groups.consumer.target import bump_epoch, update_target, wanted_topics
from headrace.groups.heartbeats import JOINING_EPOCH
from headrace.groups.regular_expressions import check_pattern
from headrace.groups.state import GroupsState, MemberId


def take_place(
    state: GroupsState, draft: Draft, former: ConsumerMember, member_id: MemberId
) -> ConsumerMember:
    """Move a returning static member's assignment to its new id."""
    group_id, target = draft.group.group_id, draft.group.target_of(former.member_id)
    successor = replace(
        former, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH
    )
    draft.write(
        *member_tombstones(group_id, former.member_id),
        member_record(group_id, successor),
        target_record(group_id, member_id, target),
        current_record(group_id, successor),
    )
    forget_deadlines(state, group_id, former.member_id)
    return successor


def subscribe(
    state: GroupsState,
    draft: Draft,
    before: ConsumerMember | None,
    updated: ConsumerMember,
    now_ms: int,
) -> bool:
    """Write what the member wants, and the group epoch that follows.

    Gives whether it wants other topics than before, as far as it is known what it wants.
    """
    group_id = draft.group.group_id
    had_topics = frozenset(draft.group.topics_of(before)) if before else frozenset()
    had_pattern = before.topic_pattern if before else ""
    had_names = before.topic_names if before else ()
    if before is None or before.described() != updated.described():
        if updated.topic_pattern and updated.topic_pattern != had_pattern:
            check_pattern(updated.topic_pattern)
        draft.write(member_record(group_id, updated))
        if had_pattern and had_pattern not in draft.group.subscribed_patterns:
            draft.write(pattern_tombstone(group_id, had_pattern))
    has_matched = match_patterns(state, draft, now_ms)
    group = draft.group
    is_changed = had_topics != frozenset(group.topics_of(updated))
    bump_epoch(state, draft, is_due=is_changed or has_matched or had_names != updated.topic_names)
    is_unresolved = bool(updated.topic_pattern) and updated.topic_pattern not in group.patterns
    return is_changed and not is_unresolved


def advance(
    state: GroupsState,
    draft: Draft,
    member_id: MemberId,
    owned: Owned | None,
    now_ms: int,
    *,
    is_subscription_new: bool,
) -> ConsumerMember:
    """Compute a target if it is time, and give the member after one step towards it."""
    update_target(state, draft, now_ms)
    group = draft.group
    after = current = group.members[member_id]
    if is_subscription_new or not current.is_reconciled_to(group.assignment_epoch):
        wanted = wanted_topics(group, current, state.image)
        after = reconcile(group, current, Progress(wanted, owned, is_subscription_new))
    if after != current:
        draft.write_last(current_record(group.group_id, after))
        watch_revocation(state, group.group_id, after, now_ms)
    return after
