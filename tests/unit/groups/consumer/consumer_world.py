"""Members of consumer groups on a clock and an image that a test changes.

What is written is written as bytes and read back, so that a restart sees what a node would.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from headrace.config import load_settings
from headrace.coordinator.machine import Outcome
from headrace.coordinator.records import (
    CoordinatorRecord,
    build_record_batch,
    encode_record,
    read_record_batch,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.consumer.description import describe_consumer_group
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.heartbeat import heartbeat
from headrace.groups.heartbeats import Sender
from headrace.groups.machine import GroupsMachine
from headrace.groups.record_types import RECORD_TYPES
from headrace.groups.state import GroupId, GroupsState
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Broker, Partition, ResourceType, Topic
from headrace.records.header import read_headers
from headrace.wire.messages.consumer_group_describe_response import DescribedGroup
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)

START_MS = 1_700_000_000_000
INTERVAL_MS = 1000
STEPS_MAX = 10_000
BROKER = BrokerId(1)

Partitions = Mapping[str, Iterable[int]]


class World:
    """One partition of `__consumer_offsets`, and the topics of a cluster."""

    def __init__(self, **settings: object) -> None:
        overrides = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.settings = load_settings(overrides=overrides)
        self.image = Image()
        self.now_ms = START_MS
        self.log: list[CoordinatorRecord] = []
        self._ids = count(1)
        self._vshards = count(1)
        self.machine = self._new_machine()

    def _new_machine(self) -> GroupsMachine:
        return GroupsMachine(
            GroupsState(self.settings, lambda: self.image, new_id=lambda: f"new-{next(self._ids)}")
        )

    # The cluster

    def add_topic(self, name: str, partition_count: int, *, topic_id: bytes = b"") -> None:
        identity = topic_id or name.encode().ljust(16, b"-")
        partitions = [self._partition() for _ in range(partition_count)]
        self.image.add_topic(Topic(TopicName(name), TopicId(identity), partitions))
        self.image.state.applied_index += 1

    def grow_topic(self, name: str, more: int) -> None:
        self.image.add_partitions(self.topic(name), [self._partition() for _ in range(more)])
        self.image.state.applied_index += 1

    def remove_topic(self, name: str) -> None:
        self.image.remove_topic(self.topic(name))
        self.image.state.applied_index += 1

    def set_rack(self, rack: str | None) -> None:
        self.image.put_broker(Broker(BROKER, 1, bytes(16), (), rack))
        self.image.state.applied_index += 1

    def configure(self, group_id: str, **configs: str) -> None:
        self.image.state.configs[ResourceType.GROUP, group_id] = {
            name.replace("_", "."): value for name, value in configs.items()
        }

    def topic(self, name: str) -> Topic:
        found = self.image.topic(TopicName(name))
        assert found is not None
        return found

    def _partition(self) -> Partition:
        return Partition((BROKER,), (BROKER,), BROKER, next(self._vshards))

    # Requests

    def beat(
        self,
        member_id: str,
        epoch: int,
        owned: Partitions | None = None,
        *,
        group_id: str = "g",
        version: int = 1,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; give the answer, or raise the KafkaError that it is."""
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=self._topic_id(name), partitions=list(indexes))
                for name, indexes in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, **fields
        )
        sender = Sender("client", "/127.0.0.1", version)
        outcome = heartbeat(self.machine.state, request, sender, self.now_ms, _ignore)
        response: ConsumerGroupHeartbeatResponse = self._do(outcome)
        return response

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        if topics or "subscribed_topic_regex" not in fields:
            fields["subscribed_topic_names"] = list(topics)
        return self.beat(member_id, 0, {}, **fields)

    def refusal(self, *args: Any, **fields: Any) -> KafkaError:
        """Send a heartbeat that is refused; nothing is written."""
        before = len(self.log)
        try:
            answer = self.beat(*args, **fields)
        except KafkaError as error:
            assert len(self.log) == before
            return error
        raise AssertionError(f"not refused: {answer}")

    def refusal_code(self, *args: Any, **fields: Any) -> ErrorCode:
        return self.refusal(*args, **fields).code

    def describe(self, group_id: str = "g") -> DescribedGroup:
        row: DescribedGroup = self._do(
            describe_consumer_group(self.machine.state, group_id, _ignore)
        )
        return row

    def group(self, group_id: str = "g") -> ConsumerGroup:
        found = self.machine.state.groups[GroupId(group_id)]
        assert isinstance(found, ConsumerGroup)
        return found

    def assigned(self, answer: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """Give what an answer assigns, by the names of topics; None if it says nothing of it."""
        if answer.assignment is None:
            return None
        return self.named(
            {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        )

    def named(self, partitions: Mapping[Any, Iterable[int]]) -> dict[str, list[int]]:
        found = {}
        for topic_id, indexes in partitions.items():
            topic = self.image.topic_by_id(topic_id)
            found[topic.name if topic else "(gone)"] = sorted(indexes)
        return dict(sorted(found.items()))

    def held(self, member_id: str, group_id: str = "g") -> dict[str, list[int]]:
        """Give what a member is assigned by the group."""
        member = self.group(group_id).members[member_id]  # type: ignore[index]
        return self.named(member.assigned)

    # Time

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass, and do what is due on the way."""
        end_ms = self.now_ms + duration_ms
        for _ in range(STEPS_MAX):
            due_ms = self.machine.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, due_ms)
            self._do(self.machine.on_deadline(self.now_ms))
        raise AssertionError("time does not pass: something is always due")

    def restart(self) -> None:
        """Load a new machine from what was written."""
        self.machine = self._new_machine()
        for record in self.log:
            self.machine.replay(record)
        self._do(self.machine.on_loaded(self.now_ms))

    def _do(self, outcome: Outcome) -> Any:
        for take_note in outcome.notes:
            take_note()
        for record in outcome.records:
            written = self._through_bytes(record)
            self.log.append(written)
            self.machine.replay(written)
        return outcome.replies[0][1] if outcome.replies else None

    def _through_bytes(self, record: CoordinatorRecord) -> CoordinatorRecord:
        batch = memoryview(
            build_record_batch(
                [encode_record(record)], self.now_ms, producer_id=-1, producer_epoch=-1
            )
        )
        ((_, header),) = read_headers(batch)
        (read,) = read_record_batch(batch, header, RECORD_TYPES)
        return read

    def _topic_id(self, name: str) -> bytes:
        topic = self.image.topic(TopicName(name))
        return bytes(16) if topic is None else topic.topic_id


def words(records: Iterable[CoordinatorRecord]) -> list[str]:
    """Give records in a few words each."""
    return [
        ("-" if record.value is None else "+")
        + type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        for record in records
    ]


def _ignore(_: object) -> None:
    """Nobody waits."""
