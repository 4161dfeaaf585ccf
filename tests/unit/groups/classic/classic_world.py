"""Members of classic groups on a clock that a test moves, and a log that every record goes through.

What is written is written as bytes and read back, so that a restart sees what a node would.
"""

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from headrace.config import load_settings
from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.records import CoordinatorRecord, build_record_batch, encode_record
from headrace.coordinator.records import read_record_batch as read_batch
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.heartbeat import heartbeat
from headrace.groups.classic.join import Joiner, join
from headrace.groups.classic.leave import leave
from headrace.groups.classic.sync import sync
from headrace.groups.machine import GroupsMachine
from headrace.groups.record_types import RECORD_TYPES
from headrace.groups.state import GroupId, GroupsState
from headrace.metadata.image import Image
from headrace.records.header import read_headers
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

START_MS = 1_700_000_000_000
STEPS_MAX = 10_000
UNANSWERED = "unanswered"


class Call:
    """A request; `answer` is what came back, a response or a KafkaError."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answer: Any = UNANSWERED

    @property
    def is_answered(self) -> bool:
        return self.answer is not UNANSWERED

    @property
    def code(self) -> ErrorCode:
        assert self.is_answered, f"{self.name} waits"
        if isinstance(self.answer, KafkaError):
            return self.answer.code
        return ErrorCode(self.answer.error_code)


class World:
    """One partition of `__consumer_offsets`."""

    def __init__(self, **settings: object) -> None:
        overrides = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.settings = load_settings(overrides=overrides)
        self.now_ms = START_MS
        self.log: list[CoordinatorRecord] = []
        self.answered: deque[Call] = deque()
        """In the order of their answers, for whoever takes them."""
        self._ids = count(1)
        self.machine = self._new_machine()

    def _new_machine(self) -> GroupsMachine:
        image = Image()
        return GroupsMachine(
            GroupsState(self.settings, lambda: image, new_id=lambda: str(next(self._ids)))
        )

    def group(self, group_id: str = "g") -> ClassicGroup:
        found = self.machine.state.groups[GroupId(group_id)]
        assert isinstance(found, ClassicGroup)
        return found

    # Requests

    def join(
        self,
        name: str,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b""),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
    ) -> Call:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        joiner = Joiner(name, "/host", fetches_id=version >= 4, skips_assignment=version >= 9)
        return self.ask(
            name, lambda state, now_ms, reply: join(state, request, joiner, now_ms, reply)
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> Call:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol[0],
            protocol_name=protocol[1],
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        return self.ask(member_id, lambda state, now_ms, reply: sync(state, request, now_ms, reply))

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None
    ) -> Call:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.ask(
            member_id, lambda state, now_ms, reply: heartbeat(state, request, now_ms, reply)
        )

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> Call:
        request = LeaveGroupRequest(
            group_id=group,
            members=[
                MemberIdentity(member_id=each, group_instance_id=instance)
                for each, instance in members
            ],
        )
        return self.ask("leave", lambda state, now_ms, reply: leave(state, request, now_ms, reply))

    def ask(self, name: str, operation: Callable[[GroupsState, int, Reply[Any]], Outcome]) -> Call:
        call = Call(name)

        def reply(answer: object) -> None:
            assert not call.is_answered, f"{name} is answered twice"
            call.answer = answer
            self.answered.append(call)

        try:
            outcome = operation(self.machine.state, self.now_ms, reply)
        except KafkaError as error:
            reply(error)
        else:
            self.do(outcome)
        return call

    def do(self, outcome: Outcome) -> None:
        """Write, replay and answer, as a shard does."""
        for take_note in outcome.notes:
            take_note()
        for record in outcome.records:
            self.log.append(read_back(record))
            self.machine.replay(self.log[-1])
        for reply, answer in outcome.replies:
            reply(answer)

    # Time

    def wait(self, duration_ms: int) -> None:
        """Let time pass; what is due is done when it is."""
        end_ms = self.now_ms + duration_ms
        for _ in range(STEPS_MAX):
            due_ms = self.machine.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, due_ms)
            self.do(self.machine.on_deadline(self.now_ms))
        raise AssertionError("there is always something due")

    def due_in_ms(self) -> int:
        """Give how long it is until something is due."""
        due_ms = self.machine.next_deadline_ms()
        assert due_ms is not None
        return max(due_ms - self.now_ms, 0)

    def restart(self) -> None:
        """Lose everything but the log."""
        error = KafkaError(ErrorCode.NOT_COORDINATOR, "it moved")
        for reply in tuple(self.machine.waiting()):
            reply(error)
        self.machine = self._new_machine()
        for record in self.log:
            self.machine.replay(record)
        self.do(self.machine.on_loaded(self.now_ms))

    # Shortcuts

    def enter(self, name: str, **options: Any) -> Call:
        """Join with a new id, fetching it first."""
        given = self.join(name, **options)
        assert given.code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(name, given.answer.member_id, **options)

    def stable(self, *names: str, **options: Any) -> list[str]:
        """Have a stable group of members, each with an assignment of its name; give their ids."""
        calls = [self.enter(name, **options) for name in names]
        while not calls[0].is_answered:
            self.wait(self.due_in_ms())
        ids = [call.answer.member_id for call in calls]
        generation = calls[0].answer.generation_id
        assignments = {each: name.encode() for each, name in zip(ids, names, strict=True)}
        for member_id in reversed(ids):
            self.sync(member_id, generation, assignments)
        assert self.group(options.get("group", "g")).state_name == "Stable"
        return ids


def read_back(record: CoordinatorRecord) -> CoordinatorRecord:
    """Give a record as it is read from the log."""
    batch = memoryview(
        build_record_batch(
            [encode_record(record)],
            START_MS,
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
        )
    )
    ((_, header),) = read_headers(batch)
    (again,) = read_batch(batch, header, RECORD_TYPES)
    return again
