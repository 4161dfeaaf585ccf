"""The audit log of a node: who changed what, who was denied what, who got in; and no secret."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.config import InvalidSetting
from headrace.errors import ErrorCode
from headrace.metadata.entries import Batch, CatalogDdlAudited, decode_entry
from headrace.raft.entries import Entry, EntryKind
from headrace.server.audit_files import files_of, read_lines
from headrace.testing.broker import TestBroker
from headrace.web.node_inspection import take_entries
from headrace.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.wire.schema import Message
from tests.broker.delegation_token_play import SETTINGS, Play, create
from tests.broker.peers import wait_until
from tests.broker.test_secured_listeners import Wire

LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
CANARY = "canary-value"


class Audited:
    """A node with an audit log, and its clients."""

    def __init__(self, broker: TestBroker, path: Path) -> None:
        self.broker = broker
        self.path = path
        self.client = Play(*(f"127.0.0.1:{each.port}" for each in broker.node.listeners))

    def ask(self, user: str, body: Message, version: int) -> Any:
        return self.client.ask(user, body, version)

    def lines(self, **wanted: str) -> list[dict[str, Any]]:
        return [
            row
            for file in files_of(self.path)
            for row in read_lines(file)
            if all(row[name] == value for name, value in wanted.items())
        ]

    def line(self, **wanted: str) -> dict[str, Any]:
        """Return the one line, once it is there."""
        wait_until(lambda: len(self.lines(**wanted)) == 1, f"there is one line of {wanted}")
        return self.lines(**wanted)[0]


@contextmanager
def audited(folder: Path, **more: str) -> Iterator[Audited]:
    given = {**SETTINGS, "listeners": LISTENERS, "headrace.audit.log": "audit.log"}
    given |= {name.replace("_", "."): value for name, value in more.items()}
    with TestBroker(folder / "data", given) as broker:
        yield Audited(broker, folder / "data" / "audit.log")


def new_topic(name: str, **configs: str) -> CreateTopicsRequest:
    row = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return CreateTopicsRequest(topics=[row], timeout_ms=30_000)


def produce(name: str) -> ProduceRequest:
    partition = PartitionProduceData(records=b"")
    topic = TopicProduceData(name=name, partition_data=[partition])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])


def test_changes_say_who_made_them_and_how_they_ended(tmp_path: Path) -> None:
    with audited(tmp_path) as node:
        node.ask("root", new_topic("orders"), 7)
        node.ask("root", new_topic("orders"), 7)
        line = node.line(change="CreateTopic", outcome="done")
        assert line | {"time": "", "address": ""} == {
            "time": "",
            "kind": "change",
            "outcome": "done",
            "principal": "User:root",
            "address": "",
            "listener": "SASL_PLAINTEXT",
            "client_id": "c",
            "api": "CreateTopics",
            "operation": "",
            "resource": "topic",
            "names": ["orders"],
            "change": "CreateTopic",
            "details": "2 partitions",
            "error": "",
            "reason": "",
            "count": 1,
        }
        assert line["address"].startswith("127.0.0.1:")
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=30_000)
        node.ask("root", deletion, 6)
        assert node.line(change="DeleteTopic")["names"] == ["orders"]
        with Wire(node.client.unsecured) as client:
            client.ask(new_topic("open"), 7)
        anonymous = node.line(change="CreateTopic", principal="User:ANONYMOUS")
        assert (anonymous["names"], anonymous["listener"]) == (["open"], "PLAINTEXT")
        wanted = [FeatureUpdateKey(feature="share.version", max_version_level=1)]
        node.ask("root", UpdateFeaturesRequest(feature_updates=wanted, timeout_ms=30_000), 2)
        assert node.line(change="SetFeature")["names"] == ["share.version"]
        with Wire(node.client.unsecured) as client:
            body = MetadataRequest(
                topics=[MetadataRequestTopic(name="by-itself")], allow_auto_topic_creation=True
            )
            client.ask(body, 12)
        assert node.line(api="Metadata")["names"] == ["by-itself"]


def test_a_change_of_a_quota_says_who_made_it_and_for_whom(tmp_path: Path) -> None:
    with audited(tmp_path) as node:
        entity = [EntityData("user", "ann"), EntityData("client-id", None)]
        entry = EntryData(entity, [OpData("producer_byte_rate", 10.0, remove=False)])
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        assert node.ask("root", request, 1).entries[0].error_code == ErrorCode.NONE
        line = node.line(change="SetQuota")
        assert (line["principal"], line["api"]) == ("User:root", "AlterClientQuotas")
        assert line["names"] == ["default client-id, user ann"]
        asked = _asked(node.broker)
        assert (
            "User:root",
            "AlterClientQuotas: SetQuota quota default client-id, user ann",
        ) in asked


def test_denials_are_said_once_and_then_counted(tmp_path: Path) -> None:
    with audited(tmp_path) as node:
        node.ask("root", new_topic("orders"), 7)
        for _ in range(30):
            answer = node.ask("none", produce("orders"), 11)
            code = answer.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        line = node.line(kind="denied", principal="User:none")
        assert (line["api"], line["operation"], line["resource"]) == ("Produce", "WRITE", "topic")
        assert (line["names"], line["error"]) == (["orders"], "TOPIC_AUTHORIZATION_FAILED")
        node.ask("none", CreateAclsRequest(creations=[]), 3)
        line = node.line(kind="denied", api="CreateAcls")
        assert (line["resource"], line["operation"]) == ("cluster", "ALTER")
        node.ask("none", create("ann"), 3)
        line = node.line(kind="denied", api="CreateDelegationToken")
        assert (line["resource"], line["names"]) == ("user", ["User:ann"])
        assert not node.lines(kind="denied", principal="User:root")
    assert [row["count"] for row in node.lines(kind="denied", api="Produce")] == [1, 29]


def test_logins_say_who_got_in_and_who_did_not(tmp_path: Path) -> None:
    with audited(tmp_path) as node:
        with Wire(node.client.secured) as client:
            client.log_in(b"\0ann\0ann-secret")
        with Wire(node.client.secured) as client:
            client.log_in(f"\0bob\0{CANARY}".encode())
        with Wire(node.client.secured) as client:
            client.log_in(f"n,,n={CANARY}".encode(), "SCRAM-SHA-256")
        with Wire(node.client.secured) as client:
            client.send(MetadataRequest(topics=[]), 12)
            assert client.read() is None
        good = node.line(kind="authentication", outcome="succeeded", principal="User:ann")
        assert (good["api"], good["listener"]) == ("PLAIN", "SASL_PLAINTEXT")
        bad = node.line(kind="authentication", outcome="failed", principal="User:bob")
        assert "Invalid username or password" in bad["reason"]
        unread = node.line(kind="authentication", outcome="failed", api="SCRAM-SHA-256")
        assert unread["principal"] == ""
        early = node.line(kind="denied", api="Metadata")
        assert early["reason"] == "not authenticated"
    assert CANARY not in node.path.read_text()


def test_a_change_of_configs_is_called_the_same_whatever_it_was_planned_from(
    tmp_path: Path,
) -> None:
    with audited(tmp_path) as node:
        node.ask("root", new_topic("orders"), 7)
        row = AlterableConfig(name="retention.ms", config_operation=0, value="1234567")
        resource = AlterConfigsResource(resource_type=2, resource_name="orders", configs=[row])
        node.ask("root", IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert node.line(change="SetConfigs")["names"] == ["orders"]


def test_no_secret_is_in_the_audit_or_in_what_the_log_says_of_requests(tmp_path: Path) -> None:
    with audited(tmp_path) as node:
        put = ScramCredentialUpsertion("dora", 1, 4096, CANARY.encode(), CANARY.encode() * 3)
        node.ask("root", AlterUserScramCredentialsRequest(upsertions=[put]), 0)
        token = node.ask("ann", create(), 3)
        row = AlterableConfig(name="log.retention.ms", config_operation=0, value="1234567")
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[row])
        node.ask("root", IncrementalAlterConfigsRequest(resources=[resource]), 1)
        acl = AclCreation(
            resource_type=2,
            resource_name="orders",
            resource_pattern_type=3,
            principal="User:ann",
            host="*",
            operation=3,
            permission_type=3,
        )
        node.ask("root", CreateAclsRequest(creations=[acl]), 3)
        assert node.line(change="SetScramCredential")["names"] == ["dora"]
        assert node.line(change="SetDelegationToken")["names"] == [token.token_id]
        assert node.line(change="SetConfigs")["details"] == "log.retention.ms"
        assert "READ on literal TOPIC orders" in node.line(change="AddAcls")["details"]
        asked = _asked(node.broker)
    assert ("User:root", "AlterUserScramCredentials: SetScramCredential user dora") in asked
    assert any(name == "User:ann" and "CreateDelegationToken" in text for name, text in asked)
    text = node.path.read_text()
    for secret in (CANARY, "1234567", "canary-of-tokens", bytes(token.hmac).hex()):
        assert secret not in text
        assert not any(secret in said for _, said in asked)


def _asked(broker: TestBroker) -> set[tuple[str, str]]:
    """Return what the metadata log says of who has asked for what."""
    log = broker.run(_entries(broker))
    entries = [decode_entry(entry.data) for entry in log if entry.kind is EntryKind.DATA]
    parts = [part for entry in entries if isinstance(entry, Batch) for part in entry.entries]
    return {
        (part.auth_user_name, part.sql_text)
        for part in parts
        if isinstance(part, CatalogDdlAudited)
    }


async def _entries(broker: TestBroker) -> list[Entry]:
    """Return what the metadata log has."""
    return take_entries(broker.node, 1, None)[1]


def test_what_operators_do_at_the_node_port_is_said(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-of-the-cluster-of-32-bytes-or-more")
    secret.chmod(0o600)
    with audited(tmp_path, **{"headrace.cluster.secret.file": str(secret)}) as node:
        at = ("--node", f"127.0.0.1:{node.broker.node.node_port}", "--secret-file", str(secret))
        token = headrace("cluster", "token", "create", "--node-id", "2", *at).strip()
        headrace("cluster", "describe", *at, code=None)
        line = node.line(change="RegisterToken")
        assert (line["principal"], line["outcome"]) == ("(operator)", "done")
        headrace("cluster", "token", "revoke", "00000000", *at, code=1)
        refused = node.line(change="RevokeToken")
        assert (refused["outcome"], refused["error"]) != ("done", "")
    text = node.path.read_text()
    assert token not in text
    assert "canary" not in text
    assert len(node.lines(principal="(operator)")) == 2


def test_settings_of_the_audit_act(tmp_path: Path) -> None:
    more = {
        "headrace.audit.log": str(tmp_path / "elsewhere" / "who.log"),
        "headrace.audit.log.max.bytes": "2000",
        "headrace.audit.log.files": "3",
        "headrace.audit.queue.events": "1",
    }
    with audited(tmp_path, **more) as node:
        path = tmp_path / "elsewhere" / "who.log"
        rows = [
            CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1)
            for number in range(150)
        ]
        node.ask("root", CreateTopicsRequest(topics=rows, timeout_ms=30_000), 7)
        audit = node.broker.node.audit
        assert audit is not None
        files = audit.files
        wait_until(lambda: files.written + files.dropped >= 151, "all were taken or dropped")
        assert files.dropped > 0, "more came in one turn than the queue has room for"
        for number in range(20):
            node.ask("root", new_topic(f"more-{number}"), 7)
        wait_until(lambda: len(files_of(path)) == 3, "there are three files")
    assert len(files_of(path)) == 3
    assert all(each.stat().st_size <= 2000 for each in files_of(path))


def test_a_node_without_the_setting_has_no_audit(tmp_path: Path) -> None:
    with audited(tmp_path, **{"headrace.audit.log": ""}) as node:
        node.ask("none", produce("orders"), 11)
        assert node.broker.node.broker.audit is None
    assert not node.path.exists()


def test_a_file_that_cannot_be_written_keeps_a_node_from_starting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = {"headrace.audit.log": str(tmp_path / "file" / "audit.log")}
    with (
        pytest.raises(InvalidSetting, match=r"headrace\.audit\.log.*cannot be written"),
        TestBroker(tmp_path / "data", settings),
    ):
        pass


def test_two_nodes_with_one_file_do_not_both_start(tmp_path: Path) -> None:
    settings = {"headrace.audit.log": str(tmp_path / "audit.log")}
    with (
        TestBroker(tmp_path / "one", settings),
        pytest.raises(InvalidSetting, match=r"headrace\.audit\.log.*another node writes it"),
        TestBroker(tmp_path / "two", settings),
    ):
        pass
    with TestBroker(tmp_path / "two", settings):
        pass


def test_the_command_reads_times_without_a_zone_as_utc(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    times = ("2026-01-01", "2026-01-03T00:00:00", "2026-01-03T00:00:00Z", "no time")
    path.write_text("".join(json.dumps({"time": time}) + "\n" for time in times))
    rows = headrace("audit", str(path), "--since", "2026-01-02T00:00:00Z", "--json").splitlines()
    assert [json.loads(row)["time"] for row in rows] == list(times[1:])


def test_the_command_shows_what_is_asked_for(tmp_path: Path) -> None:
    with audited(tmp_path, **{"headrace.audit.log.max.bytes": "1024"}) as node:
        node.ask("root", new_topic("orders"), 7)
        node.ask("none", produce("orders"), 11)
        node.line(kind="denied")
    assert len(files_of(node.path)) > 1
    data = str(node.path.parent)
    table = headrace("audit", data)
    assert "CreateTopics" in table
    assert "denied (TOPIC_AUTHORIZATION_FAILED)" in table
    rows = [json.loads(line) for line in headrace("audit", data, "--json").splitlines()]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    denied = headrace("audit", str(node.path), "--denied", "--json", "--since", "1h").splitlines()
    assert {json.loads(line)["principal"] for line in denied} == {"User:none"}
    by_root = headrace("audit", data, "--principal", "root", "--json").splitlines()
    assert {json.loads(line)["principal"] for line in by_root} == {"User:root"}
    assert headrace("audit", data, "--since", "2999-01-01", "--json") == ""
    assert "there is no audit log" in headrace("audit", str(tmp_path), code=2)
    assert "write it as" in headrace("audit", data, "--since", "soon", code=2)


def headrace(*words: str, code: int | None = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert code is None or done.returncode == code, done.stderr
    return done.stdout + done.stderr
