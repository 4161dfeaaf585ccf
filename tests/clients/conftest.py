"""One real broker for the clients of this folder, and topics of their own for each test.

HEADRACE_TESTS_BOOTSTRAP=host:port runs the same tests against another cluster. They pass against
Apache Kafka 4.3.1, which is what makes them a specification.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.headrace_process import headrace
from tests.jvm.kafka_broker import kafka
from tools.jvm.harness import missing_tools

DEADLINE_SECONDS = 60
POLL_SECONDS = 0.01
START_MS = int(time.time()) * 1000 - 3_600_000
"""A time for the first record: of this day, or retention takes it away."""
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}
"""Members hear of a change within a third of a second, not within five."""
_NUMBERS = count()


def eventually(find: Callable[[], object], wanted: object) -> None:
    """Ask until the answer is `wanted`: a broker may show a change soon after it answered."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := find()) != wanted:
        assert time.monotonic() < deadline, f"still {found!r}, not {wanted!r}"
        time.sleep(POLL_SECONDS)  # polls, up to the deadline


_SLOW_WITH_KAFKA = ("test_headrace_cli", "test_same_workloads", "test_confluent_share")
"""The command line is Headrace's; with the others, clients of others meet a broker of others."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave some of Apache Kafka to `make test-slow`; repeat a test of this folder that fails.

    The clients here have threads and timers that nobody here wrote. Once, and the summary names
    it: see CONTRIBUTING.md.
    """
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.flaky(reruns=1))
        if "[kafka" in item.nodeid and item.path.name.startswith(_SLOW_WITH_KAFKA):
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(autouse=True, scope="module")
def _what_is_left_open_is_found_here() -> Iterator[None]:
    """Collect what tests of a file left open, and fail there: not in a later file."""
    yield
    gc.collect()


class TopicMaker(Protocol):
    """Creates a topic with a name of its own; gives the name."""

    def __call__(self, partitions: int = 1, **configs: str) -> str: ...


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that all tests of a process share."""
    if address := os.environ.get("HEADRACE_TESTS_BOOTSTRAP"):
        yield address
        return
    folder: Path = tmp_path_factory.mktemp("broker") / "data"
    with headrace(folder, QUICK_GROUPS) as address:
        yield address


@pytest.fixture(
    scope="session",
    params=["headrace", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.timeout(600)])],
)
def any_bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a Headrace, and of an Apache Kafka: our own client serves both."""
    if request.param == "headrace":
        yield request.getfixturevalue("bootstrap")
        return
    if (missing := missing_tools()) is not None:
        pytest.skip(missing)
    with kafka(tmp_path_factory.mktemp("kafka") / "data", extra=QUICK_GROUPS) as address:
        yield address


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> str:
    """A topic's name that nobody has used."""
    return f"{request.node.originalname[:80]}-{os.getpid()}-{next(_NUMBERS)}"


@pytest.fixture
def new_topic(admin: AdminClient, request: pytest.FixtureRequest) -> TopicMaker:
    """Make topics; a config's name has `_` where Kafka has `.`."""

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"{request.node.originalname[:80]}-{os.getpid()}-{next(_NUMBERS)}"
        config = {key.replace("_", "."): value for key, value in configs.items()}
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        for future in admin.create_topics([wanted]).values():
            future.result(DEADLINE_SECONDS)
        return name

    return create
