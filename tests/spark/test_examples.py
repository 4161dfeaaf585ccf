"""The example pipelines end by themselves, with the right result."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.spark import session

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def spark(java: None) -> Iterator[SparkSession]:
    made = session("local[2]", banner=False)
    yield made
    made.stop()


def demo(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"demo_{name}", EXAMPLES / name / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_change_data_leaves_the_latest_row_of_each_key(spark: SparkSession) -> None:
    assert demo("change_data").main(spark) == [("1", "Ada", "Cork"), ("3", "Cyd", "Zagreb")]


@pytest.mark.exhaustive
def test_a_late_click_is_counted_and_one_that_is_too_late_is_not(spark: SparkSession) -> None:
    clicks = demo("clicks")
    assert clicks.main(spark) == clicks.COUNTED


@pytest.mark.exhaustive
def test_orders_are_tried_again_and_hopeless_ones_are_dead_letters(spark: SparkSession) -> None:
    charged, dead = demo("order_queue").main(spark)
    assert charged == [(1, 1), (2, 2), (4, 3)]
    assert len(dead) == 2
    assert "no order at all" in dead


@pytest.mark.exhaustive
def test_a_replayed_month_is_right_and_the_others_are_unchanged(spark: SparkSession) -> None:
    before, after = demo("replay").main(spark)
    assert before == {"2026-09": 20.0, "2026-10": 2000.0, "2026-11": 1000.0}
    assert after == {"2026-09": 20.0, "2026-10": 20.0, "2026-11": 10.0}
