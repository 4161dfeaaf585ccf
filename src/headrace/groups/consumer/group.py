"""A consumer group (KIP-848) and its members: what its records made of it.

Three numbers hold it together. The *group epoch* grows whenever somebody joins, leaves or wants
other topics, and whenever a topic changes. A *target assignment* is computed for it and has its
epoch. Each member works towards the target by its own heartbeats: what it has is its *current
assignment*, and its *member epoch* is that of the target which it has reached.

Members are never changed, only replaced; groups change by the functions of `consumer.records`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, TypeAlias

from headrace.groups.assignors import Assignment
from headrace.groups.classic.member import OfferedProtocol
from headrace.groups.state import GroupId, GroupKind, MemberId
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
FIRST_EPOCH: Final = 1
"""Of a group that was never bumped: a member's epoch is never that of one who joins."""

EpochsByPartition: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""Partitions that a member has, and the epoch at which it got each."""
NO_PARTITIONS: Final[EpochsByPartition] = {}
Subscription: TypeAlias = tuple[tuple[str, ...], str]
"""Names of topics, in order, and a pattern."""
_NOTHING: Final[Assignment] = {}


class MemberState(IntEnum):
    """How far a member is on its way to the target, by Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been told to give up partitions and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members still have."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member: what it said, and what it has."""

    member_id: MemberId
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Subscribed to by name, in order."""
    topic_pattern: str = ""
    """Subscribed to by a regular expression; empty if not."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic_metadata: ClassicMemberMetadata | None = None
    """Of a member that speaks the classic protocol."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: EpochsByPartition = field(default_factory=dict)
    revoking: EpochsByPartition = field(default_factory=dict)
    """What it has to give up and still may have."""

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.classic_metadata is not None

    @property
    def subscription(self) -> Subscription:
        return self.topic_names, self.topic_pattern

    @property
    def classic_protocols(self) -> tuple[OfferedProtocol, ...]:
        """What a member of the classic protocol offers, what it likes best first."""
        if self.classic_metadata is None:
            return ()
        return tuple(
            OfferedProtocol(each.name, bytes(each.metadata))
            for each in self.classic_metadata.supported_protocols
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def described(self) -> tuple[object, ...]:
        """Give what it said: what its member record holds."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topic_names,
            self.topic_pattern,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic_metadata,
        )

    def held(self) -> Iterable[tuple[TopicId, int]]:
        """Give all partitions that it may be reading."""
        for partitions in (self.assigned, self.revoking):
            for topic_id, indexes in partitions.items():
                for index in indexes:
                    yield topic_id, index

    def assignment_epoch(self, topic_id: TopicId, index: int) -> int | None:
        """Give the epoch at which it got a partition; None if it may not be reading it."""
        for partitions in (self.assigned, self.revoking):
            if (epoch := partitions.get(topic_id, _NO_INDEXES).get(index)) is not None:
                return epoch
        return None


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
    """Of the topics that members are subscribed to, at the group epoch."""
    assignment_epoch: int = FIRST_EPOCH
    assignment_timestamp_ms: int = 0
    members: dict[MemberId, ConsumerMember] = field(default_factory=dict)
    targets: dict[MemberId, Assignment] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    owners: dict[tuple[TopicId, int], MemberId] = field(default_factory=dict)
    """Who may be reading a partition."""
    static_members: dict[str, MemberId] = field(default_factory=dict)
    """By instance id."""

    checked_index: int = -1
    """The index of the image for which the metadata hash was found to be right. Not in the log."""
    patterns_checked_ms: int = 0
    patterns_checked_index: int = -1
    """When, and for which image, patterns were matched last. Not in the log."""
    matched_names: frozenset[str] | None = None
    """The topics that all patterns with a result were matched with. Not in the log."""
    is_matching: bool = False
    """Whether patterns are being matched elsewhere. Not in the log."""
    assigning_epoch: int | None = None
    """The epoch for which a target is being computed elsewhere. Not in the log."""
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
        """Give the assignor that most members want, the first of those known if none does."""
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
        """Give a group that may be changed without this one being so."""
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
