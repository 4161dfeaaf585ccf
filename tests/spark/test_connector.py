"""Row for row equal to Spark's Kafka connector, on Headrace and on Apache Kafka."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.broker import TestBroker
from tests.jvm.kafka_broker import kafka
from tests.spark.connector_cases import COMPARED
from tests.spark.connector_topics import BROKER_SETTINGS, fill
from tools.jvm import harness

PROGRAM_SECONDS_MAX = 1200
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.jvm,
    pytest.mark.timeout(PROGRAM_SECONDS_MAX + 300),
    pytest.mark.skipif(harness.missing_tools() is not None, reason=harness.missing_tools() or ""),
]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What the comparison says, by broker and what was done."""
    try:
        harness.connector_jars()
    except RuntimeError as error:
        pytest.skip(f"Spark's Kafka connector cannot be fetched: {error}")
    folder = tmp_path_factory.mktemp("connector")
    with (
        TestBroker(settings=BROKER_SETTINGS) as broker,
        kafka(folder / "kafka", extra=BROKER_SETTINGS) as apache,
    ):
        names = {broker.bootstrap: "Headrace", apache: "Kafka"}
        for bootstrap in names:
            fill(bootstrap)
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connector_comparison", *names],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            timeout=PROGRAM_SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {(names[bootstrap], name): verdict for bootstrap, name, verdict in lines}


@pytest.mark.parametrize("broker", ["Headrace", "Kafka"])
@pytest.mark.parametrize("done", COMPARED)
def test_rows_are_those_of_the_connector(
    verdicts: dict[tuple[str, str], str], broker: str, done: str
) -> None:
    word, _, count = verdicts[broker, done].partition(" ")
    assert word == "same", verdicts[broker, done]
    assert int(count) > 0
