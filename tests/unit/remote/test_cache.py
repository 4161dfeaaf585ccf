"""The cache: the life of a segment, look-ups, lineages and overlaps, against a naive model too."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.ids import BrokerId
from headrace.remote.cache import SegmentCache
from headrace.remote.lineage import claims_of
from headrace.remote.segments import (
    DeleteState,
    InvalidSegment,
    InvalidTransition,
    MetadataEvent,
    PartitionDelete,
    RemoteSegment,
    SegmentId,
    SegmentNotFound,
    SegmentState,
    SegmentUpdate,
    TierError,
)
from tests.unit.remote.segments import ORDERS, delete, partition, segment, segment_id, update

KEY = ORDERS.key
STARTED, FINISHED, DELETING, DELETED = SegmentState


def cache_with(*segments: RemoteSegment) -> SegmentCache:
    """Return a cache with finished copies."""
    cache = SegmentCache()
    for one in segments:
        cache.apply(one)
        cache.apply(update(one, FINISHED))
    return cache


def ids(segments: list[RemoteSegment]) -> list[int]:
    return [int.from_bytes(one.id, "big") for one in segments]


def answer(cache: SegmentCache, epoch: int, offset: int) -> int | None:
    found = cache.find(KEY, epoch, offset)
    return None if found is None else int.from_bytes(found.id, "big")


# The life of a segment


def reach(state: SegmentState | None) -> tuple[SegmentCache, RemoteSegment]:
    cache, one = SegmentCache(), segment(1, 0, 99)
    path = {
        None: [],
        STARTED: [],
        FINISHED: [FINISHED],
        DELETING: [DELETING],
        DELETED: [DELETING, DELETED],
    }
    if state is not None:
        cache.apply(one)
    for step in path[state]:
        cache.apply(update(one, step))
    return cache, one


ALLOWED = {
    (STARTED, STARTED),
    (STARTED, FINISHED),
    (STARTED, DELETING),
    (FINISHED, FINISHED),
    (FINISHED, DELETING),
    (DELETING, DELETING),
    (DELETING, DELETED),
    (DELETED, DELETED),
}


@pytest.mark.parametrize("state", SegmentState)
@pytest.mark.parametrize("target", SegmentState)
def test_a_segment_goes_forward_or_stays(state: SegmentState, target: SegmentState) -> None:
    cache, one = reach(state)
    before = cache.segments(KEY)
    if (state, target) in ALLOWED:
        cache.check(update(one, target))
        cache.apply(update(one, target))
        after = [found.state for found in cache.segments(KEY)]
        assert after == ([] if target == DELETED else [target])
    else:
        expected = SegmentNotFound if state == DELETED else InvalidTransition
        with pytest.raises(expected):
            cache.check(update(one, target))
        with pytest.raises(expected):
            cache.apply(update(one, target))
        assert cache.segments(KEY) == before


def test_only_a_finished_copy_is_found_and_a_list_has_all_until_the_end() -> None:
    for state, is_found, is_listed in (
        (None, False, False),
        (STARTED, False, True),
        (FINISHED, True, True),
        (DELETING, False, True),
        (DELETED, False, False),
    ):
        cache, _ = reach(state)
        assert (cache.find(KEY, 0, 50) is not None) == is_found
        assert (cache.highest_offset(KEY, 0) == 99) == is_found
        assert cache.size_bytes(KEY, 0) == (1000 if is_found else 0)
        assert bool(cache.segments(KEY)) == is_listed
        assert bool(cache.segments_of(KEY, 0)) == is_listed
        assert cache.segment_count == is_listed


def test_an_announcement_may_be_repeated_and_its_id_is_not_given_to_another() -> None:
    cache, one = SegmentCache(), segment(1, 0, 99)
    cache.apply(one)
    cache.apply(one)
    assert ids(cache.segments(KEY)) == [1]
    with pytest.raises(InvalidSegment):
        cache.apply(segment(1, 0, 98))
    cache.apply(update(one, FINISHED))
    with pytest.raises(InvalidTransition):
        cache.apply(one)


def test_a_segment_that_is_announced_in_a_later_state_is_refused() -> None:
    cache = SegmentCache()
    for state in (FINISHED, DELETING, DELETED):
        with pytest.raises(InvalidSegment):
            cache.apply(segment(1, 0, 99, state=state))
    assert list(cache.partitions()) == []


def test_a_step_of_an_unknown_segment_is_refused_and_leaves_no_trace() -> None:
    cache = SegmentCache()
    for state in (STARTED, FINISHED, DELETING):
        with pytest.raises(SegmentNotFound):
            cache.apply(update(segment(1, 0, 99), state))
    cache.apply(update(segment(1, 0, 99), DELETED))
    assert list(cache.partitions()) == []


def test_a_step_says_who_took_it_when_and_keeps_the_custom_metadata() -> None:
    cache, one = SegmentCache(), segment(1, 0, 99)
    cache.apply(one)
    cache.apply(update(one, FINISHED, custom_metadata=b"here"))
    cache.apply(update(one, DELETING))
    (found,) = cache.segments(KEY)
    assert (found.custom_metadata, found.broker_id, found.event_timestamp_ms) == (b"here", 2, 456)


def test_a_copy_is_finished_by_whoever_announced_it_last_and_by_nobody_else() -> None:
    cache, one = SegmentCache(), segment(1, 0, 99)
    cache.apply(one)
    cache.apply(replace(one, broker_id=BrokerId(7), event_timestamp_ms=400))
    with pytest.raises(InvalidTransition, match="node 7 has announced it since"):
        cache.apply(update(one, FINISHED))
    assert cache.find(KEY, 0, 50) is None
    cache.apply(update(one, FINISHED)._replace(broker_id=BrokerId(7)))
    cache.apply(update(one, FINISHED))  # a repetition changes nothing
    assert cache.find(KEY, 0, 50) is not None


# The deletion of a partition


def test_a_deletion_goes_through_its_states_and_may_repeat_each() -> None:
    cache = cache_with(segment(1, 0, 99))
    for state in (DeleteState.STARTED, DeleteState.FINISHED):
        with pytest.raises(InvalidTransition):
            cache.apply(delete(ORDERS, state))
    for state in (DeleteState.MARKED, DeleteState.MARKED, DeleteState.STARTED, DeleteState.STARTED):
        cache.apply(delete(ORDERS, state))
        assert cache.delete_state(KEY) == state
    with pytest.raises(InvalidTransition):
        cache.apply(delete(ORDERS, DeleteState.MARKED))
    with pytest.raises(InvalidTransition, match="deletion"):
        cache.apply(segment(2, 100, 199))
    for _ in range(2):
        cache.apply(delete(ORDERS, DeleteState.FINISHED))
        assert list(cache.partitions()) == []
        assert cache.segment_count == 0


def test_segments_go_on_while_their_partition_is_deleted() -> None:
    cache, one = SegmentCache(), segment(1, 0, 99)
    cache.apply(one)
    cache.apply(delete(ORDERS, DeleteState.MARKED))
    for state in (FINISHED, DELETING, DELETED):
        cache.apply(update(one, state))
    assert cache.delete_state(KEY) == DeleteState.MARKED
    assert [known.key for known in cache.partitions()] == [KEY]


# Look-ups


def test_a_record_is_found_by_its_epoch_and_offset() -> None:
    cache = cache_with(segment(1, 0, 100, (0, 0), (1, 20), (2, 80)), segment(2, 101, 200, (2, 101)))
    assert [answer(cache, *at) for at in ((0, 0), (0, 19), (1, 20), (1, 79), (2, 80))] == [1] * 5
    assert answer(cache, 2, 101) == answer(cache, 2, 200) == 2
    for at in ((0, 20), (1, 19), (1, 80), (2, 79), (2, 201), (3, 50), (0, -1)):
        assert answer(cache, *at) is None
    assert [cache.highest_offset(KEY, epoch) for epoch in range(4)] == [19, 79, 200, None]
    assert ids(cache.segments_of(KEY, 1)) == [1]
    assert ids(cache.segments_of(KEY, 2)) == [1, 2]
    assert cache.size_bytes(KEY, 2) == 2000


def test_an_epoch_without_a_record_in_the_segment_finds_nothing() -> None:
    cache = cache_with(segment(1, 0, 100, (0, 0), (1, 50), (2, 50), (3, 101)))
    assert answer(cache, 1, 50) is None
    assert answer(cache, 2, 50) == 1
    assert answer(cache, 3, 101) is None


def test_partitions_do_not_see_each_other() -> None:
    other = partition(7, topic=0xCB)
    cache = cache_with(segment(1, 0, 99), segment(2, 0, 99, of=other))
    assert ids(cache.segments(KEY)) == [1]
    assert ids(cache.segments(other.key)) == [2]
    assert [known.key for known in cache.partitions()] == [KEY, other.key]


def test_the_next_segment_with_aborted_transactions_is_found() -> None:
    cache = cache_with(
        segment(1, 0, 99),
        segment(2, 100, 199, is_txn_index_empty=True),
        segment(3, 200, 299, is_txn_index_empty=True),
        segment(4, 300, 399),
    )
    expected = {0: 1, 99: 1, 100: 4, 250: 4, 300: 4, 399: 4, 400: None}
    for offset, number in expected.items():
        found = cache.find_with_aborted(KEY, 0, offset)
        assert (None if found is None else int.from_bytes(found.id, "big")) == number


# Overlaps: facts section 15


def test_overlapping_copies_have_one_answer_each_offset_and_the_covered_one_is_deletable() -> None:
    cache = cache_with(segment(1, 0, 100), segment(2, 101, 200), segment(3, 0, 150))
    assert {answer(cache, 0, offset) for offset in range(151)} == {3}
    assert {answer(cache, 0, offset) for offset in range(151, 201)} == {2}
    assert ids(cache.unreferenced(KEY)) == [1]
    assert cache.highest_offset(KEY, 0) == 200


def test_a_copy_within_another_leaves_no_hole() -> None:
    cache = cache_with(segment(1, 0, 200), segment(2, 50, 100))
    assert [answer(cache, 0, offset) for offset in (49, 50, 100, 101, 200)] == [1, 2, 2, 1, 1]
    assert cache.unreferenced(KEY) == []


def test_an_older_copy_answers_again_when_the_newer_one_goes() -> None:
    newer = segment(3, 0, 150)
    cache = cache_with(segment(1, 0, 100), segment(2, 101, 200), newer)
    cache.apply(update(newer, DELETING))
    assert [answer(cache, 0, offset) for offset in (0, 100, 101, 200)] == [1, 1, 2, 2]
    assert cache.unreferenced(KEY) == []


def test_a_segment_is_referenced_as_long_as_one_of_its_epochs_answers() -> None:
    cache = cache_with(segment(1, 0, 100, (0, 0), (1, 50)), segment(2, 0, 49, (0, 0)))
    assert cache.unreferenced(KEY) == []
    cache = cache_with(segment(1, 0, 100, (0, 0), (1, 50)), segment(2, 0, 120, (0, 0), (1, 50)))
    assert ids(cache.unreferenced(KEY)) == [1]


def test_a_lineage_that_was_given_up_does_not_answer_for_the_one_that_holds() -> None:
    """An unclean leader of epoch 2 continued at 50: the records from there on are others."""
    cache = cache_with(segment(1, 0, 100, (1, 0)), segment(2, 50, 150, (2, 50)))
    assert answer(cache, 2, 70) == 2
    assert answer(cache, 1, 70) == 1
    assert cache.unreferenced(KEY) == []


class Naive:
    """The same answers by looking through everything, in the order of finishing."""

    def __init__(self) -> None:
        self.segments: dict[SegmentId, RemoteSegment] = {}
        self.finished: list[SegmentId] = []

    def apply(self, event: MetadataEvent) -> None:
        if isinstance(event, RemoteSegment):
            self.segments[event.id] = event
        elif isinstance(event, SegmentUpdate):
            if event.state == FINISHED:
                if event.id not in self.finished:
                    self.finished.append(event.id)
            elif event.id in self.finished:
                self.finished.remove(event.id)
            if event.state == DELETED:
                self.segments.pop(event.id, None)
        elif event.state == DeleteState.FINISHED:
            self.segments.clear()
            self.finished.clear()

    def _owners(self, epoch: int) -> dict[int, SegmentId]:
        owners: dict[int, SegmentId] = {}
        for id_ in self.finished:
            for of, (start, end) in claims_of(self.segments[id_]):
                if of == epoch:
                    owners |= dict.fromkeys(range(start, end + 1), id_)
        return owners

    def check(self, cache: SegmentCache) -> None:
        answering = set()
        for epoch in range(4):
            owners = self._owners(epoch)
            answering |= set(owners.values())
            for offset in range(-1, 45):
                found = cache.find(KEY, epoch, offset)
                assert (found and found.id) == owners.get(offset)
                aborted = [
                    owners[at]
                    for at in sorted(owners)
                    if at >= offset and not self.segments[owners[at]].is_txn_index_empty
                ]
                with_aborted = cache.find_with_aborted(KEY, epoch, offset)
                assert (with_aborted and with_aborted.id) == (aborted[0] if aborted else None)
            assert cache.highest_offset(KEY, epoch) == max(owners, default=None)
            of_epoch = {id_ for id_, one in self.segments.items() if epoch in dict(claims_of(one))}
            listed = cache.segments_of(KEY, epoch)
            assert {one.id for one in listed} == of_epoch
            assert cache.size_bytes(KEY, epoch) == sum(
                self.segments[id_].size_bytes for id_ in self.finished if id_ in of_epoch
            )
        starts = [one.start_offset for one in cache.segments(KEY)]
        assert starts == sorted(starts)
        assert {one.id for one in cache.segments(KEY)} == set(self.segments)
        assert {one.id for one in cache.unreferenced(KEY)} == set(self.finished) - answering
        assert cache.segment_count == len(self.segments)


@st.composite
def some_segments(draw: st.DrawFn) -> RemoteSegment:
    start = draw(st.integers(0, 30))
    end = draw(st.integers(start, 40))
    epochs = sorted(draw(st.sets(st.integers(0, 3), min_size=1)))
    cuts = sorted(draw(st.integers(start, end)) for _ in epochs[1:])
    return segment(
        draw(st.integers(1, 8)),
        start,
        end,
        *zip(epochs, [start, *cuts], strict=True),
        size_bytes=draw(st.integers(0, 100)),
        is_txn_index_empty=draw(st.booleans()),
    )


def some_events() -> st.SearchStrategy[MetadataEvent]:
    updates = st.builds(
        lambda number, state: update(segment(number, 0, 0), state),
        st.integers(1, 8),
        st.sampled_from([FINISHED, FINISHED, FINISHED, DELETING, DELETED]),
    )
    deletions: st.SearchStrategy[PartitionDelete] = st.builds(
        lambda state: delete(ORDERS, state), st.sampled_from(DeleteState)
    )
    return st.one_of(some_segments(), updates, updates, updates, some_segments(), deletions)


@settings(deadline=None, max_examples=200)
@given(st.lists(some_events(), max_size=40))
def test_the_cache_answers_as_a_search_through_all_segments_does(
    events: list[MetadataEvent],
) -> None:
    cache, naive = SegmentCache(), Naive()
    for event in events:
        try:
            cache.check(event)
        except TierError as refusal:
            with pytest.raises(type(refusal)):
                cache.apply(event)
        else:
            cache.apply(event)
            naive.apply(event)
    naive.check(cache)
    naive.check(restored(cache))


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(st.lists(some_segments(), max_size=8, unique_by=lambda one: one.id), st.data())
def test_copies_that_overlap_and_go_in_any_order_answer_as_a_search_does(
    copies: list[RemoteSegment], data: st.DataObject
) -> None:
    cache, naive = cache_with(*copies), Naive()
    for copy in copies:
        naive.apply(copy)
        naive.apply(update(copy, FINISHED))
    naive.check(cache)
    for copy in data.draw(st.permutations(copies)):
        cache.apply(update(copy, DELETING))
        naive.apply(update(copy, DELETING))
        naive.check(cache)


def restored(cache: SegmentCache) -> SegmentCache:
    """Return a cache with what another one has, as from a snapshot."""
    copy = SegmentCache()
    for one in all_segments(cache):
        copy.restore(one)
    for known in cache.replay_order():
        if known.delete_state is not None:
            copy.restore_delete_state(known.partition, known.delete_state)
    return copy


def all_segments(cache: SegmentCache) -> Iterator[RemoteSegment]:
    for known in cache.replay_order():
        yield from known.replay_order()


def test_a_segment_is_restored_once_and_not_in_its_last_state() -> None:
    cache = SegmentCache()
    cache.restore(segment(1, 0, 99, state=FINISHED))
    assert answer(cache, 0, 50) == 1
    with pytest.raises(InvalidSegment):
        cache.restore(segment(1, 0, 99, state=FINISHED))
    with pytest.raises(InvalidSegment):
        cache.restore(segment(2, 0, 99, state=DELETED))
    assert cache.get(KEY, segment_id(1)) is not None
