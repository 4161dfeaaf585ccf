"""A broker with a tier that moves its segments at once, and what its disk and its store have."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.testing.broker import TestBroker
from headrace.testing.conveniences import Conveniences

DEADLINE_SECONDS = 60
COUNT = 300
VALUES = [b"value %04d" % number for number in range(COUNT)]
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "50",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "800",
    "local.retention.bytes": "1",
}


@contextmanager
def tiered_broker(folder: Path, store: str | None = None, **settings: str) -> Iterator[TestBroker]:
    """Run a broker whose tier is a folder beside its own."""
    url = store or f"file://{folder}/store"
    overrides = {name.replace("_", "."): value for name, value in settings.items()}
    merged = {**SETTINGS, "headrace.tier.store": url, **overrides}
    with TestBroker(folder / "data", merged) as broker:
        yield broker


def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def objects(folder: Path, suffix: str = ".log") -> list[str]:
    """Return the names of the objects in a store that is a folder."""
    store = folder / "store"
    return sorted(
        str((Path(parent) / name).relative_to(store))
        for parent, _, names in os.walk(store)  # which does not mind folders that go meanwhile
        for name in names
        if name.endswith(suffix)
    )


def local_files(folder: Path, topic: str, partition: int = 0) -> list[str]:
    """Return the names of the log files of a partition on the disk."""
    return sorted(each.name for each in (folder / "data" / f"{topic}-{partition}").glob("*.log"))


def produce_all(target: Conveniences, topic: str, values: list[bytes] = VALUES) -> None:
    """Produce records in batches of ten: two or three of them fill a segment."""
    for first in range(0, len(values), 10):
        target.produce(topic, *values[first : first + 10])


def fill(broker: TestBroker, folder: Path, topic: str = "orders", **configs: str) -> None:
    """Produce records and wait until all but the last segment left the disk."""
    broker.create_topic(topic, configs={**TIERED, **configs})
    produce_all(broker, topic)
    until(lambda: len(local_files(folder, topic)) == 1, "the move to the tier")
    assert len(objects(folder)) > 5
