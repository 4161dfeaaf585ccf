"""The first record of a new group comes with the first heartbeat, not with the second.

Members are told to send one every `SLOW_MS`, and are asked for less time than that.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ShareConsumer

from headrace import client
from headrace.testing.broker import TestBroker

SLOW_MS: Final = 15_000
PATIENCE_SECONDS: Final = 10
EARLIEST: Final = {"share.auto.offset.reset": "earliest"}


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    settings = {
        "group.share.heartbeat.interval.ms": str(SLOW_MS),
        "group.share.assignment.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": str(SLOW_MS),
        "group.consumer.assignment.interval.ms": "1000",
    }
    with TestBroker(settings=settings) as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", "one", partition=0)
        broker.produce("orders", "one", partition=1)
        yield broker


@pytest.fixture
def group(broker: TestBroker, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    broker.configure_group(name, EARLIEST)
    return name


def settings_of(broker: TestBroker, group: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": group, **more}


def test_of_librdkafkas_share_consumer(broker: TestBroker, group: str) -> None:
    consumer = ShareConsumer(settings_of(broker, group))
    consumer.subscribe(["orders"])
    messages = consumer.poll(PATIENCE_SECONDS)
    assert messages
    assert messages[0].value() == b"one"
    consumer.close()


def test_of_our_share_consumer(broker: TestBroker, group: str) -> None:
    async def first() -> bytes | None:
        async with client.ShareConsumer(broker.bootstrap, group, ["orders"]) as queue:
            async for record in queue:
                return record.value
        return None

    assert asyncio.run(asyncio.wait_for(first(), PATIENCE_SECONDS)) == b"one"


def test_of_librdkafkas_consumer(broker: TestBroker, group: str) -> None:
    more = {"group.protocol": "consumer", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings_of(broker, group, **more))
    consumer.subscribe(["orders"])
    message = consumer.poll(PATIENCE_SECONDS)
    assert message is not None
    assert message.value() == b"one"
    consumer.close()


def test_of_a_second_share_consumer_that_joins_between_two_targets(
    broker: TestBroker, group: str
) -> None:
    first = ShareConsumer(settings_of(broker, group))
    first.subscribe(["orders"])
    assert first.poll(PATIENCE_SECONDS)
    second = ShareConsumer(settings_of(broker, group))
    second.subscribe(["orders"])
    assert not second.poll(0)  # joins
    members = broker.node.broker.groups.shard(group).machine.state.groups

    def is_assigned() -> bool:
        known = members[group].members.values()  # type: ignore[index, attr-defined]
        return len(known) == 2 and all(each.assigned for each in known)

    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_assigned():
        assert time.monotonic() < deadline
        second.poll(0.05)
    second.close()
    first.close()
