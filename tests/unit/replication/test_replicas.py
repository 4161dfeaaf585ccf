"""Partitions are what the image says, also when the disk did not want them at first."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Admin, TopicPartition
from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex, TopicId, TopicName
from headrace.metadata.ddl import (
    Assignment,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    SetConfigs,
    encode_ddl,
)
from headrace.metadata.entries import Batch, CatalogDdl
from headrace.metadata.state import ResourceType
from headrace.records.builder import BatchBuilder
from headrace.replication import replicas, topic_settings
from headrace.replication.partition import Partition
from headrace.testing.broker import TestBroker
from headrace.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.unit.harness import Harness

SHARED_ID = TopicId(b"replicated......")


def test_a_partition_that_the_disk_refused_is_set_up_when_it_has_room(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "RETRY_SECONDS", 0.01)
    folder = harness.broker.folder
    begin_all, refusals = folder.begin_all, [2]

    def refuse_twice(asked: Any) -> Any:
        logs = begin_all(asked)  # the files are left behind, as a disk that fills up leaves them
        if refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.ENOSPC, "no space left")
        return logs

    monkeypatch.setattr(folder, "begin_all", refuse_twice)
    harness.create_topic("orders", partitions=3)

    async def wait() -> None:
        async with asyncio.timeout(10):
            while len(harness.broker.replicas) < 3:
                await asyncio.sleep(0.01)  # polls, up to the deadline

    harness.run(wait())
    assert refusals == [0]
    assert all(partition.is_leader for partition in harness.broker.replicas)


def test_the_settings_of_many_new_topics_are_looked_up_in_parts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * replicas.BEGUN_A_TURN
    lookups: dict[int, int] = {}
    turn = 0
    settings = harness.broker.replicas._settings
    look_up = settings._look_up

    def look_up_counted(topic: TopicName) -> Any:
        lookups[turn] = lookups.get(turn, 0) + 1
        return look_up(topic)

    async def create() -> None:
        async def take_turns() -> None:
            nonlocal turn
            while True:
                await asyncio.sleep(0)
                turn += 1

        other = asyncio.get_running_loop().create_task(take_turns())
        rows = [CreatableTopic(f"t{number}", 1, 1) for number in range(count)]
        await harness.ask_async(CreateTopicsRequest(topics=rows), 7)
        other.cancel()

    monkeypatch.setattr(settings, "_look_up", look_up_counted)
    harness.run(create())
    assert sum(lookups.values()) >= count
    assert max(lookups.values()) <= replicas.BEGUN_A_TURN


def test_a_log_whose_topic_cannot_be_written_down_is_served_when_the_disk_has_room(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a crash on a full disk leaves it: the log is there, the file with the topic's id empty."""
    monkeypatch.setattr(replicas, "RETRY_SECONDS", 0.01)
    harness.create_topic("orders", partitions=3)
    folder = harness.broker.folder
    orders, index = TopicName("orders"), PartitionIndex(1)
    del folder.topic_ids[orders, index]
    harness.broker.replicas._withdraw(orders, harness.topic("orders").topic_id, index)
    save_topic_id, refusals = folder.save_topic_id, [2]

    def refuse_twice(key: Any, topic_id: Any) -> None:
        if refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.ENOSPC, "no space left")
        save_topic_id(key, topic_id)

    monkeypatch.setattr(folder, "save_topic_id", refuse_twice)

    async def settle() -> None:
        harness.broker.replicas.mark_all()
        await harness.broker.replicas.settle()
        assert len(harness.broker.replicas) == 2, "the others do not wait for it"
        async with asyncio.timeout(10):
            while len(harness.broker.replicas) < 3:
                await asyncio.sleep(0.01)  # polls, up to the deadline

    harness.run(settle())
    assert refusals == [0]


def delete_topic(harness: Harness, name: str) -> None:
    async def delete() -> None:
        topic_id = harness.topic(name).topic_id
        await harness.broker.quorum.propose(DeleteTopic(topic_id, now_ms=harness.clock.now_ms()))
        await harness.broker.replicas.settle()

    harness.run(delete())


def recreate_topic(harness: Harness, name: str) -> TopicId:
    """Delete a topic, and create another of the same name before any file was touched."""
    broker, me = harness.broker, BrokerId(harness.broker.node_id)
    new_id = TopicId(b"another".ljust(16, b"."))

    async def recreate() -> None:
        topic_id = harness.topic(name).topic_id
        created = CreateTopic(TopicName(name), new_id, (Assignment((me,), (me,), me),), {})
        await asyncio.gather(
            broker.quorum.propose(DeleteTopic(topic_id, now_ms=harness.clock.now_ms())),
            broker.quorum.propose(created),
        )
        await broker.replicas.settle()

    harness.run(recreate())
    return new_id


def damage(harness: Harness, name: str) -> None:
    """Flip a byte that was synced, and start the node on it as after a crash."""
    broker = harness.broker

    async def flush() -> None:
        await harness.partition(name).log.flush()
        await broker.folder.checkpoint()

    harness.run(flush())
    harness.run(harness.node.stop())
    data = Path(broker.data_path)
    (data / ".kafka_cleanshutdown").unlink()
    path = data / f"{name}-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 0xFF
    path.write_bytes(content)
    harness.start()
    assert list(harness.broker.folder.offline) == [(name, 0)]


def append_records(harness: Harness, name: str, *values: bytes) -> None:
    async def run() -> None:
        for value in values:
            builder = BatchBuilder()
            builder.append(harness.clock.now_ms(), None, value)
            partition = harness.partition(name, 0)
            partition.append(
                memoryview(builder.build()), harness.clock.now_ms(), needs_replicas=True
            )

    harness.run(run())


@pytest.mark.parametrize("is_at_once", [False, True])
def test_a_damaged_log_is_repaired_by_deleting_and_creating_its_topic(
    harness: Harness, is_at_once: bool
) -> None:
    harness.create_topic("orders")
    append_records(harness, "orders", b"a", b"b")
    damage(harness, "orders")
    if is_at_once:
        recreate_topic(harness, "orders")
    else:
        delete_topic(harness, "orders")
        assert len(harness.broker.folder.deleted_folders()) == 1
        harness.create_topic("orders")
    assert harness.broker.folder.offline == {}
    append_records(harness, "orders", b"new")
    assert harness.partition("orders", 0).log.end_offset == 1
    harness.restart()
    assert harness.partition("orders", 0).log.end_offset == 1


def test_a_damaged_log_of_a_topic_that_is_there_stays_as_it_is(harness: Harness) -> None:
    harness.create_topic("orders")
    append_records(harness, "orders", b"a", b"b")
    damage(harness, "orders")
    assert harness.broker.folder.deleted_folders() == []
    assert not harness.has_partition("orders")
    missing = harness.broker.replicas.explain_missing(TopicName("orders"), 0)
    assert missing.code == ErrorCode.KAFKA_STORAGE_ERROR
    harness.restart()
    assert list(harness.broker.folder.offline) == [("orders", 0)]


def test_a_folder_that_cannot_be_renamed_is_deleted_later_and_never_opened_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "RETRY_SECONDS", 0.01)
    for topic in ("orders", "payments"):
        harness.create_topic(topic)
        append_records(harness, topic, b"old")
    disk = harness.broker.folder.disk
    rename, refusals = disk.rename, [3]

    def refuse(old: str, new: str) -> None:
        if old in ("orders-0", "payments-0") and refusals[0]:
            refusals[0] -= 1
            raise OSError(errno.EIO, "a tired disk", old)
        rename(old, new)

    monkeypatch.setattr(disk, "rename", refuse)
    delete_topic(harness, "payments")
    recreate_topic(harness, "orders")

    async def wait() -> None:
        async with asyncio.timeout(10):
            while len(harness.broker.folder.deleted_folders()) < 2:
                await asyncio.sleep(0.01)  # polls, up to the deadline
            while not harness.has_partition("orders"):
                await asyncio.sleep(0.01)

    harness.run(wait())
    assert harness.partition("orders", 0).log.end_offset == 0
    assert not harness.has_partition("payments")


def test_records_of_a_topic_that_was_made_again_outlive_a_crash() -> None:
    with TestBroker() as broker:
        broker.create_topic("t")
        broker.produce("t", *["old"] * 100)

        async def delete(what: str) -> None:
            async with Admin(broker.bootstrap) as admin:
                if what == "records":
                    await admin.delete_records({TopicPartition("t", 0): 50})
                else:
                    await admin.delete_topic("t")

        broker.run(delete("records"))
        broker.run(delete("topic"))
        broker.create_topic("t")
        assert broker.produce("t", *["new"] * 10) == list(range(10))
        broker.crash()
        broker.start()
        found = [(record.offset, record.value) for record in broker.consume("t")]
        assert found == [(offset, b"new") for offset in range(10)]


@pytest.mark.slow
def test_a_thousand_partitions_are_led_also_after_a_restart(harness: Harness) -> None:
    harness.create_topic("many", partitions=1000)
    assert len(harness.broker.replicas) == 1000
    harness.restart()
    assert len(harness.broker.replicas) == 1000


def test_a_partition_knows_its_min_insync_replicas_before_its_isr_shrinks(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the former one it would commit what only the leader has, while others are eligible."""
    monkeypatch.setattr(topic_settings, "PARTITIONS_A_TURN", 0)  # what changes is told later
    me, other = BrokerId(harness.broker.node_id), BrokerId(99)
    topic_id = TopicId(b"replicated......")
    register = RegisterBroker(other, bytes(16), (), is_fenced=False)
    both = Assignment((me, other), (me, other), me)

    async def scenario() -> None:
        propose = harness.broker.quorum.propose
        await propose(register)
        await propose(CreateTopic(TopicName("orders"), topic_id, (both,)))
        await harness.broker.replicas.settle()
        partition = harness.partition("orders")
        builder = BatchBuilder()
        builder.append(1, None, b"value")
        partition.append(memoryview(builder.build()), 1, needs_replicas=False)
        configs = {"min.insync.replicas": "2"}
        configure = SetConfigs(ResourceType.TOPIC, "orders", configs)  # type: ignore[arg-type]
        shrink = ChangePartition(topic_id, PartitionIndex(0), isr=(me,))
        entries = tuple(CatalogDdl(encode_ddl(each)) for each in (configure, shrink))
        await propose(Batch(entries))
        assert partition.isr == (me,)
        assert partition.log.high_watermark == 0

    harness.run(scenario())


@pytest.fixture
def shared(harness: Harness) -> Partition:
    """A partition that this node leads, with another one in its ISR, and a record."""
    me, other = BrokerId(harness.broker.node_id), BrokerId(99)
    both = Assignment((me, other), (me, other), me)

    async def create() -> None:
        propose = harness.broker.quorum.propose
        await propose(RegisterBroker(other, bytes(16), (), is_fenced=False))
        await propose(CreateTopic(TopicName("orders"), SHARED_ID, (both,)))
        await harness.broker.replicas.settle()
        builder = BatchBuilder()
        builder.append(1, None, b"value")
        batch = memoryview(builder.build())
        harness.partition("orders").append(batch, 1, needs_replicas=False)

    harness.run(create())
    return harness.partition("orders")


def test_a_partition_that_moved_away_is_not_led_although_files_of_others_take_long(
    harness: Harness, shared: Partition
) -> None:
    other = BrokerId(99)
    here = harness.broker.replicas

    async def scenario() -> None:
        here._settling = asyncio.create_task(asyncio.sleep(60))
        change = ChangePartition(
            SHARED_ID, PartitionIndex(0), replicas=(other,), isr=(other,), leader=other
        )
        await harness.broker.quorum.propose(change)
        is_leader, found = shared.is_leader, here.find(TopicName("orders"), 0)
        here._settling.cancel()
        here._settling = None
        assert (is_leader, found) == (False, None)
        here.mark_all()
        await here.settle()
        assert (TopicName("orders"), PartitionIndex(0)) not in harness.broker.folder.logs

    harness.run(scenario())


def test_a_snapshot_does_not_commit_what_the_next_leader_may_lack(
    harness: Harness, shared: Partition
) -> None:
    """The node hears at once of another leader, and of a lower min.insync.replicas since."""
    me, other = BrokerId(harness.broker.node_id), BrokerId(99)
    propose = harness.broker.quorum.propose

    def configure(count: str) -> SetConfigs:
        configs: dict[str, str | None] = {"min.insync.replicas": count}
        return SetConfigs(ResourceType.TOPIC, "orders", configs)

    async def scenario() -> None:
        index = PartitionIndex(0)
        await propose(configure("2"))
        await propose(ChangePartition(SHARED_ID, index, isr=(me,)))
        assert shared.log.high_watermark == 0
        harness.node._takes_roles = False  # it hears of nothing
        await propose(ChangePartition(SHARED_ID, index, leader=other, isr=(other,)))
        await propose(configure("1"))
        harness.node._takes_roles = True
        harness.node._on_restored(harness.broker.image)
        assert shared.log.high_watermark == 0
        await harness.broker.replicas.settle()
        assert shared.leader == other
        assert shared.min_insync_replicas == 1
        assert shared.log.high_watermark == 0

    harness.run(scenario())


def test_whoever_waits_for_partitions_does_not_wait_for_those_that_come_later(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may create topics all the time."""
    here = harness.broker.replicas
    me = BrokerId(harness.broker.node_id)
    settle_some = here._settle_some
    created = 0

    async def create() -> None:
        nonlocal created
        created += 1
        topic_id = TopicId(created.to_bytes(16, "big"))
        assignment = Assignment((me,), (me,), me)
        await harness.broker.quorum.propose(
            CreateTopic(TopicName(f"t{created}"), topic_id, (assignment,))
        )

    async def settle_and_create(keys: list[Any]) -> None:
        await settle_some(keys)
        if created < 20:
            await create()

    monkeypatch.setattr(here, "_settle_some", settle_and_create)

    async def scenario() -> int:
        await create()
        await here.settle()
        assert here.find(TopicName("t1"), 0) is not None
        seen = created
        while created < 20:
            await here.settle()
        await here.settle()
        assert here.find(TopicName("t20"), 0) is not None
        return seen

    assert harness.run(scenario()) < 20
