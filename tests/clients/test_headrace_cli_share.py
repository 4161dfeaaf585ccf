"""`headrace share`, against Headrace and against Apache Kafka."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client import AcknowledgeType, BlockingShareConsumer
from tests.clients.conftest import eventually
from tests.clients.test_headrace_cli import CommandLine, assert_refused
from tests.headrace_process import HeadraceProcess

DEADLINE_SECONDS = 60
LETTER = {"topic": "", "partition": "0", "offset": "7", "group": "billing", "delivery.count": "5"}


@pytest.fixture
def headrace(any_bootstrap: str) -> CommandLine:
    return CommandLine(any_bootstrap)


@pytest.fixture
def topic(any_bootstrap: str, new_name: str) -> str:
    """A topic of two partitions with ten records in each."""
    make_topics(any_bootstrap, new_name)
    producer = Producer({"bootstrap.servers": any_bootstrap})
    for number in range(20):
        producer.produce(new_name, b"%d" % number, partition=number % 2)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return new_name


@pytest.fixture
def group(headrace: CommandLine, topic: str) -> str:
    """The name of a share group, the topic's, that is to read from the beginning."""
    headrace.lines("configs", "set", "group", topic, "share.auto.offset.reset=earliest")
    return topic


@pytest.fixture
def letters(any_bootstrap: str, topic: str) -> str:
    """Four dead letters of a topic in one partition; a stray record; one without its record."""
    name = f"dlq.{topic}"
    make_topics(any_bootstrap, name, partitions=1)
    producer = Producer({"bootstrap.servers": any_bootstrap})
    for number in range(4):
        reason = "rejected" if number else "delivery count exceeded"
        said = {**LETTER, "topic": topic, "reason": reason}
        headers = [("trace", b"\xff"), *letter_headers(said), ("trace", None)]
        producer.produce(name, b"letter %d" % number, b"key %d" % number, headers=headers)
    producer.produce(name, b"a stray record")
    for offset in (7, 999):
        said = {**LETTER, "topic": topic, "partition": "1", "offset": str(offset)}
        producer.produce(name, None, headers=letter_headers({**said, "reason": "rejected"}))
    assert producer.flush(DEADLINE_SECONDS) == 0
    return name


def make_topics(bootstrap: str, *names: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, 1) for name in names])
    for future in made.values():
        future.result(DEADLINE_SECONDS)


def letter_headers(said: dict[str, str]) -> list[tuple[str, bytes | None]]:
    return [(f"__dlq.errors.{name}", value.encode()) for name, value in said.items()]


def places(headrace: CommandLine, group: str) -> list[tuple[int | None, ...]]:
    rows = headrace.json("share", "offsets", group)
    return [(row["partition"], row["start"], row["end"], row["lag"]) for row in rows]


def test_a_share_group_in_use_is_listed_described_and_protected(
    any_bootstrap: str, headrace: CommandLine, topic: str, group: str
) -> None:
    with BlockingShareConsumer(any_bootstrap, group, [topic], mode="explicit") as consumer:
        held = consumer.poll(DEADLINE_SECONDS * 1000)
        assert held
        (listed,) = [row for row in headrace.json("share", "list") if row["group"] == group]
        (described,) = headrace.json("share", "describe", group)
        assert listed["state"] == described["state"] == "Stable"
        (member,) = described["members"]
        assert member["member"] == consumer.member_id
        assert member["subscription"] == [topic]
        assert member["assignment"] == [[topic, 0], [topic, 1]]
        assert consumer.member_id in "".join(
            line.decode() for line in headrace.lines("share", "describe", group)
        )
        move = ("share", "reset", group, "--all-topics", "--to-latest", "--execute")
        holder = consumer.member_id.encode()
        assert_refused(headrace(*move), 1, b"NON_EMPTY_GROUP", b"stop them first", holder)
        assert_refused(headrace("share", "delete", group), 1, b"NON_EMPTY_GROUP", holder)
        kept = headrace("share", "delete", group, "--topic", topic)
        assert_refused(kept, 1, b"NON_EMPTY_GROUP")
        for record in held:
            consumer.acknowledge(record)
        consumer.commit()
    lags = {partition: lag for partition, _, _, lag in places(headrace, group)}
    for partition in {record.partition for record in held}:
        accepted = sum(record.partition == partition for record in held)
        assert lags[partition] == 10 - accepted


def test_a_group_is_only_moved_when_told_to(headrace: CommandLine, topic: str) -> None:
    def move(*words: object) -> list[tuple[int, int | None, int]]:
        moves = headrace.json("share", "reset", topic, *words)
        return [(row["partition"], row["from"], row["to"]) for row in moves]

    assert move("--topic", topic, "--to-earliest") == [(0, None, 0), (1, None, 0)]
    assert headrace("share", "offsets", topic).returncode == 1, "a dry run begins no group"
    assert move("--topic", topic, "--to-offset", 5, "--execute") == [(0, None, 5), (1, None, 5)]
    assert places(headrace, topic) == [(0, 5, 10, 5), (1, 5, 10, 5)]
    assert move("--all-topics", "--to-latest") == [(0, 5, 10), (1, 5, 10)]
    assert places(headrace, topic) == [(0, 5, 10, 5), (1, 5, 10, 5)]
    assert move("--topic", f"{topic}:1", "--shift", -2, "--execute") == [(1, 5, 3)]
    assert move("--all-topics", "--to-datetime", "2099-01-01") == [(0, 5, 10), (1, 3, 10)]
    assert move("--all-topics", "--to-datetime", 0, "--execute") == [(0, 5, 0), (1, 3, 0)]
    assert places(headrace, topic) == [(0, 0, 10, 10), (1, 0, 10, 10)]
    said = headrace("share", "reset", topic, "--all-topics", "--to-end")
    assert (said.returncode, said.stderr) == (
        0,
        b"nothing was changed; add --execute to apply it\n",
    )


def test_a_moved_group_is_delivered_what_is_behind_its_new_start(
    headrace: CommandLine, topic: str
) -> None:
    headrace.lines("share", "reset", topic, "--topic", topic, "--to-offset", 8, "--execute")
    consume = ("share", "consume", topic, topic, "-n", 4, "--timeout-ms", 20_000)
    assert sorted(headrace.lines(*consume)) == [b"16", b"17", b"18", b"19"]


def test_a_group_forgets_a_topic_and_is_deleted(headrace: CommandLine, topic: str) -> None:
    headrace.lines("share", "reset", topic, "--topic", topic, "--to-earliest", "--execute")
    forget = ("share", "delete", topic, "--topic", topic)
    assert headrace.json(*forget) == [f"{topic}/{topic}"]
    assert headrace.json("share", "offsets", topic) == []
    assert_refused(headrace("share", "delete", topic, "-t", "nowhere"), 1, b"nowhere")
    assert headrace.json("share", "delete", topic) == [topic]
    assert topic not in [row["group"] for row in headrace.json("share", "list")]
    assert headrace.json("share", "delete", topic, "--if-exists") == []


def test_a_group_that_is_no_share_group_is_left_alone(headrace: CommandLine, topic: str) -> None:
    headrace.lines("groups", "reset-offsets", topic, "-t", topic, "--to-end", "--execute")
    for command in ("describe", "offsets", "delete"):
        refused = headrace("share", command, topic)
        assert_refused(refused, 1, topic.encode(), b"GROUP_ID_NOT_FOUND")
    move = headrace("share", "reset", topic, "-t", topic, "--to-earliest")
    assert_refused(move, 1, topic.encode(), b"no share group")
    assert topic not in [row["group"] for row in headrace.json("share", "list")]
    assert len(headrace.json("groups", "offsets", topic)) == 2


def test_what_is_printed_is_accepted_and_the_rest_comes_next(
    headrace: CommandLine, topic: str, group: str
) -> None:
    consume = ("share", "consume", group, topic, "--timeout-ms", 20_000)
    few = headrace.lines(*consume, "-n", 3, "--acknowledge", "release")
    assert len(few) == 3
    first = headrace.lines(*consume, "-n", 7)
    rest = headrace(*consume, "-n", 13, "--json").stdout.splitlines()
    seen = [*first, *(json.loads(line)["value"].encode() for line in rest)]
    assert sorted(map(int, seen)) == list(range(20))
    assert headrace.lines("share", "consume", group, topic, "--timeout-ms", 1500) == []
    eventually(lambda: [row[3] for row in places(headrace, group)], [0, 0])


def test_dead_letters_are_sent_once_when_told_to(
    headrace: CommandLine, topic: str, letters: str
) -> None:
    replay = ("share", "replay-dead-letters", letters)
    rows = [
        {"to": topic, "group": "billing", "reason": "delivery count exceeded", "letters": 1},
        {"to": topic, "group": "billing", "reason": "rejected", "letters": 4},
    ]
    planned = headrace.json(*replay)
    assert planned["to_send"] == rows
    assert sum(row["records"] for row in planned["left_out"]) == 2
    assert len(records_of(headrace, topic)) == 20, "a dry run sends nothing"
    assert headrace.json(*replay, "--execute")["sent"] == rows
    sent = [row for row in records_of(headrace, topic) if row["headers"]]
    assert {row["key"]: row["value"] for row in sent} == {
        f"key {number}": f"letter {number}" for number in range(4)
    }
    assert all(row["headers"] == [["trace", {"base64": "/w=="}], ["trace", None]] for row in sent)
    assert headrace.json(*replay, "--execute") == {"sent": [], "left_out": []}
    assert len(records_of(headrace, topic)) == 25


def test_a_letter_without_its_record_is_sent_from_where_it_says(
    headrace: CommandLine, topic: str, letters: str
) -> None:
    headrace.json("share", "replay-dead-letters", letters, "--limit", 5, "--execute")
    before = [row["value"] for row in records_of(headrace, topic)]
    done = headrace("share", "replay-dead-letters", letters, "--execute")
    assert (done.returncode, b"1 skipped: it has no copy" in done.stderr) == (0, True)
    after = [row["value"] for row in records_of(headrace, topic)]
    assert sorted(after) == sorted([*before, "15"]), "the record at offset 7 of partition 1"


def test_letters_of_a_topic_that_is_gone_are_left_out_and_the_others_sent_once(
    any_bootstrap: str, headrace: CommandLine, topic: str, letters: str
) -> None:
    gone = f"{topic}.gone"
    producer = Producer({"bootstrap.servers": any_bootstrap})
    for number, of in enumerate((gone, topic, gone)):
        said = {**LETTER, "topic": of, "reason": "rejected"}
        producer.produce(letters, b"late %d" % number, headers=letter_headers(said))
    assert producer.flush(DEADLINE_SECONDS) == 0
    replayed = headrace.json("share", "replay-dead-letters", letters, "--execute")
    (left_out,) = [row for row in replayed["left_out"] if gone in row["why"]]
    assert left_out["records"] == 2
    assert {row["to"] for row in replayed["sent"]} == {topic}
    sent = [row["value"] for row in records_of(headrace, topic)]
    assert "late 1" in sent
    assert gone not in {row["topic"] for row in headrace.json("topics", "list")}
    again = headrace.json("share", "replay-dead-letters", letters, "--execute")
    assert again == {"sent": [], "left_out": []}
    assert [row["value"] for row in records_of(headrace, topic)] == sent


def test_letters_go_elsewhere_in_portions_and_by_their_key(
    any_bootstrap: str, headrace: CommandLine, topic: str, letters: str
) -> None:
    elsewhere = f"{topic}.again"
    replay = ("share", "replay-dead-letters", letters, "--to", elsewhere, "--group", topic)
    assert_refused(headrace(*replay), 1, elsewhere.encode(), b"UNKNOWN_TOPIC_OR_PARTITION")
    make_topics(any_bootstrap, elsewhere)
    sent = [
        sum(row["letters"] for row in headrace.json(*replay, "--limit", 3, "--execute")["sent"])
        for _ in range(3)
    ]
    assert sent == [3, 2, 0]
    assert len(records_of(headrace, topic)) == 20
    keyed = {row["key"]: row["partition"] for row in records_of(headrace, elsewhere) if row["key"]}
    producer = Producer({"bootstrap.servers": any_bootstrap, "partitioner": "murmur2_random"})
    placed: dict[str, int] = {}
    for key in keyed:
        producer.produce(
            elsewhere,
            b"",
            key,
            on_delivery=lambda _, m: placed.update({m.key().decode(): m.partition()}),
        )
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert keyed == placed
    (noted,) = headrace.json("groups", "offsets", topic)
    assert (noted["topic"], noted["committed"], noted["lag"]) == (letters, 7, 0)


def test_letters_are_not_sent_when_progress_could_not_be_noted(
    headrace: CommandLine, topic: str, letters: str
) -> None:
    headrace.lines("share", "reset", topic, "--topic", topic, "--to-latest", "--execute")
    refused = headrace("share", "replay-dead-letters", letters, "--group", topic, "--execute")
    assert_refused(refused, 1, topic.encode(), b"share group")
    assert len(records_of(headrace, topic)) == 20


def records_of(headrace: CommandLine, topic: str) -> list[dict[str, Any]]:
    done = headrace("consume", topic, "--json")
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "words",
    [
        ["share", "reset", "g", "--all-topics"],
        ["share", "reset", "g", "--to-latest"],
        ["share", "reset", "g", "--all-topics", "--to-latest", "--to-earliest"],
        ["share", "replay-dead-letters", "dlq.t", "--to", "dlq.t"],
        ["share", "consume", "g", "t", "--format", "%q"],
        ["share", "inspect", "g", "t", "--http", "127.0.0.1:x"],
    ],
)
def test_wrong_usage_is_told_before_anything_happens(words: list[str]) -> None:
    assert_refused(CommandLine("127.0.0.1:1")(*words), 2)


@pytest.mark.parametrize("command", ["describe", "offsets", "delete"])
def test_a_group_that_does_not_exist_is_named(
    headrace: CommandLine, new_name: str, command: str
) -> None:
    refused = headrace("share", command, new_name)
    assert_refused(refused, 1, new_name.encode(), b"GROUP_ID_NOT_FOUND", b"list` shows")


def test_a_node_shows_who_has_which_records_and_why_others_were_given_up(tmp_path: Path) -> None:
    group, topic = "team/billing", "orders"
    node = HeadraceProcess(tmp_path / "data", {"http.listen": "127.0.0.1:0"})
    try:
        headrace = CommandLine(node.bootstrap)
        look = ("share", "inspect", group, topic)
        by_port = (*look, "--http", f"127.0.0.1:{http_port(node)}")
        assert_refused(headrace(*by_port), 1, b"there is no topic orders")
        assert_refused(headrace(*look), 1, b"there is no topic 'orders'")
        headrace.lines("topics", "create", topic, "-p", 1)
        headrace.lines("configs", "set", "group", group, "share.auto.offset.reset=earliest")
        headrace.lines("produce", topic, stdin=b"one\ntwo\nthree\n")
        with BlockingShareConsumer(node.bootstrap, group, [topic], mode="explicit") as consumer:
            first, *others = consumer.poll(DEADLINE_SECONDS * 1000)
            assert len(others) == 2
            consumer.acknowledge(first, AcknowledgeType.REJECT)
            consumer.commit()
            (row,) = headrace.json(*look)["partitions"]
            assert headrace.json(*by_port)["partitions"][0]["archived"] == row["archived"]
            (given_up,) = row["archived"]
            assert (given_up["first_offset"], given_up["cause"]) == (0, "rejected")
            held = [run for run in row["in_flight"] if run["state"] == "acquired"]
            assert [run["member_id"] for run in held] == [consumer.member_id] * len(held)
            assert sum(run["last_offset"] - run["first_offset"] + 1 for run in held) == 2
            assert all(0 < run["lock_left_ms"] <= 30_000 for run in held)
            printed = b"\n".join(headrace.lines(*look))
            assert consumer.member_id.encode() in printed
            assert b"rejected" in printed
    finally:
        node.kill()


def test_a_rejected_record_comes_back_through_its_dead_letter(
    bootstrap: str, new_name: str
) -> None:
    headrace, letters = CommandLine(bootstrap), f"dlq.{new_name}"
    configs = ("share.auto.offset.reset=earliest", f"errors.deadletterqueue.topic.name={letters}")
    headrace.lines("topics", "create", new_name, "-p", 1)
    headrace.lines("configs", "set", "group", new_name, *configs)
    headrace.lines("produce", new_name, "-K", ":", "-H", "trace=1", stdin=b"customer:order\n")
    consume = ("share", "consume", new_name, new_name, "-n", 1, "--timeout-ms", 20_000)
    assert headrace.lines(*consume, "--acknowledge", "reject") == [b"order"]
    eventually(lambda: headrace("consume", letters).stdout, b"order\n")
    replayed = headrace.json("share", "replay-dead-letters", letters, "--execute")
    sent = {"to": new_name, "group": new_name, "reason": "rejected", "letters": 1}
    assert replayed == {"sent": [sent], "left_out": []}
    again = headrace.lines(*consume, "--format", r"%o %k %v %h\n")
    assert again == [b"1 customer order trace=1"]


def http_port(node: HeadraceProcess) -> int:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := re.search(r"http on port (\d+)", node.output.read_text())) is None:
        assert time.monotonic() < deadline, node.output.read_text()
    return int(found[1])


def test_a_node_without_pages_is_not_reachable() -> None:
    done = CommandLine("127.0.0.1:1")("share", "inspect", "g", "t", "--http", "127.0.0.1:1")
    assert_refused(done, 3, b"127.0.0.1:1")
