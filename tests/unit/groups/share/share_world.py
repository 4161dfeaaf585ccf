"""Members of share groups on a clock and an image that a test changes.

The world of consumer groups, whose cluster, clock and log are the same, with members and tools of
share groups.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.heartbeats import Sender
from headrace.groups.share.description import describe_share_group
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.heartbeat import heartbeat
from headrace.groups.share.states import Beginning, note_begun
from headrace.groups.state import GroupId, MemberId
from headrace.ids import TopicId
from headrace.wire.messages.share_group_describe_response import DescribedGroup
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.unit.groups.consumer.consumer_world import STEPS_MAX, World

Held = dict[str, list[int]]


AS_KAFKA = {"headrace_group_first_assignment_wait_ms": 0}
"""Every heartbeat is answered at once."""


class ShareWorld(World):
    """One partition of `__consumer_offsets`; states begin when a test has them begin."""

    def __init__(self, **settings: object) -> None:
        self.beginnings: list[Beginning] = []
        """States that heartbeats wanted to begin, and that have not."""
        self.answers: list[tuple[str, Any]] = []
        """What members were told that did not wait for it, in order."""
        super().__init__(**AS_KAFKA | settings)

    def do(self, outcome: Any) -> Any:
        """Write what an operation wants and tell who is to be told; give its first answer."""
        answer = self._do(outcome)
        for reply, value in outcome.replies:
            reply(value)
        return answer

    def share_beat(
        self,
        member_id: str,
        epoch: int,
        topics: Iterable[str] | None = None,
        *,
        group_id: str = "g",
        rack: str | None = None,
        client_id: str = "client",
    ) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat; return the answer, or raise the KafkaError that it is."""
        told = list[Any]()
        self.send_share_beat(
            member_id,
            epoch,
            topics,
            group_id=group_id,
            rack=rack,
            client_id=client_id,
            reply=told.append,
        )
        (answer,) = told
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer

    def send_share_beat(
        self,
        member_id: str,
        epoch: int,
        topics: Iterable[str] | None = None,
        *,
        group_id: str = "g",
        rack: str | None = None,
        client_id: str = "client",
        reply: Callable[[Any], None] | None = None,
    ) -> None:
        """Send a heartbeat; its answer goes to `reply`, or to `answers` with the member's id."""
        request = ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        sender = Sender(client_id, "/127.0.0.1")
        if reply is None:
            reply = partial(self._keep_answer, member_id)
        self.do(
            heartbeat(
                self.machine.state,
                request,
                sender,
                self.now_ms,
                reply,
                begin=self._begin,
            )
        )

    def _begin(self, beginnings: Sequence[Beginning] | KafkaError) -> None:
        assert not isinstance(beginnings, KafkaError)
        self.beginnings += beginnings

    def _keep_answer(self, member_id: str, answer: Any) -> None:
        self.answers.append((member_id, answer))

    def share_refusal(self, *args: Any, **fields: Any) -> ErrorCode:
        """Send a heartbeat that is refused; nothing is written."""
        before = len(self.log)
        try:
            answer = self.share_beat(*args, **fields)
        except KafkaError as error:
            assert len(self.log) == before
            return error.code
        raise AssertionError(f"not refused: {answer}")

    def begin_states(self, group_id: str = "g") -> None:
        """Have all states begin that heartbeats wanted to."""
        keys = [each.key for each in self.beginnings if each.key.group_id == group_id]
        self.beginnings = [each for each in self.beginnings if each.key.group_id != group_id]
        self.do(note_begun(self.machine.state, group_id, keys, self.now_ms, _ignore))

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; who waited for what is due is told."""
        end_ms = self.now_ms + duration_ms
        for _ in range(STEPS_MAX):
            due_ms = self.machine.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, due_ms)
            self.do(self.machine.on_deadline(self.now_ms))
        raise AssertionError("time does not pass: something is always due")

    def settle(self, group_id: str = "g") -> None:
        """Have states begin and members go on until nothing changes any more."""
        for _ in range(20):
            before = len(self.log)
            self.begin_states(group_id)
            self.pass_time(1000)
            for member in tuple(self.share_group(group_id).members.values()):
                self.share_beat(member.member_id, member.epoch, group_id=group_id)
            if len(self.log) == before:
                return
        raise AssertionError("it does not settle")

    def share_group(self, group_id: str = "g") -> ShareGroup:
        found = self.machine.state.groups[GroupId(group_id)]
        assert isinstance(found, ShareGroup)
        return found

    def share_held(self, member_id: str, group_id: str = "g") -> Held:
        """Give what a member has, by the names of topics."""
        return self.named(self.share_group(group_id).members[MemberId(member_id)].assigned)

    def share_assigned(self, answer: ShareGroupHeartbeatResponse) -> Held | None:
        """Give what an answer assigns; None if it says nothing of it."""
        if answer.assignment is None:
            return None
        return self.named(
            {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        )

    def share_describe(self, group_id: str = "g") -> DescribedGroup:
        row: DescribedGroup = self.do(describe_share_group(self.machine.state, group_id, _ignore))
        return row

    def states(self, part: str, group_id: str = "g") -> Held:
        """Give topics and partitions whose states are `initializing` or `initialized`."""
        topics = getattr(self.share_group(group_id).states, part)
        return {topic.name: sorted(topic.partitions) for topic in topics.values()}

    def topic_id(self, name: str) -> TopicId:
        return self.topic(name).topic_id


def share_words(records: Iterable[Any]) -> list[str]:
    """Give records in a few words each."""
    return [
        ("-" if record.value is None else "+")
        + type(record.key).__name__.removeprefix("ShareGroup").removesuffix("Key")
        for record in records
    ]


def _ignore(_: object) -> None:
    """Nobody waits."""
