"""Kafka's tools print the same for a tiered topic of Headrace as for one of Apache Kafka.

Each call runs against both: Kafka has its LocalTieredStorage, Headrace a folder. Both were given
the same batches, so both have the same segments, on the disk and in the tier.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.headrace_process import headrace
from tests.jvm.kafka_broker import kafka
from tests.jvm.kafka_tools import CONFIGS, TOOLS, TOPICS
from tests.jvm.test_kafka_tier import settings as kafkas_tier
from tests.jvm.test_tools_admin import FILLED, Brokers, same_lines, same_refusal
from tests.tier.brokers import SETTINGS as OUR_TIER
from tools.jvm.harness import tiered_storage_jars

RECORDS = 60
DEADLINE_SECONDS = 120
OFFSETS = f"{TOOLS}.GetOffsetShell"
SPECIAL = ("-1", "-2", "-3", "-4", "-5", "-6")
TIERED = (
    "remote.storage.enable=true",
    "internal.segment.bytes=2000",
    "local.retention.bytes=1",
    "file.delete.delay.ms=0",
)
EARLY = {
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("brokers")
    theirs_extra = {**kafkas_tier(folder / "kafkas-tier"), **EARLY}
    ours_extra = {**OUR_TIER, "headrace.tier.store": f"file://{folder}/tier", "node.id": "1"}
    with (
        kafka(folder / "kafka", extra=theirs_extra, more_jars=tiered_storage_jars()) as theirs,
        headrace(folder / "headrace", ours_extra) as ours,
    ):
        both = Brokers(ours, theirs)
        create(both, FILLED, *TIERED)
        for address in both:
            fill(address)
        wait_until_moved(both)
        yield both


def create(brokers: Brokers, topic: str, *configs: str) -> None:
    same_lines(brokers.run(TOPICS, "--create", "--topic", topic, *words("--config", configs)))


def words(option: str, values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in (option, value)]


def fill(address: str) -> None:
    """Write one batch a record, so that both have the same segments."""
    producer = Producer({"bootstrap.servers": address})
    now_ms = int(time.time() * 1000)
    for number in range(RECORDS):
        producer.produce(FILLED, b"%d " % number * 60, partition=0, timestamp=now_ms + number)
        assert producer.flush(DEADLINE_SECONDS) == 0


def offsets_of(brokers: Brokers, when: str, topic: str = FILLED) -> list[str]:
    """Return what either says of a special time."""
    found = brokers.run(OFFSETS, "--topic", topic, "--time", when)
    return [answer.stdout + answer.stderr for answer in found]


def wait_until_moved(brokers: Brokers) -> None:
    """Wait until both have all but the newest segment in the tier, and nothing of it locally."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        local, pending = offsets_of(brokers, "-4"), offsets_of(brokers, "-6")
        if local[0] == local[1] == pending[0] == pending[1] != f"{FILLED}:0:0\n":
            return
        assert time.monotonic() < deadline, f"{local} and {pending}"
        time.sleep(0.2)  # polls, up to the deadline


@pytest.mark.parametrize(
    "when",
    [
        *SPECIAL,
        *("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered"),
        "earliest-pending-upload",
    ],
)
def test_special_times_have_the_same_offsets(brokers: Brokers, when: str) -> None:
    (line,) = same_lines(brokers.run(OFFSETS, "--topic", FILLED, "--time", when))
    assert line.startswith(f"{FILLED}:0:")


def test_a_topic_without_anything_in_the_tier(brokers: Brokers) -> None:
    create(brokers, "empty", *TIERED)
    # Of the earliest pending upload Kafka says nothing here, and we say the log's start.
    found = {when: offsets_of(brokers, when, "empty") for when in SPECIAL[:-1]}
    assert {when: ours for when, (ours, _) in found.items()} == {
        when: theirs for when, (_, theirs) in found.items()
    }


def test_a_topic_that_is_not_tiered(brokers: Brokers) -> None:
    create(brokers, "local")
    found = {when: offsets_of(brokers, when, "local") for when in SPECIAL}
    assert {when: ours for when, (ours, _) in found.items()} == {
        when: theirs for when, (_, theirs) in found.items()
    }


@pytest.mark.parametrize(
    ("configs", "named"),
    [
        (("remote.storage.enable=true", "cleanup.policy=compact"), "cleanup.policy"),
        (
            ("remote.storage.enable=true", "retention.ms=1000", "local.retention.ms=2000"),
            "local.retention.ms",
        ),
        (
            ("remote.storage.enable=true", "retention.bytes=1000", "local.retention.bytes=2000"),
            "local.retention.bytes",
        ),
        (
            (
                "remote.storage.enable=true",
                "remote.log.copy.disable=true",
                "local.retention.ms=1000",
            ),
            "local.retention.ms",
        ),
        (
            (
                "remote.storage.enable=true",
                "remote.log.copy.disable=true",
                "retention.bytes=5000",
                "local.retention.bytes=1000",
            ),
            "local.retention.bytes",
        ),
    ],
)
def test_the_same_topics_are_refused(
    brokers: Brokers, configs: tuple[str, ...], named: str
) -> None:
    answers = brokers.run(TOPICS, "--create", "--topic", "refused", *words("--config", configs))
    same_refusal(answers, named)


def test_the_tier_is_described(brokers: Brokers) -> None:
    create(brokers, "described", "remote.storage.enable=true", "local.retention.ms=1000")
    (line, *_) = same_lines(brokers.run(TOPICS, "--describe", "--topic", "described"))
    assert "remote.storage.enable=true" in line


def test_a_topic_leaves_the_tier_only_with_what_it_has_there(brokers: Brokers) -> None:
    create(brokers, "leaving", *TIERED)
    topic = ("--entity-type", "topics", "--entity-name", "leaving", "--alter")
    refused = brokers.run(CONFIGS, *topic, "--add-config", "remote.storage.enable=false")
    same_refusal(refused, "remote.log.delete.on.disable")
    both = "remote.storage.enable=false,remote.log.delete.on.disable=true"
    same_lines(brokers.run(CONFIGS, *topic, "--add-config", both))


def test_copying_is_turned_off(brokers: Brokers) -> None:
    create(brokers, "uncopied", "remote.storage.enable=true", "local.retention.ms=1000")
    topic = ("--entity-type", "topics", "--entity-name", "uncopied", "--alter")
    refused = brokers.run(CONFIGS, *topic, "--add-config", "remote.log.copy.disable=true")
    same_refusal(refused, "local.retention.ms")
    allowed = "remote.log.copy.disable=true,local.retention.ms=-2"
    same_lines(brokers.run(CONFIGS, *topic, "--add-config", allowed))


def test_records_in_the_tier_are_deleted(brokers: Brokers, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    rows = [{"topic": FILLED, "partition": 0, "offset": 7}]
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    lines = same_lines(
        brokers.run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(file))
    )
    assert any("low_watermark: 7" in line for line in lines)
    assert offsets_of(brokers, "-2") == [f"{FILLED}:0:7\n"] * 2
