"""Share groups in words: every command gives lines that say all that came of it.

Time stands still but for `wait`. Topic `t` has four partitions, `u` two. Whatever is written or
answered, and every state of a partition that is to begin, is said.

    settings group.share.max.size=3    before everything else
    beat a t u                         joins, or goes on in its epoch; says which topics it wants
    beat a                             goes on and says nothing of topics
    beat a epoch=-1                    leaves; or any other epoch
    begun [2]                          all states, or the first two, that were to begin have begun
    failed                             they have not
    grow t 1      create v 2      delete t
    alter t 0=5 1=7                    sets offsets; `begun` follows
    forget t                           deletes offsets of a topic
    wait 3000     restart        status
"""

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.errors import KafkaError
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.offsets import begin_alteration, begin_deletion, note_deleted
from headrace.groups.share.states import forget_topic_states, note_begun, note_not_begun
from headrace.groups.state import GroupId
from headrace.ids import TopicId
from tests.unit.groups.share.share_world import ShareWorld

GROUP = "g"
TOPICS = {"t": 4, "u": 2}
_KINDS = {
    "MemberMetadata": "member",
    "CurrentMemberAssignment": "current",
    "TargetAssignmentMember": "target",
    "TargetAssignmentMetadata": "target epoch",
    "Metadata": "group",
    "StatePartitionMetadata": "states",
}


class ScriptedShareGroup:
    """The world of one script: one group, and members by name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.epochs: dict[str, int] = {}
        self.names: dict[bytes, str] = {}
        """Of topics, also of those that are gone."""
        self._begin()

    def _begin(self, **settings: str) -> None:
        self.world = ShareWorld(**settings)
        for name, count in TOPICS.items():
            self._add(name, count)

    def _add(self, name: str, count: int, topic_id: bytes = b"") -> None:
        self.world.add_topic(name, count, topic_id=topic_id)
        self.names[self.world.topic_id(name)] = name

    def run(self, command: str) -> list[str]:
        self.lines = []
        name, *words = command.split()
        written, begun = len(self.world.log), len(self.world.beginnings)
        answer = None
        try:
            answer = getattr(self, "do_" + name)(*words)
        except KafkaError as error:
            answer = error.code.name
        for record in self.world.log[written:]:
            self.lines.append("wrote " + self._record(record.key, record.value))
        if answer:
            self.lines.append(answer)
        if begins := self.world.beginnings[begun:]:
            keys = ", ".join(
                f"{self.names[each.key.topic_id]}-{each.key.partition}@{each.start_offset}"
                for each in begins
            )
            self.lines.append(f"begins in epoch {begins[0].state_epoch}: {keys}")
        return self.lines

    # Commands

    def do_settings(self, *words: str) -> None:
        self._begin(**{key.replace(".", "_"): value for key, value in _options(words)})

    def do_beat(self, name: str, *words: str) -> str:
        options = dict(_options(word for word in words if "=" in word))
        topics = [word for word in words if "=" not in word]
        epoch = int(options.get("epoch", self.epochs.get(name, 0)))
        answer = self.world.share_beat(name, epoch, topics or None)
        self.epochs[name] = max(answer.member_epoch, 0)
        assigned = self.world.share_assigned(answer)
        told = "" if assigned is None else f" assigned {_partitions(assigned)}"
        return f"{name}: epoch={answer.member_epoch}{told}"

    def do_begun(self, count: str = "") -> None:
        keys = self._take(count)
        self.world.do(note_begun(self.world.machine.state, GROUP, keys, self.world.now_ms, _ignore))

    def do_failed(self, count: str = "") -> None:
        keys = self._take(count)
        self.world.do(note_not_begun(self.world.machine.state, keys, self.world.now_ms))

    def _take(self, count: str) -> list[Any]:
        number = int(count) if count else len(self.world.beginnings)
        taken, self.world.beginnings = (
            self.world.beginnings[:number],
            self.world.beginnings[number:],
        )
        return [each.key for each in taken]

    def do_grow(self, topic: str, more: str) -> None:
        self.world.grow_topic(topic, int(more))

    def do_create(self, topic: str, count: str) -> None:
        self._add(topic, int(count), b"%s%015d" % (topic.encode(), len(self.names)))

    def do_delete(self, topic: str) -> None:
        topic_id = self.world.topic_id(topic)
        self.world.remove_topic(topic)
        self.world.do(forget_topic_states(self.world.machine.state, topic_id, self.world.now_ms))

    def do_alter(self, topic: str, *words: str) -> None:
        offsets = {topic: {int(key): int(value) for key, value in _options(words)}}
        state = self.world.machine.state
        self.world.beginnings += self.world.do(begin_alteration(state, GROUP, offsets, _ignore))

    def do_forget(self, topic: str) -> str:
        state = self.world.machine.state
        found = self.world.do(begin_deletion(state, GROUP, [topic], _ignore))
        gone: Sequence[TopicId] = [each.topic_id for each in found]
        self.world.do(note_deleted(state, GROUP, gone, _ignore))
        return f"forgotten: {_partitions({each.name: each.partitions for each in found})}"

    def do_wait(self, duration_ms: str) -> None:
        self.world.pass_time(int(duration_ms))

    def do_restart(self) -> None:
        self.world.restart()

    def do_status(self) -> str:
        group = self.world.machine.state.groups.get(GroupId(GROUP))
        if not isinstance(group, ShareGroup):
            return "there is no group"
        lines = [f"{group.state_name} epoch={group.epoch} target epoch={group.assignment_epoch}"]
        for member_id, member in sorted(group.members.items()):
            held = _partitions(self._named(member.assigned))
            lines.append(f"   {member_id} epoch={member.epoch} has {held}")
        return "\n".join(lines)

    # Words

    def _record(self, key: Any, value: Any) -> str:
        kind = type(key).__name__.removeprefix("ShareGroup").removesuffix("Key")
        words = [_KINDS[kind], getattr(key, "member_id", "")]
        if value is None:
            words.append("gone")
        elif kind == "MemberMetadata":
            words.append("wants " + (" ".join(value.subscribed_topic_names) or "nothing"))
        elif kind == "CurrentMemberAssignment":
            words.append(f"epoch={value.member_epoch} {self._rows(value.assigned_partitions)}")
        elif kind == "TargetAssignmentMember":
            words.append(self._rows(value.topic_partitions))
        elif kind == "StatePartitionMetadata":
            words.append(f"begin {_infos(value.initializing_topics)},")
            words.append(f"begun {_infos(value.initialized_topics)}")
            if value.deleting_topics:
                words.append(f", delete {' '.join(x.topic_name for x in value.deleting_topics)}")
        else:
            words.append(f"epoch={getattr(value, 'epoch', None) or value.assignment_epoch}")
        return " ".join(filter(None, words)).replace(" ,", ",")

    def _rows(self, rows: Iterable[Any]) -> str:
        return _partitions(self._named({bytes(row.topic_id): row.partitions for row in rows}))

    def _named(self, partitions: Any) -> dict[str, list[int]]:
        return {self.names[topic_id]: sorted(each) for topic_id, each in partitions.items()}


def _options(words: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (word.partition("=") for word in words)]


def _infos(rows: Iterable[Any]) -> str:
    return _partitions({row.topic_name: row.partitions for row in rows})


def _partitions(partitions: Any) -> str:
    found = (
        f"{topic}-{','.join(map(str, sorted(each)))}" for topic, each in sorted(partitions.items())
    )
    return " ".join(found) or "nothing"


def _ignore(_: object) -> None:
    """Nobody waits."""
