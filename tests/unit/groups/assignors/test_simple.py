"""The assignor of share groups: coverage, sharing, balance, stickiness."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.assignors import MemberSpec
from headrace.groups.assignors.simple import assign_simply
from headrace.ids import TopicId

TOPICS = [TopicId(letter.encode() * 16) for letter in "abc"]
Places = set[tuple[TopicId, int]]

counts = st.lists(st.integers(0, 7), min_size=1, max_size=3)
wishes = st.frozensets(st.sampled_from(TOPICS))
held = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 8)))
various = st.dictionaries(
    st.integers(0, 12).map(lambda number: f"m{number}"),
    st.builds(MemberSpec, topics=wishes, assigned=held),
    max_size=9,
)


@st.composite
def alike(draw: st.DrawFn) -> dict[str, MemberSpec]:
    """Members that want the same."""
    wanted = frozenset(TOPICS[: draw(st.integers(1, 3))])
    names = draw(st.sets(st.integers(0, 12), min_size=1, max_size=12))
    return {f"m{each}": MemberSpec(wanted, None, draw(held)) for each in sorted(names)}


def partitions(numbers: list[int]) -> dict[TopicId, frozenset[int]]:
    return {
        topic: frozenset(range(count))
        for topic, count in zip(TOPICS, numbers, strict=False)
        if count
    }


def places_of(assigned: Mapping[TopicId, frozenset[int]]) -> Places:
    return {(topic, index) for topic, indexes in assigned.items() for index in indexes}


def assign(
    members: Mapping[str, MemberSpec], numbers: list[int]
) -> tuple[dict[str, Places], Counter[tuple[TopicId, int]]]:
    """Give what each member has, and how many read each partition."""
    found = assign_simply(members, partitions(numbers))
    assert found.keys() == members.keys()
    assert all(indexes for each in found.values() for indexes in each.values())
    places = {member: places_of(each) for member, each in found.items()}
    return places, Counter(place for each in places.values() for place in each)


def again(members: Mapping[str, MemberSpec], places: Mapping[str, Places]) -> dict[str, MemberSpec]:
    """Give members with what they were assigned."""
    specs = {}
    for member, spec in members.items():
        assigned: dict[TopicId, frozenset[int]] = {}
        for topic, index in places.get(member, set()):
            assigned[topic] = assigned.get(topic, frozenset()) | {index}
        specs[member] = MemberSpec(spec.topics, None, assigned)
    return specs


@given(various, counts)
def test_members_get_what_they_want_and_every_wanted_partition_is_read(
    members: dict[str, MemberSpec], numbers: list[int]
) -> None:
    places, readers = assign(members, numbers)
    existing = places_of(partitions(numbers))
    for member, spec in members.items():
        assert {topic for topic, _ in places[member]} <= spec.topics
    wanted = frozenset[TopicId]().union(*(spec.topics for spec in members.values()))
    assert readers.keys() == {place for place in existing if place[0] in wanted}


@given(alike(), counts)
def test_members_that_want_the_same_get_as_much_and_partitions_have_as_many_readers(
    members: dict[str, MemberSpec], numbers: list[int]
) -> None:
    places, readers = assign(members, numbers)
    if readers:
        sharing = -(-len(members) // len(readers))
        assert set(readers.values()) == {sharing}
        loads = [len(each) for each in places.values()]
        assert max(loads) - min(loads) <= 1
        assert min(loads) >= 1, "nobody is idle while there is something to read"


@given(various, counts)
def test_each_topic_is_shared_evenly_by_those_who_want_it(
    members: dict[str, MemberSpec], numbers: list[int]
) -> None:
    places, readers = assign(members, numbers)
    if len({spec.topics for spec in members.values()}) == 1:
        return
    for topic, indexes in partitions(numbers).items():
        subscribers = [member for member, spec in members.items() if topic in spec.topics]
        if subscribers:
            sharing = -(-len(subscribers) // len(indexes))
            assert {readers[topic, index] for index in indexes} == {sharing}
            loads = [sum(each[0] == topic for each in places[member]) for member in subscribers]
            assert max(loads) - min(loads) <= 1


@given(various, counts)
def test_nothing_moves_when_nothing_changed(
    members: dict[str, MemberSpec], numbers: list[int]
) -> None:
    places, _ = assign(members, numbers)
    assert assign(again(members, places), numbers)[0] == places


@given(alike(), counts)
def test_members_gain_nothing_but_keep_what_they_can_when_another_joins(
    members: dict[str, MemberSpec], numbers: list[int]
) -> None:
    before, readers = assign(members, numbers)
    if not readers or len(members) >= len(readers):
        return  # shared partitions are given out anew where there are more readers
    wanted = next(iter(members.values())).topics
    more = again(members, before) | {"guest": MemberSpec(wanted)}
    after, _ = assign(more, numbers)
    for member in members:
        assert after[member] <= before[member]


@given(alike(), counts)
def test_members_keep_everything_when_another_leaves(
    members: dict[str, MemberSpec], numbers: list[int]
) -> None:
    before, readers = assign(members, numbers)
    if not readers or len(members) > len(readers) or len(members) < 2:
        return
    gone = min(members)
    rest = {member: spec for member, spec in members.items() if member != gone}
    after, _ = assign(again(rest, before), numbers)
    for member in rest:
        assert before[member] <= after[member]


def test_larger_parts_of_a_topic_go_to_who_has_less_of_others() -> None:
    one, two, _ = TOPICS
    members = {
        "a": MemberSpec(frozenset({one})),
        "b": MemberSpec(frozenset({one, two})),
        "c": MemberSpec(frozenset({two})),
    }
    found = assign_simply(members, {one: frozenset(range(2)), two: frozenset(range(3))})
    loads = {member: len(places_of(each)) for member, each in found.items()}
    assert loads == {"a": 1, "b": 2, "c": 2}


def test_only_partitions_that_may_be_are_given_out() -> None:
    topic = TOPICS[0]
    members = {"m": MemberSpec(frozenset({topic}), None, {topic: frozenset({0, 1})})}
    assert assign_simply(members, {topic: frozenset({1, 3})}) == {"m": {topic: frozenset({1, 3})}}
    assert assign_simply(members, {}) == {"m": {}}
    assert assign_simply({}, {topic: frozenset({0})}) == {}
