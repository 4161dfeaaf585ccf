from hypothesis import given
from hypothesis import strategies as st

from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.spark.share import debts
from headrace.spark.share.journal import Debt, Run
from tests.unit.spark.offset_ranges import disjoint, numbers

A = SharedPartition(TopicId(bytes(16)), "orders", 0)


@given(disjoint(), disjoint(), st.sets(st.integers(0, 40)))
def test_every_offset_that_comes_is_read_or_owed(
    came: list[tuple[int, int]], owed: list[tuple[int, int]], bad: set[int]
) -> None:
    known = [Debt(first, last, 1, first in bad) for first, last in owed]
    parted = debts.part([Run(first, last, 2) for first, last in came], known)
    fresh = numbers([(run.first, run.last) for run in parted.fresh])
    accepted, rejected = numbers(parted.accepted), numbers(parted.rejected)
    assert sorted(fresh + accepted + rejected) == numbers(came)
    assert set(accepted + rejected) == set(numbers(came)) & set(numbers(owed))
    assert set(rejected) <= set(numbers([each[:2] for each in known if each.is_rejected]))


def test_what_was_delivered_less_often_than_before_is_read_again() -> None:
    known = [Debt(0, 9, 2, False)]
    assert debts.part([Run(0, 9, 1)], known).fresh == [Run(0, 9, 1)]
    assert debts.part([Run(0, 9, 2)], known).fresh == []


def test_a_batch_owes_what_could_not_be_acknowledged() -> None:
    runs = {A: [Run(0, 9, 1), Run(20, 29, 3)]}
    owed = debts.owed(runs, {A: [(5, 9), (20, 21)]}, {A: [(6, 7), (25, 25)]})
    assert sorted(owed[A]) == [
        Debt(5, 5, 1, False),
        Debt(6, 7, 1, True),
        Debt(8, 9, 1, False),
        Debt(20, 21, 3, False),
    ]
    assert debts.owed(runs, {}, {}) == {}


def test_debts_are_paid_in_parts_and_newer_ones_hold() -> None:
    known = debts.incur([Debt(0, 9, 1, False)], [Debt(5, 6, 2, True)])
    assert known == [Debt(0, 4, 1, False), Debt(5, 6, 2, True), Debt(7, 9, 1, False)]
    assert debts.pay(known, [(0, 5)]) == [Debt(6, 6, 2, True), Debt(7, 9, 1, False)]


def test_a_limited_number_of_debts_is_remembered() -> None:
    many = [Debt(2 * at, 2 * at, 1, False) for at in range(debts.DEBTS_MAX + 5)]
    assert debts.incur([], many) == many[5:]


def test_debts_before_the_start_of_the_group_are_forgotten() -> None:
    known = {A: [Debt(0, 4, 1, False), Debt(8, 9, 1, False)]}
    assert debts.forget(known, lambda _: 5) == {A: [Debt(8, 9, 1, False)]}
    assert debts.forget(known, lambda _: None) == known
    assert debts.forget(known, lambda _: 10) == {}
