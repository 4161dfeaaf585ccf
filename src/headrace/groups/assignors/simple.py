"""The simple assignor of share groups: members share partitions where they outnumber them.

Every partition gets the same number of readers, the smallest that leaves no member idle, and the
members' shares differ by at most one. Members keep what they have where possible. If they subscribe
to different topics, this holds for each topic separately, and the larger shares of a topic go to
the members that have the fewest partitions of other topics.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from headrace.groups.assignors.spec import Assignment, MemberSpec
from headrace.ids import TopicId

_Place = tuple[TopicId, int]
_NONE: Final = frozenset[int]()


def assign_simply(
    members: Mapping[str, MemberSpec], partitions: Mapping[TopicId, frozenset[int]]
) -> dict[str, Assignment]:
    """Assign every partition of each subscribed topic to some of its subscribers.

    `partitions` are those that may be given out; a topic that is not there has none.
    """
    found: dict[str, set[_Place]] = {member: set() for member in members}
    for topics, subscribers in _pools(members):
        places = sorted(
            (topic, index) for topic in topics for index in partitions.get(topic, _NONE)
        )
        if places:
            loads = {member: len(found[member]) for member in subscribers}
            had = {each: _former_places(members[each], topics) for each in subscribers}
            for member, got in _Pool(places, subscribers, had, loads).share_out().items():
                found[member] |= got
    return {member: _by_topic(places) for member, places in found.items()}


def _pools(members: Mapping[str, MemberSpec]) -> list[tuple[Collection[TopicId], list[str]]]:
    """Return topics with their subscribers: one group if all subscribe alike, else one each."""
    wanted = {spec.topics for spec in members.values()}
    if len(wanted) == 1:
        return [(next(iter(wanted)), sorted(members))]
    subscribers: dict[TopicId, list[str]] = {}
    for member in sorted(members):
        for topic in members[member].topics:
            subscribers.setdefault(topic, []).append(member)
    # What few want is given first: what many want can make up for it.
    return [
        ((topic,), subscribers[topic])
        for topic in sorted(subscribers, key=lambda each: (len(subscribers[each]), each))
    ]


def _former_places(spec: MemberSpec, topics: Collection[TopicId]) -> set[_Place]:
    """Return the partitions of these topics that a member holds."""
    assigned = spec.assigned
    if len(topics) == 1:
        (topic,) = topics
        return {(topic, index) for index in assigned.get(topic, _NONE)}
    return {(topic, index) for topic in assigned if topic in topics for index in assigned[topic]}


class _Pool:
    """Partitions, and the members that subscribe to all of them."""

    def __init__(
        self,
        places: Sequence[_Place],
        members: Sequence[str],
        had: dict[str, set[_Place]],
        loads: dict[str, int],
    ) -> None:
        self._sharing = -(-len(members) // len(places))
        """The number of readers per partition."""
        self._places = places
        self._held: dict[str, set[_Place]] = {each: set() for each in members}
        self._readers: dict[_Place, set[str]] = {each: set() for each in places}
        for member in members:
            for place in had[member] & self._readers.keys():
                self._give(member, place)
        self._quota = 0
        """The number of partitions per member; some get one more."""
        self._limits = self._new_limits(loads)

    def share_out(self) -> dict[str, set[_Place]]:
        self._take_back()
        needy = [(self._surplus(member), member) for member in self._held]
        heapify(needy)
        for place in self._places:
            if len(self._readers[place]) < self._sharing:
                self._give_to_neediest(needy, place)
        return self._held

    def _new_limits(self, loads: dict[str, int]) -> dict[str, int]:
        """Return each member's limit. Members that hold most are first to get one more."""
        self._quota, extra = divmod(self._sharing * len(self._places), len(self._held))
        first = sorted(self._held, key=lambda each: (-len(self._held[each]), loads[each], each))
        return {member: self._quota + (place < extra) for place, member in enumerate(first)}

    def _take_back(self) -> None:
        """Revoke readers above the limit of a partition, then partitions above that of a member."""
        # Taking one changes nothing about the others that could be taken in the same go.
        for place in self._places:
            readers = self._readers[place]
            if (count := len(readers) - self._sharing) > 0:
                busiest = sorted(readers, key=lambda each: (self._surplus(each), each))
                for member in busiest[-count:]:
                    self._take(member, place)
        for member, held in self._held.items():
            if (count := self._surplus(member)) > 0:
                most_read = sorted(held, key=lambda each: (len(self._readers[each]), each))
                for place in most_read[-count:]:
                    self._take(member, place)

    def _give_to_neediest(self, needy: list[tuple[int, str]], place: _Place) -> None:
        """Assign a partition to the members that lack most, until it has all its readers.

        `needy` is a heap of members, those full at its end.
        """
        readers = self._readers[place]
        passed: list[tuple[int, str]] = []
        """Members that already read the partition, by how much they lack."""
        while len(readers) < self._sharing:
            if needy and needy[0][0] < 0:
                surplus, member = heappop(needy)
                if member not in readers:
                    self._give(member, place)
                    surplus += 1
                passed.append((surplus, member))
            else:
                # Only who has this place already lacks something: another has to take it.
                neediest = min(range(len(passed)), key=passed.__getitem__)
                surplus, member = passed[neediest]
                self._give_instead(member, place)
                passed[neediest] = (surplus + 1, member)
        for entry in passed:
            heappush(needy, entry)

    def _give_instead(self, member: str, place: _Place) -> None:
        """Move a partition from a member that lacks another one to a different member.

        Whoever takes it gets one more in its stead if that is fair, or hands over one of its own:
        it has as much and not this place, so that it has one that the member has not.
        """
        others = [each for each, held in self._held.items() if place not in held]
        if len(self._held[member]) == self._quota:
            for other in others:
                if self._limits[other] == self._quota:
                    self._limits[member], self._limits[other] = self._quota, self._quota + 1
                    self._give(other, place)
                    return
        for other in others:
            if spare := self._held[other] - self._held[member]:
                given = min(spare)
                self._take(other, given)
                self._give(other, place)
                self._give(member, given)
                return
        raise AssertionError("a partition that lacks readers has one who can take it")

    def _surplus(self, member: str) -> int:
        return len(self._held[member]) - self._limits[member]

    def _give(self, member: str, place: _Place) -> None:
        self._held[member].add(place)
        self._readers[place].add(member)

    def _take(self, member: str, place: _Place) -> None:
        self._held[member].remove(place)
        self._readers[place].remove(member)


def _by_topic(places: set[_Place]) -> Assignment:
    found: dict[TopicId, set[int]] = {}
    for topic, index in places:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
