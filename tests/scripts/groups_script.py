"""Groups in words: every command gives lines that say all that came of it.

Time stands still but for `wait`. A member is called by its client's name; its id is that name (or
its instance's) and a number. Whatever is written or answered, and every state that the group moves
to, is said.

    settings group.max.size=3 ...      before everything else
    join a [v4] [instance=i] [type=connect] [id=a-1] [session=ms] [rebalance=ms] [range:x rr:y]
    enter a ...                        both steps: fetch an id, come back with it
    sync a [generation=1] [a=x b=y]    with assignments if it leads
    heartbeat a [generation=1]         leave a b            leave by instance: leave =i
    wait 3000                          restart              status

Consumers of both protocols (KIP-848) share topic `t` of four partitions. What a classic one says
and is assigned is in the consumers' own format if it is written with `@`: `range@` wants the
topic, `range@0,1` reads two partitions of it, `sync a a=@0,1` assigns them.

    beat c                             joins, or goes on in its epoch
    beat c reads=0,1                   says what it reads (`reads=` nothing)
    beat c epoch=-1                    leaves
"""

from collections.abc import Iterable
from typing import Any

from headrace.errors import ErrorCode
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.state import GroupId
from headrace.wire.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
)
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_response import LeaveGroupResponse
from headrace.wire.messages.sync_group_response import SyncGroupResponse
from tests.unit.groups.classic.classic_world import Call
from tests.unit.groups.mixed_world import MixedWorld, assigned, read_assigned, subscribed

GROUP = "g"
DEFAULT_PROTOCOL = "range:"
DEFAULTS = {"group_initial_rebalance_delay_ms": "3000"}


class ScriptedGroup:
    """The world of one script: one group, and clients by name."""

    def __init__(self) -> None:
        self.world = MixedWorld(**DEFAULTS)
        self.ids: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.lines: list[str] = []
        self.state_name = "none"

    def run(self, command: str) -> list[str]:
        self.lines = []
        name, *words = command.split()
        written = len(self.world.log)
        getattr(self, "do_" + name)(*words)
        for record in self.world.log[written:]:
            self.lines.append("wrote " + describe_record(record.key, record.value))
        while self.world.answered:
            self._say_answer(self.world.answered.popleft())
        self._say_state()
        return self.lines

    @property
    def group(self) -> ClassicGroup | None:
        found = self.world.machine.state.groups.get(GroupId(GROUP))
        return found if isinstance(found, ClassicGroup) else None

    def _say_state(self) -> None:
        found = self.world.machine.state.groups.get(GroupId(GROUP))
        name = "none" if found is None else found.state_name
        if isinstance(found, ConsumerGroup):
            name += " (consumer)"
        if name != self.state_name:
            self.lines.append(f"group: {self.state_name} -> {name}")
            self.state_name = name

    def _say_answer(self, call: Call) -> None:
        answer, name = call.answer, self._name(call.name)
        if isinstance(answer, JoinGroupResponse) and answer.member_id:
            self.ids[name] = answer.member_id
            if answer.error_code == ErrorCode.NONE:
                self.generations[name] = answer.generation_id
        if isinstance(answer, ConsumerGroupHeartbeatResponse):
            self.generations[name] = answer.member_epoch
        text = describe_answer(answer) if call.code == ErrorCode.NONE else call.code.name
        if call.code == ErrorCode.MEMBER_ID_REQUIRED:
            text += f" {answer.member_id}"
        self.lines.append(f"{name}: {text}")

    def _name(self, name_or_id: str) -> str:
        return next((name for name, each in self.ids.items() if each == name_or_id), name_or_id)

    # Commands

    def do_settings(self, *words: str) -> None:
        options = dict(word.split("=") for word in words)
        named = {name.replace(".", "_"): value for name, value in options.items()}
        self.world = MixedWorld(**(DEFAULTS | named))

    def do_join(self, name: str, *words: str) -> None:
        version, options = 9, {"id": self.ids.get(name, "")}
        protocols = []
        for word in words:
            if word[0] == "v" and word[1:].isdigit():
                version = int(word[1:])
            elif ":" in word or "@" in word:
                protocols.append(word)
            else:
                key, _, value = word.partition("=")
                options[key] = value
        if "instance" in options:
            self.instances[name] = options["instance"]
        self.world.join(
            name,
            options["id"],
            instance=options.get("instance"),
            protocols=tuple(read_protocols(protocols or [DEFAULT_PROTOCOL])),
            protocol_type=options.get("type", "consumer"),
            session_ms=int(options.get("session", 10_000)),
            rebalance_ms=int(options.get("rebalance", 60_000)),
            version=version,
        )

    def do_enter(self, name: str, *words: str) -> None:
        self.do_join(name, *words)
        self.ids[name] = self.world.answered.popleft().answer.member_id
        self.do_join(name, *words)

    def do_sync(self, name: str, *words: str) -> None:
        generation, assignments = self.generations.get(name, 0), {}
        for word in words:
            key, _, value = word.partition("=")
            if key == "generation":
                generation = int(value)
            else:
                assignments[self.ids[key]] = read_assignment(value)
        self.world.sync(self.ids[name], generation, assignments, instance=self.instances.get(name))

    def do_heartbeat(self, name: str, *words: str) -> None:
        generation = self.generations.get(name, 0)
        for word in words:
            generation = int(word.partition("=")[2])
        self.world.heartbeat(self.ids[name], generation, instance=self.instances.get(name))

    def do_beat(self, name: str, *words: str) -> None:
        epoch, owned, instance = self.generations.get(name, 0), None, None
        self.ids[name] = name
        for word in words:
            key, _, value = word.partition("=")
            if key == "epoch":
                epoch = int(value)
            elif key == "reads":
                owned = {"t": read_indexes(value)}
            else:
                instance = value
        self.world.beat(name, epoch, owned, instance_id=instance)

    def do_leave(self, *names: str) -> None:
        self.world.leave(
            *(
                ("", name[1:]) if name[0] == "=" else (self.ids[name], self.instances.get(name))
                for name in names
            )
        )

    def do_wait(self, duration_ms: str) -> None:
        self.world.wait(int(duration_ms))

    def do_restart(self) -> None:
        self.world.restart()

    def do_status(self) -> None:
        group = self.group
        if group is None:
            self.lines.append("there is no group")
            return
        self.lines.append(
            f"{group.state_name} generation={group.generation} type={group.protocol_type or '-'} "
            f"protocol={group.protocol_name or '-'} leader={group.leader or '-'}"
        )
        for member_id, member in group.members.items():
            waits = "waits to join" if member_id in group.join_replies else ""
            waits = "waits for sync" if member_id in group.sync_replies else waits
            assignment = describe_embedded(member.assignment) or "nothing"
            self.lines.append(f"   {member_id} has {assignment}{waits and ', ' + waits}")
        if group.pending_joins:
            self.lines.append(f"   expected: {' '.join(sorted(group.pending_joins))}")


def read_protocols(words: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for word in words:
        if "@" in word:
            name, _, reads = word.partition("@")
            yield name, subscribed("t", owned={"t": read_indexes(reads)} if reads else None)
        else:
            name, _, metadata = word.partition(":")
            yield name, metadata.encode()


def read_indexes(text: str) -> list[int]:
    return [int(index) for index in text.split(",") if index]


def read_assignment(text: str) -> bytes:
    return assigned({"t": read_indexes(text[1:])}) if text.startswith("@") else text.encode()


def describe_embedded(embedded: bytes) -> str:
    """Give an assignment as a script has it: text, or the consumers' own format behind an `@`."""
    if not embedded.startswith(b"\0"):
        return embedded.decode()
    return "@" + ",".join(map(str, read_assigned(embedded).get("t", ())))


def describe_said(metadata: bytes) -> str:
    return "@" if metadata.startswith(b"\0") else metadata.decode()


def describe_answer(answer: Any) -> str:
    if isinstance(answer, JoinGroupResponse):
        members = " ".join(
            f"{each.member_id}:{describe_said(bytes(each.metadata))}" for each in answer.members
        )
        return (
            f"joined as {answer.member_id} generation={answer.generation_id} "
            f"protocol={answer.protocol_name} leader={answer.leader or '-'}"
            f"{members and f' members=({members})'}"
            f"{' skip assignment' if answer.skip_assignment else ''}"
        )
    if isinstance(answer, SyncGroupResponse):
        return f"assigned {describe_embedded(bytes(answer.assignment)) or 'nothing'}"
    if isinstance(answer, LeaveGroupResponse):
        return "left " + " ".join(
            f"{each.member_id or each.group_instance_id}:{ErrorCode(each.error_code).name}"
            for each in answer.members
        )
    if isinstance(answer, ConsumerGroupHeartbeatResponse):
        if answer.assignment is None:
            return f"epoch={answer.member_epoch}"
        return (
            f"epoch={answer.member_epoch} assigned {_indexes(answer.assignment.topic_partitions)}"
        )
    assert isinstance(answer, HeartbeatResponse)
    return "alive"


def describe_record(key: Any, value: Any) -> str:
    if not isinstance(key, GroupMetadataKey):
        return describe_consumer_record(key, value)
    if value is None:
        return "a tombstone"
    assert isinstance(value, GroupMetadataValue)
    members = " ".join(
        f"{each.member_id}={describe_embedded(bytes(each.assignment)) or '-'}"
        for each in value.members
    )
    return f"generation={value.generation} leader={value.leader or '-'} members=({members})"


def describe_consumer_record(key: Any, value: Any) -> str:
    kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    words = [_KINDS.get(kind, kind), getattr(key, "member_id", "")]
    if value is None:
        words.append("gone")
    elif kind == "MemberMetadata":
        words.append("classic" if value.classic_member_metadata else "consumer")
    elif kind == "CurrentMemberAssignment":
        words.append(f"epoch={value.member_epoch} {_indexes(value.assigned_partitions)}")
        if value.partitions_pending_revocation:
            words.append(f"revoking {_indexes(value.partitions_pending_revocation)}")
    elif kind == "TargetAssignmentMember":
        words.append(_indexes(value.topic_partitions))
    else:
        words.append(f"epoch={getattr(value, 'epoch', None) or value.assignment_epoch}")
    return " ".join(filter(None, words))


_KINDS = {
    "MemberMetadata": "member",
    "CurrentMemberAssignment": "current",
    "TargetAssignmentMember": "target",
    "TargetAssignmentMetadata": "target epoch",
    "Metadata": "group",
    "PartitionMetadata": "partitions",
}


def _indexes(rows: Iterable[Any]) -> str:
    return "@" + ",".join(str(index) for row in rows for index in row.partitions)
