"""Who has a transactional id, and who had it."""

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.txn.initialization import init_producer_id, needs_producer_id
from headrace.txn.state import EPOCH_MAX, Producer, Status
from tests.unit.txn.world import NEW_ID, T0, TIMEOUT_MS, World

P0 = ("orders", 0)
LAST_EPOCH = EPOCH_MAX - 1


def refused(world: World, producer: Producer) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.init(producer=producer)
    return caught.value.code


def exhausted(world: World) -> Producer:
    """Give a producer that has the last epoch of its id."""
    producer = world.init()
    while producer.producer_epoch < LAST_EPOCH:
        producer = world.init()
    return producer


def test_the_first_gets_a_new_producer_id_with_epoch_zero() -> None:
    world = World()
    assert needs_producer_id(world.state, "a")
    assert world.init() == Producer("a", NEW_ID + 1, 0)
    assert world.of().timeout_ms == TIMEOUT_MS
    assert world.of().status is Status.EMPTY


def test_who_comes_later_has_the_same_id_and_a_higher_epoch() -> None:
    world = World()
    first, second = world.init(), world.init()
    assert second == first._replace(producer_epoch=1)
    assert not needs_producer_id(world.state, "a")


def test_a_producer_that_names_its_epoch_goes_on_with_the_next() -> None:
    world = World()
    producer = world.init()
    assert world.init(producer=producer).producer_epoch == 1


def test_a_producer_that_did_not_hear_the_answer_gets_it_again() -> None:
    world = World()
    producer = world.init()
    first = world.init(producer=producer)
    assert world.init(producer=producer) == first


def test_a_producer_that_was_replaced_is_fenced() -> None:
    world = World()
    old = world.init()
    world.init()
    assert refused(world, old) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("named", [Producer("a", 7, 0), Producer("a", NEW_ID + 1, 9)])
def test_a_producer_that_names_what_it_never_had_is_fenced(named: Producer) -> None:
    world = World()
    world.init()
    assert refused(world, named) is ErrorCode.PRODUCER_FENCED


def test_what_an_unknown_id_names_does_not_matter() -> None:
    assert World().init(producer=Producer("b", 77, 5)).producer_epoch == 0


def test_what_was_left_open_is_aborted_before_another_takes_over() -> None:
    world = World()
    old = world.init()
    world.add(old, P0)
    assert refused(world, Producer("a")) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.of().status is Status.PREPARE_ABORT
    assert [(each.is_commit, each.producer_epoch) for each in world.decided] == [(False, 1)]
    assert refused(world, Producer("a")) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.complete()
    assert world.init() == old._replace(producer_epoch=2)


def test_a_stranger_cannot_abort_what_is_open() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0)
    stranger = Producer("a", 77, 0)
    assert refused(world, stranger) is ErrorCode.PRODUCER_FENCED
    assert world.of().status is Status.ONGOING


def test_a_producer_whose_transaction_ran_out_of_time_may_go_on() -> None:
    world = World()
    producer = world.init()
    world.add(producer, P0)
    world.pass_time(TIMEOUT_MS + 10_000)
    world.complete()
    assert world.init(producer=producer) == producer._replace(producer_epoch=1)


def test_after_the_last_epoch_comes_another_producer_id() -> None:
    world = World()
    producer = exhausted(world)
    assert needs_producer_id(world.state, "a")
    rotated = world.init(producer=producer)
    assert (rotated.producer_id > producer.producer_id, rotated.producer_epoch) == (True, 0)
    assert world.init(producer=producer) == rotated


def test_the_id_before_is_fenced_once_another_has_the_new_one() -> None:
    world = World()
    producer = exhausted(world)
    world.init()
    assert refused(world, producer) is ErrorCode.PRODUCER_FENCED


def test_what_is_open_with_the_last_epoch_is_aborted_with_the_epoch_for_markers() -> None:
    world = World()
    producer = exhausted(world)
    world.add(producer, P0)
    assert refused(world, Producer("a")) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.decided[0][1:3] == (producer.producer_id, EPOCH_MAX)
    world.complete()
    assert world.of().producer_id != producer.producer_id
    assert world.of().producer_epoch == 0


def test_an_id_that_was_used_up_meanwhile_is_asked_for_again() -> None:
    world = World()
    with pytest.raises(KafkaError) as caught:
        world.commit(init_producer_id(world.state, Producer("a"), 1000, -1, T0, print))
    assert caught.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not world.state.transactions


def test_nobody_is_given_the_epoch_for_markers() -> None:
    world = World()
    producer = exhausted(world)
    world.add(producer, P0)
    world.pass_time(TIMEOUT_MS + 10_000)
    world.complete()
    assert world.of().producer_epoch == EPOCH_MAX
    rotated = world.init(producer=producer)
    assert (rotated.producer_id > producer.producer_id, rotated.producer_epoch) == (True, 0)
    assert world.init(producer=producer) == rotated
