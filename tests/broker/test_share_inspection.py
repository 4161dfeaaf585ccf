"""`GET /share/GROUP/TOPIC`: who holds which record, for how long, and what became of others."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from headrace.client import AcknowledgeType, Admin, Cluster, ShareConsumer
from headrace.client.configs import Resource, ResourceType
from headrace.client.node_pages import pages_at
from headrace.client.outcomes import values_of
from headrace.client.settings import ClientSettings
from headrace.client.share.inspection import NotInspected, find_pages, inspect_queue
from headrace.client.share.offsets import describe_share_offsets
from headrace.testing.broker import TestBroker
from headrace.web.server import WebServer
from tests.broker.peers import wait_until

ACCEPT, RELEASE, REJECT, _ = AcknowledgeType
GROUP = "the billing/group"
POLL_MS = 20_000


@pytest.fixture
def headrace_settings() -> dict[str, str]:
    return {
        "http.listen": "127.0.0.1:0",
        "group.share.heartbeat.interval.ms": "300",
        "group.share.min.heartbeat.interval.ms": "300",
    }


@pytest.fixture
def http(headrace: TestBroker) -> Iterator[str]:
    web = WebServer(headrace.node)
    yield f"127.0.0.1:{headrace.run(web.start())}"
    headrace.run(web.stop())


def configure(headrace: TestBroker, configs: dict[str, str]) -> None:
    async def set_configs() -> None:
        async with Admin(headrace.bootstrap) as admin:
            await admin.alter_configs(Resource(ResourceType.GROUP, GROUP), set=configs)

    headrace.run(set_configs())


def consumer_of(headrace: TestBroker) -> ShareConsumer:
    return ShareConsumer(
        headrace.bootstrap,
        GROUP,
        ["orders"],
        mode="explicit",
        settings=ClientSettings(client_id="worker-7"),
    )


def page(http: str) -> Any:
    with urlopen(f"http://{http}/share/{quote(GROUP, safe='')}/orders", timeout=20) as answer:
        return json.loads(answer.read())


def test_the_page_says_who_holds_what_and_why_others_were_given_up(
    headrace: TestBroker, http: str
) -> None:
    configure(
        headrace,
        {
            "share.auto.offset.reset": "earliest",
            "headrace.share.release.backoff.ms": "60000",
            "headrace.share.breaker.reject.percent": "90",
        },
    )
    headrace.create_topic("orders")
    headrace.produce("orders", *[b"x"] * 5, partition=0)

    async def hold() -> ShareConsumer:
        consumer = consumer_of(headrace)
        await consumer.start()
        for record in await consumer.poll(POLL_MS):
            kind = {0: REJECT, 2: REJECT, 3: RELEASE}.get(record.offset)
            if kind is not None:
                consumer.acknowledge(record, kind)
        outcomes = await consumer.commit()
        assert set(outcomes.values()) == {None}
        return consumer

    consumer = headrace.run(hold())
    found = page(http)
    assert (found["group"], found["topic"], found["breaker"]["state"]) == (
        GROUP,
        "orders",
        "closed",
    )
    (partition,) = found["partitions"]
    assert (partition["start_offset"], partition["end_offset"]) == (1, 4)
    assert partition["state_epoch"] >= 0
    runs = partition["in_flight"]
    assert [(run["first_offset"], run["state"]) for run in runs] == [
        (1, "acquired"),
        (2, "archived"),
        (3, "available"),
        (4, "acquired"),
    ]
    assert (runs[0]["client_id"], runs[0]["client_host"]) == ("worker-7", "127.0.0.1")
    assert runs[0]["member_id"]
    assert 0 < runs[0]["lock_left_ms"] <= 30_000
    assert (runs[1]["cause"], runs[1]["member_id"]) == ("rejected", None)
    assert 0 < runs[2]["resting_ms"] <= 60_000
    assert [(each["first_offset"], each["cause"]) for each in partition["archived"]] == [
        (0, "rejected"),
        (2, "rejected"),
    ]
    assert (
        inspect_queue(pages_at(http), GROUP, "orders").partitions[0].in_flight[0].client_host
        == "127.0.0.1"
    )
    headrace.run(consumer.close())


def test_the_offsets_of_a_group_that_has_acknowledged_nothing_are_those_of_its_page(
    headrace: TestBroker, http: str
) -> None:
    headrace.create_topic("orders")
    headrace.produce("orders", b"before the group")

    async def describe() -> None:
        async with consumer_of(headrace) as consumer, Cluster(headrace.bootstrap) as cluster:
            while not consumer.assignment:
                await consumer.poll(100)
            assert await consumer.poll(100) == []  # by default a group begins at the end
            (found,) = values_of(await describe_share_offsets(cluster, GROUP)).values()
            assert (found.offset, found.lag) == (1, 0)
            assert [str(address) for address in await find_pages(cluster, "orders")] == [http]

    headrace.run(describe())
    (row,) = inspect_queue(pages_at(http), GROUP, "orders").partitions
    assert row.start_offset == 1


def test_a_queue_that_nobody_reads_now_has_what_is_kept_of_it(headrace: TestBroker) -> None:
    configure(headrace, {"share.auto.offset.reset": "earliest"})
    headrace.create_topic("orders")
    headrace.produce("orders", b"a", b"b", partition=0)

    async def accept_one() -> None:
        async with consumer_of(headrace) as consumer:
            first, *others = await consumer.poll(POLL_MS)
            consumer.acknowledge(first, ACCEPT)
            for other in others:
                consumer.acknowledge(other, RELEASE)

    headrace.run(accept_one())
    headrace.restart()
    web = WebServer(headrace.node)
    port = headrace.run(web.start())
    (partition,) = page(f"127.0.0.1:{port}")["partitions"]
    headrace.run(web.stop())
    assert not partition["is_loaded"]
    assert partition["start_offset"] + partition["delivery_complete_count"] == 1


@pytest.mark.parametrize(
    ("group", "topic", "reason"),
    [("nobody", "orders", "no share group 'nobody'"), (GROUP, "nothing", "no topic nothing")],
)
def test_what_is_not_known_is_said_in_a_sentence(
    headrace: TestBroker, http: str, group: str, topic: str, reason: str
) -> None:
    headrace.create_topic("orders")
    with pytest.raises(NotInspected, match=reason):
        inspect_queue(pages_at(http), group, topic)


def test_a_consumer_that_closes_at_once_loses_no_dead_letter(headrace: TestBroker) -> None:
    configure(
        headrace,
        {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.orders"},
    )
    headrace.create_topic("orders")
    headrace.produce("orders", b"bad", partition=0)

    async def reject() -> None:
        async with consumer_of(headrace) as consumer:
            for record in await consumer.poll(POLL_MS):
                consumer.acknowledge(record, REJECT)

    headrace.run(reject())
    letters = headrace.node.broker.share_partitions.dead_letters
    wait_until(lambda: letters.sent_records == 1, "the letter is sent")
    (letter,) = headrace.consume("dlq.orders")
    assert letter.value == b"bad"
    assert dict(letter.headers)["__dlq.errors.group"] == GROUP.encode()
