"""A consumer group (KIP-848), as built from its records.

Three numbers define its progress. The *group epoch* grows whenever a member joins, leaves or
changes its subscription, and whenever a topic changes. A *target assignment* is computed for it and
has its epoch. Each member works towards the target by its own heartbeats: what it has is its
*current assignment*, and its *member epoch* is that of the target which it has reached.

Groups change by the functions of `consumer.records`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.groups.assignors import Assignment
from headrace.groups.classic.members import OfferedProtocol
from headrace.groups.consumer.members import ConsumerMember, Subscription
from headrace.groups.heartbeats import FIRST_EPOCH
from headrace.groups.state import GroupId, GroupKind, MemberId
from headrace.ids import TopicId

_NOTHING: Final[Assignment] = {}
_NO_INDEXES: Final[Mapping[int, int]] = {}


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a pattern stood for, at a version of the metadata and a time."""

    topics: frozenset[str]
    metadata_version: int
    timestamp_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """A group whose members speak the consumer protocol."""

    group_id: GroupId
    kind: GroupKind = GroupKind.CONSUMER
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    """The hash of the topics that members are subscribed to, at the group epoch."""
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    members: dict[MemberId, ConsumerMember] = field(default_factory=dict)
    targets: dict[MemberId, Assignment] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    owners: dict[tuple[TopicId, int], MemberId] = field(default_factory=dict)
    """The member that may be reading a partition."""
    static_members: dict[str, MemberId] = field(default_factory=dict)
    """By instance id."""

    checked_index: int = -1
    """The index of the image for which the metadata hash was found to be right. Not in the log."""
    patterns_checked_ms: int = 0
    patterns_checked_index: int = -1
    """When, and for which image, patterns were matched last. Not in the log."""
    matched_names: frozenset[str] | None = None
    """The topics that all patterns with a result were matched with. Not in the log."""
    subscriptions: dict[Subscription, int] = field(default_factory=dict)
    """What members are subscribed to, and how many of them to the same."""
    _subscribed: frozenset[str] | None = None
    _patterns: frozenset[str] | None = None
    _is_reconciled: bool | None = None

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if self._is_reconciled is None:
            self._is_reconciled = all(
                member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
            )
        return "Stable" if self._is_reconciled else "Reconciling"

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """All topics that a member wants, whether they exist or not."""
        if self._subscribed is None:
            # Most members of a group want the same.
            self._subscribed = frozenset[str]().union(
                *(self.topics_under(subscription) for subscription in self.subscriptions)
            )
        return self._subscribed

    def topics_of(self, member: ConsumerMember) -> Collection[str]:
        """Return the topics that a member wants, by name or by pattern."""
        return self.topics_under(member.subscription)

    def topics_under(self, subscription: Subscription) -> Collection[str]:
        """Return the topics of a subscription, by name or by pattern."""
        names, pattern = subscription
        resolved = self.patterns.get(pattern) if pattern else None
        if resolved is None:
            return names
        return resolved.topics.union(names) if names else resolved.topics

    @property
    def subscribed_patterns(self) -> frozenset[str]:
        if self._patterns is None:
            self._patterns = frozenset(pattern for _, pattern in self.subscriptions if pattern)
        return self._patterns

    def target_of(self, member_id: MemberId) -> Assignment:
        return self.targets.get(member_id, _NOTHING)

    def is_free(self, topic_id: TopicId, index: int, member_id: MemberId) -> bool:
        """Whether no other member may be reading a partition."""
        return self.owners.get((topic_id, index), member_id) == member_id

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether others may still be reading what a member is to get."""
        return any(
            index not in member.assigned.get(topic_id, _NO_INDEXES)
            and not self.is_free(topic_id, index, member.member_id)
            for topic_id, indexes in self.target_of(member.member_id).items()
            for index in indexes
        )

    def supports(self, protocols: Iterable[OfferedProtocol]) -> bool:
        """Whether a classic member that offers these has one with all other such members."""
        offers = [
            {protocol.name for protocol in each.classic_protocols}
            for each in self.members.values()
            if each.is_classic
        ]
        return any(all(name in names for names in offers) for name, _ in protocols)

    def preferred_assignor(self, known: tuple[str, ...]) -> str:
        """Return the assignor that most members want, or the first known one."""
        votes = [each.assignor for each in self.members.values() if each.assignor in known]
        return max(known, key=votes.count)

    # Changes: for the functions that replay records

    def put_member(self, member: ConsumerMember) -> None:
        former = self.members.get(member.member_id)
        if former is not None and former.instance_id != member.instance_id:
            self._forget_instance(former)
        self._release(former)
        self.members[member.member_id] = member
        if former is None or former.subscription != member.subscription:
            self._unsubscribe(former)
            wanted = member.subscription
            self.subscriptions[wanted] = self.subscriptions.get(wanted, 0) + 1
            self._subscribed = self._patterns = None
        self._is_reconciled = None
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        for place in member.held():
            self.owners[place] = member.member_id

    def remove_member(self, member_id: MemberId) -> None:
        former = self.members.pop(member_id, None)
        if former is not None:
            self._forget_instance(former)
        self._release(former)
        self._unsubscribe(former)
        self.forget_derived()

    def forget_derived(self) -> None:
        """Compute anew what follows from the members, when it is asked for."""
        self._subscribed = self._patterns = self._is_reconciled = None

    def copy(self) -> "ConsumerGroup":
        """Return a copy of the group that can be changed independently."""
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            patterns=dict(self.patterns),
            owners=dict(self.owners),
            static_members=dict(self.static_members),
            subscriptions=dict(self.subscriptions),
        )

    def _unsubscribe(self, former: ConsumerMember | None) -> None:
        if former is None:
            return
        wanted = former.subscription
        self.subscriptions[wanted] -= 1
        if not self.subscriptions[wanted]:
            del self.subscriptions[wanted]

    def _release(self, former: ConsumerMember | None) -> None:
        if former is None:
            return
        for place in former.held():
            # Another may have it by now: a compacted log has the end of a member after the
            # beginning of the next.
            if self.owners.get(place) == former.member_id:
                del self.owners[place]

    def _forget_instance(self, former: ConsumerMember) -> None:
        instance_id = former.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == former.member_id:
            del self.static_members[instance_id]
