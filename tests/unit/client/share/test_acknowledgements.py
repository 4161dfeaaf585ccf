"""What is said about records becomes ranges."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.share.acknowledgements import (
    GAP,
    Acknowledged,
    Acknowledgements,
    AcknowledgeType,
    Range,
)
from headrace.client.topics import TopicPartition

ACCEPT, RELEASE, REJECT, RENEW = map(int, AcknowledgeType)


def said(types: dict[int, int]) -> Acknowledgements:
    acknowledgements = Acknowledgements()
    acknowledgements.add(types)
    return acknowledgements


def test_records_that_were_all_accepted_are_one_range_with_one_type() -> None:
    assert said(dict.fromkeys(range(1000), ACCEPT)).batches() == [(0, 999, [ACCEPT])]


def test_offsets_may_be_acknowledged_in_any_order() -> None:
    assert said({7: ACCEPT, 5: ACCEPT, 6: ACCEPT}).batches() == [(5, 7, [ACCEPT])]


def test_a_run_of_different_types_has_one_for_each_offset() -> None:
    assert said({5: ACCEPT, 6: REJECT, 7: RELEASE}).batches() == [(5, 7, [ACCEPT, REJECT, RELEASE])]


def test_offsets_that_are_not_acknowledged_part_ranges() -> None:
    assert said({1: ACCEPT, 2: ACCEPT, 4: ACCEPT}).batches() == [(1, 2, [ACCEPT]), (4, 4, [ACCEPT])]


def test_ranges_of_one_type_that_touch_are_joined() -> None:
    acknowledgements = Acknowledgements()
    acknowledgements.add_ranges([(10, 19)], ACCEPT)
    acknowledgements.add_ranges([(0, 9)], ACCEPT)
    assert acknowledgements.batches() == [(0, 19, [ACCEPT])]


def test_gaps_stand_between_the_records_around_them() -> None:
    acknowledgements = said({0: ACCEPT, 3: ACCEPT})
    acknowledgements.add_ranges([(1, 2)], GAP)
    assert acknowledgements.batches() == [(0, 0, [ACCEPT]), (1, 2, [GAP]), (3, 3, [ACCEPT])]


def test_the_last_word_about_an_offset_holds() -> None:
    acknowledgements = said({5: RELEASE})
    acknowledgements.add({5: ACCEPT})
    assert acknowledgements.batches() == [(5, 5, [ACCEPT])]


def test_what_is_sent_again_gives_way_to_what_was_said_since() -> None:
    older = said({1: RENEW, 2: RENEW})
    older.add_ranges([(3, 4)], ACCEPT)
    newer = said({2: REJECT})
    newer.put_before(older)
    assert newer.batches() == [(1, 4, [RENEW, REJECT, ACCEPT, ACCEPT])]


def test_what_was_to_be_kept_is_released_at_the_end() -> None:
    kept = said({1: RENEW, 2: ACCEPT})
    assert (kept.has_renewals, kept.renewals()) == (True, [1])
    given_back = kept.without_renewals()
    assert not given_back.has_renewals
    assert given_back.batches() == [(1, 2, [RELEASE, ACCEPT])]


def test_an_outcome_lists_its_offsets() -> None:
    outcome = Acknowledged(TopicPartition("t", 0), (Range(1, 3), Range(7, 7)), None)
    assert list(outcome.offsets) == [1, 2, 3, 7]


@given(
    st.dictionaries(st.integers(0, 60), st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW])),
    st.sets(st.integers(61, 120)),
)
def test_ranges_say_of_every_offset_what_was_said_and_nothing_else(
    types: dict[int, int], gaps: set[int]
) -> None:
    acknowledgements = said(types)
    acknowledgements.add_ranges([(offset, offset) for offset in gaps], GAP)
    batches = acknowledgements.batches()
    told = {
        offset: kinds[0 if len(kinds) == 1 else offset - first]
        for first, last, kinds in batches
        for offset in range(first, last + 1)
    }
    assert told == {**types, **dict.fromkeys(gaps, GAP)}
    assert all(len(kinds) in (1, last - first + 1) for first, last, kinds in batches)
    ends = [end for first, last, _ in batches for end in (first, last)]
    assert ends == sorted(ends)
