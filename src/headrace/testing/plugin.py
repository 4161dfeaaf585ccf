"""The pytest plugin: broker fixtures. docs/testing.md shows how to use them.

Every pytest run of every project that has Headrace installed loads this module, so it imports
nothing but pytest; the broker is imported with the first fixture.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headrace.testing.broker import TestBroker
    from headrace.testing.cluster import TestCluster
    from headrace.testing.pipelines import PipelineTest


@pytest.fixture(scope="session")
def headrace_settings() -> Mapping[str, str]:
    """Return the brokers' settings by Kafka's names; override this fixture to change them."""
    return {}


@pytest.fixture
def headrace(headrace_settings: Mapping[str, str]) -> "Iterator[TestBroker]":
    """A broker for one test, on a free port, with an empty directory."""
    yield from _serve(headrace_settings)


@pytest.fixture(scope="module")
def headrace_module(headrace_settings: Mapping[str, str]) -> "Iterator[TestBroker]":
    """One broker for all tests of a module."""
    yield from _serve(headrace_settings)


@pytest.fixture(scope="session")
def headrace_session(headrace_settings: Mapping[str, str]) -> "Iterator[TestBroker]":
    """One broker for all tests of a run; with pytest-xdist, of a worker."""
    yield from _serve(headrace_settings)


@pytest.fixture
def headrace_cluster(headrace_settings: Mapping[str, str]) -> "Iterator[TestCluster]":
    """A cluster of three nodes for one test."""
    from headrace.testing.cluster import TestCluster  # noqa: PLC0415  see above

    with TestCluster(settings=headrace_settings) as cluster:
        yield cluster


@pytest.fixture
def headrace_pipeline(headrace: "TestBroker", tmp_path: Path) -> "Callable[..., PipelineTest]":
    """A function that takes the folder of a pipeline and returns it ready to run on a broker."""
    from headrace.testing.pipelines import PipelineTest  # noqa: PLC0415  see above

    def prepare(folder: str | Path, **more: Any) -> "PipelineTest":
        return PipelineTest(folder, headrace, tmp_path / "pipeline", **more)

    return prepare


def _serve(settings: Mapping[str, str]) -> "Iterator[TestBroker]":
    from headrace.testing.broker import TestBroker  # noqa: PLC0415  see above

    with TestBroker(settings=settings) as broker:
        yield broker
