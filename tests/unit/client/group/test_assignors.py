"""Who gets what in a classic group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.group.assignors import (
    ASSIGNORS,
    Assigned,
    MemberSubscription,
    assign_cooperatively,
    assign_range,
    assign_round_robin,
)
from headrace.client.topics import TopicPartition

TOPICS = ("a", "b", "c")


def wants(*topics: str, owned: list[tuple[str, int]] | None = None, generation: int = -1):  # type: ignore[no-untyped-def]
    return MemberSubscription(
        frozenset(topics), frozenset(TopicPartition(*row) for row in owned or ()), generation
    )


def plain(assigned: Assigned) -> dict[str, list[tuple[str, int]]]:
    return {member: [tuple(row) for row in rows] for member, rows in assigned.items()}  # type: ignore[misc]


def test_range_gives_neighbours_of_each_topic_and_the_first_get_one_more() -> None:
    members = {"m2": wants("a", "b"), "m1": wants("a", "b"), "m3": wants("b")}
    assert plain(assign_range(members, {"a": 3, "b": 4})) == {
        "m1": [("a", 0), ("a", 1), ("b", 0), ("b", 1)],
        "m2": [("a", 2), ("b", 2)],
        "m3": [("b", 3)],
    }


def test_static_members_come_first_and_in_the_order_of_their_instances() -> None:
    members = {
        "m1": MemberSubscription(frozenset("a")),
        "m2": MemberSubscription(frozenset("a"), instance_id="z"),
        "m3": MemberSubscription(frozenset("a"), instance_id="y"),
    }
    assert plain(assign_range(members, {"a": 3})) == {
        "m3": [("a", 0)],
        "m2": [("a", 1)],
        "m1": [("a", 2)],
    }


def test_round_robin_deals_all_topics_out_together() -> None:
    members = {"m1": wants("a", "b"), "m2": wants("a", "b")}
    assert plain(assign_round_robin(members, {"a": 3, "b": 1})) == {
        "m1": [("a", 0), ("a", 2)],
        "m2": [("a", 1), ("b", 0)],
    }


def test_a_partition_that_moves_is_nobodys_until_its_owner_gave_it_up() -> None:
    members = {"m1": wants("a", owned=[("a", 0), ("a", 1)], generation=1), "m2": wants("a")}
    first = assign_cooperatively(members, {"a": 2})
    assert plain(first) == {"m1": [("a", 0)], "m2": []}
    members = {"m1": wants("a", owned=[("a", 0)], generation=2), "m2": wants("a", generation=2)}
    assert plain(assign_cooperatively(members, {"a": 2})) == {"m1": [("a", 0)], "m2": [("a", 1)]}


def test_what_two_claim_is_of_the_later_generation() -> None:
    members = {
        "m1": wants("a", owned=[("a", 0)], generation=1),
        "m2": wants("a", owned=[("a", 0)], generation=2),
    }
    assert plain(assign_cooperatively(members, {"a": 2})) == {"m1": [("a", 1)], "m2": [("a", 0)]}


def test_what_is_owned_of_a_topic_that_is_gone_or_not_wanted_does_not_count() -> None:
    members = {"m1": wants("a", owned=[("a", 7), ("b", 0)], generation=1)}
    assert plain(assign_cooperatively(members, {"a": 1, "b": 1})) == {"m1": [("a", 0)]}


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSubscription], dict[str, int]]:
    counts = {topic: draw(st.integers(0, 6)) for topic in TOPICS}
    members = {}
    for number in range(draw(st.integers(1, 5))):
        topics = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
        rows = st.tuples(st.sampled_from(TOPICS), st.integers(0, 7))
        owned = draw(st.lists(rows, max_size=6))
        members[f"m{number}"] = wants(*topics, owned=owned, generation=draw(st.integers(-1, 2)))
    return members, counts


def all_wanted(
    members: dict[str, MemberSubscription], counts: dict[str, int]
) -> set[TopicPartition]:
    wanted = {topic for row in members.values() for topic in row.topics}
    return {
        TopicPartition(t, i) for t, count in counts.items() if t in wanted for i in range(count)
    }


@given(groups())
def test_each_partition_goes_to_one_member_that_wants_it(
    group: tuple[dict[str, MemberSubscription], dict[str, int]],
) -> None:
    members, counts = group
    for name, assignor in ASSIGNORS.items():
        assigned = assignor(members, counts)
        given_out = [row for rows in assigned.values() for row in rows]
        assert len(given_out) == len(set(given_out)), name
        assert set(given_out) <= all_wanted(members, counts), name
        for member_id, rows in assigned.items():
            assert {row.topic for row in rows} <= members[member_id].topics, name
        if name != "cooperative-sticky":
            assert set(given_out) == all_wanted(members, counts), name


@pytest.mark.slow
@given(groups())
def test_cooperative_rebalances_end_with_everything_given_out_and_then_nothing_moves(
    group: tuple[dict[str, MemberSubscription], dict[str, int]],
) -> None:
    members, counts = group
    for generation in range(10, 20):
        assigned = assign_cooperatively(members, counts)
        before = members
        members = {
            name: MemberSubscription(row.topics, frozenset(assigned[name]), generation)
            for name, row in members.items()
        }
        if {n: r.owned for n, r in before.items()} == {n: r.owned for n, r in members.items()}:
            break
    else:
        raise AssertionError("it never settles")
    given_out = {row for rows in assigned.values() for row in rows}
    assert given_out == all_wanted(members, counts)


@given(st.integers(1, 6), st.integers(0, 30))
def test_members_that_want_the_same_get_as_much(count: int, partitions: int) -> None:
    members = {f"m{number}": wants("a") for number in range(count)}
    sizes = [len(rows) for rows in assign_cooperatively(members, {"a": partitions}).values()]
    assert max(sizes) - min(sizes) <= 1
