"""Queues of share groups as confluent-kafka (librdkafka) makes, fills and reads them."""

import os
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

DEADLINE_SECONDS = 60
POLL_SECONDS = 0.2
LOCK_MS = 2000
QUICK = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.assignment.interval.ms": "0",
}
"""Members hear of a change soon, and a group may have locks of LOCK_MS."""
_NUMBERS = count()
Kind = Callable[[Message], AcknowledgeType]


def queue(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """Make a topic and a group of the same name that reads it from its beginning."""
    name = f"queue-{os.getpid()}-{next(_NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        made.result(DEADLINE_SECONDS)
    values = {"auto_offset_reset": "earliest", **configs}
    entries = [
        ConfigEntry(
            f"share.{key.replace('_', '.')}", value, incremental_operation=AlterConfigOpType.SET
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=entries)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(DEADLINE_SECONDS)
    return name


def fill(bootstrap: str, topic: str, total: int, partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(total):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consumer_of(bootstrap: str, group: str, *topics: str, **settings: Any) -> ShareConsumer:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "fetch.wait.max.ms": 100,
            "log_level": 3,
            **named,
        }
    )
    consumer.subscribe(list(topics) or [group])
    return consumer


def polled(consumer: ShareConsumer, seconds: float = POLL_SECONDS) -> list[Message]:
    messages = list(consumer.poll(seconds))
    for message in messages:
        assert message.error() is None, message.error()
    return messages


def gather(consumer: ShareConsumer, total: int, kind: Kind | None = None) -> list[Message]:
    """Poll until there are that many records; acknowledge them on the way if told how."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    found: list[Message] = []
    while len(found) < total:
        assert time.monotonic() < deadline, f"only {len(found)} of {total} records came"
        new = polled(consumer)
        for message in new if kind is not None else ():
            consumer.acknowledge(
                message, kind(message) if kind is not None else AcknowledgeType.ACCEPT
            )
        found += new
    return found
