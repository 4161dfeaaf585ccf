"""The range assignor: each member gets adjacent partitions of each of its topics.

Topics of the same size with the same subscribers are divided alike, so that a member gets the same
partitions of all of them and can join their records by key. The order of members is stable: those
with an instance id come first, sorted by it, then the others sorted by member id.
"""

from headrace.groups.assignors.spec import Assignment, AssignmentSpec
from headrace.ids import TopicId


def assign_ranges(spec: AssignmentSpec) -> dict[str, Assignment]:
    """Divide each topic among its subscribers; if it does not come out, the first get one more."""
    found: dict[str, dict[TopicId, frozenset[int]]] = {member: {} for member in spec.members}
    ordered = sorted(spec.members, key=lambda member: _place(spec, member))
    subscribers: dict[TopicId, list[str]] = {}
    for member in ordered:
        for topic in spec.members[member].topics:
            subscribers.setdefault(topic, []).append(member)
    for topic, members in subscribers.items():
        share, extra = divmod(spec.partition_counts[topic], len(members))
        first = 0
        for place, member in enumerate(members):
            count = share + (place < extra)
            if count:
                found[member][topic] = frozenset(range(first, first + count))
            first += count
    return dict(found)


def _place(spec: AssignmentSpec, member: str) -> tuple[bool, str, str]:
    instance_id = spec.members[member].instance_id
    return (instance_id is None, instance_id or "", member)
