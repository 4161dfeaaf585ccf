"""What a batch of a queue costs Spark's driver: one pass over its records, however scattered."""

from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.session import SharedPartition
from headrace.ids import TopicId
from headrace.spark.share import debts
from headrace.spark.share.held import HeldRanges, Word
from headrace.spark.share.intervals import Interval, merged, outside
from headrace.spark.share.journal import Debt, Run, newest
from tests.growth.steps import assert_grows_linearly, steps

A = SharedPartition(TopicId(bytes(16)), "orders", 0)
RECORDS = 500


def every_second(records: int, first: int = 0) -> list[Interval]:
    return [(offset, offset) for offset in range(first, records, 2)]


def test_settling_a_batch_of_which_every_second_record_is_rejected() -> None:
    def cost(records: int) -> int:
        held: HeldRanges[str] = HeldRanges()
        held.hold(A, [(0, records - 1)], "lease", 0.0)
        words = [
            Word(offset, offset, AcknowledgeType.ACCEPT if offset % 2 else AcknowledgeType.REJECT)
            for offset in range(records)
        ]
        return steps(lambda: held.take(A, words))

    assert_grows_linearly(cost, RECORDS)


def test_settling_a_batch_that_was_leased_record_by_record() -> None:
    def cost(records: int) -> int:
        held: HeldRanges[str] = HeldRanges()
        held.hold(A, every_second(records), "lease", 0.0)
        words = [Word(*each, AcknowledgeType.ACCEPT) for each in every_second(records)]
        return steps(lambda: held.take(A, words))

    assert_grows_linearly(cost, RECORDS)


def test_a_lease_that_is_lost_or_comes_again_record_by_record() -> None:
    def cost(records: int) -> int:
        held: HeldRanges[str] = HeldRanges()
        held.hold(A, every_second(records), "lease", 0.0)

        def lose_and_hold() -> None:
            held.drop(A, every_second(records // 2))
            held.hold(A, every_second(records, 1), "other", 1.0)

        return steps(lose_and_hold)

    assert_grows_linearly(cost, RECORDS)


def test_telling_debts_from_what_is_to_be_read() -> None:
    def cost(records: int) -> int:
        known = [Debt(*each, 1, False) for each in every_second(records)]
        runs = [Run(offset, offset, 2) for offset in range(records)]
        return steps(lambda: debts.part(runs, known))

    assert_grows_linearly(cost, RECORDS)


def test_owing_and_paying_record_by_record() -> None:
    def cost(records: int) -> int:
        runs = {A: [Run(offset, offset, 1) for offset in range(records)]}
        ranges = every_second(records)

        def owe_and_pay() -> None:
            owed = debts.owed(runs, {A: ranges}, {A: ranges[::2]})
            debts.pay(debts.incur(owed[A], owed[A]), ranges)

        return steps(owe_and_pay)

    assert_grows_linearly(cost, RECORDS)


def test_rejections_of_single_records() -> None:
    def cost(records: int) -> int:
        rejected = every_second(records)
        return steps(lambda: outside(merged(rejected), rejected[::2]))

    assert_grows_linearly(cost, RECORDS)


def test_joining_what_many_fetches_brought() -> None:
    def cost(records: int) -> int:
        rounds = [[Run(*each, 1)] for each in every_second(records)]
        return steps(lambda: newest(rounds))

    assert_grows_linearly(cost, RECORDS)
