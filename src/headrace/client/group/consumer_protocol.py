"""The messages that members of a classic group exchange through the broker. Pure.

Each message starts with a version of two bytes. Newer versions only append fields, so an unknown
one is read as the newest known version.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from headrace.client.group.assignors import MemberSubscription
from headrace.client.leaders import by_topic
from headrace.client.topics import TopicPartition
from headrace.wire import WireError, decode_from, encode
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedRow
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedRow
from headrace.wire.schema import Buffer, Message

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = 3
_GENERATION_FROM: Final = 2

M = TypeVar("M", bound=Message)


def write_subscription(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
    *,
    is_sticky: bool,
) -> bytes:
    """Write what a member wants and has.

    The cooperative-sticky assignor of older clients reads the generation from the user data.
    """
    body = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=generation.to_bytes(4, "big", signed=True) if is_sticky else None,
        owned_partitions=[
            OwnedRow(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(sorted(owned)).items()
        ],
        generation_id=generation,
        rack_id=rack,
    )
    return _VERSION.to_bytes(2, "big") + bytes(encode(body, _VERSION))


def read_subscription(data: Buffer, instance_id: str | None) -> MemberSubscription:
    """Read what another member wants and has; WireError if it cannot be read."""
    version, body = _read(ConsumerProtocolSubscription, data)
    generation = body.generation_id
    if version < _GENERATION_FROM and body.user_data is not None and len(body.user_data) == 4:
        generation = int.from_bytes(bytes(body.user_data), "big", signed=True)
    return MemberSubscription(
        frozenset(body.topics),
        frozenset(
            TopicPartition(row.topic, index)
            for row in body.owned_partitions
            for index in row.partitions
        ),
        generation,
        instance_id,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Write what a member is to have."""
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedRow(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(sorted(partitions)).items()
        ]
    )
    return _VERSION.to_bytes(2, "big") + bytes(encode(body, _VERSION))


def read_assignment(data: Buffer) -> frozenset[TopicPartition]:
    """Read what we are to have; nothing if the leader sent nothing."""
    if len(data) == 0:
        return frozenset()
    _, body = _read(ConsumerProtocolAssignment, data)
    return frozenset(
        TopicPartition(row.topic, index)
        for row in body.assigned_partitions
        for index in row.partitions
    )


def _read(kind: type[M], data: Buffer) -> tuple[int, M]:
    raw = bytes(data)
    if len(raw) < 2:
        raise WireError(f"{len(raw)} bytes have no version", message=kind.__name__)
    version = int.from_bytes(raw[:2], "big")
    body, _ = decode_from(kind, memoryview(raw), min(version, _VERSION), 2)
    return version, body
