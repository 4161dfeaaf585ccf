"""A group's history in `__consumer_offsets`: when it last agreed, and when members changed.

Group descriptions have no times, but their records do, so a user who may read that topic can see
since when a state lasts. Only the newest part of the topic is read, and nothing depends on it.
"""

from typing import Final

import msgspec

from headrace.client.cluster import Cluster
from headrace.client.consumer import Consumer
from headrace.client.errors import ClientError
from headrace.client.offsets import Start
from headrace.client.topics import TopicPartition
from headrace.coordinator.placement import partition_for
from headrace.errors import KafkaError
from headrace.groups.record_types import RECORD_TYPES
from headrace.ids import GROUPS_TOPIC
from headrace.wire import WireError, decode
from headrace.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.consumer_group_member_metadata_key import (
    ConsumerGroupMemberMetadataKey,
)
from headrace.wire.messages.consumer_group_member_metadata_value import (
    ConsumerGroupMemberMetadataValue,
)
from headrace.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.share_group_metadata_key import ShareGroupMetadataKey
from headrace.wire.schema import Message

OFFSETS_READ_MAX: Final = 20_000
"""How many offsets before its end the partition is read from."""
_VERSION_BYTES: Final = 2


class GroupHistory(msgspec.Struct):
    """Times in ms since 1970; None where the part that was read does not have them."""

    changed_ms: int | None = None
    """When the group's generation was agreed on (classic), or its epoch moved (others)."""
    generation: int | None = None
    former_members: tuple[str, ...] = ()
    """The members of a classic group's last generation."""
    moved_ms: dict[str, int] = msgspec.field(default_factory=dict)
    """When each member took its epoch or its partitions."""
    rebalance_timeout_ms: dict[str, int] = msgspec.field(default_factory=dict)


async def read_history(cluster: Cluster, group_id: str) -> GroupHistory:
    """Return the history in a group's newest records; empty if they cannot be read."""
    history = GroupHistory()
    try:
        await _read(cluster, group_id, history)
    except (KafkaError, ClientError):
        return GroupHistory()  # no permission to read the topic
    return history


async def _read(cluster: Cluster, group_id: str, history: GroupHistory) -> None:
    topic = await cluster.topic(GROUPS_TOPIC)
    index = partition_for(group_id, len(topic.partitions))
    partition = TopicPartition(GROUPS_TOPIC, index)
    consumer = Consumer(cluster, reset=Start.BEGINNING)
    try:
        await consumer.assign(GROUPS_TOPIC, Start.BEGINNING, [index], until_end=True)
        begin, end = consumer.positions[partition], (await consumer.ends([partition]))[partition]
        consumer.seek(partition, max(begin, end - OFFSETS_READ_MAX))
        while records := await consumer.poll():
            for record in records:
                if record.key is not None:
                    note(history, group_id, record.timestamp, record.key, record.value)
    finally:
        await consumer.close()


def note(
    history: GroupHistory, group_id: str, timestamp_ms: int, key: bytes, value: bytes | None
) -> None:
    """Apply a record of the topic if it is about the group and dates a change."""
    kinds = RECORD_TYPES.get(int.from_bytes(key[:_VERSION_BYTES], "big"))
    if kinds is None:
        return
    try:
        about = decode(kinds[0], key[_VERSION_BYTES:], 0)
        said = None if value is None else _decode_value(kinds[1], value)
    except WireError:
        return
    match about:
        case GroupMetadataKey() if about.group == group_id:
            if isinstance(said, GroupMetadataValue):
                history.changed_ms = timestamp_ms
                history.generation = said.generation
                history.former_members = tuple(member.member_id for member in said.members)
                history.rebalance_timeout_ms = {
                    member.member_id: member.rebalance_timeout for member in said.members
                }
        case ConsumerGroupMetadataKey() | ShareGroupMetadataKey() if about.group_id == group_id:
            history.changed_ms = timestamp_ms
        case ConsumerGroupCurrentMemberAssignmentKey() | ShareGroupCurrentMemberAssignmentKey() if (
            about.group_id == group_id
        ):
            history.moved_ms[about.member_id] = timestamp_ms
        case ConsumerGroupMemberMetadataKey() if about.group_id == group_id:
            if isinstance(said, ConsumerGroupMemberMetadataValue):
                history.rebalance_timeout_ms[about.member_id] = said.rebalance_timeout_ms


def _decode_value(kind: type[Message], value: bytes) -> Message:
    version = int.from_bytes(value[:_VERSION_BYTES], "big")
    return decode(kind, value[_VERSION_BYTES:], version)
