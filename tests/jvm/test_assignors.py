"""Our assignors of share and consumer groups beside Kafka's."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random

import pytest

from headrace.groups.assignors import ASSIGNORS, AssignmentSpec, MemberSpec
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


def assign(topics: Mapping[str, int], members: Members, assignor: str = "simple") -> Assignments:
    specs = {
        member: MemberSpec(
            frozenset(_id(name) for name in wanted),
            None,
            {_id(name): frozenset(indexes) for name, indexes in assigned.items()},
        )
        for member, (wanted, assigned) in members.items()
    }
    if assignor == "simple":
        found = assign_simply(
            specs, {_id(name): frozenset(range(count)) for name, count in topics.items()}
        )
    else:
        counts = {_id(name): count for name, count in topics.items()}
        found = ASSIGNORS[assignor](AssignmentSpec(specs, counts))
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


# Consumer groups


def random_group(random: Random, *, is_alike: bool) -> tuple[dict[str, int], Members]:
    """A group of members that had something, of topics that have grown since."""
    topics = {name: random.randint(1, 8) for name in "abcdef"[: random.randint(1, 6)]}

    def wishes() -> list[str]:
        count = len(topics) if is_alike else random.randint(1, len(topics))
        return random.sample(list(topics), count)

    former: Members = {f"m{each}": (wishes(), {}) for each in range(random.randint(1, 9))}
    before = assign(topics, former, "uniform")
    topics = {name: count + random.randint(0, 3) for name, count in topics.items()}
    names = random.sample([f"m{each}" for each in range(12)], random.randint(1, 9))
    return topics, {name: (wishes(), before.get(name, {})) for name in names}


def unevenness(found: Assignments) -> int:
    return sum(size * size for size in sizes(found))


def test_members_of_a_consumer_group_that_want_the_same_get_and_keep_as_much_as_in_kafka(
    oracle: AssignorOracle,
) -> None:
    random = Random(848)
    for _ in range(CASES):
        topics, members = random_group(random, is_alike=True)
        ours = assign(topics, members, "uniform")
        theirs = oracle.assign(topics, members, "uniform")
        assert sizes(ours) == sizes(theirs), (topics, members)
        assert kept(members, ours) >= kept(members, theirs), (topics, members)


def test_members_of_a_consumer_group_that_want_different_topics_are_as_even_as_in_kafka(
    oracle: AssignorOracle,
) -> None:
    random = Random(849)
    differences, kept_ours, kept_theirs = [], 0, 0
    for _ in range(CASES):
        topics, members = random_group(random, is_alike=False)
        ours = assign(topics, members, "uniform")
        theirs = oracle.assign(topics, members, "uniform")
        differences.append(unevenness(ours) - unevenness(theirs))
        kept_ours, kept_theirs = (
            kept_ours + kept(members, ours),
            kept_theirs + kept(members, theirs),
        )
    # Where a chain of moves would be needed, the order of hash maps decides who finds one.
    assert max(differences) <= 2
    assert sum(differences) <= 0
    assert kept_ours >= 0.99 * kept_theirs


def test_ranges_are_those_of_kafka(oracle: AssignorOracle) -> None:
    random = Random(850)
    for _ in range(CASES):
        topics, members = random_group(random, is_alike=random.random() < 0.5)
        members = {name: (wanted, {}) for name, (wanted, _) in members.items()}
        theirs = oracle.assign(topics, members, "range")
        assert assign(topics, members, "range") == theirs, (topics, members)
