"""Members of share groups that join, leave, die, lose answers, while states begin and fail.

- Epochs of groups, targets and members only grow.
- Nobody has a partition whose state has not begun.
- What is loaded from the log is what was there.
- Once everybody is well behaved, every partition of a wanted topic is read, each topic by as many
  as leave nobody idle, evenly, and nothing changes any more.
"""

from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from headrace.errors import ErrorCode, KafkaError
from headrace.groups.share.group import ShareGroup
from headrace.groups.share.states import forget_topic_states, note_not_begun
from tests.unit.groups.share.share_world import ShareWorld

TOPICS = ("a", "b", "c")
ROUNDS_MAX = 20
GONE = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.NOT_COORDINATOR,
}


class Worker:
    """A member."""

    def __init__(self, member_id: str, topics: tuple[str, ...]) -> None:
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.is_full_due = True
        """Whether it has to say what it wants: it changed, or an answer was lost."""
        self.reads: dict[str, list[int]] = {}
        self.is_waiting = False
        """Whether a heartbeat has no answer yet."""

    def beat(self, world: ShareWorld, *, loses_answer: bool = False) -> None:
        """Send a heartbeat, unless the answer to the last one is still to come."""
        if self.is_waiting:
            return
        topics = self.topics if self.epoch == 0 or self.is_full_due else None
        self.is_waiting = True
        reply = partial(self._take, world, loses_answer=loses_answer)
        try:
            world.send_share_beat(self.member_id, self.epoch, topics, reply=reply)
        except KafkaError as error:
            reply(error)

    def _take(self, world: ShareWorld, answer: Any, *, loses_answer: bool) -> None:
        assert self.is_waiting, "one answer for each heartbeat"
        self.is_waiting = False
        if isinstance(answer, KafkaError):
            if answer.code not in GONE:
                raise answer
            self.epoch, self.reads = 0, {}
            return
        if loses_answer:
            self.is_full_due = True
            return
        assert answer.member_epoch >= self.epoch
        self.epoch, self.is_full_due = answer.member_epoch, False
        assigned = world.share_assigned(answer)
        if assigned is not None:
            self.reads = assigned


class ShareGroupModel(RuleBasedStateMachine):
    """One group, whose members are answered at once."""

    wait_ms = 0
    """How long a member without partitions may wait for its answer."""
    workers: Bundle[Worker] = Bundle("workers")
    subscriptions = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple)

    def __init__(self) -> None:
        super().__init__()
        self.world = ShareWorld(headrace_group_first_assignment_wait_ms=self.wait_ms)
        self.alive: list[Worker] = []
        self.epochs = (0, 0)
        self.count = 0

    @initialize(counts=st.lists(st.integers(1, 4), min_size=3, max_size=3))
    def begin(self, counts: list[int]) -> None:
        for topic, count in zip(TOPICS, counts, strict=True):
            self.world.add_topic(topic, count)

    @rule(target=workers, topics=subscriptions)
    def join(self, topics: tuple[str, ...]) -> Worker:
        self.count += 1
        worker = Worker(f"m{self.count}", topics)
        worker.beat(self.world)
        self.alive.append(worker)
        return worker

    @rule(worker=workers, loses_answer=st.booleans())
    def beat(self, worker: Worker, loses_answer: bool) -> None:
        worker.beat(self.world, loses_answer=loses_answer)

    @rule(worker=workers)
    def rejoin(self, worker: Worker) -> None:
        if not worker.is_waiting:
            worker.epoch = 0
            worker.beat(self.world)

    @rule(worker=workers, topics=subscriptions)
    def subscribe(self, worker: Worker, topics: tuple[str, ...]) -> None:
        if not worker.is_waiting:
            worker.topics, worker.is_full_due = topics, True
            worker.beat(self.world)

    @rule(worker=consumes(workers))
    def leave(self, worker: Worker) -> None:
        self.alive.remove(worker)
        try:
            self.world.share_beat(worker.member_id, -1)
        except KafkaError as error:
            if error.code not in GONE:
                raise

    @rule(worker=consumes(workers))
    def die(self, worker: Worker) -> None:
        self.alive.remove(worker)

    @rule()
    def begin_states(self) -> None:
        self.world.begin_states()

    @rule(count=st.integers(1, 3))
    def fail_states(self, count: int) -> None:
        failed, self.world.beginnings = (
            self.world.beginnings[:count],
            self.world.beginnings[count:],
        )
        keys = [each.key for each in failed]
        self.world.do(note_not_begun(self.world.machine.state, keys, self.world.now_ms))

    @rule()
    def lose_states(self) -> None:
        """Hear nothing any more of states that were to begin."""
        self.world.beginnings = []

    @rule(duration_ms=st.sampled_from([1, 500, 1000, 30_000, 44_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.world.grow_topic(topic, 1)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 4))
    def make_anew(self, topic: str, count: int) -> None:
        """Delete a topic and create another of the same name."""
        former = self.world.topic_id(topic)
        self.world.remove_topic(topic)
        self.world.do(forget_topic_states(self.world.machine.state, former, self.world.now_ms))
        self.count += 1
        self.world.add_topic(topic, count, topic_id=b"%s%015d" % (topic.encode(), self.count))

    @rule()
    def restart_coordinator(self) -> None:
        before = self._group()
        for reply in self.world.machine.waiting():
            reply(KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator restarts"))
        self.world.restart()
        after = self._group()
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            for name in ("members", "targets", "states", "epoch", "assignment_epoch"):
                assert getattr(after, name) == getattr(before, name)

    @rule()
    def settle(self) -> None:
        """Have everybody behave well for long enough, and look at the result."""
        self._run_until_quiet()
        group = self._group()
        if group is None or not self.alive:
            return
        assert set(group.members) == {worker.member_id for worker in self.alive}
        for topic in TOPICS:
            wanting = [worker for worker in self.alive if topic in worker.topics]
            counts = [
                sum(index in worker.reads.get(topic, []) for worker in wanting)
                for index in range(len(self.world.topic(topic).partitions))
            ]
            if wanting:
                assert min(counts) >= 1
                assert max(counts) <= max(1, -(-len(wanting) // len(counts)))
        if len({frozenset(worker.topics) for worker in self.alive}) == 1:
            loads = [sum(map(len, worker.reads.values())) for worker in self.alive]
            assert max(loads) - min(loads) <= 1
            assert min(loads) >= 1

    def _run_until_quiet(self) -> None:
        for _ in range(ROUNDS_MAX):
            self.world.pass_time(5000)
            self.world.begin_states()
            written = len(self.world.log)
            for worker in self.alive:
                worker.beat(self.world)
            is_whole = not self.world.beginnings and not self._unheard()
            group = self._group()
            alive = {worker.member_id for worker in self.alive}
            is_known = group is None or group.members.keys() == alive
            if written == len(self.world.log) and is_whole and is_known:
                return
        raise AssertionError("the group does not come to rest")

    def _unheard(self) -> bool:
        """Whether states of a topic that somebody wants have still to begin."""
        group = self._group()
        wanted = {topic for worker in self.alive for topic in worker.topics}
        return group is not None and any(
            topic.name in wanted for topic in group.states.initializing.values()
        )

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self._group()
        if group is not None:
            epochs = (group.epoch, group.assignment_epoch)
            assert epochs[0] >= self.epochs[0]
            assert epochs[1] >= self.epochs[1]
            assert group.assignment_epoch <= group.epoch
            assert all(each.epoch <= group.assignment_epoch for each in group.members.values())
            self.epochs = epochs

    @invariant()
    def nobody_waits_for_long(self) -> None:
        held = [
            each for group in self.world.machine.state.held_heartbeats.values() for each in group
        ]
        assert all(each.until_ms > self.world.now_ms for each in held)
        assert all(each.until_ms <= self.world.now_ms + self.wait_ms for each in held)
        assert {each.member_id for each in held} >= {
            worker.member_id for worker in self.alive if worker.is_waiting
        }

    @invariant()
    def nobody_has_what_has_not_begun(self) -> None:
        group = self._group()
        for target in group.targets.values() if group is not None else ():
            for topic_id, indexes in target.items():
                if self.world.image.topic_by_id(topic_id) is not None:
                    assert group is not None
                    assert indexes <= group.states.initialized[topic_id].partitions

    def _group(self) -> ShareGroup | None:
        groups: Any = self.world.machine.state.groups.values()
        return next((each for each in groups if isinstance(each, ShareGroup)), None)


class WaitingShareGroupModel(ShareGroupModel):
    """One group, whose members are answered when they have partitions, if that is soon."""

    wait_ms = 500


ShareGroupModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
WaitingShareGroupModel.TestCase.settings = ShareGroupModel.TestCase.settings
TestShareGroups = ShareGroupModel.TestCase
TestWaitingShareGroups = WaitingShareGroupModel.TestCase
