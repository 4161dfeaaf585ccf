"""Row for row equal to Spark's Kafka connector, on Headrace and on Apache Kafka."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker import TestBroker
from tests.jvm.kafka_broker import kafka
from tests.spark.connector_comparison import READS, STREAMS
from tools.jvm import harness

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.jvm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(harness.missing_tools() is not None, reason=harness.missing_tools() or ""),
]
PROGRAM_SECONDS_MAX = 600
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EPOCH_MS = 1_700_000_000_000


def fill(bootstrap: str) -> None:
    """Topics with everything that a record can have."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("plain", 2, 1, config={"retention.ms": "-1"}),  # its records are from 2023
        NewTopic("codecs", 1, 1),
        NewTopic("appended", 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
        NewTopic("transactional", 1, 1),
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(
            "plain",
            None if number % 7 == 0 else f"value {number}".encode(),
            None if number % 5 == 0 else b"" if number % 5 == 1 else b"key",
            number % 2,
            timestamp=EPOCH_MS + number,
            headers=None if number % 3 == 0 else [("a", b"1"), ("a", None), ("ü", b"")],
        )
        producer.produce("appended", str(number).encode())
    producer.flush(30)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(50):
            producer.produce("codecs", f"{codec} {number} ".encode() * 20)
        producer.flush(30)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "comparison"})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for index in range(5):
            producer.produce("transactional", f"{number} {index}".encode())
        producer.flush(30)
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What the comparison says, by broker and read."""
    try:
        harness.connector_jars()
    except RuntimeError as error:
        pytest.skip(f"Spark's Kafka connector cannot be fetched: {error}")
    folder = tmp_path_factory.mktemp("connector")
    with TestBroker() as broker, kafka(folder / "kafka") as apache:
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
@pytest.mark.parametrize(
    "read", [*(f"batch {name}" for name in READS), *(f"stream {name}" for name in STREAMS)]
)
def test_rows_are_those_of_the_connector(
    verdicts: dict[tuple[str, str], str], broker: str, read: str
) -> None:
    word, _, count = verdicts[broker, read].partition(" ")
    assert word == "same", verdicts[broker, read]
    assert int(count) > 0
