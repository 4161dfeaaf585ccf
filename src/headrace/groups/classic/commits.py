"""Who may commit offsets for a classic group, and how long its offsets are kept."""

from headrace.groups.classic.answers import rebalancing
from headrace.groups.classic.deadlines import keep_session
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.state import GroupsState, MemberId


def validate_offset_commit(
    group: ClassicGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    is_transactional: bool,
) -> None:
    """Raise the KafkaError that a commit is refused with, if it is.

    A tool, or a consumer that assigns partitions for itself, has neither an id nor a generation:
    it may commit while the group has no members.
    """
    if generation < 0 and group.state is ClassicState.EMPTY:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.find_member(member_id, instance_id)
        group.check_generation(generation)
    elif not is_transactional:
        raise group.unknown(member_id)
    if not is_transactional and group.state is ClassicState.COMPLETING_REBALANCE:
        # It knows the generation and not yet what it has to read in it.
        raise rebalancing(group)


def on_offsets_committed(
    state: GroupsState, group: ClassicGroup, member_id: str, now_ms: int
) -> None:
    """Take a commit as a sign of life, as Kafka does."""
    member = group.members.get(MemberId(member_id))
    is_between = group.state is ClassicState.COMPLETING_REBALANCE
    if member is not None and not is_between:
        keep_session(state, group, member, now_ms)
