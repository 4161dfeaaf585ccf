"""System frames read from a broker as Spark's processes read them, without Spark."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from headrace.client import Consumer, Producer, ShareConsumer
from headrace.client.cluster import Cluster
from headrace.client.groups import commit_offsets
from headrace.client.offsets import Start
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


def test_members_are_shown_with_what_they_read_and_have(broker: TestBroker) -> None:
    async def work() -> tuple[list[Row], list[Row], list[Row]]:
        async with Consumer(broker.bootstrap, group="readers", reset=Start.BEGINNING) as consumer:
            await consumer.subscribe(["orders"])
            async for _ in consumer:
                await consumer.commit()
                break
            asked = EqualTo(("group_id",), "readers")
            members = await asyncio.to_thread(rows_of, broker, "group_members", asked)
            offsets = await asyncio.to_thread(rows_of, broker, "group_offsets", asked)
            return members, offsets, await asyncio.to_thread(rows_of, broker, "groups", asked)

    (member,), offsets, (group,) = broker.run(work())
    assert member["subscription"] == ["orders"]
    assert member["assignment"] == ["orders-0", "orders-1"]
    assert (member["host"], member["type"]) == ("127.0.0.1", group["type"])
    assert member["instance_id"] is None
    assert (group["state"], group["members"], group["coordinator"]) == ("Stable", 1, 1)
    assert {(row["member_id"], row["client_id"]) for row in offsets} == {
        (member["member_id"], member["client_id"])
    }
    read = {row["partition"]: row["offset"] for row in offsets}
    assert sum(read.values()) == 1
    assert group["lag"] == sum(5 - offset for offset in read.values())
    assert group["lag_max"] == 5 - min(read.values())


def test_nobody_has_the_partitions_of_a_group_without_members(broker: TestBroker) -> None:
    asked = EqualTo(("group_id",), "billing")
    assert rows_of(broker, "group_members", asked) == []
    assert {row["member_id"] for row in rows_of(broker, "group_offsets", asked)} == {None}


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
    assert {(row["start_offset"], row["stable_offset"]) for row in rows} == {(0, 5)}
    assert [(row["replicas"], row["in_sync"], row["offline"]) for row in rows] == [
        ([1], [1], [])
    ] * 2
    listed = {row["topic"]: row for row in rows_of(broker, "topics")}
    assert {"orders", "clicks", "__consumer_offsets"} <= set(listed)
    assert listed["__consumer_offsets"]["is_internal"]
    assert not listed["orders"]["is_internal"]
    assert listed["clicks"]["configs"] == {}
    assert (orders["replication_factor"], orders["leaderless"]) == (1, 0)
    assert len(orders["topic_id"]) == 22
    assert rows_of(broker, "topics", EqualTo(("topic",), "missing")) == []


def test_nodes_sessions_and_segments_come_from_each_node(broker: TestBroker) -> None:
    (node,) = rows_of(broker, "nodes")
    assert (node["node"], node["is_controller"]) == (1, True)
    assert f"{node['host']}:{node['port']}" == broker.bootstrap
    assert node["replicas"] == sum(row["partitions"] for row in rows_of(broker, "topics"))
    orders = rows_of(broker, "partitions", EqualTo(("topic",), "orders"))
    assert node["log_bytes"] > sum(row["size_bytes"] for row in orders)
    assert 0 < node["usable_bytes"] <= node["total_bytes"]
    (session,) = rows_of(broker, "sessions")
    assert (session["state"], session["is_controller"], session["problem"]) == (
        "ACTIVE",
        True,
        None,
    )
    assert (session["is_registered"], session["is_fenced"], session["is_stopping"]) == (
        True,
        False,
        False,
    )
    assert session["applied"] >= rows_of(broker, "metadata")[-1]["index"]
    assert session["version"] == version("headrace")
    segments = rows_of(broker, "segments", EqualTo(("topic",), "orders"))
    assert {(row["node"], row["is_active"], row["is_leader"]) for row in segments} == {
        (1, True, True)
    }
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
    assert 0 <= (datetime.now(UTC) - row["started"]).total_seconds() < 60
    assert (row["coordinator"], row["producer_epoch"]) == (1, 0)
    assert row["timeout_ms"] > 0


def test_share_records_say_who_holds_them_and_why_they_were_given_up(broker: TestBroker) -> None:
    async def work() -> tuple[int, list[Row], list[Row]]:
        async with Cluster(broker.bootstrap) as cluster:
            await set_start(cluster, "workers", "earliest")
        async with ShareConsumer(
            broker.bootstrap, "workers", ["orders"], mode="explicit"
        ) as consumer:
            records = await consumer.poll(60_000)
            consumer.acknowledge(records[0], AcknowledgeType.REJECT)
            await consumer.commit()
            held = await asyncio.to_thread(rows_of, broker, "share_records")
            shown = await asyncio.to_thread(rows_of, broker, "share_partitions")
            return len(records), held, shown

    count, records, partitions = broker.run(work())
    assert {(row["group_id"], row["topic"]) for row in records} == {("workers", "orders")}
    assert sum(row["records"] for row in records) == count
    (rejected,) = [row for row in records if row["reason"]]
    assert (rejected["state"], rejected["records"], rejected["delivery_count"]) == (
        "archived",
        1,
        1,
    )
    assert rejected["member_id"] is None
    held = [row for row in records if row is not rejected]
    assert {(row["state"], row["delivery_count"], row["host"]) for row in held} == {
        ("acquired", 1, "127.0.0.1")
    }
    assert all(row["member_id"] and 0 < row["lock_left_ms"] <= 30_000 for row in held)
    assert all(row["is_loaded"] and row["leader"] == 1 for row in partitions)
    (where,) = [row for row in partitions if row["partition"] == rejected["partition"]]
    assert (where["start_offset"], where["end_offset"], where["high_watermark"]) == (1, 4, 5)
    assert (where["done_after_start"], where["dead_letters_error"]) == (0, None)


def test_a_node_without_pages_is_told_by_the_name_of_the_frame(tmp_path: Path) -> None:
    with TestBroker(tmp_path, settings={"http.listen": ""}) as broker:
        assert rows_of(broker, "nodes")[0]["node"] == 1
        for frame, each in FRAMES.items():
            if each.needs_headrace:
                with pytest.raises(NotServed, match=f"system frame '{frame}' needs the HTTP pages"):
                    rows_of(broker, frame)
