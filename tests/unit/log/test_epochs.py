from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.epochs import UNDEFINED_END, EpochEnd, EpochStart, LeaderEpochs


def history(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochStart(*entry) for entry in entries)


def test_epochs_are_kept_in_order() -> None:
    epochs = history((0, 0), (3, 10))
    assert epochs.entries() == [(0, 0), (3, 10)]
    assert epochs.latest_epoch == 3
    assert len(epochs) == 2
    assert LeaderEpochs().latest_epoch is None


@pytest.mark.parametrize(
    ("entry", "is_changed", "entries"),
    [
        ((3, 10), False, [(0, 0), (3, 10)]),
        ((3, 15), False, [(0, 0), (3, 10)]),
        ((3, 5), True, [(0, 0), (3, 5)]),
        ((4, 20), True, [(0, 0), (3, 10), (4, 20)]),
        ((4, 10), True, [(0, 0), (4, 10)]),
        ((2, 20), True, [(0, 0), (2, 20)]),
        ((0, 0), True, [(0, 0)]),
    ],
)
def test_the_newest_word_counts(
    entry: tuple[int, int], is_changed: bool, entries: list[tuple[int, int]]
) -> None:
    epochs = history((0, 0), (3, 10))
    assert epochs.assign(*entry) is is_changed
    assert epochs.entries() == entries


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_negative_values_are_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="neither is negative"):
        LeaderEpochs().assign(*entry)


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (-1, UNDEFINED_END),
        (0, EpochEnd(0, 5)),  # before the first: it ended where that begins
        (1, EpochEnd(1, 10)),
        (2, EpochEnd(1, 10)),
        (3, EpochEnd(3, 20)),
        (4, EpochEnd(4, 99)),
        (5, UNDEFINED_END),
    ],
)
def test_an_epoch_ends_where_the_next_begins(epoch: int, end: EpochEnd) -> None:
    assert history((1, 5), (3, 10), (4, 20)).end_offset_for(epoch, 99) == end


def test_nothing_is_known_without_history() -> None:
    epochs = LeaderEpochs()
    assert epochs.end_offset_for(0, 99) == UNDEFINED_END
    assert epochs.epoch_for_offset(0) is None
    assert epochs.previous_epoch(5) is None
    assert epochs.next_epoch(5) is None
    assert not epochs.truncate_from_end(0)
    assert not epochs.truncate_from_start(9)


def test_an_offset_has_the_epoch_that_began_last() -> None:
    epochs = history((1, 5), (3, 10))
    found = [epochs.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)]
    assert found == [None, 1, 1, 3, 3]


def test_neighbours_of_an_epoch() -> None:
    epochs = history((1, 5), (3, 10))
    assert [epochs.previous_epoch(epoch) for epoch in (1, 2, 3, 9)] == [None, 1, 1, 3]
    assert [epochs.next_epoch(epoch) for epoch in (0, 1, 2, 3)] == [1, 3, 3, None]


@pytest.mark.parametrize(
    ("end_offset", "entries"), [(11, [(1, 5), (3, 10)]), (10, [(1, 5)]), (5, []), (0, [])]
)
def test_truncation_forgets_epochs_that_begin_beyond(
    end_offset: int, entries: list[tuple[int, int]]
) -> None:
    epochs = history((1, 5), (3, 10))
    assert epochs.truncate_from_end(end_offset) is (len(entries) < 2)
    assert epochs.entries() == entries


@pytest.mark.parametrize(
    ("start_offset", "entries"),
    [
        (4, [(1, 5), (3, 10)]),
        (5, [(1, 5), (3, 10)]),
        (7, [(1, 7), (3, 10)]),
        (10, [(3, 10)]),
        (15, [(3, 15)]),
    ],
)
def test_deletion_keeps_the_epoch_that_the_log_begins_in(
    start_offset: int, entries: list[tuple[int, int]]
) -> None:
    epochs = history((1, 5), (3, 10))
    assert epochs.truncate_from_start(start_offset) is (entries != [(1, 5), (3, 10)])
    assert epochs.entries() == entries


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30))))
def test_epochs_and_offsets_always_increase(assigned: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for entry in assigned:
        epochs.assign(*entry)
        entries = epochs.entries()
        assert entries[-1].epoch == entry[0]
        for before, after in pairwise(entries):
            assert before.epoch < after.epoch
            assert before.start_offset < after.start_offset


@pytest.mark.parametrize(
    ("own", "leaders", "expected"),
    [
        # The epoch is known here: the smaller end.
        (((1, 0), (2, 10)), (1, 7), 7),
        (((1, 0), (2, 10)), (1, 12), 10),
        (((1, 0), (2, 10)), (2, 15), 15),
        (((1, 0), (2, 10)), (2, 90), 20),
        # KAFKA-6361: an epoch that is not known here; the later ones go, not those before.
        (((1, 0), (3, 10)), (2, 15), 10),
        (((1, 0), (3, 10), (4, 12)), (2, 5), 10),
        # Nothing is known of an epoch as early, or at all: up to the leader's.
        (((5, 10),), (3, 4), 4),
        (((5, 10),), (3, 14), 10),
        ((), (3, 4), 4),
        (((1, 0),), (3, 4), 4),
        # The leader does not know.
        (((1, 0),), (-1, -1), 20),
    ],
)
def test_a_diverging_log_is_cut_where_it_is_still_the_leaders(
    own: tuple[tuple[int, int], ...], leaders: tuple[int, int], expected: int
) -> None:
    epochs = LeaderEpochs(EpochStart(*entry) for entry in own)
    assert epochs.truncation_offset(EpochEnd(*leaders), 20) == expected


def test_the_last_record_may_be_of_an_earlier_epoch_than_the_latest() -> None:
    """KAFKA-10706: a leader that appended nothing has begun its epoch all the same."""
    epochs = LeaderEpochs([EpochStart(1, 0), EpochStart(3, 10)])
    assert epochs.last_epoch(11) == 3
    assert epochs.last_epoch(10) == 1
    assert epochs.last_epoch(0) == -1


def test_an_epoch_that_goes_on_after_one_without_records_keeps_its_start() -> None:
    epochs = history((1, 0), (3, 10))
    assert epochs.assign(1, 10)
    assert epochs.entries() == [(1, 0)]
