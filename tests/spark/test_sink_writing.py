"""Writes against a broker without a session: what tasks and the driver do, and what fails."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from headrace.client.cluster import Cluster
from headrace.client.transactions import describe_transaction, fence_producer
from headrace.errors import ErrorCode, KafkaError
from headrace.spark.blocking import close_clusters
from headrace.spark.sink import coordination, sending, stopping, tidying
from headrace.spark.sink.decisions import Fenced, Slot, Writer, decision_of
from headrace.spark.sink.driver import CLUSTERS_FOLDER, note_cluster
from headrace.spark.sink.journal_partition import TOPIC
from headrace.spark.sink.ports import Ports, open_journals, open_ports
from headrace.spark.sink.protocol import (
    LostRows,
    Place,
    Sink,
    TimedOut,
    abort_batch,
    commit_batch,
    find_stopped,
)
from headrace.spark.sink.stopping import ClusterStops
from headrace.spark.sink.task import write_rows
from headrace.spark.sink.terminations import end_run
from headrace.spark.sink.tidying import tidy
from headrace.spark.sink.write_options import WriteOptions, write_options
from headrace.testing.broker import TestBroker
from tests.jvm.kafka_broker import kafka
from tests.spark.sink_reads import committed_values, open_transactions
from tests.spark.sink_topics import create_topic
from tools.jvm import harness

SCHEMA = StructType().add("value", StringType())


class Run:
    """A run of a query, with its tasks and its driver in this process."""

    def __init__(
        self,
        bootstrap: str,
        name: str = "run",
        query: str = "query",
        label: str = "",
        made_ns: int = 1,
        **more: str,
    ) -> None:
        given = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "kafka.retry.backoff.ms": "10"}
        named = {option.replace("__", "."): value for option, value in more.items()}
        self.options: WriteOptions = write_options(given | named, SCHEMA, "a test")
        self.sink = Sink(query, name, Writer(label, made_ns))

    @property
    def ports(self) -> Ports:
        return open_ports(self.options, self.sink)

    def write(self, batch: int, *values: str, partition: int = 0, attempt: int = 0) -> Slot | None:
        rows = pa.record_batch({"value": pa.array(values, pa.string())})
        place = Place(self.sink, batch, partition, attempt)
        return write_rows(self.ports, self.options, place, iter([rows]))[0]

    def commit(self, batch: int, *slots: Slot | None) -> list[LostRows]:
        ports = self.ports
        made = tuple(slot for slot in slots if slot is not None)
        work = commit_batch(ports.journal, ports.transactions, self.sink, batch, made)
        return ports.blocking.run(work)

    def replay(self, batch: int, *values: str) -> list[LostRows]:
        """Be told by Spark to do a batch again that was decided."""
        assert self.write(batch, *values) is None
        return self.commit(batch)

    def abort(self, batch: int) -> bool:
        ports = self.ports
        return ports.blocking.run(abort_batch(ports.journal, ports.transactions, self.sink, batch))

    def stop(self, label: str) -> Sink | None:
        """Be stopped, when no task has said for which query it writes."""
        blocking, journals = open_journals(self.options)
        return blocking.run(find_stopped(ClusterStops(journals), Writer(label, 2)))

    def decide(self, batch: int, *slots: Slot | None) -> None:
        """Die behind the decision."""
        journal = self.ports.journal

        async def work() -> None:
            made = tuple(slot for slot in slots if slot is not None)
            await journal.append(decision_of(await journal.read(), batch, made))

        self.ports.blocking.run(work())


@pytest.fixture
def bootstrap(headrace: TestBroker) -> str:
    headrace.create_topic("t", partitions=2)
    return headrace.bootstrap


def check_life_of_a_batch(bootstrap: str) -> None:
    old = Run(bootstrap, "old")
    slots = [old.write(0, "a", "b"), old.write(0, "c", partition=1)]
    assert committed_values(bootstrap, "t") == []
    assert old.commit(0, *slots) == []
    assert committed_values(bootstrap, "t") == [b"a", b"b", b"c"]

    # The driver dies behind the decision; a replay finishes and writes nothing.
    slots = [old.write(1, "d"), old.write(1, "e", partition=1)]
    old.decide(1, *slots)
    new = Run(bootstrap, "new")
    assert new.replay(1, "d", "e") == []
    assert committed_values(bootstrap, "t") == [b"a", b"b", b"c", b"d", b"e"]

    # It dies before the decision; a replay writes anew, and what the old run wrote is gone.
    assert new.write(2, "f", "g") is not None
    last = Run(bootstrap, "last")
    slots = [last.write(2, "g"), last.write(2, "f", partition=1)]
    assert last.commit(2, *slots) == []
    assert committed_values(bootstrap, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    with pytest.raises(Fenced, match="run last writes for this query now"):
        new.write(3, "zombie")

    # A second attempt at a partition, of which the driver hears nothing.
    slot = last.write(3, "h")
    assert last.write(3, "h", attempt=1) is not None
    assert last.commit(3, slot) == []

    # Spark aborts; a task that it forgot comes later.
    assert last.write(4, "never") is not None
    assert last.abort(4)
    with pytest.raises(Fenced, match="may not write any more"):
        last.write(4, "never", partition=1)
    assert committed_values(bootstrap, "t")[-1] == b"h"
    assert open_transactions(bootstrap) == []


def test_batches_are_seen_once_whatever_dies(bootstrap: str) -> None:
    check_life_of_a_batch(bootstrap)


def test_batches_are_seen_once_as_clients_did_it_before_kip_890(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def has_no_bumps(_: Cluster) -> bool:
        return False

    monkeypatch.setattr(coordination, "has_bumps", has_no_bumps)
    monkeypatch.setattr(sending, "has_bumps", has_no_bumps)
    check_life_of_a_batch(bootstrap)


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.skipif(harness.missing_tools() is not None, reason=harness.missing_tools() or "")
def test_batches_are_seen_once_in_apache_kafka(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as bootstrap:
        create_topic(bootstrap, "t", 2)
        check_life_of_a_batch(bootstrap)


def test_a_decided_batch_is_not_aborted(bootstrap: str) -> None:
    run = Run(bootstrap)
    run.decide(0, run.write(0, "a"))
    assert not run.abort(0), "Spark calls abort when an end fails"
    assert Run(bootstrap, "next").replay(0, "a", "b") == []
    assert committed_values(bootstrap, "t") == [b"a"]


def test_rows_that_timed_out_behind_the_decision_are_reported(bootstrap: str) -> None:
    run = Run(bootstrap)
    slots = [run.write(0, "a"), run.write(0, "b", partition=1)]
    run.decide(0, *slots)

    async def time_out() -> None:
        async with Cluster(bootstrap) as cluster:
            await fence_producer(cluster, run.sink.transactional_id(1, 0))

    asyncio.run(time_out())
    (lost,) = Run(bootstrap, "next").replay(0, "a", "b")
    assert lost.transactional_ids == (run.sink.transactional_id(1, 0),)
    assert Run(bootstrap, "after that").replay(0, "a", "b") == [], "it is said once"
    assert committed_values(bootstrap, "t") == [b"a"]


def test_a_batch_whose_transactions_time_out_before_the_decision_fails_whole(
    bootstrap: str,
) -> None:
    run = Run(bootstrap)
    slots = [run.write(0, "a"), run.write(0, "b", partition=1)]

    async def time_out() -> None:
        async with Cluster(bootstrap) as cluster:
            await fence_producer(cluster, run.sink.transactional_id(1, 0))

    asyncio.run(time_out())
    with pytest.raises(
        TimedOut, match=r"1 of its 2 .* raise that, and the brokers' transaction.max"
    ):
        run.commit(0, *slots)
    assert run.abort(0)
    assert committed_values(bootstrap, "t") == []
    assert open_transactions(bootstrap) == []


def test_a_timeout_beyond_what_the_cluster_allows_is_explained(bootstrap: str) -> None:
    run = Run(bootstrap, kafka__transaction__timeout__ms=str(10**9))
    with pytest.raises(KafkaError, match=r"is 1000000000, more than .*transaction.max.timeout.ms"):
        run.write(0, "a")


def test_transactions_may_last_as_long_as_the_cluster_allows(bootstrap: str) -> None:
    run = Run(bootstrap)
    run.write(0, "a")

    async def ask() -> int:
        async with Cluster(bootstrap) as cluster:
            found = await describe_transaction(cluster, run.sink.transactional_id(0, 0))
        return found.timeout_ms

    assert asyncio.run(ask()) == 15 * 60 * 1000


def test_without_automatic_topics_one_that_is_missing_is_named_and_the_journal_is_made() -> None:
    with TestBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        run = Run(broker.bootstrap, topic="nowhere")
        with pytest.raises(KafkaError, match="there is no topic 'nowhere'; create it first"):
            run.write(0, "a")
        broker.create_topic("nowhere")
        assert run.commit(0, run.write(0, "a")) == []
        keys = [record.key for record in broker.consume(TOPIC)]
        assert keys == [b"query/claim", b"query/decision", b"query/decision"]
        assert open_transactions(broker.bootstrap) == []
        close_clusters()


@pytest.mark.parametrize(
    "fault",
    [
        ("fail", "Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("fail", "Produce", ErrorCode.NOT_ENOUGH_REPLICAS),
        ("fail", "EndTxn", ErrorCode.CONCURRENT_TRANSACTIONS),
        ("fail", "InitProducerId", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("close_connection", "Produce"),
        ("close_connection", "EndTxn"),
        ("close_connection", "ListTransactions"),
    ],
    ids=lambda fault: " ".join(map(str, fault)),
)
def test_what_passes_is_waited_for(headrace: TestBroker, bootstrap: str, fault: Any) -> None:
    kind, api, *code = fault
    getattr(headrace.faults, kind)(api, *code, times=2)
    run = Run(bootstrap)
    slots = [run.write(0, "a", "b"), run.write(0, "c", partition=1)]
    assert run.commit(0, *slots) == []
    assert committed_values(bootstrap, "t") == [b"a", b"b", b"c"]


def test_a_record_too_large_for_the_topic_is_explained(headrace: TestBroker) -> None:
    headrace.create_topic("small", configs={"max.message.bytes": "1000"})
    run = Run(headrace.bootstrap, topic="small")
    with pytest.raises(KafkaError, match=r"Raise the topic's max.message.bytes, or lower"):
        run.write(0, "x" * 2000)
    assert open_transactions(headrace.bootstrap) == []


def test_a_broker_that_restarts_between_writing_and_committing_loses_nothing(
    headrace: TestBroker, bootstrap: str
) -> None:
    run = Run(bootstrap)
    slots = [run.write(0, "a", "b"), run.write(0, "c", partition=1)]
    headrace.crash()
    headrace.start()
    assert run.commit(0, *slots) == []
    assert committed_values(bootstrap, "t") == [b"a", b"b", b"c"]


def test_what_a_batch_write_left_is_finished_by_the_next_one(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Run(bootstrap, "1", "write-dead")
    dead.decide(0, dead.write(0, "a"), dead.write(0, "b", partition=1))
    undecided = Run(bootstrap, "1", "write-undecided")
    undecided.write(0, "never")
    monkeypatch.setattr(tidying, "FINISHED_AFTER_MS", 0)
    ports = dead.ports
    ports.blocking.run(ports.partition.read())
    assert ports.blocking.run(tidy(ports.partition, ports.transactions)) == []
    undecided.abort(0)
    assert committed_values(bootstrap, "t") == [b"a", b"b"]
    ports.blocking.run(ports.partition.read())
    assert "write-dead" not in ports.partition.entries


def test_a_batch_write_that_is_half_there_is_reported_by_the_next_one(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Run(bootstrap, "1", "write-dead")
    dead.decide(0, dead.write(0, "a"), dead.write(0, "b", partition=1))

    async def time_out() -> None:
        async with Cluster(bootstrap) as cluster:
            await fence_producer(cluster, dead.sink.transactional_id(1, 0))

    asyncio.run(time_out())
    monkeypatch.setattr(tidying, "FINISHED_AFTER_MS", 0)
    ports = dead.ports
    ports.blocking.run(ports.partition.read())
    (lost,) = ports.blocking.run(tidy(ports.partition, ports.transactions))
    assert lost.transactional_ids == (dead.sink.transactional_id(1, 0),)
    assert lost.total == 2
    assert committed_values(bootstrap, "t") == [b"a"]
    ports.blocking.run(ports.partition.read())
    assert ports.blocking.run(tidy(ports.partition, ports.transactions)) == [], "it is said once"


def test_a_query_of_which_only_the_label_is_known_is_stopped(bootstrap: str) -> None:
    run, other = Run(bootstrap, label="label"), Run(bootstrap, query="other", label="other")
    other_slot = other.write(0, "other")
    assert run.write(0, "never") is not None
    assert run.stop("nobody") is None
    found = run.stop("label")
    assert found is not None
    assert found.name == "query"
    assert run.abort(0)
    with pytest.raises(Fenced, match="Spark stopped run run"):
        run.write(0, "never", partition=1)
    assert open_transactions(bootstrap) == [other.sink.transactional_id(0, 0)]
    assert other.commit(0, other_slot) == []
    again = Run(bootstrap, "again", label="label", made_ns=3)
    assert again.commit(0, again.write(0, "a")) == []
    assert committed_values(bootstrap, "t") == [b"a", b"other"]


def test_a_query_that_is_stopped_before_it_is_known_does_not_write(bootstrap: str) -> None:
    run = Run(bootstrap, label="label")
    assert run.stop("label") is None
    with pytest.raises(Fenced, match="Spark stopped run run"):
        run.write(0, "never")
    assert open_transactions(bootstrap) == []


def test_old_stops_are_dropped(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(bootstrap, label="label")
    run.stop("first")
    monkeypatch.setattr(stopping, "STOPS_KEPT_MS", -1)
    run.stop("second")
    partition = run.ports.partition
    run.ports.blocking.run(partition.read())
    assert partition.stops == {}


def test_what_a_run_left_is_aborted_when_only_its_end_is_heard_of(
    bootstrap: str, tmp_path: Path
) -> None:
    run, other = Run(bootstrap), Run(bootstrap, query="other")
    note_cluster(run.options.connecting, {CLUSTERS_FOLDER: str(tmp_path)})
    assert run.write(0, "never") is not None
    slot = other.write(0, "other")
    end_run(tmp_path, "query", "run")
    assert open_transactions(bootstrap) == [other.sink.transactional_id(0, 0)]
    end_run(tmp_path, "other", "an earlier run")
    assert other.commit(0, slot) == []
    with pytest.raises(Fenced, match="may not write any more"):
        run.write(0, "never", partition=1)

    decided = Run(bootstrap, "decided")
    decided.decide(0, decided.write(0, "a"))
    end_run(tmp_path, "query", "decided")
    assert open_transactions(bootstrap) == []
    assert committed_values(bootstrap, "t") == [b"a", b"other"]


def test_a_run_that_ended_well_is_left_alone(bootstrap: str, tmp_path: Path) -> None:
    run = Run(bootstrap)
    note_cluster(run.options.connecting, {CLUSTERS_FOLDER: str(tmp_path)})
    assert run.commit(0, run.write(0, "a")) == []
    end_run(tmp_path, "query", "run")
    assert run.commit(1, run.write(1, "b")) == [], "nobody took over"
    assert committed_values(bootstrap, "t") == [b"a", b"b"]
