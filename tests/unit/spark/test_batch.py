import pickle

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo

from headrace.spark.batch import BatchReader
from headrace.spark.filters import Bounds
from headrace.spark.read_options import read_options
from headrace.spark.schema import spark_schema

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
FILTER = EqualTo(("partition",), 1)


def reader(**more: str) -> BatchReader:
    return BatchReader(read_options(GIVEN | more), spark_schema(GIVEN))


def is_refused_without_the_switch(made: BatchReader) -> bool:
    """What Spark asks of a reader when filters are not to be handed over."""
    return getattr(made.pushFilters, "__func__", None) is not DataSourceReader.pushFilters


def test_filters_are_taken_when_spark_hands_them_over() -> None:
    made = reader()
    assert list(made.pushFilters([FILTER])) == []
    assert made._bounds == Bounds(partitions=frozenset({1}))


def test_a_reader_is_no_trouble_where_sparks_switch_is_off() -> None:
    assert not is_refused_without_the_switch(reader())
    assert is_refused_without_the_switch(reader(filterPushdown="true"))


def test_filters_stay_with_spark_if_the_user_says_so() -> None:
    made = reader(filterPushdown="false")
    assert list(made.pushFilters([FILTER])) == [FILTER]
    assert not is_refused_without_the_switch(made)


@pytest.mark.parametrize("pushdown", [{}, {"filterPushdown": "true"}])
def test_bounds_travel_with_the_reader(pushdown: dict[str, str]) -> None:
    made = reader(**pushdown)
    made.pushFilters([FILTER])
    assert pickle.loads(pickle.dumps(made))._bounds == made._bounds
