"""`headrace cluster backup` and `restore`: the way of a cluster's metadata through a file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.client import Admin
from headrace.client.configs import Resource
from headrace.client.outcomes import values_of
from headrace.client.topics import NewTopic, TopicPartition
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName, topic_id_text
from headrace.metadata.backup import InvalidBackup, decode_backup, encode_backup
from headrace.metadata.ddl import CreateTopic
from headrace.metadata.state import Acl, AclPattern, ResourceType
from headrace.server.proposals import propose_each
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster
from headrace.topics import restoring


def run(node: TestBroker, *arguments: str) -> Result:
    options = ["--node", node.node.cluster.address]
    return CliRunner().invoke(headrace, ["cluster", *arguments, *options])


def fill(bootstrap: str) -> None:
    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic("orders", 4, 2, configs={"retention.ms": "-1"})
            await admin.create_topic("events", 1, 1)
            await admin.alter_configs(Resource.broker(), set={"log.retention.ms": "12345678"})
            await admin.alter_configs(
                Resource.group("readers"), set={"consumer.session.timeout.ms": "50000"}
            )
            await admin.alter_configs(Resource.broker(2), set={"log.cleaner.threads": "2"})

    asyncio.run(work())


def test_a_backup_restores_topics_with_their_ids_and_configs(tmp_path: Path) -> None:
    file = tmp_path / "backup.json"
    with TestCluster(nodes=2) as cluster:
        fill(cluster.bootstrap)
        cluster.produce("orders", "one")
        done = run(cluster.nodes[2], "backup", str(file))
        assert done.exit_code == 0, done.output
        assert run(cluster.nodes[1], "backup", str(file)).exit_code == 2, "the file is there"
        state = cluster.nodes[1].node.broker.image.state
        ids = {str(topic.name): topic_id_text(topic.topic_id) for topic in state.topics.values()}
        again = run(cluster.nodes[1], "restore", str(file), "--yes")
        assert again.exit_code == 0, "what is there is the backup's own"
    document = json.loads(file.read_text())
    assert {topic["name"]: topic["id"] for topic in document["topics"]} == ids
    with TestBroker() as broker:
        planned = run(broker, "restore", str(file), "--dry-run")
        assert planned.exit_code == 0, planned.output
        assert not list(broker.node.broker.image.topics())
        done = run(broker, "restore", str(file), "--yes")
        assert done.exit_code == 0, done.output
        assert planned.output.replace("would restore", "restored") == done.output
        assert "has 1 replicas instead of 2" in done.output
        assert "configs of broker 2, which is not here" in done.output
        assert "records" in done.output
        image = broker.node.broker.image
        restored = {topic.name: topic_id_text(topic.topic_id) for topic in image.topics()}
        assert restored == {name: ids[name] for name in ("orders", "events")}
        assert len(image.state.topics[TopicName("orders")].partitions) == 4
        assert dict(image.configs(ResourceType.TOPIC, "orders")) == {"retention.ms": "-1"}
        assert dict(image.configs(ResourceType.BROKER, "")) == {"log.retention.ms": "12345678"}
        assert image.configs(ResourceType.GROUP, "readers")
        assert broker.produce("orders", "one") == [0]
        assert run(broker, "restore", str(file), "--yes").exit_code == 0, "it may be run again"
        broker.create_topic("other")
        refused = run(broker, "restore", str(file), "--yes")
        assert refused.exit_code == 1
        assert "not empty" in refused.output


def test_a_config_that_the_cluster_cannot_have_is_refused_before_anything_changes(
    tmp_path: Path,
) -> None:
    file = tmp_path / "backup.json"
    with TestBroker() as broker:
        broker.create_topic("orders")
        broker.create_topic("payments")
        assert run(broker, "backup", str(file)).exit_code == 0
    document = decode_backup(file.read_bytes())
    tiered = [
        msgspec.structs.replace(topic, configs={"remote.storage.enable": "true"})
        if topic.name == "payments"
        else topic
        for topic in document.topics
    ]
    file.write_bytes(encode_backup(msgspec.structs.replace(document, topics=tiered)))
    with TestBroker() as broker:
        refused = run(broker, "restore", str(file), "--yes")
        assert refused.exit_code == 1
        assert "topic payments: remote.storage.enable=true" in refused.output
        assert not list(broker.node.broker.image.topics())
        without = ("--without-config", "remote.storage.enable")
        done = run(broker, "restore", str(file), "--yes", *without)
        assert done.exit_code == 0, done.output
        assert "topic payments is without remote.storage.enable" in done.output
        assert len(list(broker.node.broker.image.topics())) == 2


def test_a_damaged_backup_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "backup.json"
    with TestBroker() as broker:
        broker.create_topic("orders", 1, {"retention.ms": "1000000"})
        assert run(broker, "backup", str(file)).exit_code == 0
        data = file.read_bytes()
        file.write_bytes(data.replace(b"1000000", b"2000000"))
        refused = run(broker, "restore", str(file), "--yes")
    assert refused.exit_code == 1
    assert "changed or damaged" in refused.output
    for damaged in (b"", b"{}", b"[]", data[:-20], data.replace(b'"version": 1', b'"version": 2')):
        with pytest.raises(InvalidBackup):
            decode_backup(damaged)


def test_a_backup_of_a_cluster_that_moves_has_what_is_to_be_and_no_limits_of_moves(
    tmp_path: Path,
) -> None:
    file = tmp_path / "backup.json"
    names = [f"{each}.replication.throttled" for each in ("leader", "follower")]
    with TestCluster(nodes=3, settings={"auto.leader.rebalance.enable": "false"}) as cluster:
        gone = next(node for node in (2, 3) if node != cluster.controller)

        async def begin() -> None:
            async with Admin(cluster.bootstrap) as admin:
                topic = NewTopic(
                    "orders",
                    assignments={0: (1,), 1: (1,)},
                    configs={"retention.ms": "-1", **{f"{name}.replicas": "*" for name in names}},
                )
                values_of(await admin.create_topics([topic]))
                rates = {f"{name}.rate": "1000" for name in names}
                await admin.alter_configs(Resource.broker(1), set=rates)
                await asyncio.to_thread(cluster.kill, gone)
                place = TopicPartition("orders", 0)
                values_of(await admin.alter_reassignments({place: (gone,)}))

        asyncio.run(begin())
        node = cluster.nodes[cluster.controller]
        cluster.wait_for(lambda: any(node.node.broker.image.moving()), "the move")
        assert run(node, "backup", str(file)).exit_code == 0
    document = json.loads(file.read_text())
    orders = next(topic for topic in document["topics"] if topic["name"] == "orders")
    assert orders["replicas"] == [[gone], [1]]
    with TestBroker() as broker:
        done = run(broker, "restore", str(file), "--yes")
        assert done.exit_code == 0, done.output
        assert "rate limits of moves that 2 topics and brokers had" in done.output
        image = broker.node.broker.image
        assert dict(image.configs(ResourceType.TOPIC, "orders")) == {"retention.ms": "-1"}
        assert not image.configs(ResourceType.BROKER, "1")


def test_more_acls_than_an_entry_can_have_are_restored(tmp_path: Path) -> None:
    file = tmp_path / "backup.json"
    pattern = AclPattern(2, 3, "orders")
    acls = [Acl(pattern, f"User:{each:06}{'x' * 300}", "*", 3, 3) for each in range(10_000)]
    with TestBroker() as broker:
        assert run(broker, "backup", str(file)).exit_code == 0
        backup = msgspec.structs.replace(decode_backup(file.read_bytes()), acls=acls)
        file.write_bytes(encode_backup(backup))
        done = run(broker, "restore", str(file), "--yes")
        assert done.exit_code == 0, done.output
        assert broker.node.broker.image.state.acls == {pattern: tuple(acls)}


def test_a_restore_that_ends_early_leaves_no_topic_without_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where topics without ACLs are open to everybody, they would be until it is run again."""
    file, pattern = tmp_path / "backup.json", AclPattern(2, 3, "orders")
    acl = Acl(pattern, "User:ann", "*", 3, 3)
    with TestBroker() as broker:
        broker.create_topic("orders")
        assert run(broker, "backup", str(file)).exit_code == 0
    backup = msgspec.structs.replace(decode_backup(file.read_bytes()), acls=[acl])
    file.write_bytes(encode_backup(backup))
    with TestBroker() as broker:

        async def propose_no_topic(*arguments: Any) -> Any:
            if any(isinstance(each, CreateTopic) for each in arguments[1]):
                return [KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it is cut off")]
            return await propose_each(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(restoring, "propose_each", propose_no_topic)
            ended = run(broker, "restore", str(file), "--yes")
        assert ended.exit_code == 1
        assert "run the restore again" in ended.output
        image = broker.node.broker.image
        assert image.state.acls == {pattern: (acl,)}
        assert run(broker, "restore", str(file), "--yes").exit_code == 0
        assert [topic.name for topic in image.topics()] == ["orders"]


def test_what_the_cluster_has_beside_the_backup_is_said(tmp_path: Path) -> None:
    file, pattern = tmp_path / "backup.json", AclPattern(2, 3, "orders")
    theirs, ours = Acl(pattern, "User:ann", "*", 3, 3), Acl(pattern, "User:bob", "*", 3, 3)
    with TestBroker() as broker:
        assert run(broker, "backup", str(file)).exit_code == 0
        taken = decode_backup(file.read_bytes())
        for acls in ([theirs, ours], [theirs]):
            file.write_bytes(encode_backup(msgspec.structs.replace(taken, acls=acls)))
            done = run(broker, "restore", str(file), "--yes")
            assert done.exit_code == 0, done.output
            assert ("kept as the cluster has them: 1 ACLs" in done.output) == (acls == [theirs])
        assert broker.node.broker.image.state.acls == {pattern: (theirs, ours)}


def test_a_call_that_fails_unexpectedly_is_answered(tmp_path: Path) -> None:
    class Broken:
        async def take(self) -> bytes:
            raise ZeroDivisionError("nobody expects this")

    with TestBroker() as broker:
        broker.node.cluster.operator.backups = Broken()  # type: ignore[assignment]
        failed = run(broker, "backup", str(tmp_path / "backup.json"))
        assert failed.exit_code == 1
        assert "nobody expects this" in failed.output
