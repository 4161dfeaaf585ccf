"""How a member of a streams group moves from its current tasks to its target.

First it revokes the tasks that it loses, and confirms that; then its epoch advances and it takes
the tasks that no other member still has, and continues until it has everything.
"""

from dataclasses import replace

from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.members import MemberState, StreamsMember
from headrace.groups.streams.tasks import NOTHING_TO_RUN, Tasks


def reconcile(
    group: StreamsGroup,
    member: StreamsMember,
    target: Tasks,
    target_epoch: int,
    reported: Tasks | None,
) -> StreamsMember:
    """Return the member one step closer to its target; unchanged if there is nothing to do.

    `reported` is what it says it has, None if it does not say.
    """
    if member.state is MemberState.STABLE:
        if member.epoch == target_epoch:
            return member
    elif member.state is MemberState.UNREVOKED_TASKS and (
        reported is None or reported.intersects(member.revoking)
    ):
        return member
    kept, revoking = member.assigned.kept(target), member.assigned.without(target)
    if not revoking.is_empty and (reported is None or reported.intersects(revoking)):
        return replace(
            member,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED_TASKS,
            assigned=kept,
            revoking=revoking,
        )
    wanted = target.without(kept)
    taken = group.releasable(wanted, member.process_id)
    assigned = kept.joined(taken)
    known = member.active_epochs
    return replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        state=MemberState.STABLE if taken == wanted else MemberState.UNRELEASED_TASKS,
        assigned=assigned,
        revoking=NOTHING_TO_RUN,
        active_epochs={
            task: known[task] if task in kept.active else target_epoch for task in assigned.active
        },
    )
