"""How each kind of group takes part in the administration of offsets and groups.

Committing, fetching, expiring and deleting are the same for all kinds. Which members there are, how
long offsets are kept and which records a group consists of depends on the kind; there is one entry
per kind. A group with committed offsets that no member joins has no records of its own: it exists
as long as its offsets do.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.description import describe
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.offsets import (
    on_offsets_committed,
    retained_from_ms,
    validate_offset_commit,
    validate_offset_deletion,
)
from headrace.groups.classic.records import group_tombstone
from headrace.groups.consumer import offsets as consumer_offsets
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.records import group_tombstones
from headrace.groups.offsets.store import CommittedOffset
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.records import group_tombstones as share_tombstones
from headrace.groups.state import Group, GroupId, GroupKind, GroupsState, PartitionCheck
from headrace.groups.streams import offsets as streams_offsets
from headrace.groups.streams import records as streams_records
from headrace.groups.streams.group import StreamsGroup
from headrace.wire.messages.describe_groups_response import DescribedGroup

NO_GENERATION: Final = -1


class Committer(NamedTuple):
    """The committing member, as the request names it."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION
    """Or the epoch of a member of a consumer group."""
    version: int = 0
    """The version of the request."""
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class KindRules:
    """How groups of one kind are dealt with."""

    check_commit: Callable[[GroupsState, Any, Committer, int], PartitionCheck | None]
    """Raises the KafkaError that a commit is refused with; else gives what to ask of each partition
    beside, if anything. Takes the time, as a commit may be a sign of life."""
    check_fetch: Callable[[Any, str, int], None]
    """Raises the KafkaError that a member, who says its epoch, is refused offsets with."""
    check_offset_deletion: Callable[[Any], None]
    retained_from_ms: Callable[[Any, CommittedOffset], int | None]
    """Returns when the age of an offset starts; None if it cannot expire at present."""
    tombstones: Callable[[Any], Iterable[CoordinatorRecord]]
    """Returns the records that delete a group."""
    describe: Callable[[Any], DescribedGroup] | None = None
    """For kinds that DescribeGroups knows."""


@dataclass(slots=True)
class OffsetsOnlyGroup:
    """A group without members, known by its offsets: a consumer that assigns for itself."""

    group_id: GroupId
    kind: GroupKind = GroupKind.CLASSIC
    state_name: str = "Empty"
    protocol_type: str = ""
    is_empty: bool = True

    def is_subscribed_to(self, topic: str) -> bool:
        return False


def find_group(state: GroupsState, group_id: str) -> Group | None:
    """Return a group, even if it has no members or only offsets."""
    group = state.groups.get(GroupId(group_id))
    if group is None and group_id in state.offsets:
        return OffsetsOnlyGroup(GroupId(group_id))
    return group


def all_groups(state: GroupsState) -> Iterable[Group]:
    yield from state.groups.values()
    for group_id in state.offsets.groups():
        if group_id not in state.groups:
            yield OffsetsOnlyGroup(GroupId(group_id))


def rules_of(group: Group) -> KindRules:
    if isinstance(group, OffsetsOnlyGroup):
        return _OFFSETS_ONLY
    return _RULES[group.kind]


# Groups of offsets only


def _refuse_members(
    state: GroupsState, group: OffsetsOnlyGroup, committer: Committer, now_ms: int
) -> None:
    if committer.generation > NO_GENERATION:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.group_id!r} has no members, so it has no member {committer.member_id!r}",
        )


def _allow_fetch(group: Group, member_id: str, epoch: int) -> None:
    """Allow every client to fetch offsets, as classic groups do."""


def _allow_deletion(group: Group) -> None:
    """Allow every client to delete offsets."""


def _committed_at_ms(group: Group, offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms


_OFFSETS_ONLY: Final = KindRules(
    check_commit=_refuse_members,
    check_fetch=_allow_fetch,
    check_offset_deletion=_allow_deletion,
    retained_from_ms=_committed_at_ms,
    tombstones=lambda group: (),  # nothing but its offsets says that it exists
    describe=lambda group: DescribedGroup(group_id=group.group_id, group_state=group.state_name),
)

# Classic groups


def _check_classic_commit(
    state: GroupsState, group: ClassicGroup, committer: Committer, now_ms: int
) -> None:
    member_id, instance_id, generation, _, is_transactional = committer
    validate_offset_commit(group, member_id, instance_id, generation, is_transactional)
    on_offsets_committed(state, group, member_id, now_ms)


_CLASSIC: Final = KindRules(
    check_commit=_check_classic_commit,
    check_fetch=_allow_fetch,
    check_offset_deletion=validate_offset_deletion,
    retained_from_ms=retained_from_ms,
    tombstones=lambda group: (group_tombstone(group.group_id),),
    describe=describe,
)


# Consumer groups


def _check_consumer_commit(
    state: GroupsState, group: ConsumerGroup, committer: Committer, now_ms: int
) -> PartitionCheck | None:
    return consumer_offsets.validate_offset_commit(
        group,
        committer.member_id,
        committer.generation,
        version=committer.version,
        is_transactional=committer.is_transactional,
    )


_CONSUMER: Final = KindRules(
    check_commit=_check_consumer_commit,
    check_fetch=consumer_offsets.validate_offset_fetch,
    check_offset_deletion=_allow_deletion,
    retained_from_ms=_committed_at_ms,
    tombstones=group_tombstones,
)


# Streams groups


def _check_streams_commit(
    state: GroupsState, group: StreamsGroup, committer: Committer, now_ms: int
) -> PartitionCheck | None:
    return streams_offsets.validate_offset_commit(
        state, group, committer.member_id, committer.generation
    )


_STREAMS: Final = KindRules(
    check_commit=_check_streams_commit,
    check_fetch=streams_offsets.validate_offset_fetch,
    check_offset_deletion=_allow_deletion,
    retained_from_ms=_committed_at_ms,
    tombstones=streams_records.group_tombstones,
)


# Share groups


def _refuse_share_commit(
    state: GroupsState, group: ShareGroup, committer: Committer, now_ms: int
) -> None:
    _refuse_offsets(group)


def _refuse_offsets(group: ShareGroup) -> None:
    raise KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"group {group.group_id!r} is a share group, which commits no offsets",
    )


_SHARE: Final = KindRules(
    check_commit=_refuse_share_commit,
    check_fetch=_allow_fetch,
    check_offset_deletion=_refuse_offsets,
    retained_from_ms=_committed_at_ms,
    tombstones=share_tombstones,
)
_RULES: Final[Mapping[GroupKind, KindRules]] = {
    GroupKind.CLASSIC: _CLASSIC,
    GroupKind.CONSUMER: _CONSUMER,
    GroupKind.SHARE: _SHARE,
    GroupKind.STREAMS: _STREAMS,
}
