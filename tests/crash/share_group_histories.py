"""A life of share groups: members, states that begin, fail and are not heard of, tools, topics."""

from collections.abc import Sequence
from dataclasses import astuple
from functools import partial
from typing import Any, Final

from headrace.config import load_settings
from headrace.coordinator.machine import Outcome, Reply
from headrace.errors import KafkaError
from headrace.groups.administration import delete_group
from headrace.groups.heartbeats import Sender
from headrace.groups.machine import GroupsMachine
from headrace.groups.record_types import RECORD_TYPES
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.heartbeat import heartbeat
from headrace.groups.share.offsets import (
    begin_alteration,
    begin_deletion,
    begin_group_deletion,
    note_deleted,
)
from headrace.groups.share.states import Beginning, forget_topic_states, note_begun
from headrace.groups.state import GroupsState
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, Topic
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.crash.coordinator_histories import Known, Life

TOPICS: Final = ("a", "b", "c")
GROUPS: Final = ("g", "h")
MEMBERS_MAX: Final = 4
SETTINGS: Final = load_settings(
    overrides={
        "group.share.min.session.timeout.ms": "6000",
        "group.share.session.timeout.ms": "20000",
        "group.share.assignment.interval.ms": "500",
    }
)
_IMAGE: Final = Image()
for _number, _name in enumerate(TOPICS):
    _rows = [
        Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1), 10 * _number + i + 1)
        for i in range(3)
    ]
    _IMAGE.add_topic(Topic(TopicName(_name), TopicId(_name.encode() * 16), _rows))


class ShareGroupsLife(Life[GroupsMachine]):
    """Two groups whose members and tools do as they like."""

    types = RECORD_TYPES

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.members: dict[tuple[str, str], int] = {}
        """The epoch of each, by group and id."""

    def make(self) -> GroupsMachine:
        return GroupsMachine(GroupsState(SETTINGS, lambda: _IMAGE, new_id=lambda: "id"))

    def tell(self, machine: GroupsMachine, before: Known) -> Known:
        known: Known = {}
        for group_id, group in machine.state.groups.items():
            assert isinstance(group, ShareGroup)
            known[group_id] = (
                group.epoch,
                group.metadata_hash,
                group.assignment_epoch,
                group.assignment_timestamp_ms,
                {member_id: astuple(each) for member_id, each in group.members.items()},
                dict(group.targets),
                group.states,
            )
        return known

    def act(self) -> None:
        acts = (
            (self._beat, 20),
            (self._leave, 3),
            (self._alter, 3),
            (self._delete_offsets, 2),
            (self._delete_group, 1),
            (self._forget_topic, 1),
        )
        (act,) = self.random.choices(*zip(*acts, strict=True))
        act()

    # Members

    def _beat(self) -> None:
        if len(self.members) < MEMBERS_MAX and self.random.random() < 0.4:
            self.members[self.random.choice(GROUPS), f"m{self.number()}"] = 0
        if self.members:
            group_id, member_id = self.random.choice(sorted(self.members))
            self._send(group_id, member_id, self.members[group_id, member_id])

    def _leave(self) -> None:
        if self.members:
            group_id, member_id = self.random.choice(sorted(self.members))
            if self.random.random() < 0.7:
                self._send(group_id, member_id, -1)
            del self.members[group_id, member_id]

    def _send(self, group_id: str, member_id: str, epoch: int) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch
        )
        if epoch == 0 or (epoch > 0 and self.random.random() < 0.3):
            wanted = self.random.randint(1, len(TOPICS))
            request.subscribed_topic_names = self.random.sample(TOPICS, wanted)

        def on_answer(answer: ShareGroupHeartbeatResponse) -> None:
            if (group_id, member_id) in self.members:
                self.members[group_id, member_id] = max(answer.member_epoch, 0)

        def begin(beginnings: Sequence[Beginning] | KafkaError) -> None:
            if isinstance(beginnings, KafkaError):
                return
            keys = [each.key for each in beginnings]
            if self.random.random() < 0.8:
                begun = self.random.sample(keys, self.random.randint(1, len(keys)))
                # Later, as the nodes that keep states answer.
                self.loop.call_later(0.0001, self.do, note_begun, group_id, begun)

        beat = partial(heartbeat, begin=begin)
        self.do(beat, request, Sender(member_id, "/host"), on_answer=on_answer)

    # Tools

    def _alter(self) -> None:
        group_id = self.random.choice(GROUPS)
        offsets = {self.random.choice(TOPICS): {self.random.randrange(4): self.number()}}

        def on_answer(begun: list[Any]) -> None:
            keys = [each.key for each in begun]
            self.do(note_begun, group_id, keys)

        self.do(begin_alteration, group_id, offsets, is_timeless=True, on_answer=on_answer)

    def _delete_offsets(self) -> None:
        group_id, names = self.random.choice(GROUPS), self.random.sample(TOPICS, 2)

        def on_answer(topics: list[Any]) -> None:
            if self.random.random() < 0.7:
                gone = [topic.topic_id for topic in topics]
                self.do(note_deleted, group_id, gone, is_timeless=True)

        self.do(begin_deletion, group_id, names, is_timeless=True, on_answer=on_answer)

    def _delete_group(self) -> None:
        group_id = self.random.choice(GROUPS)

        def on_answer(_: list[Any]) -> None:
            self.do(delete_group, group_id, is_timeless=True)

        self.do(begin_group_deletion, group_id, is_timeless=True, on_answer=on_answer)

    def _forget_topic(self) -> None:
        topic_id = TopicId(self.random.choice(TOPICS).encode() * 16)
        self.do(_forget, topic_id)


def _forget(state: GroupsState, topic_id: TopicId, now_ms: int, reply: Reply[Any]) -> Outcome:
    return forget_topic_states(state, topic_id, now_ms)
