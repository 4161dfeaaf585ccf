"""The pytest plugin: fixtures that give a broker. docs/testing.md shows how they are used.

Every pytest run of every project that has Headrace installed loads this module, so that it imports
nothing but pytest; the broker loads when a test first asks for one.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.broker import TestBroker


@pytest.fixture(scope="session")
def headrace_settings() -> Mapping[str, str]:
    """Settings of the brokers by Kafka's names; override this fixture to have others."""
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


def _serve(settings: Mapping[str, str]) -> "Iterator[TestBroker]":
    from headrace.testing.broker import TestBroker  # noqa: PLC0415  see above

    with TestBroker(settings=settings) as broker:
        yield broker
