"""`headrace tier` against a broker, with a folder as the store."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace as program
from headrace.cli.tier_fsck import leases_of
from headrace.client import remote_restore
from headrace.client.admin import Admin
from headrace.client.cluster import Cluster
from headrace.client.offsets import FoundOffset
from headrace.client.remote_log import RemoteLogTopic
from headrace.client.topics import TopicPartition
from headrace.ids import (
    REMOTE_METADATA_TOPIC,
    PartitionIndex,
    TopicId,
    TopicName,
    topic_id_text,
)
from headrace.remote.inventory import Known
from headrace.remote.layout import ObjectKind, object_key, topic_key
from headrace.remote.leases import Leases
from headrace.remote.object_store import open_store
from headrace.remote.repair import Repair, carry_out
from headrace.remote.restoring import Restored, restore_segment
from headrace.remote.segments import (
    MetadataEvent,
    PartitionKey,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)
from headrace.remote.store import ObjectStore, StoreError
from headrace.remote.store_options import StoreOptions
from headrace.remote.topic_manifest import describe_topic, encode_manifest
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster
from tests.unit.remote.tiered import TieredLog


class Tier:
    """A topic of a broker whose old segments are in a folder."""

    def __init__(self, broker: TestBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        broker.create_topic("orders")
        self.partition = TopicIdPartition(
            asyncio.run(self._set_up()), TopicName("orders"), PartitionIndex(0)
        )
        self.log = TieredLog(self.partition)
        for number in range(3):
            self.log.append([b"value %d" % number] * 10)
            self.log.roll()
        self.segments = asyncio.run(self._upload())

    async def _set_up(self) -> TopicId:
        async with Admin(self.broker.bootstrap) as admin:
            await admin.create_topic(REMOTE_METADATA_TOPIC, partitions=3)
            return (await admin.describe_topic("orders")).topic_id

    async def _upload(self) -> list[RemoteSegment]:
        store = open_store(self.folder.as_uri(), StoreOptions())
        segments = await self.log.upload(store)
        await store.close()
        return segments

    def announce(
        self, segments: Iterable[RemoteSegment], state: SegmentState = SegmentState.COPY_FINISHED
    ) -> None:
        asyncio.run(self.publish(segments, state))

    async def publish(
        self, segments: Iterable[RemoteSegment], state: SegmentState = SegmentState.COPY_FINISHED
    ) -> None:
        events: list[MetadataEvent] = []
        for each in segments:
            events.append(
                msgspec.structs.replace(each, state=SegmentState.COPY_STARTED, custom_metadata=None)
            )
            if state is not SegmentState.COPY_STARTED:
                events.append(
                    SegmentUpdate(
                        each.partition, each.id, 0, state, each.broker_id, each.custom_metadata
                    )
                )
        async with Cluster(self.broker.bootstrap) as cluster:
            await RemoteLogTopic(cluster).publish(*events)

    def known(self) -> Known:
        async def read() -> Known:
            async with Cluster(self.broker.bootstrap) as cluster:
                return await RemoteLogTopic(cluster).read()

        return asyncio.run(read())

    def run(self, *words: str) -> Result:
        store, bootstrap = self.folder.as_uri(), self.broker.bootstrap
        return CliRunner().invoke(
            program, ["tier", words[0], "--store", store, "-b", bootstrap, *words[1:]]
        )

    def fsck(self, *words: str) -> tuple[int, Any]:
        done = self.run("fsck", "--json", *words)
        return done.exit_code, json.loads(done.stdout)


@pytest.fixture
def tier(headrace: TestBroker, tmp_path: Path) -> Tier:
    return Tier(headrace, tmp_path / "store")


def classes(found: Any) -> list[str]:
    return [each["class"] for each in found["segments"]]


def test_a_sound_tier_is_clean_and_every_byte_is_accounted_for(tier: Tier) -> None:
    tier.announce(tier.segments)
    code, found = tier.fsck("--checksums")
    assert (code, found["is_clean"]) == (0, True)
    assert classes(found) == ["ok"] * 3
    on_disk = sum(each.stat().st_size for each in tier.folder.rglob("*") if each.is_file())
    assert sum(each["stored_bytes"] for each in found["classes"].values()) == on_disk
    assert found["listed_bytes"] == on_disk
    done = tier.run("fsck")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["CLASS", "ok", "total"]


def test_what_was_left_behind_is_found_and_repaired(tier: Tier) -> None:
    tier.announce(tier.segments[:1])
    tier.announce(tier.segments[1:2], SegmentState.COPY_STARTED)
    code, found = tier.fsck("--grace", "0s")
    assert code == 1
    assert classes(found) == ["ok", "dangling"]
    assert found["classes"]["orphaned_object"]["objects"] == 5
    code, found = tier.fsck("--grace", "0s", "--repair", "--yes")
    assert (code, found["is_clean"], len(found["repaired"])) == (0, True, 2)
    assert [each.id for each in tier.known().cache.segments(tier.partition.key)] == [
        tier.segments[0].id
    ]
    assert not tier.known().refused
    kept = list(tier.folder.rglob("*.log"))
    assert len(kept) == 1


def test_a_copy_that_frees_a_disk_while_it_is_looked_makes_no_gap(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier.announce(tier.segments[:1])
    list_offsets = Admin.list_offsets

    async def copy_meanwhile(self: Admin, asked: dict[TopicPartition, int]) -> Any:
        rows = await list_offsets(self, asked)
        if set(asked.values()) == {-4}:
            await tier.publish(tier.segments[1:2])
            return dict.fromkeys(rows, FoundOffset(20, -1, 0))
        return rows

    monkeypatch.setattr(Admin, "list_offsets", copy_meanwhile)
    code, found = tier.fsck()
    assert (code, found["gaps"]) == (0, [])
    assert classes(found) == ["ok", "copying"]


def test_nothing_young_is_repaired(tier: Tier) -> None:
    tier.announce(tier.segments[:2])
    code, found = tier.fsck("--repair")
    assert code == 0
    assert (classes(found), found["repaired"]) == (["ok", "ok"], [])
    assert found["classes"]["copying"]["objects"] == 5


def test_what_was_finished_or_announced_after_the_look_is_not_deleted(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaders may have freed their disks for it by then: the question may wait for long."""
    first, second, third = tier.segments
    tier.announce([first])
    tier.announce([second], SegmentState.COPY_STARTED)

    async def go_on_meanwhile(store: ObjectStore) -> Leases:
        await tier.publish([second, third])
        return await leases_of(store)

    monkeypatch.setattr("headrace.cli.tier_fsck.leases_of", go_on_meanwhile)
    code, found = tier.fsck("--grace", "0s", "--repair", "--yes")
    assert (code, found["repaired"], len(found["skipped"])) == (0, [], 2)
    assert [each.state for each in tier.known().cache.segments(tier.partition.key)] == [
        SegmentState.COPY_FINISHED
    ] * 3
    assert len(list(tier.folder.rglob("*.log"))) == 3


def test_nobody_finishes_a_copy_that_is_about_to_be_deleted(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one, *_) = tier.segments
    tier.announce([one], SegmentState.COPY_STARTED)

    finished = SegmentUpdate(one.partition, one.id, 0, one.state, one.broker_id, b"")

    async def finish_late(repair: Repair, *args: Any) -> Any:
        async with Cluster(tier.broker.bootstrap) as cluster:
            await RemoteLogTopic(cluster).publish(finished)
        return await carry_out(repair, *args)

    monkeypatch.setattr("headrace.cli.tier_fsck.carry_out", finish_late)
    _, found = tier.fsck("--grace", "0s", "--repair", "--yes")
    assert found["repaired"][0].startswith("dangling segment")
    known = tier.known()
    assert not known.cache.segments(tier.partition.key)
    assert "has announced it since" in known.refused[0]


def test_damage_is_found_by_checksums_and_never_repaired(tier: Tier) -> None:
    tier.announce(tier.segments)
    path = tier.folder / object_key(tier.segments[1], ObjectKind.LOG)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (tier.folder / object_key(tier.segments[2], ObjectKind.OFFSET_INDEX)).unlink()
    code, found = tier.fsck("--checksums", "--grace", "0s", "--repair")
    assert code == 1
    assert classes(found) == ["ok", "mismatch", "missing_object"]
    assert found["repaired"] == []
    assert "missing_object: segment" in tier.run("fsck").stdout


def test_segments_of_a_deleted_topic_are_dangling(tier: Tier) -> None:
    tier.announce(tier.segments)

    async def delete() -> None:
        async with Admin(tier.broker.bootstrap) as admin:
            await admin.delete_topic("orders")

    asyncio.run(delete())
    code, found = tier.fsck("--grace", "0s")
    assert (code, classes(found)) == (1, ["dangling"] * 3)


def test_a_store_must_be_known(headrace: TestBroker) -> None:
    done = CliRunner().invoke(program, ["tier", "fsck", "-b", headrace.bootstrap])
    assert done.exit_code == 2
    assert "headrace.tier.store" in done.stderr


class Lost:
    """The store of a cluster that is gone, and a new cluster with a store of its own."""

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        self.old = folder / "old"
        self.new = folder / "new"
        settings = {
            "remote.log.storage.system.enable": "true",
            "remote.log.manager.task.interval.ms": "50",
            "headrace.tier.store": self.new.as_uri(),
            "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
            "rlmm.config.remote.log.metadata.topic.min.isr": "1",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        }
        self.broker = TestCluster(nodes, settings=settings)
        self.logs = [
            TieredLog(TopicIdPartition(TopicId(b"o" * 16), TopicName("orders"), PartitionIndex(0))),
            TieredLog(
                TopicIdPartition(TopicId(b"o" * 16), TopicName("orders"), PartitionIndex(2)), 50
            ),
        ]
        for log in self.logs:
            for number in range(3):
                log.append([b"value %d" % number] * 10, timestamp=1000)
                log.begin_epoch(number + 5)
                log.roll()
        asyncio.run(self._write())

    async def _write(self) -> None:
        store = open_store(self.old.as_uri(), StoreOptions())
        for log in self.logs:
            await log.upload(store)
        manifest = describe_topic(
            TopicId(b"o" * 16), TopicName("orders"), 4, {"retention.ms": "-1"}, 0
        )
        data = encode_manifest(manifest)
        await store.put(topic_key(manifest.id), data, len(data))
        await store.close()

    def restore(self, *words: str) -> Result:
        return CliRunner().invoke(
            program,
            ["tier", "restore", "--from", self.old.as_uri(), "-b", self.broker.bootstrap, *words],
        )


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Lost]:
    made = Lost(tmp_path)
    with made.broker:
        yield made


def test_a_dry_run_shows_what_the_store_has(lost: Lost) -> None:
    done = lost.restore("--dry-run", "--json")
    assert done.exit_code == 0
    assert [
        (row["partition"], row["start"], row["stop"]) for row in json.loads(done.stdout)["orders"]
    ] == [
        (0, 0, 30),
        (2, 50, 80),
    ]


def test_a_topic_is_restored_with_its_offsets(lost: Lost) -> None:
    done = lost.restore("--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert all(row["is_adopted"] for row in json.loads(done.stdout)["orders"])
    lost.broker.produce("orders", b"next", partition=2)
    records = lost.broker.consume("orders")
    assert [(each.partition, each.offset) for each in records if each.partition == 0] == [
        (0, offset) for offset in range(30)
    ]
    second = [each for each in records if each.partition == 2]
    assert [each.offset for each in second] == list(range(50, 81))
    assert [each.value for each in second] == [
        *(b"value %d" % (number // 10) for number in range(30)),
        b"next",
    ]
    again = lost.restore("--json")
    assert again.exit_code == 0
    check = CliRunner().invoke(
        program, ["tier", "fsck", "--checksums", "-b", lost.broker.bootstrap]
    )
    assert check.exit_code == 0, check.output


def test_a_damaged_segment_is_not_restored_and_named_in_one_line(lost: Lost) -> None:
    for path in lost.old.glob("orders-2-*/*.log"):
        path.write_bytes(path.read_bytes().replace(b"value 1", b"VALUE 1"))
    done = lost.restore()
    assert done.exit_code == 1
    assert done.stderr.startswith("headrace: orders-2: segment ")
    assert "with offsets 60 to 69 cannot be copied: CORRUPT_MESSAGE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_damaged_segment_of_another_topic_keeps_nothing_from_being_restored(lost: Lost) -> None:
    other = TopicIdPartition(TopicId(b"p" * 16), TopicName("payments"), PartitionIndex(0))
    damaged = msgspec.structs.replace(lost.logs[0].segments[0], partition=other)
    for kind in (ObjectKind.LOG, ObjectKind.LEADER_EPOCHS):
        path = lost.old / object_key(damaged, kind)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"what nobody can read")
    (lost.old / topic_key(other.topic_id)).write_bytes(b"no description")
    assert "has no whole batch" in lost.restore("--dry-run").stderr
    done = lost.restore("--dry-run", "--json", "--topic", "orders")
    assert (done.exit_code, done.stderr) == (0, "")
    assert list(json.loads(done.stdout)) == ["orders"]
    assert lost.restore("--dry-run", "--topic-id", topic_id_text(TopicId(b"o" * 16))).exit_code == 0


def test_restored_records_outlive_a_restart(lost: Lost) -> None:
    assert lost.restore().exit_code == 0
    lost.broker.restart(1)
    assert len(lost.broker.consume("orders")) == 60
    lost.broker.produce("orders", b"next", partition=0)
    assert len(lost.broker.consume("orders")) == 61


@pytest.mark.parametrize("announced", [2, 4])
def test_a_restore_that_was_cut_short_while_it_announced_is_run_again(
    lost: Lost, monkeypatch: pytest.MonkeyPatch, announced: int
) -> None:
    publish = RemoteLogTopic.publish

    async def announce_some(self: RemoteLogTopic, *events: MetadataEvent) -> None:
        await publish(self, *events[:announced])
        raise StoreError("cut short")

    monkeypatch.setattr(remote_restore, "QUIET_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(RemoteLogTopic, "publish", announce_some)
        assert lost.restore().exit_code == 1
    assert lost.restore("--timeout", "20s").exit_code == 0
    assert len(lost.broker.consume("orders")) == 60
    check = CliRunner().invoke(
        program,
        ["tier", "fsck", "--grace", "0s", "--repair", "--yes", "-b", lost.broker.bootstrap],
    )
    assert check.exit_code == 0, check.output


def test_a_restore_that_goes_on_is_not_taken_for_one_that_was_cut_short(
    lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_restore, "QUIET_SECONDS", 0.0)
    publish, read = RemoteLogTopic.publish, RemoteLogTopic.read
    others: list[Result] = []

    async def run_again(self: RemoteLogTopic, *events: MetadataEvent) -> None:
        """Announce some segments, and the next one while another run looks again."""

        async def look_again(
            other: RemoteLogTopic, keys: Iterable[PartitionKey] | None = None
        ) -> Known:
            if keys is not None:
                await publish(other, events[2])
            return await read(other, keys)

        monkeypatch.setattr(RemoteLogTopic, "publish", publish)
        await publish(self, *events[:2])
        with monkeypatch.context() as patch:
            patch.setattr(RemoteLogTopic, "read", look_again)
            others.append(await asyncio.to_thread(lost.restore, "--timeout", "1s"))
        await publish(self, *events[2:])

    monkeypatch.setattr(RemoteLogTopic, "publish", run_again)
    assert lost.restore("--timeout", "60s").exit_code == 0
    assert [each.exit_code for each in others] == [1]
    assert "orders-0 is being restored by another run" in others[0].stderr
    assert len(lost.broker.consume("orders")) == 60


def test_nothing_is_announced_of_which_something_was_deleted_during_the_copies(
    lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To `fsck --repair`, copies that are not announced are orphans when they are old enough."""

    async def repair_meanwhile(*args: Any) -> Restored:
        for path in lost.new.glob("orders-*/*"):
            path.unlink()
        return await restore_segment(*args)

    monkeypatch.setattr(remote_restore, "COPIES_AT_A_TIME", 1)
    monkeypatch.setattr(remote_restore, "restore_segment", repair_meanwhile)
    done = lost.restore("--timeout", "1s")
    assert done.exit_code == 1
    assert "of orders-0 (" in done.stderr
    assert "was deleted before it was announced" in done.stderr
    monkeypatch.undo()
    assert lost.restore("--timeout", "60s").exit_code == 0
    assert len(lost.broker.consume("orders")) == 60


def test_a_topic_that_was_written_is_not_restored_over(lost: Lost) -> None:
    lost.broker.create_topic("orders", 4, {"remote.storage.enable": "true"})
    lost.broker.produce("orders", b"mine", partition=0)
    done = lost.restore()
    assert done.exit_code == 1
    assert "orders-0" in done.stderr
    assert [each.value for each in lost.broker.consume("orders")] == [b"mine"]


def test_a_topic_that_is_not_in_the_tier_is_refused_before_anything_is_copied(lost: Lost) -> None:
    lost.broker.create_topic("orders", partitions=4)
    done = lost.restore("--timeout", "1s")
    assert done.exit_code == 1
    assert done.stderr == (
        "headrace: topic 'orders' exists without remote.storage.enable=true, so its leaders take "
        "nothing over: set that, or delete the topic\n"
    )
    assert not list(lost.new.glob("orders-*"))


def test_a_topic_that_is_written_while_its_segments_are_copied_keeps_its_records(
    lost: Lost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader would take what is announced for copies of them, as offset and epoch agree."""

    async def produce_meanwhile(*args: Any) -> Any:
        await asyncio.to_thread(lost.broker.produce, "orders", b"mine", partition=0)
        return await restore_segment(*args)

    async def announced() -> list[TopicIdPartition]:
        async with Cluster(lost.broker.bootstrap) as cluster:
            return list((await RemoteLogTopic(cluster).read()).partitions().values())

    monkeypatch.setattr("headrace.client.remote_restore.restore_segment", produce_meanwhile)
    done = lost.restore("--timeout", "1s")
    assert done.exit_code == 1
    assert "orders-0 has records of its own, offsets 0 to 2" in done.stderr
    assert not asyncio.run(announced())
    assert {each.value for each in lost.broker.consume("orders")} == {b"mine"}


def test_old_records_that_retention_would_delete_are_warned_of(lost: Lost) -> None:
    done = lost.restore("--dry-run", "--config", "retention.ms=1000")
    assert "retention.ms" in done.stderr


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("retention.ms=soon", "retention.ms"),
        ("remote.storage.enable=false", "it needs remote.storage.enable=true"),
    ],
)
def test_configs_that_cannot_be_end_a_restore_with_a_message(
    lost: Lost, config: str, why: str
) -> None:
    done = lost.restore("--timeout", "1s", "--config", config)
    assert done.exit_code == 1
    assert done.stderr.startswith("headrace: ")
    assert why in done.stderr
    assert not list(lost.new.glob("orders-*"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_followers_begin_behind_the_tier_too_and_may_lead(tmp_path: Path) -> None:
    lost = Lost(tmp_path, nodes=3)
    with lost.broker as cluster:
        assert lost.restore("-r", "3").exit_code == 0

        def ends(topic: str, index: int) -> list[int]:
            return [
                partition.log.end_offset
                for _, broker in cluster.running()
                for partition in broker.node.broker.replicas
                if (partition.topic, partition.index) == (topic, index)
            ]

        cluster.wait_for(lambda: ends("orders", 2) == [80] * 3, "all replicas end behind the tier")

        async def leader() -> int:
            async with Admin(cluster.bootstrap) as admin:
                return (await admin.describe_topic("orders")).partitions[2].leader_id

        cluster.stop(cluster.run(leader()))
        assert cluster.produce("orders", b"next", partition=2) == [80]
        records = [each for each in cluster.consume("orders") if each.partition == 2]
        assert [each.offset for each in records] == list(range(50, 81))
