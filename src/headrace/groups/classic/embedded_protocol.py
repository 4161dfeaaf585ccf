"""The consumers' embedded protocol: subscriptions and assignments as classic members write them.

The metadata of a protocol belongs to the clients and need not have any particular form. The
subscribed topics only decide whether offsets of a topic may expire, so metadata that cannot be
parsed counts as a subscription to everything. Assignments pass from the leader to the others and
are not parsed, except where classic members are in a consumer group (KIP-848), or where a group
converts from one kind to the other.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from headrace.groups.assignors import Assignment
from headrace.ids import TopicId, TopicName
from headrace.metadata.image import Image
from headrace.wire import WireError, decode_from, encode
from headrace.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NEWEST_VERSION: Final = 3
_VERSION_BYTES: Final = 2


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return all topics that members subscribe to; None if a subscription cannot be parsed."""
    topics: set[str] = set()
    for metadata in subscriptions:
        subscription = read_subscription(metadata)
        if subscription is None:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """Read what a consumer says of itself; None if it is nothing of the kind.

    A version newer than the newest known is read as that one: later ones only add at the end.
    """
    if len(metadata) < _VERSION_BYTES:
        return None
    version = int.from_bytes(metadata[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        return None
    try:
        subscription, _ = decode_from(
            ConsumerProtocolSubscription,
            memoryview(metadata),
            min(version, NEWEST_VERSION),
            _VERSION_BYTES,
        )
    except WireError:
        return None
    return subscription


_OLDEST_VERSION: Final = 0


def embedded_version(embedded: bytes) -> int:
    """Return the version that embedded data starts with, or the nearest known one."""
    version = int.from_bytes(embedded[:_VERSION_BYTES], "big", signed=True)
    return max(_OLDEST_VERSION, min(version, NEWEST_VERSION))


def read_assignment(embedded: bytes, image: Image) -> Assignment | None:
    """Return an assignment's partitions of existing topics; None if it cannot be parsed."""
    if not embedded:
        return {}
    version = int.from_bytes(embedded[:_VERSION_BYTES], "big", signed=True)
    if len(embedded) < _VERSION_BYTES or version < _OLDEST_VERSION:
        return None
    try:
        assignment, _ = decode_from(
            ConsumerProtocolAssignment,
            memoryview(embedded),
            min(version, NEWEST_VERSION),
            _VERSION_BYTES,
        )
    except WireError:
        return None
    rows = ((row.topic, row.partitions) for row in assignment.assigned_partitions)
    return partitions_by_id(rows, image)


def write_assignment(
    partitions: Mapping[TopicId, Iterable[int]], version: int, image: Image
) -> bytes:
    """Return an assignment encoded in the version that a member uses."""
    rows = [
        TopicPartition(topic=topic.name, partitions=sorted(partitions[topic_id]))
        for topic_id in sorted(partitions)
        if (topic := image.topic_by_id(topic_id)) is not None
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=rows)
    return version.to_bytes(_VERSION_BYTES, "big") + encode(message, version)


def partitions_by_id(
    rows: Iterable[tuple[str, Iterable[int]]], image: Image
) -> dict[TopicId, frozenset[int]]:
    """Return partitions by topic id; those of topics that do not exist are dropped."""
    found: dict[TopicId, frozenset[int]] = {}
    for name, indexes in rows:
        topic = image.topic(TopicName(name))
        if topic is not None:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(indexes)
    return found
