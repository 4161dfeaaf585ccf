"""The driver killed at each step of a micro-batch: each row is seen once, whatever died.

Kills: 7 steps, forth and back on Headrace and forth on Apache Kafka, and a sample of one: 22.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.testing.broker import TestBroker
from tests.jvm.kafka_broker import kafka
from tests.spark.fated_jobs import NEVER, RUN_SECONDS_MAX, run_job
from tests.spark.sink_job import STEPS, TOPIC
from tests.spark.sink_reads import committed_values, open_transactions, values_by_confluent
from tests.spark.sink_topics import create_topic
from tools.jvm import harness

ROWS = 60
FIRST_FILE_SECONDS = 1_700_000_000
SAMPLE = "between two ends"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(20 * RUN_SECONDS_MAX),
    pytest.mark.usefixtures("java"),
]


def lay_out(folder: Path, batches: int) -> list[bytes]:
    """Write the input; give what the topic is to have in the end."""
    (folder / "in").mkdir(parents=True)
    rows = [f"{batch:03} row {row}" for batch in range(batches) for row in range(ROWS)]
    for batch in range(batches):
        text = "\n".join(rows[batch * ROWS : (batch + 1) * ROWS])
        path = folder / "in" / f"{batch:03}.txt"
        path.write_text(text)
        os.utime(path, (FIRST_FILE_SECONDS + batch,) * 2)  # Spark takes them by their age
    return sorted(row.encode() for row in rows)


def check_kills(bootstrap: str, folder: Path, steps: Sequence[str]) -> None:
    """Run a query that is killed at each step in turn, a batch later each time."""
    expected = lay_out(folder, len(steps) + 1)
    create_topic(bootstrap, TOPIC, 3)
    for batch, step in enumerate(steps):
        run_job("sink_job", bootstrap, folder, batch, step)
        seen = committed_values(bootstrap, TOPIC)
        assert len(set(seen)) == len(seen), f"a row is doubled by a kill {step}"
        assert set(seen) <= set(expected[: (batch + 1) * ROWS])
    run_job("sink_job", bootstrap, folder, len(steps), NEVER)
    assert committed_values(bootstrap, TOPIC) == expected
    assert values_by_confluent(bootstrap, TOPIC, len(expected)) == expected
    assert open_transactions(bootstrap) == []


def test_each_row_is_seen_once_when_the_driver_dies_between_two_ends(
    headrace: TestBroker, tmp_path: Path
) -> None:
    check_kills(headrace.bootstrap, tmp_path, [SAMPLE])


@pytest.mark.exhaustive
@pytest.mark.parametrize("steps", [STEPS, STEPS[::-1]], ids=["forth", "back"])
def test_each_row_is_seen_once_wherever_the_driver_dies(
    headrace: TestBroker, tmp_path: Path, steps: Sequence[str]
) -> None:
    check_kills(headrace.bootstrap, tmp_path, steps)


@pytest.mark.exhaustive
@pytest.mark.jvm
@pytest.mark.skipif(harness.missing_tools() is not None, reason=harness.missing_tools() or "")
def test_each_row_is_seen_once_in_apache_kafka_wherever_the_driver_dies(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as bootstrap:
        check_kills(bootstrap, tmp_path / "job", STEPS)
