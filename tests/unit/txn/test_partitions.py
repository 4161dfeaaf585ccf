"""What is part of a transaction."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.txn.partitions import verify_partitions
from headrace.txn.state import Producer, Status
from tests.unit.txn.world import T0, World

P0, P1, P2 = ("orders", 0), ("orders", 1), ("stock", 0)


def refused(world: World, producer: Producer) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.add(producer, P0)
    return caught.value.code


def test_a_transaction_begins_with_its_first_partition() -> None:
    world = World()
    producer = world.init()
    world.now_ms += 5
    world.add(producer, P0, P2)
    assert world.of().status is Status.ONGOING
    assert world.of().started_ms == T0 + 5
    world.now_ms += 5
    world.add(producer, P1, P0)
    assert world.of().started_ms == T0 + 5
    assert set(world.of().partitions) == {P0, P1, P2}


def test_what_is_part_of_it_already_is_not_written_again() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0, P1)
    written = len(world.log)
    world.add(producer, P1)
    assert len(world.log) == written


def test_the_next_transaction_begins_without_the_partitions_of_the_last() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0)
    producer = world.end(producer)
    world.complete()
    world.add(producer, P1)
    assert world.of().partitions == (P1,)


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        (Producer("b", 5001, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer("a", 77, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Producer("a", 5001, 1), ErrorCode.PRODUCER_FENCED),
        (Producer("a", 5001, -1), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_who_has_the_id_adds_partitions(producer: Producer, code: ErrorCode) -> None:
    world = World()
    world.init()
    assert refused(world, producer) is code


def test_partitions_wait_until_the_former_transaction_is_complete() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0, version=0)
    world.end_unbumped(producer)
    assert refused(world, producer) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.complete()
    world.add(producer, P0, version=0)


def test_it_is_said_of_each_partition_whether_it_is_part() -> None:
    world = World()
    producer = world.init()
    missing, present = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE
    assert world.do(verify_partitions, producer, [P0]) == {P0: missing}
    world.add(producer, P0, version=0)
    assert world.do(verify_partitions, producer, [P0, P1]) == {P0: present, P1: missing}
    world.end_unbumped(producer)
    world.complete()
    assert world.do(verify_partitions, producer, [P0]) == {P0: missing}
