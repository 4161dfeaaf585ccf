"""Members of streams groups on a clock and an image that a test changes.

What is written is written as bytes and read back, so that a restart sees what a node would.
"""

from collections.abc import Iterable
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
from headrace.groups.heartbeats import Sender
from headrace.groups.machine import GroupsMachine
from headrace.groups.record_types import RECORD_TYPES
from headrace.groups.state import GroupId, GroupsState
from headrace.groups.streams.description import describe_streams_group
from headrace.groups.streams.group import StreamsGroup
from headrace.groups.streams.heartbeat import heartbeat
from headrace.groups.streams.responses import HeartbeatAnswer
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, ResourceType, Topic
from headrace.records.header import read_headers
from headrace.wire.messages.streams_group_describe_response import DescribedGroup
from headrace.wire.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from headrace.wire.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

START_MS = 1_700_000_000_000
INTERVAL_MS = 1000
STEPS_MAX = 10_000
BROKER = BrokerId(1)
GROUP = "g"
STATELESS = Topology(0, [Subtopology("0", source_topics=["in"])])
STATEFUL = Topology(
    0, [Subtopology("0", source_topics=["in"], state_changelog_topics=[TopicInfo("log")])]
)


class World:
    """One partition of `__consumer_offsets`, and the topics of a cluster."""

    def __init__(self, **settings: object) -> None:
        overrides = {
            "group.streams.initial.rebalance.delay.ms": "0",
            "group.streams.assignment.interval.ms": "0",
        }
        overrides |= {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.settings = load_settings(overrides=overrides)
        self.image = Image()
        self.now_ms = START_MS
        self.log: list[CoordinatorRecord] = []
        self._vshards = count(1)
        self.machine = self._new_machine()

    def _new_machine(self) -> GroupsMachine:
        return GroupsMachine(GroupsState(self.settings, lambda: self.image, new_id=lambda: "id"))

    # The cluster

    def add_topic(self, name: str, partition_count: int) -> None:
        partitions = [
            Partition((BROKER,), (BROKER,), BROKER, next(self._vshards))
            for _ in range(partition_count)
        ]
        identity = TopicId(name.encode().ljust(16, b"-"))
        self.image.add_topic(Topic(TopicName(name), identity, partitions))
        self.image.state.applied_index += 1

    def remove_topic(self, name: str) -> None:
        topic = self.image.topic(TopicName(name))
        assert topic is not None
        self.image.remove_topic(topic)
        self.image.state.applied_index += 1

    def configure(self, **configs: object) -> None:
        self.image.state.configs[ResourceType.GROUP, GROUP] = {
            name.replace("_", "."): str(value) for name, value in configs.items()
        }

    # Requests

    def send(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        """Send a heartbeat; give the answer, or raise the KafkaError that it is."""
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        sender = Sender("client", "/127.0.0.1")
        answer: HeartbeatAnswer = self._do(
            heartbeat(self.machine.state, request, sender, self.now_ms, _ignore)
        )
        return answer

    def join(
        self, member_id: str, topology: Topology = STATELESS, **fields: Any
    ) -> StreamsGroupHeartbeatResponse:
        return self.send(
            member_id,
            0,
            **{
                "rebalance_timeout_ms": 60_000,
                "topology": topology,
                "process_id": member_id,
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
            }
            | fields,
        ).response

    def beat(
        self,
        member_id: str,
        epoch: int,
        active: Iterable[str] | None = None,
        standby: Iterable[str] = (),
        **fields: Any,
    ) -> StreamsGroupHeartbeatResponse:
        """Send a heartbeat of a member that says what it has, unless that is None."""
        if active is not None:
            fields |= {
                "active_tasks": task_rows(active),
                "standby_tasks": task_rows(standby),
                "warmup_tasks": [],
            }
        return self.send(member_id, epoch, **fields).response

    def leave(self, member_id: str) -> StreamsGroupHeartbeatResponse:
        return self.send(member_id, -1).response

    def refusal(self, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
        """Send a heartbeat that is refused; nothing is written."""
        before = len(self.log)
        try:
            answer = self.send(member_id, epoch, **fields)
        except KafkaError as error:
            assert len(self.log) == before
            return error.code
        raise AssertionError(f"not refused: {answer}")

    def describe(self) -> DescribedGroup:
        row: DescribedGroup = self._do(describe_streams_group(self.machine.state, GROUP, _ignore))
        return row

    @property
    def group(self) -> StreamsGroup:
        found = self.machine.state.groups[GroupId(GROUP)]
        assert isinstance(found, StreamsGroup)
        return found

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
        return outcome.replies[-1][1] if outcome.replies else None

    def _through_bytes(self, record: CoordinatorRecord) -> CoordinatorRecord:
        batch = memoryview(
            build_record_batch(
                [encode_record(record)], self.now_ms, producer_id=-1, producer_epoch=-1
            )
        )
        ((_, header),) = read_headers(batch)
        (read,) = read_record_batch(batch, header, RECORD_TYPES)
        return read


def task_rows(tasks: Iterable[str]) -> list[TaskIds]:
    """Give the rows of tasks that are written as in `0_1`: subtopology 0, partition 1."""
    return [TaskIds(name, [int(index)]) for name, _, index in (t.partition("_") for t in tasks)]


def tasks(rows: Iterable[Any] | None) -> list[str] | None:
    """Give the tasks of an answer; None if it says nothing of them."""
    if rows is None:
        return None
    return [f"{row.subtopology_id}_{index}" for row in rows for index in row.partitions]


def statuses(response: StreamsGroupHeartbeatResponse) -> list[int]:
    return [each.status_code for each in response.status or ()]


def words(records: Iterable[CoordinatorRecord]) -> list[str]:
    """Give records in a word each."""
    return [
        ("-" if record.value is None else "+")
        + type(record.key).__name__.removeprefix("StreamsGroup").removesuffix("Key")
        for record in records
    ]


def _ignore(_: object) -> None:
    """Nobody waits."""
