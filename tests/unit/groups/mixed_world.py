"""Members of both protocols in one group: classic requests and consumer heartbeats."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.heartbeat import heartbeat
from headrace.groups.heartbeats import Sender
from headrace.groups.machine import GroupsMachine
from headrace.groups.state import GroupId, GroupsState
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, Topic
from headrace.wire import decode_from, encode
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from headrace.wire.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedPartitions,
)
from headrace.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.unit.groups.classic.classic_world import Call, World

Partitions = Mapping[str, Iterable[int]]
NEWEST = 3
BROKER = BrokerId(1)


def subscribed(
    *topics: str, owned: Partitions | None = None, version: int = NEWEST, rack: str | None = None
) -> bytes:
    """What a consumer tells of itself."""
    rows = [TopicPartition(topic=t, partitions=list(p)) for t, p in (owned or {}).items()]
    said = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=rows, rack_id=rack)
    return version.to_bytes(2, "big") + encode(said, version)


def assigned(partitions: Partitions, version: int = NEWEST) -> bytes:
    """What a leader assigns to one member."""
    rows = [AssignedPartitions(topic=t, partitions=list(p)) for t, p in partitions.items()]
    message = ConsumerProtocolAssignment(assigned_partitions=rows)
    return version.to_bytes(2, "big") + encode(message, version)


def read_assigned(embedded: bytes) -> dict[str, list[int]]:
    version = int.from_bytes(embedded[:2], "big")
    read, _ = decode_from(ConsumerProtocolAssignment, memoryview(embedded), version, 2)
    return {row.topic: row.partitions for row in read.assigned_partitions}


class MixedWorld(World):
    """One partition of `__consumer_offsets`, and topic `t` of four partitions."""

    def __init__(self, **settings: object) -> None:
        self.image = Image()
        self.add_topic("t", 4)
        super().__init__(
            **{
                "group_initial_rebalance_delay_ms": 0,
                "group_consumer_assignment_interval_ms": 0,
                **settings,
            }
        )

    def _new_machine(self) -> GroupsMachine:
        return GroupsMachine(
            GroupsState(self.settings, lambda: self.image, new_id=lambda: str(next(self._ids)))
        )

    def add_topic(self, name: str, partition_count: int) -> None:
        partitions = [
            Partition((BROKER,), (BROKER,), BROKER, 100 * len(name) + index)
            for index in range(partition_count)
        ]
        self.image.add_topic(Topic(TopicName(name), topic_id(name), partitions))
        self.image.state.applied_index += 1

    # Requests

    def beat(
        self, member_id: str, epoch: int, owned: Partitions | None = None, **fields: Any
    ) -> Call:
        """Send a heartbeat of the consumer protocol; who joins wants topic `t`."""
        if epoch == 0:
            owned = {}
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], **fields}
        rows = None
        if owned is not None:
            rows = [
                TopicPartitions(topic_id=topic_id(name), partitions=list(p))
                for name, p in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, topic_partitions=rows, **fields
        )
        sender = Sender("client", "/host", version=1)
        return self.ask(
            member_id, lambda state, now_ms, reply: heartbeat(state, request, sender, now_ms, reply)
        )

    def rejoin(self, member_id: str, owned: Iterable[int] = (), **options: Any) -> Call:
        """Join by the classic protocol, reading so much of topic `t`."""
        said = subscribed("t", owned={"t": owned}, version=options.pop("embedded", NEWEST))
        protocol = options.pop("protocol", "range")
        return self.join("x", member_id, protocols=((protocol, said),), **options)

    def synced(self, member_id: str, generation: int, **options: Any) -> dict[str, list[int]]:
        """Ask for an assignment by the classic protocol, and give it."""
        call = self.sync(member_id, generation, **options)
        assert call.code == 0, call.answer
        return read_assigned(bytes(call.answer.assignment))

    def classic_group(self, *shares: list[int], **options: Any) -> list[str]:
        """Have a stable classic group; its members read these partitions of `t`."""
        options = {"protocols": (("range", subscribed("t")),), **options}
        names = [f"m{number}" for number in range(len(shares))]
        calls = [self.enter(name, **options) for name in names]
        while not all(call.is_answered for call in calls):
            self.wait(self.due_in_ms())
        ids = [call.answer.member_id for call in calls]
        rows = {each: assigned({"t": p}) for each, p in zip(ids, shares, strict=True)}
        for member_id in ids:
            assert self.sync(member_id, calls[0].answer.generation_id, rows).code == 0
        return ids

    # Looking

    @property
    def consumers(self) -> ConsumerGroup:
        found = self.machine.state.groups[GroupId("g")]
        assert isinstance(found, ConsumerGroup)
        return found

    @property
    def is_classic(self) -> bool:
        return isinstance(self.machine.state.groups[GroupId("g")], ClassicGroup)

    def held(self, member_id: str) -> list[int]:
        """What a member of the consumer group may be reading of `t`."""
        member = self.consumers.members[member_id]  # type: ignore[index]
        return sorted(index for _, index in member.held())


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"-"))
