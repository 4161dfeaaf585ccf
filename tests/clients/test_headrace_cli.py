"""The command line as people use it, against Headrace and against Apache Kafka."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEADLINE_SECONDS = 60
Result = subprocess.CompletedProcess[bytes]


class CommandLine:
    """Runs `headrace` with a cluster's address in its environment."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}

    def __call__(self, *words: object, stdin: bytes = b"") -> Result:
        return subprocess.run(
            [sys.executable, "-m", "headrace", *map(str, words)],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=DEADLINE_SECONDS,
            env=self.environment,
        )

    def json(self, *words: object, stdin: bytes = b"") -> Any:
        """Run a command that must work; give what it prints as JSON."""
        done = self(*words, "--json", stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done
        return json.loads(done.stdout)

    def lines(self, *words: object, stdin: bytes = b"") -> list[bytes]:
        done = self(*words, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.splitlines()

    def start(self, *words: object) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "headrace", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            preexec_fn=heed_ctrl_c,  # noqa: PLW1509  it takes no lock
        )


def heed_ctrl_c() -> None:
    """Have a process end by Ctrl-C, though the tests run where it is ignored: in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def headrace(any_bootstrap: str) -> CommandLine:
    return CommandLine(any_bootstrap)


def eventually(find: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := find()) != wanted:
        assert time.monotonic() < deadline, f"still {found!r}, not {wanted!r}"


def assert_refused(done: Result, code: int, *words: bytes) -> None:
    """One line on stderr with these words, and nothing that looks like Python."""
    assert done.returncode == code, done
    assert done.stderr.startswith(b"headrace: ")
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_topic_from_its_creation_to_its_end(headrace: CommandLine, new_name: str) -> None:
    (made,) = headrace.json(
        "topics", "create", new_name, "-p", 3, "-r", 1, "-c", "retention.ms=9000000"
    )
    assert (made["topic"], made["partitions"]) == (new_name, 3)
    again = headrace("topics", "create", new_name)
    assert_refused(again, 1, new_name.encode(), b"TOPIC_ALREADY_EXISTS", b"--if-not-exists")
    assert headrace.lines("topics", "create", new_name, "--if-not-exists") == []
    listed = {row["topic"]: row for row in headrace.json("topics", "list")}
    assert listed[new_name]["partitions"] == 3
    assert new_name.encode() in b"\n".join(headrace.lines("topics", "list"))
    headrace.lines("topics", "alter", new_name, "--partitions", 5)
    (described,) = headrace.json("topics", "describe", new_name)
    assert described["id"] == made["id"]
    assert described["configs"]["retention.ms"] == "9000000"
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2, 3, 4]
    assert [row["end_offset"] for row in described["partitions"]] == [0] * 5
    fewer = headrace("topics", "alter", new_name, "--partitions", 2)
    assert_refused(fewer, 1, b"INVALID_PARTITIONS")
    assert headrace.json("topics", "delete", new_name) == [new_name]
    gone = headrace("topics", "delete", new_name)
    assert_refused(gone, 1, new_name.encode(), b"UNKNOWN_TOPIC_OR_PARTITION")
    assert headrace.json("topics", "delete", new_name, "--if-exists") == []


def test_quotas_are_set_listed_and_removed(headrace: CommandLine, new_name: str) -> None:
    whose = ("--user", new_name, "--client-id-default")

    def found() -> Any:
        return headrace.json("quotas", "list", "--user", new_name)

    headrace.lines("quotas", "set", "producer_byte_rate=1000000", *whose, "--dry-run")
    assert found() == []
    headrace.lines("quotas", "set", "producer_byte_rate=1000000", "request_percentage=99.5", *whose)
    entity = {"user": new_name, "client-id": None}
    eventually(
        found,
        [
            {"entity": entity, "quota": "producer_byte_rate", "value": 1000000},
            {"entity": entity, "quota": "request_percentage", "value": 99.5},
        ],
    )
    (_, row, _) = headrace.lines("quotas", "list", "--user", new_name)
    assert row.split() == [new_name.encode(), b"(default)", b"producer_byte_rate", b"1000000"]
    headrace.lines("quotas", "remove", "producer_byte_rate", "request_percentage", *whose)
    eventually(found, [])
    wrong = headrace("quotas", "set", "producer_byte_rate=0", *whose)
    assert_refused(wrong, 1, b"producer_byte_rate", b"INVALID_REQUEST")
    assert_refused(headrace("quotas", "set", "producer_byte_rate=much", *whose), 2, b"a number")
    assert_refused(headrace("quotas", "set", "producer_byte_rate=1"), 2, b"--user")
    both = headrace("quotas", "list", "--user", "a", "--user-default")
    assert_refused(both, 2, b"one of them")


def test_configs_of_topics_are_described_set_and_unset(
    headrace: CommandLine, new_name: str
) -> None:
    def retention() -> Any:
        (row,) = headrace.json("configs", "describe", "topic", new_name, "-k", "retention.ms")
        return row["value"]

    headrace.lines("topics", "create", new_name)
    default = retention()
    headrace.lines("configs", "set", "topic", new_name, "retention.ms=12345")
    eventually(retention, "12345")
    shown = headrace.json("configs", "describe", "topic", new_name)
    assert "retention.ms" in [row["config"] for row in shown]
    everything = headrace.json("configs", "describe", "topic", new_name, "--all")
    assert len(everything) > len(shown)
    headrace.lines("configs", "unset", "topic", new_name, "retention.ms")
    eventually(retention, default)
    wrong = headrace("configs", "set", "topic", new_name, "no.such.config=1")
    assert_refused(wrong, 1, b"no.such.config", b"INVALID_CONFIG")
    assert_refused(headrace("configs", "set", "topic", new_name, "x"), 2, b"key=value")
    assert_refused(headrace("configs", "describe", "broker", "x"), 2, b"number of a node")


def test_configs_of_brokers_groups_and_client_metrics(headrace: CommandLine) -> None:
    node = headrace.json("cluster", "describe")["nodes"][0]["node"]
    described = headrace.json("configs", "describe", "broker", node, "--all")
    assert "log.retention.ms" in [row["config"] for row in described]
    headrace.lines("configs", "set", "client-metrics", "probe", "interval.ms=60000")
    eventually(
        lambda: [
            row["value"]
            for row in headrace.json("configs", "describe", "client-metrics", "probe")
            if row["config"] == "interval.ms"
        ],
        ["60000"],
    )


def test_lines_become_records_and_come_back(headrace: CommandLine, new_name: str) -> None:
    headrace.lines("topics", "create", new_name, "-p", 2)
    sent = headrace.json(
        "produce",
        new_name,
        "--key-separator",
        ":",
        "--header",
        "source=test",
        "--partition",
        1,
        "--compression",
        "zstd",
        stdin=b"a:1\nb:2:3\nc:last without a line end",
    )
    assert sent == {"topic": new_name, "records": 3}
    records = [json.loads(line) for line in headrace.lines("consume", new_name, "--json")]
    assert [(row["key"], row["value"]) for row in records] == [
        ("a", "1"),
        ("b", "2:3"),
        ("c", "last without a line end"),
    ]
    assert {row["partition"] for row in records} == {1}
    assert records[0]["headers"] == [["source", "test"]]
    shown = headrace.lines("consume", new_name, "--format", r"%t %p %o %k=%v %h\n")
    assert shown[1] == f"{new_name} 1 1 b=2:3 source=test".encode()


def test_files_are_read_one_after_the_other(
    headrace: CommandLine, new_name: str, tmp_path: Path
) -> None:
    names = [tmp_path / "one", tmp_path / "two"]
    names[0].write_bytes(b"".join(b"%d\n" % number for number in range(20_000)))
    names[1].write_bytes(b"\nend\n")
    headrace.lines("topics", "create", new_name)
    assert headrace.json("produce", new_name, *names)["records"] == 20_002
    shown = headrace.lines("consume", new_name)
    assert shown == [*(b"%d" % number for number in range(20_000)), b"", b"end"]
    for missing in (tmp_path / "three", tmp_path):
        assert_refused(headrace("produce", new_name, missing), 2, str(missing).encode())


def test_a_pipe_is_a_file_too(headrace: CommandLine, new_name: str) -> None:
    headrace.lines("topics", "create", new_name)
    headrace.lines("produce", new_name, "/dev/stdin", stdin=b"one\ntwo\n")
    assert headrace.lines("consume", new_name) == [b"one", b"two"]


def test_reading_starts_and_stops_where_it_is_told_to(headrace: CommandLine, new_name: str) -> None:
    headrace.lines("topics", "create", new_name)
    headrace.lines("produce", new_name, stdin=b"".join(b"%d\n" % number for number in range(10)))
    times = headrace.lines("consume", new_name, "--format", r"%T\n")
    assert headrace.lines("consume", new_name, "-n", 2) == [b"0", b"1"]
    assert headrace.lines("consume", new_name, "--offset", 8) == [b"8", b"9"]
    assert headrace.lines("consume", new_name, "--offset", "-3") == [b"7", b"8", b"9"]
    assert headrace.lines("consume", new_name, "--offset", "end") == []
    assert len(headrace.lines("consume", new_name, "--from-time", times[0].decode())) == 10
    assert headrace.lines("consume", new_name, "--from-time", "2099-01-01") == []
    for before in ("1969-12-31T23:59:59.999", "1969-12-31T23:59:59.9", "0001-01-01"):
        assert len(headrace.lines("consume", new_name, "--from-time", before)) == 10
    last = headrace.lines("consume", new_name, "--from-beginning", "--follow", "-n", 10)
    assert last[-1] == b"9"
    beyond = headrace("consume", new_name, "--offset", 99, "--follow")
    assert_refused(beyond, 1, b"OFFSET_OUT_OF_RANGE", b"0 to 10, not 99")


def test_following_shows_records_as_they_come_and_ends_quietly_with_ctrl_c(
    headrace: CommandLine, new_name: str
) -> None:
    headrace.lines("topics", "create", new_name)
    headrace.lines("produce", new_name, stdin=b"old\n")
    following = headrace.start("consume", new_name, "--follow", "--offset", "-1")
    try:
        assert following.stdout is not None
        assert following.stdout.readline() == b"old\n"
        headrace.lines("produce", new_name, stdin=b"new\n")
        assert following.stdout.readline() == b"new\n"
        following.send_signal(signal.SIGINT)
        rest = following.communicate(timeout=DEADLINE_SECONDS)
        assert (following.returncode, *rest) == (130, b"", b"")
    finally:
        following.kill()
        following.communicate()


def test_a_reader_that_had_enough_is_no_error(headrace: CommandLine, new_name: str) -> None:
    headrace.lines("topics", "create", new_name)
    headrace.lines("produce", new_name, stdin=b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    reading = headrace.start("consume", new_name)
    try:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline() == b"x" * 99 + b"\n"
        reading.stdout.close()
        assert reading.wait(DEADLINE_SECONDS) == 0
        assert reading.stderr.read() == b""
        reading.stderr.close()
    finally:
        reading.kill()
        reading.wait()


def test_the_cluster_is_described_for_people_and_programs(
    headrace: CommandLine, any_bootstrap: str
) -> None:
    described = headrace.json("cluster", "describe")
    assert [f"{node['host']}:{node['port']}" for node in described["nodes"]] == [any_bootstrap]
    assert described["quorum"]["leader_id"] == described["nodes"][0]["node"]
    text = b"\n".join(headrace.lines("cluster", "describe"))
    assert any_bootstrap.encode() in text
    assert described["cluster_id"].encode() in text


def test_what_does_not_exist_is_named_with_the_way_out(
    headrace: CommandLine, new_name: str
) -> None:
    for words in (("consume", new_name), ("topics", "describe", new_name)):
        done = headrace(*words)
        assert_refused(done, 1, new_name.encode(), b"create it first", b"headrace topics list")


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t", "--offset", "1", "--from-beginning"],
        ["consume", "t", "--offset", "soon"],
        ["consume", "t", "--from-time", "soon"],
        ["consume", "t", "--format", "%z"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--compression", "rar"],
        ["topics", "alter", "t"],
        ["topics", "list", "--bootstrap", "host:port"],
    ],
)
def test_wrong_usage_is_told_before_anything_happens(words: list[str]) -> None:
    assert_refused(CommandLine("127.0.0.1:1")(*words), 2)


def test_a_cluster_that_nobody_answers_for_has_its_own_code() -> None:
    for words in (["topics", "list"], ["consume", "t"], ["produce", "t"], ["cluster", "describe"]):
        assert_refused(CommandLine("127.0.0.1:1")(*words), 3, b"127.0.0.1:1")


def test_lines_of_a_pipe_are_sent_while_it_waits_for_more_and_ctrl_c_ends_that(
    headrace: CommandLine, new_name: str
) -> None:
    headrace.lines("topics", "create", new_name)
    producing = subprocess.Popen(
        [sys.executable, "-m", "headrace", "produce", new_name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=headrace.environment,
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509  it takes no lock
    )
    try:
        assert producing.stdin is not None
        producing.stdin.write(b"one\ntwo\nhalf a li")
        producing.stdin.flush()
        eventually(lambda: headrace.lines("consume", new_name), [b"one", b"two"])
        producing.send_signal(signal.SIGINT)
        assert producing.wait(DEADLINE_SECONDS) == 130
        assert producing.communicate() == (b"", b"")
    finally:
        producing.kill()
        producing.communicate()


def test_tables_are_drawn_on_a_terminal(headrace: CommandLine, new_name: str) -> None:
    headrace.lines("topics", "create", new_name, "-p", 3)
    ours, theirs = pty.openpty()
    listing = subprocess.Popen(
        [sys.executable, "-m", "headrace", "topics", "list"],
        stdout=theirs,
        env={**headrace.environment, "COLUMNS": "200", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := _read_terminal(ours):
            shown += chunk
        assert listing.wait(DEADLINE_SECONDS) == 0
    finally:
        os.close(ours)
        listing.kill()
        listing.wait()
    assert "╭" in shown.decode()
    assert new_name.encode() in shown


def _read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # what Linux says when nobody writes to a terminal any more
        return b""


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    program = tmp_path / "headrace"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m headrace "$@"\n')
    program.chmod(0o755)
    script = """
    eval "$(headrace --show-completion)"
    for COMP_CWORD in 1 2 3; do
        COMP_WORDS=(headrace topics alter --part) COMPREPLY=()
        COMP_WORDS[COMP_CWORD]=${COMP_WORDS[COMP_CWORD]:0:6}
        _headrace_completion headrace
        echo "${COMPREPLY[*]}"
    done
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert (done.stdout.split(), done.stderr) == ([b"topics", b"alter", b"--partitions"], b"")


def test_completion_is_installed_once_for_the_shell_that_asks(tmp_path: Path) -> None:
    start = tmp_path / ".bashrc"
    start.write_text("alias ll='ls -l'")
    for _ in range(2):
        done = subprocess.run(
            ["bash", "--norc", "-c", f'"{sys.executable}" -m headrace --install-completion; true'],
            capture_output=True,
            check=True,
            timeout=DEADLINE_SECONDS,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert done.stdout.startswith(b"bash completion installed in ")
    script = tmp_path / ".bash_completions" / "headrace.sh"
    assert start.read_text() == f"alias ll='ls -l'\nsource '{script}'\n"
    assert "_HEADRACE_COMPLETE=bash_complete" in script.read_text()
