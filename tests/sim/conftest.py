"""`--seeds` and HEADRACE_SIM_SEEDS say how many seeds are played, `--seed` plays one.

`make test` plays a few of each, `make test-slow` many more, `make sim` as many as you like.

One in four of the planted bugs is played by `make test`. The scenarios of Raft share seeds: a tenth
is each one's part, and a fifth that of the common world.
"""

import os
from collections import Counter
from typing import Final

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, help="how many seeds of a simulation to play")
    parser.addoption("--seed", type=int, help="the one seed of a simulation to play")


@pytest.fixture
def seeds(pytestconfig: pytest.Config) -> range:
    return _seeds(pytestconfig, default=300)


@pytest.fixture
def raft_seeds(pytestconfig: pytest.Config) -> range:
    return _seeds(pytestconfig, default=50)


@pytest.fixture
def cluster_seeds(pytestconfig: pytest.Config) -> range:
    return _seeds(pytestconfig, default=300)


@pytest.fixture
def replication_seeds(pytestconfig: pytest.Config) -> range:
    return _seeds(pytestconfig, default=100)


@pytest.fixture
def tier_seeds(pytestconfig: pytest.Config) -> range:
    return _seeds(pytestconfig, default=4)


def _seeds(pytestconfig: pytest.Config, default: int) -> range:
    one: int | None = pytestconfig.getoption("--seed", default=None)
    if one is not None:
        return range(one, one + 1)
    count: int | None = pytestconfig.getoption("--seeds", default=None)
    return range(count or int(os.environ.get("HEADRACE_SIM_SEEDS", default)))


PLANTED_IN_MAKE_TEST: Final = 4
"""One in so many planted bugs is played by `make test`, all of them by `make test-slow`."""


@pytest.hookimpl(tryfirst=True)  # before the marks decide what is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most planted bugs to `make test-slow`: they prove the checks, not the product.

    Which, does not depend on the order of tests.
    """
    numbers: Counter[str] = Counter()
    for item in sorted(items, key=lambda each: each.nodeid):
        if item.path.parent.name != "sim" or not item.path.stem.endswith("_bugs"):
            continue
        if numbers[item.path.stem] % PLANTED_IN_MAKE_TEST:
            item.add_marker(pytest.mark.exhaustive)
        numbers[item.path.stem] += 1
