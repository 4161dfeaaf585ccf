"""The uniform assignor: members get equal shares, and keep their partitions where possible.

If all subscribe to the same topics, shares differ by at most one partition, and as few partitions
move as this allows. If not, each partition goes to the least loaded subscriber of its topic, and
then partitions move from loaded members to less loaded ones, topic by topic, until no move improves
the balance.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from headrace.groups.assignors.spec import Assignment, AssignmentSpec
from headrace.ids import TopicId

ROUNDS_MAX: Final = 16
"""The maximum number of balancing rounds, as in Kafka. A few are nearly always enough."""

_Place = tuple[TopicId, int]


def assign_uniformly(spec: AssignmentSpec) -> dict[str, Assignment]:
    """Assign every partition of each subscribed topic to one of its subscribers."""
    if not spec.members:
        return {}
    wanted = {member.topics for member in spec.members.values()}
    places = _assign_alike(spec) if len(wanted) == 1 else _assign_various(spec)
    return {member: _by_topic(places[member]) for member in spec.members}


def _assign_alike(spec: AssignmentSpec) -> dict[str, list[_Place]]:
    """Assign to members that subscribe alike: each gets the quota, some get one more."""
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
    """Assign to members that subscribe to different topics."""
    kept, unassigned = _keep(spec)
    subscribers: dict[TopicId, list[str]] = {}
    for member, each in spec.members.items():
        for topic in each.topics:
            subscribers.setdefault(topic, []).append(member)
    free: dict[TopicId, list[int]] = {}
    for topic, index in unassigned:
        free.setdefault(topic, []).append(index)
    sharing = _Sharing(kept, subscribers)
    # What few want is given first: what many want can make up for it.
    ordered = sorted(subscribers, key=lambda each: (len(subscribers[each]), each))
    for topic in ordered:
        if topic in free:
            sharing.give(topic, sorted(free[topic]))
    for _ in range(ROUNDS_MAX):
        move_count = sum(sharing.balance(topic) for topic in ordered)
        if not move_count:
            break
    return sharing.places()


class _Sharing:
    """The holder of each partition, by topic, and the load of each member."""

    def __init__(
        self, kept: dict[str, list[_Place]], subscribers: dict[TopicId, list[str]]
    ) -> None:
        self._subscribers = subscribers
        self._loads = {member: len(places) for member, places in kept.items()}
        self._held: dict[TopicId, dict[str, list[int]]] = {topic: {} for topic in subscribers}
        for member, places in kept.items():
            for topic, index in places:
                self._held[topic].setdefault(member, []).append(index)

    def give(self, topic: TopicId, indexes: Iterable[int]) -> None:
        """Assign partitions to the least loaded subscribers of their topic."""
        loads, held = self._loads, self._held[topic]
        takers = [(loads[member], member) for member in self._subscribers[topic]]
        heapify(takers)
        for index in indexes:
            load, member = takers[0]
            held.setdefault(member, []).append(index)
            loads[member] = load + 1
            heapreplace(takers, (load + 1, member))

    def balance(self, topic: TopicId) -> int:
        """Move a topic's partitions until no two subscribers differ by two or more.

        Return how many were moved. Each move makes the sum of the squares of the loads smaller.
        A taker is the least busy of all, so that it has one more than these at most afterwards,
        and never has to give back what it took.
        """
        loads, held = self._loads, self._held[topic]
        wanted_by = self._subscribers[topic]
        load_of = loads.__getitem__
        most = max(map(load_of, held), default=0)
        if most - min(map(load_of, wanted_by)) < 2:
            return 0
        givers = [(-loads[member], member) for member in held]
        takers = [(loads[member], member) for member in wanted_by]
        heapify(givers)
        heapify(takers)
        move_count = 0
        while givers:
            giver_load, giver = -givers[0][0], givers[0][1]
            taker_load, taker = takers[0]
            if taker_load != loads[taker]:  # it gave since, and is here once more
                heappop(takers)
                continue
            if giver_load != loads[giver]:  # it took since
                heapreplace(givers, (-loads[giver], giver))
                continue
            if giver_load - taker_load < 2:
                break
            indexes = held[giver]
            held.setdefault(taker, []).append(indexes.pop())
            loads[giver], loads[taker] = giver_load - 1, taker_load + 1
            heapreplace(takers, (taker_load + 1, taker))
            heappush(takers, (giver_load - 1, giver))
            if indexes:
                heapreplace(givers, (1 - giver_load, giver))
            else:
                del held[giver]
                heappop(givers)
            move_count += 1
        return move_count

    def places(self) -> dict[str, list[_Place]]:
        found: dict[str, list[_Place]] = {member: [] for member in self._loads}
        for topic, held in self._held.items():
            for member, indexes in held.items():
                found[member] += [(topic, index) for index in indexes]
        return found


def _keep(spec: AssignmentSpec) -> tuple[dict[str, list[_Place]], list[_Place]]:
    """Return what each member may keep, in order, and the partitions that nobody holds."""
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
