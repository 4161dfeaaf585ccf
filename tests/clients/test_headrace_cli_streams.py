"""Every command without a standard stream, or with one that takes nothing: it ends in order."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import pytest

from headrace.cli.program import headrace
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.groups import commit_offsets
from headrace.client.topics import TopicPartition
from headrace.testing.broker import TestBroker
from tests.headrace_process import HeadraceProcess

DEADLINE_SECONDS = 60
CLEAR = b"\x1b[2J"
FULL = Path("/dev/full")
CLOSED_AT: Final = {"<&-": 0, ">&-": 1, "2>&-": 2}
EXAMPLES: Final = {
    "topics create": ["new-{}"],
    "topics list": [],
    "topics describe": ["orders"],
    "topics alter": ["orders", "--set", "retention.ms=1000000"],
    "topics delete": ["absent-{}", "--if-exists", "--json"],
    "configs describe": ["topic", "orders", "--all"],
    "configs set": ["topic", "orders", "retention.ms=1000000"],
    "configs unset": ["topic", "orders", "retention.bytes"],
    "produce": ["orders", "--json"],
    "consume": ["orders", "-n", "1"],
    "groups list": [],
    "groups describe": ["readers"],
    "groups explain": ["readers"],
    "groups offsets": ["readers"],
    "groups reset-offsets": ["readers", "--all-topics", "--to-earliest"],
    "groups delete": ["absent-{}"],
    "share list": [],
    "share describe": ["absent"],
    "share offsets": ["absent"],
    "share reset": ["absent", "--all-topics", "--to-earliest"],
    "share delete": ["absent"],
    "share consume": ["queue-{}", "orders", "-n", "1", "--timeout-ms", "100"],
    "share inspect": ["absent", "orders", "--http", "127.0.0.1:1"],
    "share replay-dead-letters": ["orders"],
    "txn list": [],
    "txn describe": ["absent"],
    "txn abort": ["absent"],
    "cluster describe": ["--node", "{node}"],
    "cluster backup": ["{spare}/backup-{}.json", "--node", "{node}"],
    "cluster restore": ["{spare}/absent.json", "--node", "{node}", "--dry-run"],
    "cluster decommission": ["99", "--dry-run", "--node", "{node}"],
    "cluster rebalance": ["--dry-run", "--node", "{node}"],
    "cluster init-admin": ["admin", "--data", "{spare}/users-{}", "--password-file", "{spare}/no"],
    "cluster moves list": ["--node", "{node}"],
    "cluster moves abort": ["absent", "--node", "{node}", "--yes"],
    "cluster remove": ["99", "--yes"],
    "cluster upgrade": ["--dry-run"],
    "cluster token create": ["--node-id", "2", "--node", "{node}"],
    "cluster ca show": ["--node", "{node}"],
    "cluster ca rotate": ["--node", "{node}"],
    "cluster token list": ["--node", "{node}"],
    "cluster token revoke": ["00000000", "--node", "{node}"],
    "quorum explain": ["--node", "{node}"],
    "quorum resize": ["1", "--node", "{node}"],
    "quorum replace": ["99", "--node", "{node}"],
    "mirror status": ["--from", "127.0.0.1:1"],
    "mirror verify": ["--from", "127.0.0.1:1"],
    "mirror promote": ["orders", "--yes"],
    "users list": [],
    "users add": ["ann", "--password-file", "{spare}/no"],
    "users remove": ["absent-{}", "--yes"],
    "quotas list": [],
    "quotas set": ["producer_byte_rate=1000000", "--user", "ann"],
    "quotas remove": ["producer_byte_rate", "--user", "ann"],
    "tokens create": [],
    "tokens list": [],
    "tokens renew": ["absent"],
    "tokens expire": ["absent", "--yes"],
    "audit": ["{folder}"],
    "acls list": [],
    "acls add": ["User:ann", "READ", "topic:orders"],
    "acls remove": ["User:ann", "READ", "topic:orders"],
    "acls explain": ["User:ann", "READ", "topic:orders"],
    "table create": ["t-{}", "--topic", "orders", "--format", "raw", "--to", "parquet"],
    "table run": ["absent", "--once"],
    "table status": ["absent"],
    "table list": [],
    "table verify": ["absent"],
    "table backfill": ["absent"],
    "table compact": ["absent"],
    "table replay": ["absent"],
    "table alter": ["absent"],
    "table drop": ["absent", "--yes"],
    "pipeline init": ["{spare}/pipeline-{}"],
    "pipeline run": ["{spare}/absent", "--once"],
    "pipeline status": ["{spare}/absent"],
    "pipeline graph": ["{spare}/absent"],
    "pipeline test": ["{spare}/absent"],
    "tier status": [],
    "tier cost": [],
    "tier fsck": [],
    "tier audit": [],
    "tier restore": ["--from", "file:///absent", "--dry-run"],
    "log dump": ["{folder}"],
    "version": [],
}
"""How each command is called that ends by itself."""
SERVES: Final = {"up"}


class Ended(NamedTuple):
    """How a command ended."""

    command: str
    code: int
    stdout: bytes
    stderr: bytes


def all_commands(group: click.Group) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (f"{name} {each}" for each in all_commands(command))
        else:
            yield name


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with TestBroker(tmp_path_factory.mktemp("broker") / "data") as broker:
        broker.create_topic("orders")
        broker.produce("orders", "one", CLEAR + b"two")

        async def commit() -> None:
            async with Cluster(broker.bootstrap) as cluster:
                await commit_offsets(cluster, "readers", {TopicPartition("orders", 0): 1})

        broker.run(commit())
        yield broker


def run(
    words: list[str],
    bootstrap: str,
    *,
    closed: tuple[str, ...] = (),
    full: tuple[int, ...] = (),
    stdin: bytes = b"",
) -> Ended:
    """Run a command with streams closed, or going to a device that is full."""

    def prepare() -> None:
        for number in full:
            os.dup2(os.open(FULL, os.O_WRONLY), number)
        for name in closed:
            os.close(CLOSED_AT[name])

    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, "HEADRACE_BOOTSTRAP": bootstrap},
        preexec_fn=prepare,
    )
    return Ended(" ".join(words), done.returncode, done.stdout, done.stderr)


def assert_in_order(ended: Ended) -> None:
    assert ended.code >= 0, f"{ended.command}: a signal: {ended}"
    assert ended.code < 100, f"{ended.command}: the interpreter's own code: {ended}"
    for sign in (b"Traceback", b"Exception ignored", b"Fatal"):
        assert sign not in ended.stderr, f"{ended.command}: {ended.stderr.decode()}"


def test_every_command_has_an_example() -> None:
    assert set(all_commands(headrace)) == EXAMPLES.keys() | SERVES


def run_all(broker: TestBroker, label: str, **streams: Any) -> dict[str, Ended]:
    places = {
        "folder": str(broker.folder / "orders-0"),
        "node": broker.node.cluster.address,
        "spare": str(broker.folder.parent),
    }

    def play(name: str) -> Ended:
        words = [*name.split(), *(each.format(label, **places) for each in EXAMPLES[name])]
        return run(words, broker.bootstrap, **streams)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(EXAMPLES, pool.map(play, EXAMPLES), strict=True))


@pytest.fixture(scope="module")
def usual(broker: TestBroker) -> dict[str, Ended]:
    """How each command ends that has its streams."""
    return run_all(broker, "usual")


@pytest.mark.slow
@pytest.mark.timeout(600)  # thirty processes for each case
@pytest.mark.parametrize(
    ("label", "closed", "full"),
    [
        pytest.param("no-output", (">&-",), (), marks=pytest.mark.exhaustive),
        pytest.param("only-output", ("<&-", "2>&-"), (), marks=pytest.mark.exhaustive),
        ("none", ("<&-", ">&-", "2>&-"), ()),
        pytest.param("full", (), (1, 2), marks=pytest.mark.exhaustive),
    ],
)
def test_commands_end_in_order_whatever_their_streams_are(
    broker: TestBroker,
    usual: dict[str, Ended],
    label: str,
    closed: tuple[str, ...],
    full: tuple[int, ...],
) -> None:
    is_lost = ">&-" in closed or 1 in full
    for name, ended in run_all(broker, label, closed=closed, full=full).items():
        assert_in_order(usual[name])
        assert_in_order(ended)
        if usual[name].stdout and is_lost:
            assert ended.code != 0, f"{ended.command}: what it printed is lost: {ended}"
        elif usual[name].code == 0 and not (name == "produce" and "<&-" in closed):
            assert ended.code == 0, ended


@pytest.mark.parametrize("words", [["--help"], ["topics", "--help"], ["no-such-command"]])
def test_help_and_wrong_usage_end_in_order(words: list[str]) -> None:
    for closed, full in (((">&-",), ()), (("2>&-",), ()), ((), (1, 2))):
        ended = run(words, "127.0.0.1:1", closed=closed, full=full)
        assert_in_order(ended)
        if "2>&-" not in closed:
            assert ended.code != 0


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "version"],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_that_output_is_lost_is_said_once(broker: TestBroker) -> None:
    for closed, full in (((">&-",), ()), ((), (1,))):
        ended = run(["consume", "orders", "-n", "1"], broker.bootstrap, closed=closed, full=full)
        assert (ended.code, ended.stderr.count(b"cannot be written")) == (1, 1), ended


def test_without_an_input_to_read_produce_says_so(broker: TestBroker) -> None:
    ended = run(["produce", "orders"], broker.bootstrap, closed=("<&-",))
    assert (ended.code, ended.stdout) == (1, b"")
    assert b"standard input: cannot be read" in ended.stderr


@pytest.mark.parametrize("closed", [("<&-",), (">&-",), ("<&-", ">&-", "2>&-")])
def test_a_node_serves_without_standard_streams(tmp_path: Path, closed: tuple[str, ...]) -> None:
    with TestBroker() as other:  # for a port that is free afterwards
        port = int(other.bootstrap.rpartition(":")[2])

    def prepare() -> None:
        for name in closed:
            os.close(CLOSED_AT[name])

    words = ["up", "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"]
    words += ["--node-listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *words, "--set", "http.listen=127.0.0.1:0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=prepare,  # noqa: PLW1509  it takes no lock
    )
    try:
        done = run(["topics", "list"], f"127.0.0.1:{port}")
        deadline = 200
        while done.code == 3 and deadline and process.poll() is None:
            done = run(["topics", "list"], f"127.0.0.1:{port}")
            deadline -= 1
        assert done.code == 0, done
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def test_an_empty_path_is_not_the_current_folder(tmp_path: Path) -> None:
    for words in (["up", "--data", ""], ["up", "--config", ""], ["log", "dump", ""]):
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *words],
            capture_output=True,
            check=False,
            timeout=DEADLINE_SECONDS,
            cwd=tmp_path,
        )
        assert done.returncode == 2
        assert b"must not be empty" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    (tmp_path / "0.log").symlink_to(tmp_path / "0.log")
    ended = run(["log", "dump", str(tmp_path)], "127.0.0.1:1")
    assert_in_order(ended)
    assert ended.code == 1
    assert b"Too many levels of symbolic links" in ended.stdout


@pytest.mark.parametrize(
    "words", [["log", "dump", "-r", "{folder}"], ["consume", "orders"], ["groups", "list"]]
)
def test_a_terminal_gets_no_commands_from_what_others_wrote(
    broker: TestBroker, words: list[str]
) -> None:
    async def name_a_group() -> None:
        async with Admin(broker.bootstrap) as admin:
            partition = TopicPartition("orders", 0)
            await commit_offsets(admin.cluster, f"evil{CLEAR.decode()}", {partition: 1})

    broker.run(name_a_group())
    ours, theirs = pty.openpty()
    folder = str(broker.folder / "orders-0")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", *(each.format(folder=folder) for each in words)],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap, "TERM": "dumb"},
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        printed += chunk
    os.close(ours)
    assert process.wait(DEADLINE_SECONDS) == 0
    assert rb"\x1b[2J" in printed
    assert CLEAR not in printed


def test_a_pipe_gets_records_as_they_are(broker: TestBroker) -> None:
    assert CLEAR in run(["consume", "orders"], broker.bootstrap).stdout


def test_the_address_that_commands_use_is_no_unknown_setting(tmp_path: Path) -> None:
    os.environ["HEADRACE_BOOTSTRAP"] = "127.0.0.1:1"
    try:
        node = HeadraceProcess(tmp_path / "data")
        node.stop()
        assert "HEADRACE_BOOTSTRAP" not in node.output.read_text()
    finally:
        del os.environ["HEADRACE_BOOTSTRAP"]
