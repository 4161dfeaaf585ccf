"""The uniform assignor: members get as much as each other, and keep what they may.

If all are subscribed to the same topics, no two differ by more than one partition, and as few
partitions move as this allows. If not, each partition goes to the least busy of those who want its
topic, and then partitions move from busy members to less busy ones until no move makes the group
more even.
"""

from collections.abc import Iterable
from heapq import heapify, heapreplace

from headrace.groups.assignors.spec import Assignment, AssignmentSpec
from headrace.ids import TopicId

_Place = tuple[TopicId, int]


def assign_uniformly(spec: AssignmentSpec) -> dict[str, Assignment]:
    """Give every partition of a topic that somebody wants to one of those who do."""
    if not spec.members:
        return {}
    wanted = {member.topics for member in spec.members.values()}
    places = _assign_alike(spec) if len(wanted) == 1 else _assign_various(spec)
    return {member: _by_topic(places[member]) for member in spec.members}


def _assign_alike(spec: AssignmentSpec) -> dict[str, list[_Place]]:
    """All want the same: everybody gets the quota, and as many as needed get one more."""
    everything = _places(spec, next(iter(spec.members.values())).topics)
    quota, extra = divmod(len(everything), len(spec.members))
    kept, unassigned = _keep(spec)
    # Who has more than the quota already keeps one more as long as there are any to spare; the
    # rest of them goes to whoever comes first. Nobody gives up what it need not.
    limits = dict.fromkeys(spec.members, quota)
    for member in sorted(spec.members, key=lambda each: -len(kept[each])):
        if not extra:
            break
        limits[member] += 1
        extra -= 1
    for member, places in kept.items():
        unassigned += places[limits[member] :]
        del places[limits[member] :]
    unassigned.sort(reverse=True)
    for member, places in kept.items():
        while len(places) < limits[member]:
            places.append(unassigned.pop())
    return kept


def _assign_various(spec: AssignmentSpec) -> dict[str, list[_Place]]:
    """Members want different topics."""
    kept, unassigned = _keep(spec)
    subscribers: dict[TopicId, list[str]] = {}
    for member, each in spec.members.items():
        for topic in each.topics:
            subscribers.setdefault(topic, []).append(member)
    by_topic: dict[TopicId, list[_Place]] = {}
    for place in unassigned:
        by_topic.setdefault(place[0], []).append(place)
    # What few want is given first: what many want can make up for it.
    for topic in sorted(by_topic, key=lambda each: (len(subscribers[each]), each)):
        heap = [(len(kept[member]), member) for member in subscribers[topic]]
        heapify(heap)
        for place in sorted(by_topic[topic]):
            count, member = heap[0]
            kept[member].append(place)
            heapreplace(heap, (count + 1, member))
    _balance(spec, kept, subscribers)
    return kept


def _balance(
    spec: AssignmentSpec, kept: dict[str, list[_Place]], subscribers: dict[TopicId, list[str]]
) -> None:
    """Move partitions until nobody has two more than another who wants one of them.

    Ends, as each move makes the sum of the squares of the counts smaller.
    """
    idlest: dict[TopicId, str] = {}
    """Who has least of those who want a topic, as far as it was asked since the last move."""

    def find_move(places: list[_Place]) -> tuple[_Place, str] | None:
        best: tuple[int, str, TopicId] | None = None
        for topic in sorted({topic for topic, _ in places}):
            if topic not in idlest:
                idlest[topic] = min(subscribers[topic], key=lambda other: (len(kept[other]), other))
            count = len(kept[idlest[topic]])
            if len(places) - count >= 2 and (best is None or count < best[0]):
                best = (count, idlest[topic], topic)
        if best is None:
            return None
        return max(place for place in places if place[0] == best[2]), best[1]

    is_even = False
    while not is_even:
        is_even = True
        for member in sorted(kept, key=lambda each: -len(kept[each])):
            while (move := find_move(kept[member])) is not None:
                is_even = False
                place, receiver = move
                kept[member].remove(place)
                kept[receiver].append(place)
                for topic in spec.members[member].topics | spec.members[receiver].topics:
                    idlest.pop(topic, None)


def _keep(spec: AssignmentSpec) -> tuple[dict[str, list[_Place]], list[_Place]]:
    """Give what each member has and still may have, in order, and what nobody has."""
    taken: set[_Place] = set()
    kept: dict[str, list[_Place]] = {}
    for member, each in spec.members.items():
        mine = [
            (topic, index)
            for topic, indexes in each.assigned.items()
            if topic in each.topics
            for index in indexes
            if index < spec.partition_counts[topic] and (topic, index) not in taken
        ]
        mine.sort()
        taken.update(mine)
        kept[member] = mine
    wanted = frozenset(topic for each in spec.members.values() for topic in each.topics)
    return kept, [place for place in _places(spec, wanted) if place not in taken]


def _places(spec: AssignmentSpec, topics: Iterable[TopicId]) -> list[_Place]:
    return [(topic, index) for topic in topics for index in range(spec.partition_counts[topic])]


def _by_topic(places: list[_Place]) -> Assignment:
    found: dict[TopicId, set[int]] = {}
    for topic, index in places:
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
