"""Kafka's tool for share groups works against Headrace as against Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.differential.conversation import Conversation
from tests.differential.group_requests import group_coordinator
from tests.differential.share_requests import (
    share_beat,
    share_coordinator,
    wait_for_states,
)
from tests.headrace_process import headrace
from tests.jvm.kafka_tools import TOOLS, TOPICS, run_tool, run_well

SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
GROUP = "jobs"
RECORDS = 30
DEADLINE_SECONDS = 30
SETTINGS = {"group.share.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with headrace(tmp_path_factory.mktemp("broker") / "data", SETTINGS) as address:
        yield address


@pytest.fixture
def talk(bootstrap: str) -> Iterator[Conversation]:
    talk = Conversation(bootstrap, "tools")
    group_coordinator(talk)
    share_coordinator(talk)
    yield talk
    talk.close()


@pytest.fixture
def topic(bootstrap: str, tmp_path: Path) -> str:
    """A topic of two partitions, with records in the first."""
    name = f"work-{abs(hash(tmp_path)) % 10**8}"
    where = ("--bootstrap-server", bootstrap, "--create", "--topic", name)
    run_well(TOPICS, *where, "--partitions", "2")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return name


def rows(bootstrap: str, *what: str) -> list[list[str]]:
    """Give what the tool prints, in words, without empty lines and headings."""
    printed = run_well(SHARE_GROUPS, "--bootstrap-server", bootstrap, *what)
    return [line.split() for line in printed.lines if line and not line.startswith("GROUP")]


def beat(talk: Conversation, epoch: int, topics: list[str] | None = None) -> int:
    answer = talk.quietly(share_beat(GROUP, "m", epoch, topics), ShareGroupHeartbeatResponse)
    assert answer.error_code == 0, answer
    return answer.member_epoch


def test_share_group_is_listed_described_reset_and_deleted(
    bootstrap: str, talk: Conversation, topic: str
) -> None:
    epoch = beat(talk, 0, [topic])
    wait_for_states(talk, GROUP)
    beat(talk, epoch)
    assert [GROUP] in rows(bootstrap, "--list")
    assert [GROUP, "Stable"] in rows(bootstrap, "--list", "--state")
    described = rows(bootstrap, "--describe", "--group", GROUP, "--members")
    assert described[-1][:2] == [GROUP, "m"]
    assert f"{topic}:0,1" in described[-1]
    state = rows(bootstrap, "--describe", "--group", GROUP, "--state")
    assert state[-1][0] == GROUP
    assert state[-1][-2:] == ["Stable", "1"]
    where = ("--group", GROUP, "--topic", topic)
    refused = run_tool(
        SHARE_GROUPS,
        *("--bootstrap-server", bootstrap, "--reset-offsets", *where),
        *("--to-earliest", "--execute"),
    )
    assert "Share group 'jobs' is not empty." in refused.stdout + refused.stderr

    beat(talk, -1)
    reset = rows(bootstrap, "--reset-offsets", *where, "--to-earliest", "--execute")
    assert [GROUP, topic, "0", "0"] in reset
    offsets = rows(bootstrap, "--describe", "--group", GROUP, "--offsets")
    assert sorted(row[:5] for row in offsets if topic in row) == [
        [GROUP, topic, "0", "0", str(RECORDS)],
        [GROUP, topic, "1", "0", "0"],
    ]
    run_well(SHARE_GROUPS, *("--bootstrap-server", bootstrap, "--delete-offsets", *where))
    left = rows(bootstrap, "--describe", "--group", GROUP, "--offsets")
    assert not any(topic in row for row in left)
    run_well(SHARE_GROUPS, "--bootstrap-server", bootstrap, "--delete", "--group", GROUP)
    assert [GROUP] not in rows(bootstrap, "--list")
