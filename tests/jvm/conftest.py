"""Tests against programs of Apache Kafka: what they need, and the programs themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.jvm import harness
from tools.jvm.oracles import BatchOracle, LogOracle, MessageOracle

MISSING = harness.missing_tools()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder; where Java is missing, say so and run the rest."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.jvm)
            item.add_marker(pytest.mark.timeout(600))  # the first run downloads Kafka
            if MISSING is not None:
                item.add_marker(pytest.mark.skip(reason=MISSING))


@pytest.fixture(scope="session")
def messages() -> Iterator[MessageOracle]:
    with MessageOracle() as oracle:
        yield oracle


@pytest.fixture(scope="session")
def batches() -> Iterator[BatchOracle]:
    with BatchOracle() as oracle:
        yield oracle


@pytest.fixture(scope="session")
def log() -> Iterator[LogOracle]:
    with LogOracle() as oracle:
        yield oracle
