"""Which requests may commit and delete offsets of a classic group, and how long they are kept."""

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.deadlines import keep_session
from headrace.groups.classic.embedded_protocol import CONSUMER_PROTOCOL_TYPE
from headrace.groups.classic.group import ClassicGroup, ClassicState
from headrace.groups.classic.responses import rebalancing
from headrace.groups.offsets.store import CommittedOffset
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
    """Treat a commit as a heartbeat, as Kafka does."""
    member = group.members.get(MemberId(member_id))
    is_between = group.state is ClassicState.COMPLETING_REBALANCE
    if member is not None and not is_between:
        keep_session(state, group, member, now_ms)


def validate_offset_deletion(group: ClassicGroup) -> None:
    """Raise NON_EMPTY_GROUP if members are no consumers, of whose topics nothing is known."""
    if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.group_id!r} has members of type {group.protocol_type!r}, so it is not "
            "known which offsets they use",
        )


def retained_from_ms(group: ClassicGroup, offset: CommittedOffset) -> int | None:
    """Return since when an offset grows old; None if it does not while the group is as it is."""
    if not group.protocol_type:  # nobody has ever joined
        return offset.commit_timestamp_ms
    if group.is_empty:
        is_known = group.state_since_ms >= 0
        return group.state_since_ms if is_known else offset.commit_timestamp_ms
    is_settled = group.state is ClassicState.STABLE
    if is_settled and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return offset.commit_timestamp_ms
    return None
