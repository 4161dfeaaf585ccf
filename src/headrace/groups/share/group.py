"""A share group (KIP-932), as built from its records.

Three numbers define its progress, as in a consumer group: the *group epoch* grows whenever a member
joins, leaves or changes its subscription, and whenever a topic changes; a *target assignment* is
computed for it; a *member epoch* is that of the target which a member has. No member has to revoke
first, because partitions are shared: a member moves straight to the target with its next heartbeat.

The group also tracks the states of its partitions (`share.states`). Members are only assigned
partitions whose state is known to be initialized.

Groups change by the functions of `share.records`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.groups.assignors import Assignment
from headrace.groups.heartbeats import FIRST_EPOCH
from headrace.groups.share.members import ShareMember
from headrace.groups.state import GroupId, GroupKind, MemberId
from headrace.ids import TopicId

_NOTHING: Final[Assignment] = {}


@dataclass(frozen=True, slots=True)
class StateTopic:
    """Partitions of a topic whose states are in the same condition."""

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[TopicId, StateTopic]


@dataclass(frozen=True, slots=True)
class States:
    """What a group knows of the states of its partitions: one record."""

    initializing: StateTopics = field(default_factory=dict)
    """Whoever keeps the states was to be told to begin; not known yet whether it did."""
    initialized: StateTopics = field(default_factory=dict)
    deleting: Mapping[TopicId, str] = field(default_factory=dict)
    """Topics, by name, whose states are to be forgotten."""

    def topic_ids(self) -> set[TopicId]:
        """Return all topics that something is known of."""
        return {*self.initializing, *self.initialized, *self.deleting}


@dataclass(slots=True)
class ShareGroup:
    """A group whose members share partitions, record by record."""

    group_id: GroupId
    kind: GroupKind = GroupKind.SHARE
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """The hash of the topics that members are subscribed to, at the group epoch."""
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    members: dict[MemberId, ShareMember] = field(default_factory=dict)
    targets: dict[MemberId, Assignment] = field(default_factory=dict)
    states: States = field(default_factory=States)

    # Not in the log: what heartbeats note for each other.
    checked_index: int = -1
    """The index of the image for which the metadata hash was found to be right."""
    whole_at: tuple[int, int] | None = None
    """The index of the image, and the group epoch, at which no state was left to begin."""
    may_have_new_states: bool = True
    """Whether partitions may have become assignable that the target does not have."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def protocol_type(self) -> str:
        return "share"

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topic_names for member in self.members.values())

    def target_of(self, member_id: MemberId) -> Assignment:
        return self.targets.get(member_id, _NOTHING)


def subscribed_topics(members: Mapping[MemberId, ShareMember]) -> frozenset[str]:
    """Return all topics that members want, whether they exist or not."""
    # Most members of a group want the same.
    return frozenset[str]().union(*{member.topic_names for member in members.values()})
