"""`headrace mirror` between two clusters: what it copies, and what it refuses."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.program import headrace
from headrace.client import Admin, Producer
from headrace.client.cluster import Cluster
from headrace.client.configs import Resource
from headrace.client.errors import NotReachable, TransactionAborted
from headrace.client.mirror import promotion, streams
from headrace.client.mirror.batches import filler
from headrace.client.mirror.choice import Choice
from headrace.client.mirror.mirror import Mirror, MirrorOptions
from headrace.client.mirror.positions import AGAIN
from headrace.client.mirror.raw import Piece, append, fetch
from headrace.client.outcomes import values_of
from headrace.client.topics import TopicPartition
from headrace.config.topic import MIRROR_SOURCE
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.log.cutting import restart_at
from headrace.records.builder import BatchBuilder
from headrace.testing.broker import TestBroker
from headrace.testing.cluster import TestCluster
from headrace.testing.conveniences import Conveniences
from headrace.wire.mirror_records import NO_START, Front


@pytest.fixture(scope="module")
def source() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def target() -> Iterator[TestCluster]:
    with TestCluster(nodes=3, settings={"default.replication.factor": "2"}) as cluster:
        yield cluster


def mirror(
    source: Conveniences, target: Conveniences, topics: str, *, skips_lost: bool = False
) -> dict[str, str]:
    """Copy topics once; return the problem of each partition that has one."""

    async def work() -> dict[str, str]:
        chosen = MirrorOptions(topics=Choice((topics,)), skips_lost=skips_lost)
        async with Mirror(source.bootstrap, target.bootstrap, chosen) as running:
            async with asyncio.timeout(90):
                await running.run_once()
            return {str(copy.partition): copy.problem for copy in running.copies if copy.problem}

    return asyncio.run(work())


def run(source: Conveniences, target: Conveniences, *arguments: str) -> Result:
    between = ["--from", source.bootstrap, "--to", target.bootstrap]
    return CliRunner().invoke(headrace, ["mirror", *arguments, *between])


def rows(cluster: Conveniences, topic: str) -> list[tuple[object, ...]]:
    return [
        (each.partition, each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
        for each in cluster.consume(topic)
    ]


def delete_up_to(cluster: Conveniences, topic: str, offset: int) -> None:
    async def work() -> None:
        async with Admin(cluster.bootstrap) as admin:
            values_of(await admin.delete_records({TopicPartition(topic, 0): offset}))

    cluster.run(work())


def transact(cluster: Conveniences, topic: str, *, leaves_open: bool = False) -> None:
    """Commit a transaction, abort another, and perhaps leave a third one open."""

    async def work() -> None:
        async with Producer(cluster.bootstrap, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send(topic, "committed", partition=0)
            with suppress(ValueError):
                async with producer.transaction():
                    await (await producer.send(topic, "aborted", partition=0))
                    raise ValueError("no")
            if leaves_open:
                transaction = producer.transaction()
                await transaction.__aenter__()
                await (await producer.send(topic, "open", partition=0))
                await producer.abandon()

    cluster.run(work())


def test_records_offsets_configs_and_positions_are_the_same(
    source: TestBroker, target: TestCluster, tmp_path: Path
) -> None:
    source.create_topic("same", 3, {"retention.ms": "-1", "cleanup.policy": "compact,delete"})
    for partition in range(3):
        values = [(f"k{number}", f"v{number}") for number in range(40)]
        source.produce("same", *values, partition=partition, headers={"h": b"1"})

    async def commit() -> None:
        async with Admin(source.bootstrap) as admin:
            offsets = {TopicPartition("same", 0): 11, TopicPartition("same", 2): 40}
            values_of(await admin.alter_group_offsets("readers", offsets))

    source.run(commit())
    early = run(source, target, "verify", "--topics", "same")
    assert (early.exit_code, "not mirrored yet" in early.output) == (1, True)
    planned = run(source, target, "--topics", "same", "--dry-run")
    assert "created with 3 partitions" in planned.output
    copied = run(source, target, "--topics", "same", "--once")
    assert copied.exit_code == 0, copied.output
    assert rows(target, "same") == rows(source, "same")

    async def look() -> tuple[dict[str, str | None], dict[TopicPartition, int]]:
        async with Admin(target.bootstrap) as admin:
            resource = Resource.topic("same")
            configs = values_of(await admin.describe_configs([resource]))[resource]
            offsets = await admin.list_group_offsets("readers")
        own = {each.name: each.value for each in configs if not each.is_default}
        return own, {place: each.offset for place, each in offsets.items()}

    own, offsets = target.run(look())
    assert own.pop(MIRROR_SOURCE.name)
    assert own == {"retention.ms": "-1", "cleanup.policy": "compact,delete"}
    assert offsets == {TopicPartition("same", 0): 11, TopicPartition("same", 2): 40}
    source.produce("same", ("k1", "more"), partition=1)
    status = json.loads(run(source, target, "status", "--topics", "same", "--json").output)
    assert [row["lag"] for row in status["partitions"]] == [0, 1, 0]
    assert status["groups"][0]["lag"] == 0
    assert mirror(source, target, "same") == {}
    files = {"--from-config": source, "--to-config": target}
    words = ["mirror", "verify", "--topics", "same"]
    for option, cluster in files.items():
        file = tmp_path / f"{option}.properties"
        file.write_text(f"bootstrap.servers={cluster.bootstrap}\nrequest.timeout.ms=20000\n")
        words += [option, str(file)]
    verified = CliRunner().invoke(headrace, words)
    assert verified.exit_code == 0, verified.output


def test_transactions_stay_what_they_were_and_an_open_one_is_aborted_at_the_end(
    source: TestBroker, target: TestCluster
) -> None:
    source.create_topic("transfers")
    transact(source, "transfers", leaves_open=True)
    assert mirror(source, target, "transfers") == {}
    assert [row[4] for row in rows(target, "transfers")] == [b"committed"]
    refused = run(source, target, "promote", "transfers", "--yes")
    assert refused.exit_code == 1
    assert "--abort-open" in refused.output
    with pytest.raises(KafkaError, match="is a mirror") as error:
        target.produce("transfers", "too early")
    assert error.value.code == ErrorCode.POLICY_VIOLATION
    promoted = run(source, target, "promote", "transfers", "--yes", "--abort-open")
    assert promoted.exit_code == 0, promoted.output
    transact(target, "transfers")
    assert [row[4] for row in rows(target, "transfers")] == [b"committed", b"committed"]
    assert "not a mirror, or was promoted" in mirror(source, target, "transfers")["transfers-0"]


@pytest.mark.parametrize("option", [(), ("--abort-open",)])
def test_a_transaction_that_is_copied_during_a_promotion_is_aborted_or_named(
    source: TestBroker,
    target: TestCluster,
    option: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mirror that was not stopped: readers of committed records would wait forever."""
    topic = f"late{len(option)}"
    source.create_topic(topic)
    source.produce(topic, "one")
    assert mirror(source, target, topic) == {}
    look, looked = promotion._open_transactions, 0

    async def look_before_it_comes(*arguments: Any) -> Any:
        nonlocal looked
        found = await look(*arguments)
        looked += 1
        if looked == 1:
            await asyncio.to_thread(transact, source, topic, leaves_open=True)
            assert await asyncio.to_thread(mirror, source, target, topic) == {}
        return found

    monkeypatch.setattr(promotion, "_open_transactions", look_before_it_comes)
    promoted = run(source, target, "promote", topic, "--yes", "--force", *option)
    if option:
        assert promoted.exit_code == 0, promoted.output
        assert "1 open transactions aborted" in promoted.output
        target.produce(topic, "two")
        assert [row[4] for row in rows(target, topic)] == [b"one", b"committed", b"two"]
    else:
        assert promoted.exit_code == 1
        assert f"open in {topic}-0" in promoted.output
        assert "headrace txn abort" in promoted.output


def test_a_transaction_of_the_target_cannot_have_a_mirror(
    source: TestBroker, target: TestCluster
) -> None:
    source.create_topic("closed")
    source.produce("closed", "one")
    assert mirror(source, target, "closed") == {}
    with pytest.raises(TransactionAborted, match="is a mirror"):
        transact(target, "closed")
    assert rows(target, "closed") == rows(source, "closed")


def test_a_copy_begins_where_the_source_begins(source: TestBroker, target: TestCluster) -> None:
    for topic, offset in (("trimmed", 7), ("emptied", 20)):
        source.create_topic(topic)
        for number in range(20):
            source.produce(topic, f"v{number}")
        delete_up_to(source, topic, offset)
    assert mirror(source, target, "trimmed|emptied") == {}
    status = json.loads(run(source, target, "status", "--topics", ".*ed", "--json").output)
    found = {row["topic"]: (row["target_start"], row["target_end"]) for row in status["partitions"]}
    assert (found["trimmed"], found["emptied"]) == ((7, 20), (20, 20))
    assert rows(target, "trimmed") == rows(source, "trimmed")
    source.produce("emptied", "next")
    assert mirror(source, target, "emptied") == {}
    assert [row[1] for row in rows(target, "emptied")] == [20]


def test_records_deleted_before_the_copy_are_skipped_only_if_asked_for(
    source: TestBroker, target: TestCluster
) -> None:
    source.create_topic("late")
    source.produce("late", "first")
    assert mirror(source, target, "late") == {}
    for number in range(9):
        source.produce("late", f"v{number}")
    delete_up_to(source, "late", 6)
    assert "--skip-lost" in mirror(source, target, "late")["late-0"]
    assert mirror(source, target, "late", skips_lost=True) == {}
    assert [row[1] for row in rows(target, "late")] == [0, 6, 7, 8, 9]


def test_a_topic_that_was_created_again_at_the_source_is_not_mixed_with_the_old_one(
    source: TestBroker, target: TestCluster
) -> None:
    source.create_topic("again")
    source.produce("again", "old", "old")
    assert mirror(source, target, "again") == {}

    async def create_again() -> None:
        async with Admin(source.bootstrap) as admin:
            await admin.delete_topic("again")
            await admin.create_topic("again", 2)

    source.run(create_again())
    source.produce("again", "new", "new", "new", partition=0)
    assert "created another one" in mirror(source, target, "again")["again-0"]
    assert [row[4] for row in rows(target, "again")] == [b"old", b"old"]
    target.run(delete_topic(target.bootstrap, "again"))
    assert mirror(source, target, "again") == {}
    assert rows(target, "again") == rows(source, "again")


async def delete_topic(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.delete_topic(name)


def test_a_source_with_other_records_at_the_same_offsets_is_noticed(target: TestCluster) -> None:
    with TestBroker() as broker:
        broker.create_topic("lossy")
        broker.produce("lossy", "a", "b", "c")
        assert mirror(broker, target, "lossy") == {}
        # As after an unclean election: the log lost its end and goes on with others.
        partition = broker.node.broker.replicas.find(TopicName("lossy"), 0)
        assert partition is not None
        broker.call(lambda: restart_at(partition.log, 0))
        for value in ("x", "y", "z", "more"):
            broker.produce("lossy", value)
        assert AGAIN in mirror(broker, target, "lossy")["lossy-0"]
        assert [row[4] for row in rows(target, "lossy")] == [b"a", b"b", b"c"]


def test_two_mirrors_at_once_copy_each_record_once(source: TestBroker, target: TestCluster) -> None:
    source.create_topic("twice", 2)

    async def both() -> None:
        chosen = MirrorOptions(topics=Choice(("twice",)))
        async with asyncio.timeout(90), asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(once(chosen))

    async def once(chosen: MirrorOptions) -> None:
        async with Mirror(source.bootstrap, target.bootstrap, chosen) as running:
            await running.run_once()
            assert not any(copy.problem for copy in running.copies)

    for number in range(30):
        source.produce("twice", f"v{number}", partition=number % 2)
    asyncio.run(both())
    assert rows(target, "twice") == rows(source, "twice")


def test_requests_and_responses_that_are_lost_change_nothing(
    source: TestBroker, target: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.create_topic("unsure", 2)
    for number in range(24):
        source.produce("unsure", f"v{number}", partition=number % 2)
    transact(source, "unsure")
    calls = 0

    async def append_unsurely(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 5 == 1:
            raise NotReachable("the request was lost")
        outcomes = await append(*arguments)
        if calls % 3 == 0:
            raise NotReachable("the response was lost")
        return outcomes

    async def fetch_little(*arguments: Any, **options: Any) -> Any:
        return await fetch(*arguments, **options, partition_bytes_max=1)

    monkeypatch.setattr(streams, "append", append_unsurely)
    monkeypatch.setattr(streams, "fetch", fetch_little)
    assert mirror(source, target, "unsure") == {}
    assert calls > 12
    assert rows(target, "unsure") == rows(source, "unsure")
    verified = run(source, target, "verify", "--topics", "unsure")
    assert verified.exit_code == 0, verified.output


def test_a_copy_goes_on_when_the_leader_in_the_target_is_killed(
    source: TestBroker, target: TestCluster
) -> None:
    source.create_topic("moved")
    for number in range(50):  # two fetches
        source.produce("moved", f"{number:04}" * 50_000)

    async def copy() -> None:
        chosen = MirrorOptions(topics=Choice(("moved",)), bytes_per_second=4_000_000)
        async with Mirror(source.bootstrap, target.bootstrap, chosen) as running:
            copying = asyncio.create_task(running.run_once())
            async with asyncio.timeout(90):
                while not any(copy.target_end for copy in running.copies):
                    await asyncio.sleep(0.05)
                assert not copying.done()
                leader = await find_leader()
                await asyncio.to_thread(target.kill, leader)
                await copying
            assert not any(copy.problem for copy in running.copies)
        await asyncio.to_thread(target.restart, leader)

    async def find_leader() -> int:
        async with Admin(target.bootstrap) as admin:
            return (await admin.describe_topic("moved")).partitions[0].leader_id

    asyncio.run(copy())
    assert rows(target, "moved") == rows(source, "moved")


def test_partitions_and_configs_follow_the_source(source: TestBroker, target: TestCluster) -> None:
    source.create_topic("grows", 1, {"segment.ms": "100000"})
    source.produce("grows", "one")
    assert mirror(source, target, "grows") == {}

    async def change() -> None:
        async with Admin(source.bootstrap) as admin:
            await admin.add_partitions("grows", 3)
            resource = Resource.topic("grows")
            await admin.alter_configs(resource, set={"retention.ms": "777"}, unset=["segment.ms"])

    source.run(change())
    source.produce("grows", "two", partition=2)
    delete_later = {"retention.ms": "777000000"}

    async def keep() -> None:
        async with Admin(source.bootstrap) as admin:
            await admin.alter_configs(Resource.topic("grows"), set=delete_later)

    source.run(keep())
    assert mirror(source, target, "grows") == {}
    assert rows(target, "grows") == rows(source, "grows")

    async def look() -> dict[str, str | None]:
        async with Admin(target.bootstrap) as admin:
            resource = Resource.topic("grows")
            found = values_of(await admin.describe_configs([resource]))[resource]
        return {each.name: each.value for each in found if not each.is_default}

    own = target.run(look())
    assert own.pop(MIRROR_SOURCE.name)
    assert own == delete_later


def test_a_leader_takes_each_batch_once_and_leaves_no_hole(target: TestCluster) -> None:
    target.create_topic("exact", 1, {MIRROR_SOURCE.name: "cluster/topic"})
    place = TopicPartition("exact", 0)

    async def send(data: bytes, expected_end: int, source: str = "cluster/topic") -> int | str:
        piece = Piece(place, Front(expected_end, NO_START, source), memoryview(data))
        async with asyncio.timeout(60), Cluster(target.bootstrap) as cluster:
            while True:
                leader = await cluster.leader(*place)
                outcome = (await append(cluster, leader.leader_id, [piece]))[place]
                if not isinstance(outcome, KafkaError):
                    return outcome
                if outcome.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    return outcome.code.name
                await asyncio.sleep(0.05)  # its leader is about to hear of the topic

    first, second = batch(0, 3), batch(3, 2)
    assert target.run(send(second, 3)) == "OFFSET_OUT_OF_RANGE"
    assert target.run(send(first, 0)) == 3
    assert target.run(send(first + second, 0)) == 5, "what is there is skipped"
    assert target.run(send(first, 0)) == 5
    assert target.run(send(batch(4, 4), 5)) == "INVALID_RECORD", "it begins inside the log"
    assert target.run(send(batch(9, 1), 5)) == 10, "compaction at the source leaves gaps"
    assert target.run(send(batch(10, 1), 10, "cluster/other")) == "POLICY_VIOLATION"
    assert target.run(send(batch(10, 1)[:-1], 10)) == "CORRUPT_MESSAGE"
    damaged = bytearray(batch(10, 1) + batch(11, 1))
    damaged[-1] ^= 1
    assert target.run(send(bytes(damaged), 10)) == "CORRUPT_MESSAGE"
    assert target.run(send(batch(11, 1), 11)) == 12, "what came before the damage is there"
    assert target.run(send(b"", 12)) == 12
    assert [row[1] for row in rows(target, "exact")] == [0, 1, 2, 3, 4, 9, 10, 11]


def test_a_source_whose_last_records_compaction_removed_ends_at_the_same_offset(
    source: TestBroker, target: TestCluster
) -> None:
    source.create_topic("hollow", 1, {MIRROR_SOURCE.name: "cluster/topic"})
    place = TopicPartition("hollow", 0)

    async def send() -> None:
        async with Cluster(source.bootstrap) as cluster:
            data = batch(2, 3) + filler(8) + batch(11, 1) + filler(20) + filler(30)
            piece = Piece(place, Front(0, NO_START, "cluster/topic"), memoryview(data))
            values_of(await append(cluster, (await cluster.leader(*place)).leader_id, [piece]))

    source.run(send())
    assert mirror(source, target, "hollow") == {}
    status = json.loads(run(source, target, "status", "--topics", "hollow", "--json").output)
    assert status["partitions"][0]["target_end"] == 30
    assert [row[1] for row in rows(target, "hollow")] == [2, 3, 4, 11]
    assert mirror(source, target, "hollow") == {}, "it goes on behind a batch without records"
    verified = run(source, target, "verify", "--topics", "hollow")
    assert verified.exit_code == 0, verified.output


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1000, None, b"%d" % number)
    return bytes(builder.build(base_offset=base_offset, leader_epoch=3))


def test_a_topic_does_not_become_a_mirror_later(target: TestCluster) -> None:
    target.create_topic("own")

    async def work() -> None:
        async with Admin(target.bootstrap) as admin:
            await admin.alter_configs(Resource.topic("own"), set={MIRROR_SOURCE.name: "a/b"})

    with pytest.raises(KafkaError, match="created as a mirror"):
        target.run(work())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--once"], "--from and --to are needed"),
        (["--from", "a:1", "--to", "a:1"], "the same cluster"),
        (["--from", "a:1", "--to", "b:1", "--from-config", "missing"], "--from-config missing"),
        (["--from", "a:1", "status"], "behind `status`"),
    ],
)
def test_options_that_cannot_act_are_refused(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(headrace, ["mirror", *arguments])
    assert done.exit_code == 2
    assert words in done.output
