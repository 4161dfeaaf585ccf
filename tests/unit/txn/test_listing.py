"""What administrators see."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.txn.listing import STATUS_BY_LABEL, Filter, describe, select
from headrace.txn.state import Status
from tests.unit.txn.world import World

ANY = Filter(frozenset(), frozenset())


def listed(world: World, wanted: Filter) -> list[str]:
    return sorted(each.transactional_id for each in select(world.state, wanted, world.now_ms))


@pytest.fixture
def world() -> World:
    world = World()
    world.init("empty")
    world.add(world.init("open"), ("orders", 0))
    world.now_ms += 5000
    world.add(world.init("young"), ("orders", 0))
    return world


def test_the_names_are_kafkas() -> None:
    assert list(STATUS_BY_LABEL) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_filters_are_all_met(world: World) -> None:
    open_ones = ANY._replace(statuses=frozenset({Status.ONGOING}))
    assert listed(world, ANY) == ["empty", "open", "young"]
    assert listed(world, open_ones) == ["open", "young"]
    one_id = frozenset({world.of("open").producer_id})
    assert listed(world, open_ones._replace(producer_ids=one_id)) == ["open"]
    assert listed(world, open_ones._replace(longer_than_ms=4000)) == ["open"]


def test_one_that_never_began_is_as_old_as_can_be(world: World) -> None:
    assert listed(world, ANY._replace(longer_than_ms=10_000)) == ["empty"]


def test_an_id_is_described_or_not_found(world: World) -> None:
    assert world.do(describe, "open").status is Status.ONGOING
    with pytest.raises(KafkaError) as caught:
        world.do(describe, "nobody")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
