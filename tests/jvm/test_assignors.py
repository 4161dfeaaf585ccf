"""Our assignor of share groups beside Kafka's."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random

import pytest

from headrace.groups.assignors import MemberSpec
from headrace.groups.assignors.simple import assign_simply
from headrace.ids import TopicId
from tools.jvm import harness
from tools.jvm.oracles import AssignorOracle

CASES = 500
Members = Mapping[str, tuple[Iterable[str], Mapping[str, Iterable[int]]]]
Assignments = dict[str, dict[str, list[int]]]


@pytest.fixture(scope="module")
def oracle() -> Iterator[AssignorOracle]:
    if sentence := harness.missing_tools():
        pytest.skip(sentence)
    with AssignorOracle() as oracle:
        yield oracle


def assign(topics: Mapping[str, int], members: Members) -> Assignments:
    specs = {
        member: MemberSpec(
            frozenset(_id(name) for name in wanted),
            None,
            {_id(name): frozenset(indexes) for name, indexes in assigned.items()},
        )
        for member, (wanted, assigned) in members.items()
    }
    found = assign_simply(
        specs, {_id(name): frozenset(range(count)) for name, count in topics.items()}
    )
    return {
        member: {chr(topic[0]): sorted(indexes) for topic, indexes in each.items()}
        for member, each in found.items()
    }


def places(assigned: Mapping[str, Iterable[int]]) -> set[tuple[str, int]]:
    return {(topic, index) for topic, indexes in assigned.items() for index in indexes}


def kept(members: Members, found: Assignments) -> int:
    """Give how many partitions stay where they were."""
    return sum(len(places(found[each]) & places(members[each][1])) for each in members)


def sizes(found: Assignments) -> list[int]:
    return sorted(len(places(each)) for each in found.values())


def _id(name: str) -> TopicId:
    return TopicId(name.encode() * 16)


def test_members_of_a_new_group_get_as_much_as_in_kafka(oracle: AssignorOracle) -> None:
    for count in range(1, 10):
        for partitions in range(1, 8):
            members: Members = {f"m{each}": (["a"], {}) for each in range(count)}
            topics = {"a": partitions}
            assert sizes(assign(topics, members)) == sizes(oracle.assign(topics, members))


def test_members_that_want_the_same_keep_as_much_as_in_kafka_or_more(
    oracle: AssignorOracle,
) -> None:
    random = Random(932)
    for _ in range(CASES):
        topics = {name: random.randint(1, 6) for name in "abc"[: random.randint(1, 3)]}
        former: Members = {f"m{each}": (list(topics), {}) for each in range(random.randint(1, 9))}
        before = assign(topics, former)
        topics = {name: count + random.randint(0, 2) for name, count in topics.items()}
        names = random.sample([f"m{each}" for each in range(12)], random.randint(1, 9))
        members = {name: (list(topics), before.get(name, {})) for name in names}
        ours, theirs = assign(topics, members), oracle.assign(topics, members)
        assert kept(members, ours) >= kept(members, theirs), (topics, members)
        # Where members outnumber partitions, Kafka leaves a place free now and then.
        assert sum(sizes(ours)) >= sum(sizes(theirs))
        assert max(sizes(ours)) - min(sizes(ours)) <= 1
