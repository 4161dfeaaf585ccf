from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from headrace.spark.filters import Bounds, take
from headrace.spark.planning import Range

WHOLE = Range("t", 1, 100, 200)


def test_bounds_on_offsets_are_taken_from_spark() -> None:
    bounds = Bounds()
    filters = [
        IsNotNull(("offset",)),
        GreaterThan(("offset",), 109),
        LessThanOrEqual(("offset",), 119),
    ]
    assert take(filters, bounds) == []
    assert bounds.clip(WHOLE) == Range("t", 1, 110, 120)


def test_the_narrower_of_two_bounds_holds() -> None:
    bounds = Bounds()
    take([GreaterThanOrEqual(("offset",), 150), GreaterThanOrEqual(("offset",), 120)], bounds)
    take([LessThan(("offset",), 160), LessThan(("offset",), 170)], bounds)
    assert bounds.clip(WHOLE) == Range("t", 1, 150, 160)


def test_one_offset_is_a_range_of_one() -> None:
    bounds = Bounds()
    take([EqualTo(("offset",), 150)], bounds)
    assert bounds.clip(WHOLE).size == 1


def test_bounds_that_exclude_each_other_leave_nothing() -> None:
    bounds = Bounds()
    take([GreaterThan(("offset",), 180), LessThan(("offset",), 120)], bounds)
    take([EqualTo(("partition",), 1), EqualTo(("partition",), 2)], bounds)
    take([In(("topic",), ("a", "b")), EqualTo(("topic",), "c")], bounds)
    assert bounds.clip(WHOLE).size == 0
    assert not bounds.admits("t", 1)
    assert not bounds.admits("c", 1)


def test_partitions_and_topics_are_chosen() -> None:
    bounds = Bounds()
    assert take([In(("partition",), (1, 3)), EqualTo(("topic",), "t")], bounds) == []
    assert bounds.admits("t", 3)
    assert not bounds.admits("t", 2)
    assert not bounds.admits("u", 1)


def test_a_time_says_where_to_begin_and_spark_still_checks_it() -> None:
    bounds = Bounds()
    since = GreaterThan(("timestamp",), datetime(2026, 1, 1, microsecond=1500, tzinfo=UTC))
    assert take([since], bounds) == [since]
    assert bounds.since_ms == 1767225600_001


def test_a_time_without_a_zone_or_before_1970_bounds_nothing() -> None:
    bounds = Bounds()
    take([GreaterThan(("timestamp",), datetime(2026, 1, 1))], bounds)
    take([GreaterThan(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))], bounds)
    assert bounds == Bounds()


def test_what_says_nothing_of_offsets_stays_with_spark() -> None:
    bounds = Bounds()
    filters = [
        Not(EqualTo(("partition",), 1)),
        StringStartsWith(("topic",), "a"),
        EqualTo(("key",), b"x"),
        LessThan(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
        EqualTo(("offset", "inner"), 1),
        In(("offset",), (1, 2)),
    ]
    assert take(filters, bounds) == filters
    assert bounds == Bounds()
