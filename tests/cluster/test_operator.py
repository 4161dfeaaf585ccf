"""What operators see and do through node ports, with the commands themselves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.cluster import controller, words
from headrace.cluster.transport.calls import CallFailed
from headrace.cluster.transport.hello import OPERATOR, Identity
from headrace.cluster.transport.links import Links
from headrace.config import InvalidSetting, load_settings
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.cluster import TestCluster

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_bytes(SECRET + b"\n")
    return file


@pytest.fixture
def cluster(secret_file: Path) -> Iterator[TestCluster]:
    settings = {"headrace.cluster.secret.file": str(secret_file)}
    with TestCluster(nodes=3, settings=settings) as cluster:
        yield cluster


def node_ports(cluster: TestCluster) -> str:
    return ",".join(node.node.cluster.address for _, node in cluster.running())


def run(cluster: TestCluster, secret_file: Path, *arguments: str) -> Result:
    options = ["--node", node_ports(cluster), "--secret-file", str(secret_file)]
    return CliRunner().invoke(headrace, [*arguments, *options])


def test_a_token_is_created_listed_and_revoked(cluster: TestCluster, secret_file: Path) -> None:
    created = run(cluster, secret_file, "cluster", "token", "create", "--node-id", "7", "--json")
    assert created.exit_code == 0, created.output
    token = json.loads(created.output)
    (listed,) = json.loads(run(cluster, secret_file, "cluster", "token", "list", "--json").output)
    assert (listed["hash"], listed["state"]) == (token["hash"], "unused")
    text = run(cluster, secret_file, "cluster", "token", "list").output
    assert token["token"] not in text
    revoked = run(cluster, secret_file, "cluster", "token", "revoke", token["hash"][:8])
    assert revoked.exit_code == 0, revoked.output
    (listed,) = json.loads(run(cluster, secret_file, "cluster", "token", "list", "--json").output)
    assert listed["state"] == "revoked"


def test_a_token_that_was_never_shown_is_revoked_by_its_text(
    cluster: TestCluster, secret_file: Path
) -> None:
    created = run(cluster, secret_file, "cluster", "token", "create", "--node-id", "7")
    done = run(cluster, secret_file, "cluster", "token", "revoke", created.output.strip())
    assert done.exit_code == 0, done.output
    assert run(cluster, secret_file, "cluster", "token", "revoke", "00" * 8).exit_code == 1


def test_without_the_secret_nothing_is_said(cluster: TestCluster, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"another secret of the same kind!")
    refused = run(cluster, other, "cluster", "token", "list")
    assert refused.exit_code == 3
    without = ["cluster", "token", "list", "--node", node_ports(cluster)]
    assert CliRunner().invoke(headrace, without).exit_code == 3


def test_describe_shows_a_dead_node_with_the_reason(
    cluster: TestCluster, secret_file: Path
) -> None:
    leader = cluster.controller
    dead = next(node for node in cluster.nodes if node != leader)
    cluster.kill(dead)
    done = run(cluster, secret_file, "cluster", "describe", "--json", "-b", cluster.bootstrap)
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    members = {row["node"]: row for row in document["members"]}
    assert set(members) == {1, 2, 3}
    assert members[dead]["problem"]
    assert members[leader]["version"]
    assert members[leader]["session"] == "controller"
    assert {(row["from"], row["to"]) for row in document["links"]} >= {(leader, dead)}
    done = run(cluster, secret_file, "cluster", "describe", "-b", cluster.bootstrap)
    assert "who reaches whom" in done.output


def test_explain_goes_from_good_health_to_no_majority(
    cluster: TestCluster, secret_file: Path
) -> None:
    def is_healthy() -> bool:
        return run(cluster, secret_file, "quorum", "explain").exit_code == 0

    cluster.wait_for(is_healthy, "a healthy quorum")
    first, second, last = cluster.nodes
    cluster.kill(first)
    cluster.kill(second)

    def has_no_leader() -> bool:
        done = run(cluster, secret_file, "quorum", "explain")
        assert done.exit_code == 1
        return "must run before there can be a leader" in done.output

    cluster.wait_for(has_no_leader, "a quorum without a leader")
    assert last in cluster.nodes
    done = run(cluster, secret_file, "cluster", "describe", "--json", "-b", "127.0.0.1:1")
    assert len(json.loads(done.output)["members"]) == 3


@pytest.mark.parametrize("kind", [words.REGISTER, words.HEARTBEAT, words.PROPOSE, words.ASK])
def test_an_operator_is_no_peer(cluster: TestCluster, kind: int) -> None:
    node = cluster.nodes[1].node

    async def call() -> None:
        identity = Identity(OPERATOR, b"f" * 16, 1)
        links = Links(identity, secret=SECRET, address_of=lambda each: None)
        address = ("127.0.0.1", node.node_port)
        try:
            with pytest.raises(CallFailed):
                await links.call_address(address, b"", 5000, kind=kind)
        finally:
            await links.close()

    cluster.run(call())
    assert OPERATOR not in {each.node for each in node.cluster.links.describe()}


@pytest.mark.parametrize("name", ["node.id", "broker.id"])
def test_no_node_has_the_id_of_operators(name: str) -> None:
    with pytest.raises(InvalidSetting, match=name.replace(".", r"\.")):
        load_settings(overrides={name: str(OPERATOR)})
    load_settings(overrides={name: str(OPERATOR - 1)})


def test_the_variables_of_commands_are_no_unknown_settings_of_a_node() -> None:
    assert load_settings(environ={"HEADRACE_NODE": "127.0.0.1:9093"}).notes == ()


def test_a_token_is_forgotten_a_day_after_its_expiry(
    cluster: TestCluster, secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "EXPIRE_SECONDS", 0.05)
    run(cluster, secret_file, "cluster", "token", "create", "--node-id", "7", "--expires", "1h")
    active = cluster.nodes[cluster.controller].node.cluster.controller
    assert active is not None
    active._expire_at = 0.0
    cluster.clock.advance(26 * 3600 * 1000)

    def is_forgotten() -> bool:
        listed = run(cluster, secret_file, "cluster", "token", "list", "--json").output
        return bool(json.loads(listed) == [])

    cluster.wait_for(is_forgotten, "the token to be forgotten")


def test_a_controller_that_cannot_forget_waits_before_it_tries_again(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[object] = []
    active = cluster.nodes[cluster.controller].node.cluster.controller
    assert active is not None

    async def propose(change: object) -> int:
        refused.append(change)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not now")

    monkeypatch.setattr(controller, "is_anything_over", lambda image, now_ms: True)
    monkeypatch.setattr(active._quorum, "propose_as_leader", propose)
    active._expire_at = 0.0
    active.note_image()
    cluster.wait_for(lambda: bool(refused) and active._expire_at > 0.0, "the next time to be set")
