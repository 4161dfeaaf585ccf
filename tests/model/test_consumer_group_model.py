"""Consumers that join, leave, stall, die, restart and lose answers, against what must always hold.

- No partition is read by two members at once, whatever the coordinator forgets or they miss.
- Epochs of groups, targets and members only grow.
- What is loaded from the log is what was there.
- Once everybody is well behaved, every partition of a wanted topic is read by one who wants it,
  evenly, and nobody loses what it may keep.
"""

from collections.abc import Iterable
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
from headrace.groups.consumer.group import ConsumerGroup
from tests.unit.groups.consumer.consumer_world import INTERVAL_MS, World

TOPICS = ("a", "b", "c")
ROUNDS_MAX = 30
GONE = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Consumer:
    """A client as KIP-848 wants it: it stops reading first and says so later."""

    def __init__(self, member_id: str, topics: tuple[str, ...], instance_id: str | None) -> None:
        self.member_id = member_id
        self.topics = topics
        self.instance_id = instance_id
        self.epoch = 0
        self.reads: set[tuple[str, int]] = set()
        """What it reads at this moment."""
        self.is_full_due = False
        """Whether it has to say everything: its wishes changed, or it missed an answer."""

    def owned(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, index in self.reads:
            found.setdefault(topic, []).append(index)
        return found

    def beat(self, world: World, *, loses_answer: bool = False) -> None:
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if self.epoch == 0 or self.is_full_due:
            fields |= {"subscribed_topic_names": self.topics, "rebalance_timeout_ms": 60_000}
        try:
            answer = world.beat(self.member_id, self.epoch, self.owned(), **fields)
        except KafkaError as error:
            if error.code is ErrorCode.UNRELEASED_INSTANCE_ID:
                return
            if error.code not in GONE:
                raise
            self.epoch, self.reads = 0, set()
            return
        if loses_answer:
            self.is_full_due = True
            return
        self.is_full_due = False
        self.epoch = answer.member_epoch
        assigned = world.assigned(answer)
        if assigned is not None:
            self.reads = {
                (topic, index) for topic, indexes in assigned.items() for index in indexes
            }

    def leave(self, world: World, epoch: int) -> None:
        self.reads = set()
        try:
            world.beat(self.member_id, epoch, instance_id=self.instance_id)
        except KafkaError as error:
            if error.code not in GONE:
                raise


class ConsumerGroupModel(RuleBasedStateMachine):
    """One group."""

    consumers: Bundle[Consumer] = Bundle("consumers")
    subscriptions = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(tuple)

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.alive: list[Consumer] = []
        self.epochs = (0, 0)
        self.member_epochs: dict[tuple[str, int], int] = {}
        self.count = 0

    @initialize(counts=st.lists(st.integers(1, 7), min_size=3, max_size=3))
    def begin(self, counts: list[int]) -> None:
        for topic, count in zip(TOPICS, counts, strict=True):
            self.world.add_topic(topic, count)

    @rule(target=consumers, topics=subscriptions, is_static=st.booleans())
    def join(self, topics: tuple[str, ...], is_static: bool) -> Consumer:
        self.count += 1
        instance_id = f"i{self.count}" if is_static else None
        consumer = Consumer(f"m{self.count}", topics, instance_id)
        consumer.beat(self.world)
        self.alive.append(consumer)
        return consumer

    @rule(consumer=consumers, loses_answer=st.booleans())
    def beat(self, consumer: Consumer, loses_answer: bool) -> None:
        consumer.beat(self.world, loses_answer=loses_answer)

    @rule(consumer=consumers, topics=subscriptions)
    def subscribe(self, consumer: Consumer, topics: tuple[str, ...]) -> None:
        consumer.topics, consumer.is_full_due = topics, True
        consumer.beat(self.world)

    @rule(consumer=consumes(consumers))
    def leave(self, consumer: Consumer) -> None:
        consumer.leave(self.world, -1)
        self.alive.remove(consumer)

    @rule(consumer=consumes(consumers))
    def die(self, consumer: Consumer) -> None:
        """Read no more, and say nothing: the session ends at some time."""
        consumer.reads = set()
        self.alive.remove(consumer)

    @rule(consumer=consumers)
    def restart_consumer(self, consumer: Consumer) -> None:
        """Come back as another process, which a static member announces."""
        if consumer.instance_id is not None:
            consumer.leave(self.world, -2)
            self.count += 1
            consumer.member_id = f"m{self.count}"
        consumer.reads, consumer.epoch = set(), 0
        consumer.beat(self.world)

    @rule(duration_ms=st.sampled_from([1, 500, INTERVAL_MS, 44_000]))
    def pass_time(self, duration_ms: int) -> None:
        # A client that hears nothing for a session stops reading on its own.
        before_ms = self.world.now_ms
        self.world.pass_time(duration_ms)
        assert self.world.now_ms == before_ms + duration_ms
        group = self._group()
        for consumer in self.alive:
            if group is None or consumer.member_id not in group.members:
                consumer.reads, consumer.epoch = set(), 0

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.world.grow_topic(topic, 1)

    @rule()
    def restart_coordinator(self) -> None:
        before = self._group()
        self.world.restart()
        after = self._group()
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert after.members == before.members
            assert after.targets == before.targets
            assert after.owners == before.owners
            assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)

    @rule()
    def settle(self) -> None:
        """Have everybody behave well for long enough, and look at the result."""
        self._run_until_quiet()
        group = self._group()
        if group is None or not self.alive:
            return
        assert set(group.members) == {consumer.member_id for consumer in self.alive}
        assert group.state_name == "Stable"
        wanted = {topic for consumer in self.alive for topic in consumer.topics}
        assert sorted(self._reading()) == sorted(
            (topic, index)
            for topic in wanted
            for index in range(len(self.world.topic(topic).partitions))
        )
        self._check_even()
        self._check_sticky()

    def _check_even(self) -> None:
        for one in self.alive:
            topics = {topic for topic, _ in one.reads}
            assert topics <= set(one.topics)
            for other in self.alive:
                if topics & set(other.topics):
                    assert len(one.reads) - len(other.reads) <= 1

    def _check_sticky(self) -> None:
        """Let somebody come who wants everything: the others get nothing that they had not."""
        if len({consumer.topics for consumer in self.alive}) != 1:
            return
        before = {consumer.member_id: set(consumer.reads) for consumer in self.alive}
        guest = Consumer("guest", self.alive[0].topics, None)
        guest.beat(self.world)
        self.alive.append(guest)
        self._run_until_quiet()
        for consumer in self.alive[:-1]:
            assert consumer.reads <= before[consumer.member_id]
        guest.leave(self.world, -1)
        self.alive.remove(guest)

    def _run_until_quiet(self) -> None:
        for _ in range(ROUNDS_MAX):
            self.world.pass_time(5000)
            written = len(self.world.log)
            for consumer in self.alive:
                consumer.beat(self.world)
            group = self._group()
            is_whole = group is None or len(group.members) == len(self.alive)
            if written == len(self.world.log) and is_whole:
                return
        raise AssertionError("the group does not come to rest")

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        reading = self._reading()
        assert len(reading) == len(set(reading))

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self._group()
        if group is None:
            return
        epochs = (group.epoch, group.assignment_epoch)
        assert epochs[0] >= self.epochs[0]
        assert epochs[1] >= self.epochs[1]
        assert group.assignment_epoch <= group.epoch
        self.epochs = epochs

    @invariant()
    def what_a_member_reads_is_its_own(self) -> None:
        group = self._group()
        for consumer in self.alive:
            for topic, index in consumer.reads:
                assert group is not None
                owner = group.owners.get((self.world.topic(topic).topic_id, index))
                assert owner == consumer.member_id

    def _reading(self) -> list[tuple[str, int]]:
        return [place for consumer in self.alive for place in consumer.reads]

    def _group(self) -> ConsumerGroup | None:
        groups: Iterable[Any] = self.world.machine.state.groups.values()
        return next((each for each in groups if isinstance(each, ConsumerGroup)), None)


ConsumerGroupModel.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestConsumerGroups = ConsumerGroupModel.TestCase
