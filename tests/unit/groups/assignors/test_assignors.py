"""Uniform and range: everything is assigned, evenly, and what can stay stays."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.assignors import ASSIGNORS, Assignment, AssignmentSpec, MemberSpec
from headrace.ids import TopicId

A, B, C = (TopicId(letter * 16) for letter in (b"a", b"b", b"c"))
ALL = frozenset((A, B, C))


def assign(
    name: str, members: Mapping[str, MemberSpec], counts: Mapping[TopicId, int]
) -> dict[str, Assignment]:
    return ASSIGNORS[name](AssignmentSpec(members, counts))


def sizes(assignments: Mapping[str, Assignment]) -> list[int]:
    return sorted(sum(map(len, each.values())) for each in assignments.values())


def with_assigned(
    members: Mapping[str, MemberSpec], former: Mapping[str, Assignment]
) -> dict[str, MemberSpec]:
    return {
        member: MemberSpec(each.topics, each.instance_id, former.get(member, {}))
        for member, each in members.items()
    }


def moved(former: Mapping[str, Assignment], now: Mapping[str, Assignment]) -> int:
    """Count the partitions that a member had and has not any more, though it is still there."""
    return sum(
        len(indexes - now[member].get(topic, frozenset()))
        for member, each in former.items()
        if member in now
        for topic, indexes in each.items()
    )


# Uniform


def test_uniform_takes_from_those_who_have_most_and_nothing_from_the_others() -> None:
    member = MemberSpec(frozenset((A,)))
    one = assign("uniform", {"m": member}, {A: 4})
    assert one == {"m": {A: {0, 1, 2, 3}}}
    two = assign("uniform", with_assigned({"m": member, "n": member}, one), {A: 4})
    assert two == {"m": {A: {0, 1}}, "n": {A: {2, 3}}}
    three = assign("uniform", with_assigned(dict.fromkeys("mno", member), two), {A: 4})
    assert three == {"m": {A: {0, 1}}, "n": {A: {2}}, "o": {A: {3}}}


def test_uniform_gives_nothing_to_those_who_are_too_many() -> None:
    member = MemberSpec(frozenset((A,)))
    assert sizes(assign("uniform", dict.fromkeys("mno", member), {A: 2})) == [0, 1, 1]


def test_uniform_evens_out_where_members_want_different_topics() -> None:
    members = {"m": MemberSpec(frozenset((A, B))), "n": MemberSpec(frozenset((A,)))}
    found = assign("uniform", members, {A: 4, B: 2})
    assert found == {"m": {A: found["m"][A], B: {0, 1}}, "n": found["n"]}
    assert sizes(found) == [3, 3]


def test_uniform_gives_what_one_member_alone_wants_to_it() -> None:
    members = {"m": MemberSpec(frozenset((A,))), "n": MemberSpec(frozenset())}
    assert assign("uniform", members, {A: 3}) == {"m": {A: {0, 1, 2}}, "n": {}}


def test_uniform_makes_room_along_a_chain_of_members() -> None:
    members = {
        "m": MemberSpec(frozenset((A,))),
        "n": MemberSpec(frozenset((A, B)), assigned={A: frozenset(range(4))}),
        "o": MemberSpec(frozenset((B,)), assigned={B: frozenset(range(5))}),
    }
    assert sizes(assign("uniform", members, {A: 4, B: 5})) == [2, 3, 4]


MEMBERS = st.dictionaries(
    st.sampled_from("klmnopq"),
    st.builds(MemberSpec, st.frozensets(st.sampled_from([A, B, C]))),
    min_size=1,
)
ALIKE = st.lists(st.sampled_from("klmnopq"), min_size=1, unique=True).map(
    lambda names: dict.fromkeys(names, MemberSpec(ALL))
)
COUNTS = st.fixed_dictionaries({A: st.integers(0, 9), B: st.integers(1, 9), C: st.integers(1, 5)})


@given(st.sampled_from(sorted(ASSIGNORS)), MEMBERS, MEMBERS, COUNTS)
def test_every_partition_that_somebody_wants_goes_to_one_who_does(
    name: str,
    before: dict[str, MemberSpec],
    members: dict[str, MemberSpec],
    counts: dict[TopicId, int],
) -> None:
    former = assign(name, before, counts)
    found = assign(name, with_assigned(members, former), counts)
    assert found.keys() == members.keys()
    given_out = [
        (topic, index)
        for assignment in found.values()
        for topic, indexes in assignment.items()
        for index in indexes
    ]
    wanted = {topic for member in members.values() for topic in member.topics}
    assert sorted(given_out) == [
        (topic, index) for topic in sorted(wanted) for index in range(counts[topic])
    ]
    for member, assignment in found.items():
        assert assignment.keys() <= members[member].topics
        assert all(assignment.values())


@given(ALIKE, ALIKE, COUNTS)
def test_uniform_is_even_within_one_and_moves_as_little_as_that_takes(
    before: dict[str, MemberSpec], members: dict[str, MemberSpec], counts: dict[TopicId, int]
) -> None:
    former = assign("uniform", before, counts)
    found = assign("uniform", with_assigned(members, former), counts)
    shares = sizes(found)
    assert shares[-1] - shares[0] <= 1
    total, share = sum(counts.values()), sum(counts.values()) // len(members)
    had = [size for member, size in _sizes_by_member(former).items() if member in members]
    spare = total - share * len(members)
    surplus = sum(max(0, size - share) for size in had)
    kept_above = min(spare, sum(size > share for size in had))
    assert moved(former, found) == surplus - kept_above


@given(MEMBERS, COUNTS)
def test_uniform_changes_nothing_if_nothing_has_changed(
    members: dict[str, MemberSpec], counts: dict[TopicId, int]
) -> None:
    former = assign("uniform", members, counts)
    assert assign("uniform", with_assigned(members, former), counts) == former


@given(MEMBERS, MEMBERS, COUNTS)
def test_uniform_leaves_no_move_that_would_make_the_group_more_even(
    before: dict[str, MemberSpec], members: dict[str, MemberSpec], counts: dict[TopicId, int]
) -> None:
    former = assign("uniform", before, counts)
    found = _sizes_by_member(placed := assign("uniform", with_assigned(members, former), counts))
    for member, assignment in placed.items():
        for other, each in members.items():
            if assignment.keys() & each.topics:
                assert found[member] - found[other] <= 1


def _sizes_by_member(assignments: Mapping[str, Assignment]) -> dict[str, int]:
    return {member: sum(map(len, each.values())) for member, each in assignments.items()}


# Range


def test_range_gives_neighbours_and_the_same_of_topics_of_one_size() -> None:
    members = dict.fromkeys(("n", "m"), MemberSpec(frozenset((A, B))))
    assert assign("range", members, {A: 3, B: 3}) == {
        "m": {A: {0, 1}, B: {0, 1}},
        "n": {A: {2}, B: {2}},
    }


def test_range_puts_static_members_first_in_the_order_of_their_instances() -> None:
    topics = frozenset((A,))
    members = {
        "a": MemberSpec(topics),
        "b": MemberSpec(topics, "i2"),
        "c": MemberSpec(topics, "i1"),
    }
    assert assign("range", members, {A: 3}) == {"a": {A: {2}}, "b": {A: {1}}, "c": {A: {0}}}
