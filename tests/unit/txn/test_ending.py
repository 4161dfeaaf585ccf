"""How transactions end, and that they end once."""

from collections.abc import Callable

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.txn.ending import complete, needs_producer_id
from headrace.txn.state import EPOCH_MAX, Producer, Status
from tests.unit.txn.world import NEW_ID, World

P0, P1 = ("orders", 0), ("orders", 1)


def opened(level: int = 2) -> tuple[World, Producer]:
    """Give a world in which a producer has a transaction of two partitions open."""
    world = World(level)
    producer = world.init()
    world.add(producer, P0, P1)
    return world, producer


def refused(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        work()
    return caught.value.code


@pytest.mark.parametrize("is_commit", [True, False])
def test_all_partitions_are_told_the_same_end(is_commit: bool) -> None:
    world, producer = opened()
    world.end(producer, is_commit=is_commit)
    (decided,) = world.decided
    assert decided.is_commit is is_commit
    assert set(decided.partitions) == {P0, P1}
    world.complete()
    assert world.of().status is (Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT)
    assert world.of().partitions == ()


def test_the_markers_of_version_2_have_the_next_epoch_and_so_has_the_producer() -> None:
    world, producer = opened()
    assert world.end(producer) == producer._replace(producer_epoch=1)
    assert (world.decided[0].producer_epoch, world.decided[0].transaction_version) == (1, 2)


def test_the_markers_of_version_1_have_the_producers_epoch() -> None:
    world, producer = opened()
    world.end_unbumped(producer)
    assert (world.decided[0].producer_epoch, world.decided[0].transaction_version) == (0, 0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_is_repeated_is_answered_the_same(is_commit: bool) -> None:
    world, producer = opened()
    following = world.end(producer, is_commit=is_commit)
    code = refused(lambda: world.end(producer, is_commit=is_commit))
    assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    world.complete()
    assert world.end(producer, is_commit=is_commit) == following
    assert world.decided == []
    other = refused(lambda: world.end(producer, is_commit=not is_commit))
    assert other is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_of_version_1_may_be_repeated_but_not_changed(is_commit: bool) -> None:
    world, producer = opened()
    world.end_unbumped(producer, is_commit=is_commit)
    world.complete()
    world.end_unbumped(producer, is_commit=is_commit)
    code = refused(lambda: world.end_unbumped(producer, is_commit=not is_commit))
    assert code is ErrorCode.INVALID_TXN_STATE
    assert world.decided == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_delayed_end_never_touches_the_next_transaction(is_commit: bool) -> None:
    world, producer = opened()
    following = world.end(producer)
    world.complete()
    world.add(following, P0)
    code = refused(lambda: world.end(producer, is_commit=is_commit))
    assert code is ErrorCode.PRODUCER_FENCED
    assert world.of().status is Status.ONGOING


def test_what_was_never_begun_can_be_aborted_for_its_epoch_but_not_committed() -> None:
    world = World()
    producer = world.init()
    assert refused(lambda: world.end(producer)) is ErrorCode.INVALID_TXN_STATE
    assert world.end(producer, is_commit=False) == producer._replace(producer_epoch=1)
    assert world.decided[0].partitions == ()
    code = refused(lambda: world.end_unbumped(producer._replace(producer_epoch=1)))
    assert code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"transactional_id": "b"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_id": 77}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_epoch": 1}, ErrorCode.PRODUCER_FENCED),
        ({"producer_epoch": -1}, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_who_has_the_id_ends_a_transaction(
    change: dict[str, str | int], code: ErrorCode
) -> None:
    world, producer = opened()
    stranger = producer._replace(**change)  # type: ignore[arg-type]
    assert refused(lambda: world.end(stranger)) is code
    assert refused(lambda: world.end_unbumped(stranger)) is code
    assert world.of().status is Status.ONGOING


def test_a_producer_that_was_late_may_abort_what_is_aborted_and_cannot_commit_it() -> None:
    world, producer = opened()
    world.pass_time(world.of().timeout_ms + 10_000)
    world.complete()
    assert refused(lambda: world.end(producer)) is ErrorCode.INVALID_TXN_STATE
    assert world.end(producer, is_commit=False) == producer._replace(producer_epoch=1)


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 0), (2, 2)])
def test_the_feature_says_how_what_is_late_is_aborted(level: int, version: int) -> None:
    world, _ = opened(level)
    world.pass_time(world.of().timeout_ms + 10_000)
    (decided,) = world.decided
    assert (decided.is_commit, decided.producer_epoch) == (False, 1)
    assert decided.transaction_version == version


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    world = World()
    producer = world.init()
    while producer.producer_epoch < EPOCH_MAX - 1:
        producer = world.init()
    world.add(producer, P0)
    assert needs_producer_id(world.state, "a")
    following = world.end(producer)
    assert (following.producer_id > NEW_ID + 1, following.producer_epoch) == (True, 0)
    assert world.decided[0][1:3] == (producer.producer_id, EPOCH_MAX)
    world.complete()
    assert world.end(producer) == following
    world.add(following, P0)
    assert refused(lambda: world.end(producer)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_epoch_for_markers_is_nobodys() -> None:
    world = World()
    producer = world.init()
    while producer.producer_epoch < EPOCH_MAX - 1:
        producer = world.init()
    world.add(producer, P0)
    world.pass_time(world.of().timeout_ms + 10_000)
    world.complete()
    last = producer._replace(producer_epoch=EPOCH_MAX)
    assert refused(lambda: world.add(last, P0)) is ErrorCode.PRODUCER_FENCED
    assert refused(lambda: world.end(producer, is_commit=False)) is ErrorCode.PRODUCER_FENCED
    assert world.init(producer=last).producer_epoch == 0


def test_a_completion_that_comes_twice_changes_nothing() -> None:
    world, producer = opened()
    world.end_unbumped(producer)
    decided = world.decided[0]
    world.complete()
    world.add(producer, P0, version=0)
    written = len(world.log)
    world.commit(complete(world.state, decided, world.now_ms))
    assert len(world.log) == written
    assert world.of().status is Status.ONGOING
