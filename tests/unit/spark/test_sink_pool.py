import os
import time
from pathlib import Path

import pytest

from headrace.spark.sink import pool
from headrace.spark.sink.pool import WriteName, give_name_back, take_name

CLUSTER = "127.0.0.1:9092"


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """What Spark tells the processes of one driver."""
    return {"SPARK_LOCAL_DIRS": f"{tmp_path},/elsewhere"}


def test_a_name_that_is_given_back_is_used_again(driver: dict[str, str]) -> None:
    first = take_name(CLUSTER, driver)
    assert first.name.startswith("write-")
    assert first.batch == 0
    give_name_back(CLUSTER, WriteName(first.name, 1), driver)
    assert take_name(CLUSTER, driver) == WriteName(first.name, 1)


def test_no_two_writes_have_a_name_at_a_time(driver: dict[str, str]) -> None:
    names = [take_name(CLUSTER, driver) for _ in range(3)]
    for each in names:
        give_name_back(CLUSTER, each, driver)
    again = [take_name(CLUSTER, driver) for _ in range(4)]
    assert len({each.name for each in again}) == 4
    assert {each.name for each in names} < {each.name for each in again}


def test_names_are_of_one_cluster_and_one_driver(driver: dict[str, str], tmp_path: Path) -> None:
    name = take_name(CLUSTER, driver)
    give_name_back(CLUSTER, name, driver)
    assert take_name("127.0.0.1:9999", driver).name != name.name
    assert take_name(CLUSTER, {"SPARK_LOCAL_DIRS": str(tmp_path / "other")}).name != name.name
    assert take_name(CLUSTER, {}).name != name.name


def test_a_name_that_was_idle_for_long_is_not_used_again(
    driver: dict[str, str], tmp_path: Path
) -> None:
    name = take_name(CLUSTER, driver)
    give_name_back(CLUSTER, name, driver)
    long_ago = time.time() - pool.REUSED_WITHIN_SECONDS - 1
    for file in (tmp_path / pool.FOLDER).rglob(f"{name.name}*"):
        os.utime(file, (long_ago, long_ago))
    assert take_name(CLUSTER, driver).name != name.name
    assert list((tmp_path / pool.FOLDER).rglob("write-*")) == []


def test_where_no_file_can_be_written_every_write_has_a_new_name(tmp_path: Path) -> None:
    (tmp_path / pool.FOLDER).write_text("in the way")
    environment = {"SPARK_LOCAL_DIRS": str(tmp_path)}
    name = take_name(CLUSTER, environment)
    give_name_back(CLUSTER, name, environment)
    assert take_name(CLUSTER, environment).name != name.name
