"""A node on the data of the release before, and the way back to that release.

`older_release/node.tar.gz` is the folder of a single node of commit 1b7c626 after a clean stop:
topics, one of them compacted, transactions, a group's positions, a queue that was begun.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client import Admin, Producer, QuotaEntity, Resource, TopicPartition
from headrace.errors import KafkaError
from headrace.metadata import snapshot
from headrace.metadata.applier import Applier, Outcome, check_entry
from headrace.metadata.ddl import RaiseLevel
from headrace.metadata.features import HEADRACE_VERSION
from headrace.testing.broker import TestBroker

KEPT = {
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
}
"""The records are as old as the folder is."""
KNOWN_THERE = {
    "CreateTopic",
    "DeleteTopic",
    "AddPartitions",
    "ChangePartition",
    "SetClusterId",
    "RegisterBroker",
    "ChangeBroker",
    "UnregisterBroker",
    "SetConfigs",
    "SetFeature",
    "SetScramCredential",
    "RemoveScramCredential",
    "Expire",
    "TopologyChange",
    "RoutingChange",
    "ClusterVersionBump",
    "SurrogateAlloc",
    "JoinTokenTransition",
}
"""What nodes of the release before can apply, and in the same way."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "older_release" / "node.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "node"


@pytest.fixture
def broker(folder: Path) -> Iterator[TestBroker]:
    with TestBroker(folder, KEPT) as broker:
        yield broker


def check_all_is_there(broker: TestBroker) -> None:
    assert sorted(int(row.value or b"") for row in broker.consume("plain")) == list(range(10))
    assert {row.key: row.value for row in broker.consume("compacted")} == {b"k0": b"4", b"k1": b"5"}
    assert [int(row.value or b"") for row in broker.consume("jobs")] == list(range(8))
    assert [row.value for row in broker.consume("money")][:2] == [b"paid", b"paid too"]

    async def ask() -> None:
        async with Admin(broker.bootstrap) as admin:
            positions = await admin.list_group_offsets("readers")
            starts = await admin.list_share_group_offsets("workers")
            configs = await admin.describe_configs([Resource.topic("compacted")])
        offsets = {key.partition: row.offset for key, row in positions.items()}
        assert offsets == {0: 3, 1: 5}
        assert starts[TopicPartition("jobs", 0)].offset == 3  # type: ignore[union-attr]
        (rows,) = configs.values()
        assert {each.name: each.value for each in rows}["retention.ms"] == "123456789"  # type: ignore[union-attr]

    broker.run(ask())


def test_all_that_the_release_before_stored_is_there(broker: TestBroker) -> None:
    check_all_is_there(broker)
    broker.restart()
    check_all_is_there(broker)


def test_nothing_is_written_that_the_release_before_does_not_know(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    before = Applier._apply_one

    def note(self: Applier, index: int, data: bytes) -> Outcome:
        seen.update(type(each).__name__ for each in check_entry(data))
        return before(self, index, data)

    monkeypatch.setattr(Applier, "_apply_one", note)
    with TestBroker(folder, KEPT) as broker:
        broker.create_topic("later", partitions=2)
        broker.produce("later", "one")

        async def use() -> None:
            async with Admin(broker.bootstrap) as admin:
                await admin.alter_configs(Resource.topic("later"), set={"retention.ms": "1000000"})
                await admin.set_password("ann", "secret of ann")
                await admin.delete_topic("later")
            payer = Producer(broker.bootstrap, transactional_id="payer")
            async with payer as producer, producer.transaction():
                await producer.send("money", b"later")

        broker.run(use())
        check_all_is_there(broker)
        state = broker.node.broker.image.state
        assert snapshot._version_to_read(state) == 1
    assert seen
    assert seen <= KNOWN_THERE


def test_what_is_new_waits_until_the_cluster_is_raised(broker: TestBroker) -> None:
    bob = QuotaEntity.of(user="bob")

    async def use() -> None:
        async with Admin(broker.bootstrap) as admin:
            with pytest.raises(KafkaError, match="headrace cluster upgrade"):
                await admin.alter_quotas(bob, set={"consumer_byte_rate": 1000.0})
            assert (await admin.describe_features())[HEADRACE_VERSION].finalized == 0
            await admin.update_features({HEADRACE_VERSION: 1})
            await admin.alter_quotas(bob, set={"consumer_byte_rate": 1000.0})

    broker.run(use())
    check_all_is_there(broker)
    broker.restart()
    state = broker.node.broker.image.state
    assert state.features[HEADRACE_VERSION] == 1
    assert snapshot._version_to_read(state) > 1  # so the release before refuses it by name
    assert RaiseLevel.__name__ not in KNOWN_THERE
