"""A classic group: its members, its generation, and its state in a rebalance.

What a record holds (the generation, its protocol and leader, members with their assignments) is
restored by replay. The rest, such as pending responses and members that have yet to join, is lost
with this node, and members rejoin. A rebalance changes the group before anything is written: as in
Kafka, a generation that never got its assignment leaves no trace in the log.

Only the group itself: `classic.rebalance` handles the consequences of a change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from headrace.coordinator.machine import Reply
from headrace.coordinator.placement import java_hash
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.embedded_protocol import CONSUMER_PROTOCOL_TYPE, topics_of
from headrace.groups.classic.members import ClassicMember, OfferedProtocol
from headrace.groups.state import GroupId, GroupKind, MemberId
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.sync_group_response import SyncGroupResponse


class ClassicState(Enum):
    """Where a group is, by the names that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are to join again; who has, waits for the others."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All know the generation; the assignment of its leader is awaited."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted. Tools show it for groups that are none; no group that is kept is in it."""


TRANSITIONS: Final[Mapping[ClassicState, Mapping[ClassicState, str]]] = {
    ClassicState.EMPTY: {
        ClassicState.PREPARING_REBALANCE: "a member joins",
        ClassicState.DEAD: "deleted or expired",
    },
    ClassicState.PREPARING_REBALANCE: {
        ClassicState.COMPLETING_REBALANCE: "all have joined, or time is up",
        ClassicState.EMPTY: "nobody has joined",
        ClassicState.DEAD: "deleted or expired",
    },
    ClassicState.COMPLETING_REBALANCE: {
        ClassicState.STABLE: "the leader syncs its assignment",
        ClassicState.PREPARING_REBALANCE: "a member joins, leaves or is late",
        ClassicState.DEAD: "deleted or expired",
    },
    ClassicState.STABLE: {
        ClassicState.PREPARING_REBALANCE: "a member joins, leaves or is late",
        ClassicState.STABLE: "a static member takes its place again",
        ClassicState.DEAD: "deleted or expired",
    },
    ClassicState.DEAD: {},
}
"""Where a group may go from each state, and why."""


class InitialWait(NamedTuple):
    """How long a group that was empty still waits for more members."""

    delay_ms: int
    """The wait under way."""
    left_ms: int
    """What may follow it, if members came meanwhile."""


@dataclass(slots=True)
class ClassicGroup:
    """One group."""

    group_id: GroupId
    kind: GroupKind = GroupKind.CLASSIC
    state: ClassicState = ClassicState.EMPTY
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str = ""
    """What its members are: `consumer`, `connect` and so on; empty before the first."""
    protocol_name: str | None = None
    leader: MemberId | None = None
    members: dict[MemberId, ClassicMember] = field(default_factory=dict)
    static_members: dict[str, MemberId] = field(default_factory=dict)
    """By instance id."""
    pending_joins: set[MemberId] = field(default_factory=set)
    """Ids that were given out (KIP-394) and have not come back yet."""
    pending_syncs: set[MemberId] = field(default_factory=set)
    """Members of this generation that have not asked for their assignment yet."""
    join_replies: dict[MemberId, Reply[JoinGroupResponse]] = field(default_factory=dict)
    """Members that have joined the generation to come, and wait for it."""
    sync_replies: dict[MemberId, Reply[SyncGroupResponse]] = field(default_factory=dict)
    """Members that wait for their assignment."""
    initial_wait: InitialWait | None = None
    has_grown: bool = False
    """Whether a member came during the initial wait."""
    _supporters: dict[str, int] = field(default_factory=dict)
    """By protocol: how many members know it."""
    _topics: frozenset[str] | None = None
    _topics_generation: int = -1

    # What is asked of groups of every kind

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member wants a topic. Of members that are no consumers nothing is known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self._topics_generation != self.generation:
            self._topics_generation = self.generation
            name = self.protocol_name
            self._topics = topics_of(each.metadata(name) for each in self.members.values())
        return self._topics is None or topic in self._topics

    # Looking up

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to join again: as long as the slowest asks for."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def have_all_joined(self) -> bool:
        return len(self.join_replies) == len(self.members) and not self.pending_joins

    def find_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return a member; KafkaError if it is unknown or fenced by another one."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is not None and current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"member {member_id!r} of group {self.group_id!r}: its instance id "
                    f"{instance_id!r} is in use by a later member, {current!r}",
                )
            if current is None:
                raise self.unknown(member_id)
        member = self.members.get(MemberId(member_id))
        if member is None:
            raise self.unknown(member_id)
        return member

    def check_generation(self, generation: int) -> None:
        """KafkaError if it is not the one that the group is in."""
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"generation {generation}: group {self.group_id!r} is in {self.generation}",
            )

    def unknown(self, member_id: str) -> KafkaError:
        return KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no member {member_id!r}"
        )

    # Protocols

    def supports(self, protocol_type: str, protocols: tuple[OfferedProtocol, ...]) -> bool:
        """Whether somebody who offers these can be a member beside those that there are."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and protocols)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that every member supports.

        A member votes for the first of its own that all know. A tie is won by what comes first in
        a hash map of Java's: an accident, but one that clients of both can see.
        """
        count = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self._supporters[name] == count:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return min(votes, key=lambda name: (-votes[name], _java_bucket(name)))

    # Members

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member. The first one leads, and sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self._put(member)

    def change(
        self,
        member: ClassicMember,
        protocols: tuple[OfferedProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Record that a member has rejoined, with its new data."""
        self._count(member, -1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._count(member, 1)

    def remove(self, member_id: MemberId) -> None:
        """Remove a member or a pending member id. The oldest member leads then."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        self.join_replies.pop(member_id, None)
        self.sync_replies.pop(member_id, None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, member: ClassicMember, member_id: MemberId) -> None:
        """Replace the id of a static member, which keeps its assignment."""
        former = member.member_id
        # In the same place: who is longest in the group stays so.
        self.members = {
            (member_id if each == former else each): value for each, value in self.members.items()
        }
        member.member_id = member_id
        member.is_new = False
        if former in self.pending_syncs:
            self.pending_syncs.remove(former)
            self.pending_syncs.add(member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader == former:
            self.leader = member_id

    def elect_joined_leader(self) -> bool:
        """Elect a leader among the members that have rejoined. Return whether there is one."""
        if self.leader not in self.join_replies:
            joined = next((each for each in self.members if each in self.join_replies), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def _put(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.discard(member.member_id)
        self._count(member, 1)

    def _count(self, member: ClassicMember, change: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] = self._supporters.get(name, 0) + change
            if not self._supporters[name]:
                del self._supporters[name]

    # Where it is

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state, self.state_since_ms = state, now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Number the members that are there; none is a generation too."""
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.move_to(ClassicState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.move_to(ClassicState.EMPTY, now_ms)
        self._check()

    def _check(self) -> None:
        """See that what is kept more than once agrees."""
        assert (self.leader in self.members) == bool(self.members)
        assert self.join_replies.keys() <= self.members.keys()
        assert self.sync_replies.keys() <= self.members.keys()
        assert self.pending_syncs <= self.members.keys()
        assert not self.pending_joins & self.members.keys()
        assert set(self.static_members.values()) <= self.members.keys()


_JAVA_BUCKETS: Final = 16


def _java_bucket(text: str) -> int:
    hashed = java_hash(text) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) % _JAVA_BUCKETS
