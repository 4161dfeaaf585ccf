"""A group of thirty consumers in a storm, and the coordinator they depend on, by seed.

Shard, machine and log are the product's, on a simulated disk; time, network, clients and the fate
of the coordinator are simulated. Requests and answers are lost, replication takes its time, the
coordinator moves and with it goes what was not replicated, its log refuses writes for a while, the
topic grows. Consumers come, leave, stall and die; some have an instance id, and come back with it
or while another process still has it. In a group that migrates, consumers of the classic and of the
consumer protocol take turns. Then it is calm, and everything must get read. What must hold is
checked on the way by `groups_checks`; a breach raises `Violation`.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, Final

from headrace.config import load_settings
from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import ErrorCode, KafkaError
from headrace.groups.machine import GroupsMachine
from headrace.groups.record_types import RECORD_TYPES
from headrace.groups.state import GroupId, GroupKind, GroupsState
from headrace.groups.streams.topology import InternalTopic
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.log.cutting import truncate
from headrace.log.errors import ReadOnlyLog
from headrace.log.log import Appended
from headrace.log.opening import open_log
from headrace.log.settings import LogSettings
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, ResourceType, Topic
from headrace.testing.disk import SimulatedDisk
from headrace.testing.virtual_loop import run_virtual
from tests.sim.classic_client import ClassicClient
from tests.sim.consumer_client import ConsumerClient
from tests.sim.groups_checks import Checks
from tests.sim.groups_clients import GROUP, Client
from tests.sim.streams_client import STATEFUL, STATELESS, StreamsClient

STORM_SECONDS: Final = 120
CALM_SECONDS_MAX: Final = 180
MEMBERS_MAX: Final = 30
START_MS: Final = 1_700_000_000_000
TOPIC: Final = TopicName("t")
TOPIC_ID: Final = TopicId(b"t" * 16)
VSHARDS: Final = 1000
"""More than the topic has."""
SETTINGS: Final = load_settings(
    overrides={
        "group.initial.rebalance.delay.ms": "1000",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.streams.initial.rebalance.delay.ms": "1000",
        "group.streams.session.timeout.ms": "10000",
        "group.streams.min.session.timeout.ms": "6000",
        "group.streams.heartbeat.interval.ms": "3000",
        "group.streams.min.heartbeat.interval.ms": "1000",
    }
)
LOST: Final = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nothing was heard")
NOWHERE: Final = KafkaError(ErrorCode.NOT_COORDINATOR, "nobody coordinates this group")

KINDS: Final = (
    *("eager", "range", "streams", "migrating eager"),
    *("cooperative", "uniform", "migrating cooperative"),
)
"""What the members of a group are, by seed."""
INSTANCES: Final = tuple(f"i{number}" for number in range(8))
"""What static members are called."""

Ask = Callable[[GroupsState, int, Reply[Any]], Outcome]
"""A request: an operation on the state, with the time and who is to be answered."""


class World:
    """One seed's group; `run` plays it and raises Violation at the first breach."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.trace: list[str] = []
        self.kind = KINDS[seed % len(KINDS)]
        self.is_migrating = self.kind.startswith("migrating")
        self.is_consumer_fashion = self.random.random() < 0.5
        """Whether those who join a group that migrates have the consumer protocol."""
        self.loss = self.random.choice((0.0, 0.01, 0.05))
        self.is_calm = False
        self.ends: list[int] = [0] * self.random.randint(5, 40)
        """Of each partition: how many records there are to read."""
        self.checks = Checks(self.ends)
        self.clients: list[Client] = []
        self.image = Image()
        self.image.add_topic(Topic(TOPIC, TOPIC_ID, [_partition(i) for i in range(len(self.ends))]))
        self.keeps_copies = self.kind == "streams" and self.random.random() < 0.5
        if self.keeps_copies:
            copies = {"streams.num.standby.replicas": "1"}
            self.image.state.configs[ResourceType.GROUP, GROUP] = copies
        self.shard: Shard[GroupsMachine] | None = None
        self._group_kind: GroupKind | None = None
        self._is_group_empty = True
        self._era = 0
        self._is_move_due = False
        self._refusals = 0
        self._numbers = count(1)
        self._unanswered = 0

    def run(self) -> None:
        run_virtual(self._play())

    async def _play(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self.loop.create_future()
        # Whatever a callback raises is a breach, or a mistake in here.
        self.loop.set_exception_handler(lambda _, context: self.fail(context.get("exception")))
        self.journal = Journal(self)
        self._lead()
        for _ in range(self.random.randint(1, MEMBERS_MAX)):
            self._join()
        weather = self.loop.create_task(self._storm())
        await asyncio.wait([weather, self._failed], return_when=asyncio.FIRST_COMPLETED)
        if not self._failed.done():
            weather.result()
            await self._calm()
        for client in self.clients:
            client.die()
        await asyncio.sleep(30)  # until the last request has arrived
        if self.shard is not None:
            self.shard.close()
        await asyncio.sleep(1)
        if self._failed.done():
            self._failed.result()
        self._failed.cancel()
        self.checks.check_that(self._unanswered == 0, f"{self._unanswered} were never answered")

    def fail(self, error: BaseException | None) -> None:
        if not self._failed.done():
            self._failed.set_exception(error or AssertionError("something failed"))

    # The weather

    async def _storm(self) -> None:
        while self.loop.time() < STORM_SECONDS:
            await asyncio.sleep(self.random.expovariate(1.5))
            self._act()

    def _act(self) -> None:
        alive, luck = self.clients, self.random
        for _ in range(luck.randint(0, 10)):
            self.ends[luck.randrange(len(self.ends))] += luck.randint(1, 50)
        what = luck.random()
        if what < 0.4:
            if len(alive) < MEMBERS_MAX:
                self._join()
        elif what < 0.5 and alive:
            luck.choice(alive).wants_to_leave = True
        elif what < 0.6 and alive:
            client = luck.choice(alive)
            self.note(f"{client.name} dies")
            client.die()
            alive.remove(client)
        elif what < 0.75 and alive:
            luck.choice(alive).stall_seconds = luck.choice((1.0, 5.0, 15.0, 40.0))
        elif what < 0.775:
            self._is_move_due = True
        elif what < 0.785:
            self._refuse_writes()
        elif what < 0.8 and len(self.ends) < 64:
            self._grow()
        elif what < 0.84 and self.is_migrating:
            self._change_fashion()

    def _join(self) -> None:
        client = self._new_client(f"c{next(self._numbers)}")
        self.clients.append(client)
        client.start()

    def _new_client(self, name: str) -> Client:
        kind = self.kind
        if kind == "streams":
            topology = STATEFUL if self.keeps_copies else STATELESS
            return StreamsClient(self, name, topology=topology)
        instance_id = self._choose_instance()
        if kind in ("range", "uniform"):
            return ConsumerClient(self, name, instance_id, assignor=kind)
        if self.is_migrating and self.is_consumer_fashion:
            return ConsumerClient(self, name, instance_id, assignor="uniform")
        return ClassicClient(self, name, instance_id, is_cooperative="cooperative" in kind)

    def _choose_instance(self) -> str | None:
        """Have some that are static: most take an instance that nobody has, as if it came back."""
        luck = self.random
        if luck.random() < 0.6:
            return None
        taken = {each.instance_id for each in self.clients}
        free = [each for each in INSTANCES if each not in taken]
        is_mistaken = luck.random() < 0.2
        return luck.choice(INSTANCES if is_mistaken or not free else free)

    def _change_fashion(self) -> None:
        """Have those who come speak the other protocol, and most of the others go."""
        self.is_consumer_fashion = not self.is_consumer_fashion
        self.note(f"consumers are in fashion: {self.is_consumer_fashion}")
        for client in self.clients:
            client.wants_to_leave = self.random.random() < 0.9
        for _ in range(self.random.randint(1, 5)):
            self._join()

    def _grow(self) -> None:
        """Add a partition; only who looks at metadata notices (of these, the coordinator)."""
        if self.kind in ("range", "uniform", "streams") and not self.keeps_copies:
            topic = self.image.topic(TOPIC)
            assert topic is not None
            self.image.add_partitions(topic, [_partition(len(self.ends))])
            self.image.state.applied_index += 1
            self.ends.append(0)

    def create(self, topic: InternalTopic) -> None:
        """Create a topic that a streams application needs, unless it is there by now."""
        name = TopicName(topic.name)
        if self.image.topic(name) is None:
            self.note(f"{name} is created")
            partitions = [_partition(VSHARDS + i) for i in range(topic.partitions)]
            self.image.add_topic(Topic(name, TopicId(b"s" * 16), partitions))
            self.image.state.applied_index += 1

    async def _calm(self) -> None:
        """Let everybody behave well until everything is read."""
        self.is_calm = True
        self.loss = 0.0
        self.journal.failure = None
        self._is_move_due = False
        if self.shard is None:
            self._lead()
        if not self.clients:
            self._join()
        self.note("calm")
        for client in self.clients:
            client.wants_to_leave = False
        end = self.loop.time() + CALM_SECONDS_MAX
        while not self.checks.is_everything_committed() and not self._failed.done():
            self.checks.check_that(self.loop.time() < end, self.checks.missing())
            await asyncio.sleep(1)

    # The coordinator

    def _lead(self) -> None:
        self.note(f"leads from {self.journal.log.end_offset}")
        self.journal.lead()
        self.shard = Shard(self.journal, self._machine, RECORD_TYPES, self)
        self.shard.start()

    def _machine(self) -> GroupsMachine:
        new_id = f"id-{next(self._numbers)}"
        return GroupsMachine(
            GroupsState(SETTINGS, lambda: self.image, new_id=lambda: f"{new_id}-{self.number()}")
        )

    def number(self) -> int:
        return next(self._numbers)

    def on_written(self) -> None:
        """Let the coordinator move, if it is to: best while something is not replicated."""
        if self._is_move_due:
            self._is_move_due = False
            self.loop.call_later(self.random.choice((0.0, 0.005, 0.1)), self._move)

    def _move(self) -> None:
        """Have another node lead that has what is committed, and perhaps no more."""
        if self.shard is None:
            return
        self.shard.close()
        self.shard = None
        if self.random.random() < 0.7:
            self.note(f"loses all from {self.journal.log.high_watermark}")
            truncate(self.journal.log, self.journal.log.high_watermark)
        self.journal.leader_epoch += 1
        self.loop.call_later(self.random.choice((0.0, 0.5, 4.0)), self._lead_again)

    def _lead_again(self) -> None:
        if self.shard is None:
            self._lead()

    def _refuse_writes(self) -> None:
        self._refusals += 1
        if self._refusals % 2:
            self.note("refuses writes")
            self.journal.failure = ReadOnlyLog("journal", "its disk is full")
        else:
            self.note("has too few replicas")
            self.journal.has_enough_replicas = False
        self.loop.call_later(self.random.choice((0.05, 0.5, 3.0)), self.journal.heal)

    def now_ms(self) -> int:
        return START_MS + round(self.loop.time() * 1000)

    # The network

    def send(self, ask: Ask, answered: Callable[[Any, int], None], timeout_seconds: float) -> None:
        """Have a request reach the coordinator, or not; `answered` is told in any case, once.

        With the answer it gets the era of the group in which it was given.
        """
        timer = self.loop.call_later(timeout_seconds, answered, LOST, self._era)
        is_answered = False

        def reply(answer: object) -> None:
            nonlocal is_answered
            self.checks.check_that(not is_answered, "a request is answered twice")
            is_answered = True
            self._unanswered -= 1
            if not timer.cancelled() and not self._is_lost():
                self.loop.call_later(self._latency(), arrive, answer, self._era)

        def arrive(answer: object, era: int) -> None:
            if timer.when() > self.loop.time():
                timer.cancel()
                answered(answer, era)

        def deliver() -> None:
            self._unanswered += 1
            if self.shard is None:
                reply(NOWHERE)
                return
            self._watch(self.shard.machine.state)
            self.shard.write(lambda machine, now_ms: ask(machine.state, now_ms, reply), reply)
            self._watch(self.shard.machine.state)

        if not self._is_lost():
            self.loop.call_later(self._latency(), deliver)

    def _watch(self, state: GroupsState) -> None:
        """Note what became of the group: an empty one may begin anew as one of another kind."""
        group = state.groups.get(GroupId(GROUP))
        if group is None:
            return
        if self._group_kind not in (None, group.kind):
            self.note(f"the group is of kind {group.kind.name}")
            self._era += self._is_group_empty
            self.checks.migrations += not self._is_group_empty
        self._group_kind, self._is_group_empty = group.kind, group.is_empty

    def _is_lost(self) -> bool:
        return self.loss > 0 and self.random.random() < self.loss

    def _latency(self) -> float:
        return self.random.uniform(0.0005, 0.02)

    def note(self, what: str) -> None:
        self.trace.append(f"{self.loop.time():9.3f} {what}")


class Journal:
    """The partition of `__consumer_offsets`, replicated a little later."""

    def __init__(self, world: World) -> None:
        self.log = open_log(SimulatedDisk(world.seed), "journal-0", LogSettings(), is_clean=True)
        self.name = "journal"
        self.is_leader = True
        self.leader_epoch = 0
        self.has_enough_replicas = True
        self.produce_waiters: dict[Any, int | None] = {}
        self.failure: KafkaError | None = None
        self._world = world

    def append_own(self, batch: memoryview, *, transaction_version: int = 0) -> Appended:
        if not self.has_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas are in sync")
        if self.failure is not None:
            raise self.failure
        appended = self.log.append_own(batch, leader_epoch=self.leader_epoch)
        self._follow()
        self._world.on_written()
        return appended

    def lead(self) -> None:
        """Begin an epoch; the others get what they do not have of the log."""
        self.leader_epoch += 1
        self._follow()

    def _follow(self) -> None:
        """Let the others have the log as far as it goes now, in a while."""
        delay = self._world.random.choice((0.0, 0.001, 0.01, 0.2))
        self._world.loop.call_later(delay, self._replicate, self.log.end_offset, self.leader_epoch)

    def heal(self) -> None:
        self.failure = None
        self.has_enough_replicas = True

    def _replicate(self, offset: int, epoch: int) -> None:
        if epoch == self.leader_epoch and offset > self.log.high_watermark:
            self.log.advance_high_watermark(offset)
            for waiter in tuple(self.produce_waiters):
                waiter.on_progress()


def _partition(number: int) -> Partition:
    broker = BrokerId(1)
    return Partition((broker,), (broker,), broker, number + 1)
