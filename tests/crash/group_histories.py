"""A life of groups: classic and consumer ones, offsets with and without transactions, tools."""

from dataclasses import astuple
from typing import Any, Final

from headrace.config import load_settings
from headrace.groups.administration import delete_group, delete_offsets
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.join import Joiner, join
from headrace.groups.classic.leave import leave
from headrace.groups.classic.sync import sync
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.heartbeat import heartbeat
from headrace.groups.heartbeats import Sender
from headrace.groups.kinds import Committer
from headrace.groups.machine import GroupsMachine
from headrace.groups.offsets.commits import Commit, TopicOffsets, commit_offsets
from headrace.groups.record_types import RECORD_TYPES
from headrace.groups.state import Group, GroupsState
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, Topic
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.offset_commit_request import OffsetCommitRequestPartition
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.crash.coordinator_histories import Known, Life

TOPICS: Final = ("a", "b")
PRODUCERS: Final = (7, 8, 9)
GROUPS: Final = ("classic", "consumer", "offsets")
SESSION_MS: Final = 6000
SETTINGS: Final = load_settings(
    overrides={
        "group.initial.rebalance.delay.ms": "500",
        "group.consumer.session.timeout.ms": "20000",
        "group.consumer.min.session.timeout.ms": "6000",
        "offsets.retention.minutes": "3",
        "offsets.retention.check.interval.ms": "30000",
    }
)
_IMAGE: Final = Image()
for _number, _name in enumerate(TOPICS):
    _rows = [
        Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1), 10 * _number + i + 1)
        for i in range(4)
    ]
    _IMAGE.add_topic(Topic(TopicName(_name), TopicId(_name.encode() * 16), _rows))


class GroupsLife(Life[GroupsMachine]):
    """Three groups whose members and tools do as they like."""

    types = RECORD_TYPES

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.classic: dict[str, str] = {}
        """Members of the classic group: the id of each by its name."""
        self.consumers: dict[str, tuple[int, dict[bytes, list[int]]]] = {}
        """Members of the consumer group: epoch and assignment of each by its id."""
        self.epochs = dict.fromkeys(PRODUCERS, 0)

    def make(self) -> GroupsMachine:
        return GroupsMachine(
            GroupsState(SETTINGS, lambda: _IMAGE, new_id=lambda: f"id{self.number()}")
        )

    def tell(self, machine: GroupsMachine, before: Known) -> Known:
        state = machine.state
        known: Known = {}
        for group_id, group in state.groups.items():
            told = tell_group(group)
            if told is None:  # a rebalance is not written: what was before it counts
                told = before.get(group_id) or tell_group(_new_group(group))
            known[group_id] = told
        offsets = state.offsets
        for name in offsets.groups():
            topics = offsets.committed(name).items()
            known[f"offsets of {name}"] = {each: dict(places) for each, places in topics}
        known["undecided"] = {
            producer_id: {
                group_id: {
                    (topic, index): each.offset
                    for topic, partitions in written.items()
                    for index, each in partitions.offsets.items()
                }
                for group_id, written in groups.items()
            }
            for producer_id, groups in offsets._undecided.items()
        }
        return known

    def act(self) -> None:
        acts = (
            (self._join, 5),
            (self._leave, 2),
            (self._beat, 10),
            (self._commit, 5),
            (self._commit_in_transaction, 6),
            (self._end_transaction, 3),
            (self._delete_offsets, 1),
            (self._delete_group, 1),
        )
        (act,) = self.random.choices(*zip(*acts, strict=True))
        act()

    # Classic members

    def _join(self) -> None:
        name = self.random.choice(("c1", "c2", "static"))
        instance_id = "i" if name == "static" else None
        if name == "static" and self.random.random() < 0.5:
            self.classic.pop(name, None)  # another process
        request = JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=self.random.choice((1000, 5000)),
            member_id=self.classic.get(name, ""),
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=each, metadata=self.random.randbytes(3))
                for each in ("range", "sticky")
            ],
        )
        joiner = Joiner(name, "/host", fetches_id=self.random.random() < 0.5)

        def on_answer(answer: JoinGroupResponse) -> None:
            if answer.error_code:
                self.classic.pop(name, None)
            if answer.member_id:
                self.classic[name] = answer.member_id
            if not answer.error_code:
                self._sync(answer)

        self.do(join, request, joiner, on_answer=on_answer)

    def _sync(self, joined: JoinGroupResponse) -> None:
        request = SyncGroupRequest(
            group_id="classic",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=each.member_id, assignment=each.member_id.encode()
                )
                for each in joined.members
            ],
        )
        self.do(sync, request)

    def _leave(self) -> None:
        if self.classic and self.random.random() < 0.5:
            name = self.random.choice(sorted(self.classic))
            members = [MemberIdentity(member_id=self.classic.pop(name))]
            self.do(leave, LeaveGroupRequest(group_id="classic", members=members))
        elif self.consumers:
            member_id = self.random.choice(sorted(self.consumers))
            is_back_soon = member_id.startswith("s") and self.random.random() < 0.7
            self._send_beat(member_id, -2 if is_back_soon else -1)
            del self.consumers[member_id]

    # Consumers

    def _beat(self) -> None:
        if len(self.consumers) < 4 and self.random.random() < 0.3:
            prefix = self.random.choice(("m", "s"))
            self.consumers[f"{prefix}{self.number()}"] = 0, {}
        if self.consumers:
            member_id = self.random.choice(sorted(self.consumers))
            self._send_beat(member_id, self.consumers[member_id][0])

    def _send_beat(self, member_id: str, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="consumer",
            member_id=member_id,
            member_epoch=epoch,
            instance_id="i" if member_id.startswith("s") else None,
        )
        if epoch >= 0:
            owned = self.consumers[member_id][1] if epoch else {}
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in owned.items()
            ]
            request.rebalance_timeout_ms = 10_000
            if self.random.random() < 0.3:
                request.subscribed_topic_regex = self.random.choice(("a|b", "b.*"))
            if epoch == 0 or self.random.random() < 0.3:
                wanted = self.random.randint(0, len(TOPICS))
                request.subscribed_topic_names = self.random.sample(TOPICS, wanted)

        def on_answer(answer: ConsumerGroupHeartbeatResponse) -> None:
            known = self.consumers.get(member_id)
            if known is not None and answer.member_epoch >= 0:
                assigned = known[1]
                if answer.assignment is not None:
                    rows = answer.assignment.topic_partitions
                    assigned = {row.topic_id: row.partitions for row in rows}
                self.consumers[member_id] = answer.member_epoch, assigned

        self.do(heartbeat, request, Sender(member_id, "/host", version=1), on_answer=on_answer)

    # Offsets

    def _commit(self) -> None:
        self._send_commit(Committer(version=9))

    def _commit_in_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        self._send_commit(
            Committer(is_transactional=True),
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
        )

    def _send_commit(self, committer: Committer, **producer: int) -> None:
        topic = self.random.choice(TOPICS)
        rows = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=self.number(), committed_metadata="m"
            )
            for index in self.random.sample(range(4), 2)
        ]
        offsets = TopicOffsets(topic, topic.encode() * 16, rows)
        group_id = self.random.choice(GROUPS)
        retention_ms = self.random.choice((-1, -1, 5000))
        commit = Commit(group_id, [offsets], committer, retention_ms)
        self.do(commit_offsets, commit, **producer)

    def _end_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        self.mark(producer_id, self.epochs[producer_id], is_commit=self.random.random() < 0.6)
        self.epochs[producer_id] += self.random.random() < 0.3

    def _delete_offsets(self) -> None:
        group_id, topic = self.random.choice(GROUPS), self.random.choice(TOPICS)
        self.do(delete_offsets, group_id, [(topic, range(2))], is_timeless=True)

    def _delete_group(self) -> None:
        self.do(delete_group, self.random.choice(GROUPS), is_timeless=True)


def tell_group(group: Group) -> Any:
    """Say what of a group is written; None while a classic one rebalances."""
    if isinstance(group, ConsumerGroup):
        return (
            group.epoch,
            group.metadata_hash,
            group.assignment_epoch,
            group.assignment_timestamp_ms,
            {member_id: astuple(each) for member_id, each in group.members.items()},
            dict(group.targets),
            {pattern: astuple(each) for pattern, each in group.patterns.items()},
            dict(group.owners),
            dict(group.static_members),
        )
    assert isinstance(group, ClassicGroup)
    if group.state_name not in ("Stable", "Empty"):
        return None
    return (
        group.state_name,
        group.state_since_ms,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader,
        dict(group.static_members),
        [each.row(group.protocol_name, each.assignment) for each in group.members.values()],
    )


def _new_group(group: Group) -> ClassicGroup:
    """Give a group as it is written when it begins; its first member is not in it yet."""
    assert isinstance(group, ClassicGroup)
    return ClassicGroup(group.group_id, state_since_ms=group.state_since_ms)
