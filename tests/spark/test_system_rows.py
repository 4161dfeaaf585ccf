"""System frames read from a broker as Spark's processes read them, without Spark."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from headrace.client import Producer, ShareConsumer
from headrace.client.cluster import Cluster
from headrace.client.groups import commit_offsets
from headrace.client.share.acknowledgements import AcknowledgeType
from headrace.client.share.fate import set_start
from headrace.client.topics import TopicPartition
from headrace.spark.system.frames import FRAMES
from headrace.spark.system.parts import NotServed
from headrace.spark.system.source import SystemReader, system_options
from headrace.testing.broker import TestBroker
from headrace.web.server import WebServer

Row = dict[str, Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    settings = {"http.listen": "127.0.0.1:0"}
    with TestBroker(tmp_path_factory.mktemp("system"), settings=settings) as made:
        web = WebServer(made.node)
        made.run(web.start())
        made.create_topic("orders", partitions=2, configs={"retention.ms": "123456789"})
        made.create_topic("clicks")
        for number in range(10):
            made.produce("orders", str(number), partition=number % 2)
        made.run(commit(made))
        yield made
        made.run(web.stop())


async def commit(broker: TestBroker) -> None:
    async with Cluster(broker.bootstrap) as cluster:
        places = {TopicPartition("orders", 0): 2, TopicPartition("orders", 1): 5}
        await commit_offsets(cluster, "billing", places)
        await commit_offsets(cluster, "audit", {TopicPartition("clicks", 0): 0})


def reader_of(broker: TestBroker, frame: str, *filters: Any) -> SystemReader:
    given = {"frame": frame, "kafka.bootstrap.servers": broker.bootstrap}
    reader = SystemReader(system_options(given))
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return reader


def rows_of(broker: TestBroker, frame: str, *filters: Any) -> list[Row]:
    reader = reader_of(broker, frame, *filters)
    names = [each.name for each in FRAMES[frame].columns]
    found = [row for part in reader.partitions() for row in reader.read(part)]
    return [dict(zip(names, row, strict=True)) for row in found]


def test_lag_is_what_a_group_has_not_read(broker: TestBroker) -> None:
    billing = next(row for row in rows_of(broker, "groups") if row["group_id"] == "billing")
    assert (billing["lag"], billing["lag_max"], billing["partitions"]) == (3, 3, 2)
    assert (billing["type"], billing["state"], billing["members"]) == ("classic", "Empty", 0)
    offsets = rows_of(broker, "group_offsets", EqualTo(("group_id",), "billing"))
    assert [(row["partition"], row["offset"], row["lag"]) for row in offsets] == [
        (0, 2, 3),
        (1, 5, 0),
    ]


def test_a_named_group_is_asked_for_alone(broker: TestBroker) -> None:
    asked = EqualTo(("group_id",), "audit")
    (part,) = reader_of(broker, "groups", asked).partitions()
    assert part.part.names == ("audit",)  # type: ignore[attr-defined]
    assert [row["group_id"] for row in rows_of(broker, "groups", asked)] == ["audit"]
    assert rows_of(broker, "groups", EqualTo(("group_id",), "nobody")) == []


def test_topics_and_partitions_say_what_the_cluster_knows(broker: TestBroker) -> None:
    (orders,) = rows_of(broker, "topics", EqualTo(("topic",), "orders"))
    assert orders["configs"] == {"retention.ms": "123456789"}
    assert (orders["partitions"], orders["under_replicated"]) == (2, 0)
    rows = rows_of(broker, "partitions", EqualTo(("topic",), "orders"))
    assert [(row["partition"], row["leader"], row["end_offset"]) for row in rows] == [
        (0, 1, 5),
        (1, 1, 5),
    ]
    assert all(row["size_bytes"] > 0 and row["problem"] is None for row in rows)
    assert rows_of(broker, "topics", EqualTo(("topic",), "missing")) == []


def test_nodes_sessions_and_segments_come_from_each_node(broker: TestBroker) -> None:
    (node,) = rows_of(broker, "nodes")
    assert (node["node"], node["is_controller"]) == (1, True)
    (session,) = rows_of(broker, "sessions")
    assert (session["state"], session["is_controller"], session["problem"]) == (
        "ACTIVE",
        True,
        None,
    )
    segments = rows_of(broker, "segments", EqualTo(("topic",), "orders"))
    assert {row["topic"] for row in segments} == {"orders"}
    assert sum(row["end_offset"] - row["base_offset"] for row in segments) == 10
    assert all(row["last_timestamp"].year >= 2025 for row in segments)
    assert rows_of(broker, "segments", EqualTo(("node",), 7)) == []


def test_metadata_entries_are_read_from_an_index_and_have_no_secrets(broker: TestBroker) -> None:
    rows = rows_of(broker, "metadata")
    assert [row["index"] for row in rows] == list(range(1, len(rows) + 1))
    text = json.dumps([row["details"] for row in rows])
    assert "orders" in text
    assert "CreateTopic" in text
    later = rows_of(broker, "metadata", GreaterThanOrEqual(("index",), 3))
    assert [row["index"] for row in later] == list(range(3, later[-1]["index"] + 1))


def test_open_transactions_show_what_they_hold(broker: TestBroker) -> None:
    async def work() -> list[Row]:
        async with (
            Producer(broker.bootstrap, transactional_id="pay") as producer,
            producer.transaction(),
        ):
            await producer.send("clicks", "one")
            await producer.flush()
            return await asyncio.to_thread(rows_of, broker, "transactions")

    (row,) = broker.run(work())
    assert (row["transactional_id"], row["state"]) == ("pay", "Ongoing")
    assert row["partitions"] == ["clicks-0"]
    assert row["started"] is not None


def test_share_records_say_who_holds_them_and_why_they_were_given_up(broker: TestBroker) -> None:
    async def work() -> tuple[list[Row], list[Row]]:
        async with Cluster(broker.bootstrap) as cluster:
            await set_start(cluster, "workers", "earliest")
        async with ShareConsumer(
            broker.bootstrap, "workers", ["orders"], mode="explicit"
        ) as consumer:
            records = await consumer.poll(60_000)
            consumer.acknowledge(records[0], AcknowledgeType.REJECT)
            await consumer.commit()
            held = await asyncio.to_thread(rows_of, broker, "share_records")
            return held, await asyncio.to_thread(rows_of, broker, "share_partitions")

    records, partitions = broker.run(work())
    assert {row["group_id"] for row in records} == {"workers"}
    states = {row["state"] for row in records}
    assert "acquired" in states
    assert any(row["reason"] for row in records)
    assert {row["partition"] for row in partitions} >= {0}
    assert all(row["is_loaded"] for row in partitions)


def test_a_node_without_pages_is_told_by_the_name_of_the_frame(tmp_path: Path) -> None:
    with TestBroker(tmp_path, settings={"http.listen": ""}) as broker:
        assert rows_of(broker, "nodes")[0]["node"] == 1
        for frame, each in FRAMES.items():
            if each.needs_headrace:
                with pytest.raises(NotServed, match=f"system frame '{frame}' needs the HTTP pages"):
                    rows_of(broker, frame)
