"""kcat: what scripts and people at a terminal do."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import DEADLINE_SECONDS, TopicMaker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not on the PATH (Debian package kcat)"
)


def kcat(bootstrap: str, *arguments: str, lines: str = "") -> str:
    """Run kcat with no settings of the user's own; give what it prints."""
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env={**os.environ, "KCAT_CONFIG": os.devnull},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_lines_come_back_with_keys_and_headers(
    bootstrap: str, new_topic: TopicMaker, codec: str
) -> None:
    topic = new_topic()
    lines = [f"key-{n}:value {n}" for n in range(500)]
    write = ("-P", "-t", topic, "-p", "0", "-K", ":", "-H", "from=kcat", "-z", codec)
    kcat(bootstrap, *write, lines="\n".join(lines))
    read = ("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %h %k:%s\n")
    expected = [f"{n} from=kcat {line}" for n, line in enumerate(lines)]
    assert kcat(bootstrap, *read).splitlines() == expected


def test_a_file_is_one_record(bootstrap: str, new_topic: TopicMaker, tmp_path: Path) -> None:
    topic = new_topic()
    path = tmp_path / "record"
    path.write_text("line\n" * 20_000)
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", str(path))
    assert kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-D", "") == "line\n" * 20_000


def test_an_idempotent_producer_is_served(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    idempotent = ("-X", "enable.idempotence=true")
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", *idempotent, lines="a\nb\nc\n")
    assert kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q").split() == ["a", "b", "c"]


def test_offsets_from_the_end_and_by_time(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", lines="a\nb\nc\n")
    read = ("-C", "-t", topic, "-p", "0", "-e", "-q")
    assert kcat(bootstrap, *read, "-o", "-2").split() == ["b", "c"]
    assert kcat(bootstrap, *read, "-o", "s@0").split() == ["a", "b", "c"]
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:0").strip() == f"{topic} [0] offset 0"


def test_the_listing_shows_brokers_topics_and_partitions(
    bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic(partitions=3)
    listed = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap]
    assert [found["topic"] for found in listed["topics"]] == [topic]
    partitions = listed["topics"][0]["partitions"]
    assert sorted(partition["partition"] for partition in partitions) == [0, 1, 2]
    leaders = {partition["leader"] for partition in partitions}
    assert leaders == {broker["id"] for broker in listed["brokers"]}
