"""Where replicas go: properties of any cluster."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.topics.assignment import Candidate, assign_replicas

CLUSTERS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
).map(
    lambda rows: [
        Candidate(BrokerId(index), rack, is_up) for index, (rack, is_up) in enumerate(rows)
    ]
)


def place(
    candidates: list[Candidate], partitions: int, factor: int, start: int = 0
) -> list[list[int]]:
    placed = assign_replicas(
        candidates, partitions=partitions, replication_factor=factor, start=start
    )
    return [list(replicas) for replicas in placed]


@given(CLUSTERS, st.integers(1, 30), st.data())
def test_each_partition_has_its_replicas_on_different_brokers_and_a_leader_that_is_up(
    candidates: list[Candidate], partitions: int, data: st.DataObject
) -> None:
    up = {each.broker_id for each in candidates if each.is_up}
    factor = data.draw(st.integers(1, len(candidates)))
    if not up:
        with pytest.raises(KafkaError, match="up"):
            place(candidates, partitions, factor)
        return
    placed = place(candidates, partitions, factor, data.draw(st.integers(0, 20)))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in up
        assert len(up & set(replicas)) == min(factor, len(up)), "those that are up come first"


@given(CLUSTERS, st.integers(1, 40), st.integers(0, 20))
def test_brokers_that_are_up_lead_as_many_partitions_each(
    candidates: list[Candidate], partitions: int, start: int
) -> None:
    up = [each.broker_id for each in candidates if each.is_up]
    if not up:
        return
    leaders = Counter(replicas[0] for replicas in place(candidates, partitions, 1, start))
    counts = [leaders[broker_id] for broker_id in up]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 30), st.data())
def test_replicas_are_in_as_many_racks_as_there_can_be(
    racks: int, brokers_per_rack: int, partitions: int, data: st.DataObject
) -> None:
    candidates = [
        Candidate(BrokerId(index), f"rack{index % racks}")
        for index in range(racks * brokers_per_rack)
    ]
    rack_of = {each.broker_id: each.rack for each in candidates}
    factor = data.draw(st.integers(1, len(candidates)))
    placed = place(candidates, partitions, factor)
    for replicas in placed:
        per_rack = Counter(rack_of[BrokerId(each)] for each in replicas)
        assert len(per_rack) == min(factor, racks)
        assert max(per_rack.values()) - min(per_rack.values()) <= 1
    loads = Counter(each for replicas in placed for each in replicas)
    counts = [loads[each.broker_id] for each in candidates]
    assert max(counts) - min(counts) <= factor, "nobody carries much more than another"


def test_topics_of_one_partition_do_not_all_begin_at_the_same_broker() -> None:
    candidates = [Candidate(BrokerId(index)) for index in range(3)]
    assert {place(candidates, 1, 1, start)[0][0] for start in range(3)} == {0, 1, 2}


@pytest.mark.parametrize("factor", [-1, 0, 4])
def test_more_replicas_than_brokers_or_none_cannot_be_had(factor: int) -> None:
    candidates = [Candidate(BrokerId(index)) for index in range(3)]
    with pytest.raises(KafkaError) as raised:
        place(candidates, 1, factor)
    assert raised.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert str(factor) in raised.value.message


def test_replicas_are_on_different_machines_before_they_are_in_different_racks() -> None:
    candidates = [
        Candidate(BrokerId(number), rack, host=host)
        for number, (rack, host) in enumerate((("x", "a"), ("y", "a"), ("x", "b"), ("z", "c")))
    ]
    for replicas in place(candidates, 12, 3):
        assert len({candidates[each].host for each in replicas}) == 3
    for replicas in place(candidates, 12, 2):
        assert len({candidates[each].host for each in replicas}) == 2
