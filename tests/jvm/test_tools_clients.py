"""Kafka's console and verifiable clients against a Headrace process."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.headrace_process import headrace
from tests.jvm.kafka_tools import TOOLS, TOPICS, Output, run_well

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """As in `tests/clients`: another cluster can be named instead."""
    if address := os.environ.get("HEADRACE_TESTS_BOOTSTRAP"):
        yield address
        return
    with headrace(tmp_path_factory.mktemp("broker") / "data") as address:
        yield address


def create(bootstrap: str, topic: str, *configs: str) -> None:
    chosen = [word for config in configs for word in ("--config", config)]
    run_well(TOPICS, "--bootstrap-server", bootstrap, "--create", "--topic", topic, *chosen)


def write(bootstrap: str, topic: str, lines: list[str], *options: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    run_well(f"{TOOLS}.ConsoleProducer", *where, *options, text="\n".join(lines) + "\n")


def read(bootstrap: str, topic: str, wanted: int, *options: str, offset: str = "0") -> Output:
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0")
    span = ("--offset", offset, "--max-messages", str(wanted), "--timeout-ms", "30000")
    return run_well(f"{TOOLS}.consumer.ConsoleConsumer", *where, *span, *options)


def test_the_console_reads_what_it_wrote_with_every_codec(bootstrap: str) -> None:
    create(bootstrap, "console-codecs")
    for codec in CODECS:
        lines = [f"from:{codec}\tkey-{n}\tvalue {n} " + "x" * n for n in range(100)]
        write(
            *(bootstrap, "console-codecs", lines, "--compression-codec", codec),
            *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        )
    shown = ["print.key=true", "print.headers=true", "print.offset=true"]
    formats = [word for one in shown for word in ("--formatter-property", one)]
    found = read(bootstrap, "console-codecs", 100 * len(CODECS), *formats).lines
    assert found == [
        f"Offset:{100 * number + n}\tfrom:{codec}\tkey-{n}\tvalue {n} {'x' * n}".rstrip()
        for number, codec in enumerate(CODECS)
        for n in range(100)
    ]


def test_the_console_begins_at_an_offset_and_reads_committed(bootstrap: str) -> None:
    create(bootstrap, "console-offset", "message.timestamp.type=LogAppendTime")
    write(bootstrap, "console-offset", [f"{n}" for n in range(10)])
    options = (
        "--isolation-level",
        "read_committed",
        "--formatter-property",
        "print.timestamp=true",
    )
    found = read(bootstrap, "console-offset", 3, *options, offset="7").lines
    assert [line.split(":")[0] for line in found] == ["LogAppendTime"] * 3
    assert [line.split("\t")[1] for line in found] == ["7", "8", "9"]


def test_the_verifiable_producer_has_every_record_acknowledged_in_order(bootstrap: str) -> None:
    create(bootstrap, "verified")
    where = ("--bootstrap-server", bootstrap, "--topic", "verified")
    printed = run_well(f"{TOOLS}.VerifiableProducer", *where, "--max-messages", "3000")
    events = [json.loads(line) for line in printed.lines if line.startswith("{")]
    acknowledged = [event for event in events if event["name"] == "producer_send_success"]
    assert [event["offset"] for event in acknowledged] == list(range(3000))
    assert not [event for event in events if event["name"] == "producer_send_error"]
    assert read(bootstrap, "verified", 3000).lines == [str(n) for n in range(3000)]
