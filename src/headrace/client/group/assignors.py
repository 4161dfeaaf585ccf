"""How the leader of a classic group distributes partitions among members. Pure.

The three assignors are Kafka's, by its names. All give each member the partitions of topics that
it subscribed to, and each partition to one member.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import cycle
from typing import Final, TypeAlias

import msgspec

from headrace.client.topics import TopicPartition

RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"
COOPERATIVE_STICKY: Final = "cooperative-sticky"


class MemberSubscription(msgspec.Struct, frozen=True):
    """What a member wants, and what it says it has since which generation."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = -1
    instance_id: str | None = None


Members: TypeAlias = Mapping[str, MemberSubscription]
Assigned: TypeAlias = dict[str, list[TopicPartition]]


def assign_range(members: Members, counts: Mapping[str, int]) -> Assigned:
    """Assign each member a range of consecutive partitions of each topic."""
    assigned: Assigned = {member_id: [] for member_id in members}
    for topic in sorted(counts):
        readers = [one for one in _in_order(members) if topic in members[one].topics]
        if not readers:
            continue
        share, extra = divmod(counts[topic], len(readers))
        first = 0
        for place, member_id in enumerate(readers):
            last = first + share + (1 if place < extra else 0)
            assigned[member_id] += [TopicPartition(topic, index) for index in range(first, last)]
            first = last
    return assigned


def assign_round_robin(members: Members, counts: Mapping[str, int]) -> Assigned:
    """Deal all partitions out, one after the other."""
    assigned: Assigned = {member_id: [] for member_id in members}
    wanted = frozenset[str]().union(*(row.topics for row in members.values()))
    turns = cycle(_in_order(members))
    for partition in _partitions(counts):
        if partition.topic in wanted:
            taker = next(turn for turn in turns if partition.topic in members[turn].topics)
            assigned[taker].append(partition)
    return assigned


def assign_cooperatively(members: Members, counts: Mapping[str, int]) -> Assigned:
    """Balance the group while members keep as many of their partitions as possible.

    A partition that moves is not assigned in this generation: its owner revokes it and rejoins,
    and then it is free.
    """
    owners = _owners(members, counts)
    balanced = _balance(members, counts, owners)
    return {
        member_id: sorted(
            partition for partition in partitions if owners.get(partition, member_id) == member_id
        )
        for member_id, partitions in balanced.items()
    }


Assignor: TypeAlias = Callable[[Members, Mapping[str, int]], Assigned]
ASSIGNORS: Final[Mapping[str, Assignor]] = {
    RANGE: assign_range,
    ROUND_ROBIN: assign_round_robin,
    COOPERATIVE_STICKY: assign_cooperatively,
}


def _in_order(members: Members) -> list[str]:
    """Order members as Kafka does: static ones by instance, then the others by member id."""
    return sorted(
        members,
        key=lambda one: (
            members[one].instance_id is None,
            members[one].instance_id or "",
            one,
        ),
    )


def _partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, index) for topic in sorted(counts) for index in range(counts[topic])
    ]


def _owners(members: Members, counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Return the owner of each partition: of two claims, that of the later generation."""
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member_id in _in_order(members):
        member = members[member_id]
        for partition in member.owned:
            topic, index = partition
            if topic not in member.topics or index >= counts.get(topic, 0):
                continue
            other = owners.get(partition)
            if other is None or members[other].generation < member.generation:
                owners[partition] = member_id
                disputed.discard(partition)
            elif members[other].generation == member.generation:
                disputed.add(partition)
    return {partition: owner for partition, owner in owners.items() if partition not in disputed}


def _balance(
    members: Members, counts: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> Assigned:
    held = _Held(members)
    free: list[TopicPartition] = []
    for partition in _partitions(counts):
        owner = owners.get(partition)
        if owner is None:
            free.append(partition)
        else:
            held.give(owner, partition)
    # What few can take comes first: the others have more choice.
    for partition in sorted(free, key=lambda one: len(held.readers(one.topic))):
        if readers := held.readers(partition.topic):
            held.give(min(readers, key=held.count), partition)
    while held.level():
        pass
    return held.partitions()


class _Held:
    """Owned partitions by topic, so that a move is found without scanning all partitions."""

    def __init__(self, members: Members) -> None:
        self._order = _in_order(members)
        self._held: dict[str, dict[str, list[TopicPartition]]] = {one: {} for one in members}
        self._counts = dict.fromkeys(members, 0)
        self._readers: dict[str, list[str]] = {}
        for member_id in self._order:
            for topic in members[member_id].topics:
                self._readers.setdefault(topic, []).append(member_id)
        self._topics = {one: sorted(members[one].topics) for one in members}

    def readers(self, topic: str) -> Collection[str]:
        return self._readers.get(topic, ())

    def count(self, member_id: str) -> int:
        return self._counts[member_id]

    def give(self, member_id: str, partition: TopicPartition) -> None:
        self._held[member_id].setdefault(partition.topic, []).append(partition)
        self._counts[member_id] += 1

    def level(self) -> bool:
        """Move one partition from a member to one that has at least two less; False if none can."""
        by_count = sorted(self._order, key=self.count)
        for taker in by_count:
            for giver in reversed(by_count):
                if self._counts[giver] < self._counts[taker] + 2:
                    break
                topic = self._common(giver, taker)
                if topic is not None:
                    self._move(giver, taker, topic)
                    return True
        return False

    def partitions(self) -> Assigned:
        return {
            member_id: [partition for rows in topics.values() for partition in rows]
            for member_id, topics in self._held.items()
        }

    def _common(self, giver: str, taker: str) -> str | None:
        """Return the topic of which the giver has most, among those that the taker reads."""
        held = self._held[giver]
        topics: Iterable[str] = (topic for topic in self._topics[taker] if held.get(topic))
        return max(topics, key=lambda topic: len(held[topic]), default=None)

    def _move(self, giver: str, taker: str, topic: str) -> None:
        self._counts[giver] -= 1
        self.give(taker, self._held[giver][topic].pop())
