"""A member of a consumer group (KIP-848): its subscription, its assignment and its state.

Members are never changed, only replaced.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from headrace.groups.classic.members import OfferedProtocol
from headrace.groups.heartbeats import JOINING_EPOCH
from headrace.groups.state import MemberId
from headrace.ids import TopicId
from headrace.wire.messages.consumer_group_member_metadata_value import ClassicMemberMetadata

EpochsByPartition: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""Partitions that a member has, and the epoch at which it got each."""
NO_PARTITIONS: Final[EpochsByPartition] = {}
_NO_INDEXES: Final[Mapping[int, int]] = {}
Owned: TypeAlias = Mapping[TopicId, frozenset[int]]
"""Partitions that a member says it reads."""
Subscription: TypeAlias = tuple[tuple[str, ...], str]
"""Names of topics, in order, and a pattern."""


class MemberState(IntEnum):
    """How far a member is on its way to the target, by Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has been told to give up partitions and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members still have."""


TRANSITIONS: Final[Mapping[MemberState, Mapping[MemberState, str]]] = {
    MemberState.STABLE: {
        MemberState.STABLE: "a newer target takes nothing from it, and all it gets is free",
        MemberState.UNREVOKED_PARTITIONS: "it reads what a newer target takes away",
        MemberState.UNRELEASED_PARTITIONS: "others still have what a newer target gives it",
    },
    MemberState.UNREVOKED_PARTITIONS: {
        MemberState.UNREVOKED_PARTITIONS: "it unsubscribes from more, or the target changed",
        MemberState.STABLE: "it gave up, and all it gets is free",
        MemberState.UNRELEASED_PARTITIONS: "it gave up, and others still have what it gets",
    },
    MemberState.UNRELEASED_PARTITIONS: {
        MemberState.UNRELEASED_PARTITIONS: "some of what it gets became free",
        MemberState.STABLE: "all it gets became free",
        MemberState.UNREVOKED_PARTITIONS: "it reads what a newer target takes away",
    },
}
"""Where a member may go from each state with a heartbeat, and why."""


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
    """The metadata of a member that speaks the classic protocol."""

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
        """Return what the client sent: the contents of its member record."""
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
        """Return all partitions that it may be reading."""
        for partitions in (self.assigned, self.revoking):
            for topic_id, indexes in partitions.items():
                for index in indexes:
                    yield topic_id, index

    def assignment_epoch(self, topic_id: TopicId, index: int) -> int | None:
        """Return the epoch at which it got a partition; None if it cannot be reading it."""
        for partitions in (self.assigned, self.revoking):
            if (epoch := partitions.get(topic_id, _NO_INDEXES).get(index)) is not None:
                return epoch
        return None
