"""Streams members that join, leave, die, restart and lose answers, against what must always hold.

- No task is run by two members at once, and of its copies one at most is in a process.
- Epochs of groups, targets and members only grow.
- What is loaded from the log is what was there.
- Once everybody is well behaved, every task is run, evenly, and has its copies.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.state import GroupId
from headrace.groups.streams.group import StreamsGroup
from headrace.wire.messages.streams_group_heartbeat_request import Subtopology, TopicInfo, Topology
from tests.unit.groups.streams.streams_world import GROUP, World, tasks

TOPOLOGY = Topology(
    0,
    [
        Subtopology("0", source_topics=["in"]),
        Subtopology("1", source_topics=["in"], state_changelog_topics=[TopicInfo("log")]),
    ],
)
PARTITIONS = 3
ROUNDS_MAX = 30
SESSION_MS = 45_000
REBALANCE_MS = 20_000
GONE = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Instance:
    """A client as KIP-1071 wants it: it stops a task first and says so later."""

    def __init__(self, member_id: str, process_id: str) -> None:
        self.member_id = member_id
        self.process_id = process_id
        self.epoch = 0
        self.active: set[str] = set()
        self.standby: set[str] = set()

    def beat(self, world: World, *, loses_answer: bool = False) -> None:
        try:
            if self.epoch == 0:
                answer = world.join(
                    self.member_id,
                    TOPOLOGY,
                    process_id=self.process_id,
                    rebalance_timeout_ms=REBALANCE_MS,
                )
            else:
                answer = world.beat(self.member_id, self.epoch, self.active, self.standby)
        except KafkaError as error:
            if error.code not in GONE:
                raise
            self.forget()
            return
        if loses_answer:
            return
        self.epoch = answer.member_epoch
        if (active := tasks(answer.active_tasks)) is not None:
            self.active = set(active)
            self.standby = set(tasks(answer.standby_tasks) or ())

    def forget(self) -> None:
        self.epoch, self.active, self.standby = 0, set(), set()


class StreamsGroups(RuleBasedStateMachine):
    """One application, whose instances do what they like."""

    instances = Bundle("instances")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.add_topic("in", PARTITIONS)
        self.world.add_topic("log", PARTITIONS)
        self.standby_count = 0
        self.alive: list[Instance] = []
        self.epochs: dict[Any, int] = {}
        self._next = 0

    @rule(target=instances, process=st.sampled_from("pqr"))
    def start(self, process: str) -> Instance:
        self._next += 1
        instance = Instance(f"m{self._next}", process)
        self.alive.append(instance)
        instance.beat(self.world)
        return instance

    @rule(instance=instances, loses_answer=st.booleans())
    def beat(self, instance: Instance, *, loses_answer: bool) -> None:
        instance.beat(self.world, loses_answer=loses_answer)

    @rule(instance=consumes(instances))
    def leave(self, instance: Instance) -> None:
        if instance.epoch:
            try:
                self.world.leave(instance.member_id)
            except KafkaError as error:
                if error.code not in GONE:
                    raise
        self.alive.remove(instance)

    @rule(instance=consumes(instances))
    def die(self, instance: Instance) -> None:
        self.alive.remove(instance)

    @rule(standby_count=st.integers(0, 2))
    def change_standbys(self, standby_count: int) -> None:
        self.standby_count = standby_count
        self.world.configure(streams_num_standby_replicas=standby_count)

    @rule(present=st.booleans())
    def change_topic(self, *, present: bool) -> None:
        self.world.remove_topic("log")
        self.world.add_topic("log", PARTITIONS + (not present))

    @rule()
    def restart(self) -> None:
        before = self._group()
        described = self.world.describe() if before else None
        self.world.restart()
        assert (self.world.describe() if before else None) == described

    @rule(duration_ms=st.sampled_from([1000, REBALANCE_MS, SESSION_MS]))
    def pass_time(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)
        # Who is taken to be gone has noticed by its own clock, and runs nothing any more.
        group = self._group()
        for instance in self.alive:
            if group is None or instance.member_id not in group.members:
                instance.forget()

    @rule()
    def settle(self) -> None:
        """Have everybody behave until nothing changes any more."""
        self.world.remove_topic("log")
        self.world.add_topic("log", PARTITIONS)
        for _ in range(SESSION_MS // 10_000 + 1):  # the dead are gone after their session
            self.world.pass_time(10_000)
            self._beat_all()
        for _ in range(ROUNDS_MAX):
            before = len(self.world.log)
            self._beat_all()
            if len(self.world.log) == before:
                break
        else:
            raise AssertionError("the group does not settle")
        if self.alive:
            self._check_settled()

    def _beat_all(self) -> None:
        for instance in self.alive:
            instance.beat(self.world)

    def _check_settled(self) -> None:
        wanted = sorted(f"{part}_{index}" for part in "01" for index in range(PARTITIONS))
        assert sorted(task for each in self.alive for task in each.active) == wanted
        loads = [len(each.active) for each in self.alive]
        assert max(loads) - min(loads) <= 1
        processes = {each.process_id for each in self.alive}
        copies = [task for each in self.alive for task in each.standby]
        assert len(copies) == PARTITIONS * min(self.standby_count, len(processes) - 1)
        assert all(task.startswith("1_") for task in copies)
        assert self.world.describe().group_state == "Stable"

    @invariant()
    def no_task_is_run_twice(self) -> None:
        running = [task for each in self.alive for task in each.active]
        assert len(set(running)) == len(running)

    @invariant()
    def process_has_a_task_once(self) -> None:
        places = [
            (each.process_id, task) for each in self.alive for task in (*each.active, *each.standby)
        ]
        assert len(set(places)) == len(places)

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self._group()
        if group is None:
            return
        now: dict[Any, int] = {each.member_id: each.epoch for each in group.members.values()}
        now |= {"group": group.epoch, "target": group.assignment_epoch}
        for name, epoch in now.items():
            assert epoch >= self.epochs.get(name, 0), name
        self.epochs = now
        assert group.assignment_epoch <= group.epoch

    def _group(self) -> StreamsGroup | None:
        group = self.world.machine.state.groups.get(GroupId(GROUP))
        assert group is None or isinstance(group, StreamsGroup)
        return group


StreamsGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStreamsGroups = StreamsGroups.TestCase
