"""Three to five nodes with replicated partitions, their clients, and what happens to them by seed.

What is promised, and looked for in the end, of every topic but `loose`:

- While no machine loses what it has not synced, nothing that was acknowledged is lost, whatever
  else happens, and to as many at once: kills, pauses, cuts, full disks, restarts.
- A machine may lose what it has not synced, by a loss of power or with an older disk, if no other
  has ended without a clean stop and is not whole again: nobody can tell a kill from a loss of
  power, so a killed node no longer counts for what is committed. It is whole when it has registered
  again and is in the ISR of all its partitions. That is what a min.insync.replicas of 2 pays for.
- Where every record is synced before it counts (flush.messages=1), in a quarter of the seeds, all
  machines may lose power at once.

Of `loose`, with a min.insync.replicas of 1, the same is promised in seeds in which no machine loses
what was not synced.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final

from headrace.client import Admin, KafkaError, Resource, ResourceType
from headrace.errors import ErrorCode, HeadraceError
from headrace.ids import TopicName
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER
from headrace.node.node import Node
from headrace.replication.partition import Partition
from headrace.testing.hosts import Crashed
from tests.sim import cluster_world, replication_clients
from tests.sim.cluster_world import Machine, Trouble
from tests.sim.node_checks import Violation, expect
from tests.sim.replication_checks import ReplicationChecks, compare_copies, watching_replicas
from tests.sim.replication_clients import (
    COPIERS,
    COPIES,
    JOBS,
    LOCK_SECONDS,
    LOOSE,
    ORDERS,
    PAIRS,
    QUEUE,
    READERS,
    SETTINGS,
)
from tests.sim.replication_raw import RawProducer, RawReader

STORM_SECONDS: Final = 6.0
RECOVERY_SECONDS_MAX: Final = 40.0
DELIVERY_SECONDS_MAX: Final = 40.0
NEVER: Final = float("-inf")
INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")

Work = Callable[[], Coroutine[Any, Any, None]]


class World(cluster_world.World):
    """A cluster with replicated partitions, its clients, and the weather."""

    TROUBLES_A_SECOND = 0.9
    REQUESTS_A_SECOND = 5.0
    STORM_SECONDS = STORM_SECONDS
    EQUAL_SECONDS_MAX = 5.0
    """How long replicas may differ when it is calm."""
    FACTOR = 3
    """How many replicas partitions have."""
    KINDS: tuple[str, ...] | None = None
    """Which clients there are; by seed if None."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.checks: ReplicationChecks = ReplicationChecks(self.simulation)
        self.checks.applied_by = self._applied_by
        self.is_over = False
        self.calm_at = float("inf")
        self.kinds = self._choose_kinds()
        self.topic_ids: dict[str, bytes] = {}
        self.victim: Machine | None = None
        """Which machine has lost what was not synced, or will soon, and is not whole again."""
        self.ended: dict[Machine, None] = {}
        """Which machines have ended without a clean stop, and are not whole again."""
        self._full: dict[Machine, None] = {}
        self._stopped: Machine | None = None
        """Which machine just came to a clean stop."""
        self._readers: list[asyncio.Future[None]] = []

    # What there is

    def _make_machines(self) -> None:
        for number in range(1, self.random.choice((3, 3, 3, 3, 4)) + 1):
            self._add_machine(number, self._seeds(3))

    def _choose_settings(self) -> dict[str, str]:
        luck = self.random
        self.is_synced = luck.random() < 0.25
        """Whether every record is on disk before it counts (flush.messages=1)."""
        self.may_lose = luck.random() < 0.7
        """Whether machines lose power at all."""
        settings = {
            **super()._choose_settings(),
            "default.replication.factor": str(self.FACTOR),
            "min.insync.replicas": str(min(2, self.FACTOR)),
            "offsets.topic.replication.factor": str(self.FACTOR),
            "transaction.state.log.replication.factor": str(self.FACTOR),
            "transaction.state.log.min.isr": str(min(2, self.FACTOR)),
            "share.coordinator.state.topic.replication.factor": str(self.FACTOR),
            "share.coordinator.state.topic.min.isr": str(min(2, self.FACTOR)),
            "replica.lag.time.max.ms": luck.choice(("600", "1200", "2500")),
            "replica.fetch.backoff.ms": "200",
            "replica.socket.timeout.ms": "1500",
            "replica.fetch.wait.max.ms": "400",
            "replica.high.watermark.checkpoint.interval.ms": luck.choice(("500", "5000")),
            "log.flush.offset.checkpoint.interval.ms": luck.choice(("700", "60000")),
            "log.roll.ms": luck.choice(("1500", "604800000")),
            "log.cleaner.enable": "false",
            # Clocks jump, and nothing is to be too old, or too new, for that.
            "log.message.timestamp.after.max.ms": str(2**63 - 1),
            "log.retention.ms": "-1",
            "offsets.retention.minutes": str(2**31 - 1),
            "producer.id.expiration.ms": str(2**31 - 1),
            "transactional.id.expiration.ms": str(2**31 - 1),
            "unclean.leader.election.enable": "false",
            "auto.leader.rebalance.enable": luck.choice(("true", "false")),
            "leader.imbalance.check.interval.seconds": "1",
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "4000",
            "group.share.heartbeat.interval.ms": "500",
            "group.share.min.session.timeout.ms": "1000",
            "group.share.session.timeout.ms": "4000",
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.record.lock.duration.ms": str(int(LOCK_SECONDS * 1000)),
            "group.share.delivery.count.limit": "10",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }
        if not self.is_synced:
            del settings["log.flush.interval.messages"]
        return settings

    def _choose_kinds(self) -> tuple[str, ...]:
        if self.KINDS is not None:
            return self.KINDS
        luck = self.random
        kinds = [luck.choice(("producer", "raw"))]
        kinds += luck.sample(("readers", "pipeline", "transactions", "queue", "raw", "look"), 2)
        kinds.append("admin")
        return tuple(dict.fromkeys(kinds))

    @property
    def topics(self) -> dict[str, tuple[int, int, int]]:
        """Partitions, replicas and min.insync.replicas of each topic of this seed."""
        three, two = self.FACTOR, min(2, self.FACTOR)
        topics = {ORDERS: (2, three, two), PAIRS: (1, two, two), LOOSE: (1, three, 1)}
        if "pipeline" in self.kinds:
            topics[COPIES] = (1, three, two)
        if "queue" in self.kinds:
            topics[JOBS] = (1, three, two)
        return topics

    @property
    def groups(self) -> list[str]:
        names = {"readers": READERS, "pipeline": COPIERS}
        return [name for kind, name in names.items() if kind in self.kinds]

    @property
    def is_calm(self) -> bool:
        return not self.is_storming

    def luck(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}/{self.simulation.now}")

    def new_name(self, name: str) -> str:
        """Name a producer, also one that begins anew."""
        return f"{name}.{self.new_number()}"

    def fetched_at(self) -> float:
        """Return when records of a queue that a client gets now were fetched, at the earliest."""
        now = self.simulation.now
        return now - LOCK_SECONDS - 1 if now > self.calm_at + LOCK_SECONDS + 1 else NEVER

    # The play

    def run(self) -> None:
        with watching_replicas(self.simulation, self.checks):
            self.simulation.run(self._play())

    async def _begin(self) -> None:
        for machine in self.machines:
            self.simulation.call_later(0, self._start_machine, machine)
        while not self._are_all_unfenced():
            await asyncio.sleep(0.05)
            expect(self.simulation.now < RECOVERY_SECONDS_MAX, "no cluster is formed")
        await self._prepare()

    def _are_all_unfenced(self) -> bool:
        count = len(self.machines)
        return len(self.nodes) == count and all(
            sum(not each.is_fenced for each in node.broker.image.brokers()) == count
            for node in self.nodes
        )

    async def _prepare(self) -> None:
        await self.clients[0].run(self._create_topics())
        image = self._image()
        for name in self.topics:
            topic = image.topic(TopicName(name))
            assert topic is not None
            self.topic_ids[name] = topic.topic_id
        self.checks.topic_names = {*self.topics, *INTERNAL}
        if self.may_lose and not self.is_synced:
            self.checks.topic_names.discard(LOOSE)

    async def _create_topics(self) -> None:
        async with Admin(self.bootstrap, SETTINGS) as admin:
            for name, (partitions, factor, least) in self.topics.items():
                try:
                    await admin.create_topic(
                        name, partitions, factor, configs={"min.insync.replicas": str(least)}
                    )
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
            if "queue" in self.kinds:
                group = Resource(ResourceType.GROUP, QUEUE)
                await admin.alter_configs(group, set={"share.auto.offset.reset": "earliest"})

    def _start_clients(self) -> "list[asyncio.Future[None]]":
        """Start those of this seed; return those that end with the storm."""
        clients = replication_clients
        written = ((ORDERS, 2), (ORDERS, 2), (PAIRS, 1), (LOOSE, 1))
        works: dict[str, list[tuple[int, Work]]] = {
            "producer": [(0, lambda: clients.produce(self, "p1", self._written(written)))],
            "raw": [(1, lambda: RawProducer(self, "r1", self._written(written)).run())],
            "transactions": [(1, lambda: clients.transact(self, "t1", ((ORDERS, 2), (PAIRS, 1))))],
            "look": [(0, lambda: RawReader(self, "l1", written).run())],
            "admin": [(1, lambda: clients.administrate(self, "admin"))],
        }
        protocol = self.random.choice(("consumer", "classic"))
        read = (ORDERS, PAIRS)
        readers: dict[str, list[tuple[int, Work]]] = {
            "readers": [(0, lambda: clients.consume(self, "c1", protocol, read))],
            "pipeline": [(0, lambda: clients.copy(self, "k1"))],
            "queue": [(1, lambda: clients.work(self, "s1"))],
        }
        if self.random.random() < 0.4:
            readers["pipeline"].append((1, lambda: clients.copy(self, "k2")))
            readers["readers"].append((1, lambda: clients.consume(self, "c2", protocol, read)))
            readers["queue"].append((0, lambda: clients.work(self, "s2")))
        running = self._launch(works)
        self._readers = self._launch(readers)
        return running

    def _written(self, topics: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
        return (*topics, (JOBS, 1), (JOBS, 1)) if "queue" in self.kinds else topics

    def _launch(self, works: dict[str, list[tuple[int, Work]]]) -> "list[asyncio.Future[None]]":
        running = []
        for kind, each in works.items():
            if kind in self.kinds:
                running += [self.clients[host].start(work()) for host, work in each]
        for future in running:
            future.add_done_callback(self._on_ended)
        return running

    # Nodes and power

    def _image(self) -> Image:
        """Return the newest image that a node has."""
        return max((node.broker.image for node in self.nodes), key=lambda each: each.applied_index)

    def _may_lose_power(self, machine: Machine) -> bool:
        """Return whether a machine may lose what it has not synced, and make it the victim."""
        if self.is_synced or not self.may_lose:
            return self.may_lose
        self._forget_whole()
        is_alone = self.victim in (None, machine) and self.ended.keys() <= {machine}
        if is_alone and not self._full:
            self.victim = machine
        return self.victim is machine

    def _may_end(self, machine: Machine) -> bool:
        """Return whether a machine may end without a clean stop."""
        self._forget_whole()
        return self.victim in (None, machine)

    def _forget_whole(self) -> None:
        for machine in [each for each in self.ended if self._is_whole(each)]:
            del self.ended[machine]
        if self.victim is not None and self._is_whole(self.victim):
            self.victim = None

    def _on_crash(self, machine: Machine) -> None:
        super()._on_crash(machine)
        if self._stopped is not machine:
            self.ended[machine] = None
        self._stopped = None

    def _end_process(self, machine: Machine) -> None:
        self._stopped = machine
        super()._end_process(machine)

    def _is_whole(self, machine: Machine) -> bool:
        """Return whether a machine has all that it is to have, in the life that it lives."""
        node = machine.node
        if node is None or not machine.is_ready or machine.host.disk._changes_left is not None:
            return False
        image = self._image()
        broker = image.broker(node.node_id)
        if broker is None or broker.incarnation_id != node._incarnation_id or broker.is_fenced:
            return False
        return all(
            node.node_id in slot.topic.partitions[slot.partition].isr
            for slot in image.partitions_of(node.node_id)
        )

    # The weather

    async def _storm(self) -> None:
        until = self.simulation.now + self.STORM_SECONDS
        while self.simulation.now < until:
            await asyncio.sleep(self.random.expovariate(self.TROUBLES_A_SECOND))
            self._act()

    def _target(self) -> Machine:
        """Choose who is hit: often the controller or a leader, where most can go wrong."""
        if self.random.random() < 0.4 and self.nodes:
            image = self._image()
            topic = image.topic(TopicName(self.random.choice((ORDERS, ORDERS, *INTERNAL))))
            if topic is not None:
                leader = self.random.choice(topic.partitions).leader
                if leader != NO_LEADER:
                    return self.machines[leader - 1]
        return super()._target()

    def _troubles(self) -> dict[Trouble, int]:
        return {
            self._lose_power: 10,
            self._lose_power_soon: 8,
            self._kill: 10,
            self._pause: 10,
            self._cut: 10,
            self._cut_from_controller: 8,
            self._cut_followers: 8,
            self._isolate: 6,
            self._worsen_link: 6,
            self._reset: 4,
            self._fill_disk: 5,
            self._slow_disk: 6,
            self._move_clock: 4,
            self._stop: 10,
            self._wipe: 2,
            self._lose_all_power: 2,
            self._kill_all: 2,
        }

    def _lose_power(self, machine: Machine, seconds: float) -> None:
        if self._may_lose_power(machine):
            super()._lose_power(machine, seconds)
        else:
            self._kill(machine, seconds)

    def _kill(self, machine: Machine, seconds: float) -> None:
        if self._may_end(machine):
            super()._kill(machine, seconds)

    def _fill_disk(self, machine: Machine, seconds: float) -> None:
        if self._may_end(machine):  # which it does if it is started meanwhile
            super()._fill_disk(machine, seconds)
            self._full[machine] = None
            self.simulation.call_later(seconds, self._full.pop, machine, None)

    def _lose_power_soon(self, machine: Machine, seconds: float) -> None:
        if self._may_lose_power(machine):
            super()._lose_power_soon(machine, seconds)

    def _lose_all_power(self, machine: Machine, seconds: float) -> None:
        if self.is_synced and self.may_lose:
            super()._lose_all_power(machine, seconds)

    def _kill_all(self, machine: Machine, seconds: float) -> None:
        for each in self.started:
            self._kill(each, seconds)

    def _wipe(self, machine: Machine, seconds: float) -> None:
        if self._may_lose_power(machine):
            super()._wipe(machine, seconds)

    def _cut_from_controller(self, machine: Machine, seconds: float) -> None:
        """Leave a node to its clients, and to its followers or not, without the controller."""
        for each in self.started:
            if each is machine or not each.is_ready or each.node is None:
                continue
            if each.node.cluster.is_controller:
                self._cut_link(machine.host.name, each.host.name, seconds)
                if self.random.random() < 0.5:
                    self._cut_link(each.host.name, machine.host.name, seconds)
        self._trouble(machine, seconds)
        self.checks.seen["cuts from the controller"] += 1

    def _cut_followers(self, machine: Machine, seconds: float) -> None:
        """Let others not hear of a node, whom it hears."""
        for each in self.started:
            if each is not machine and self.random.random() < 0.7:
                self._cut_link(machine.host.name, each.host.name, seconds)
        self._trouble(machine, seconds)
        self.checks.seen["cuts from followers"] += 1

    # The end

    async def _calm(self) -> None:
        await super()._calm()
        self.calm_at = self.simulation.now

    def _find_problem(self) -> str:
        problem = super()._find_problem()
        if problem:
            return problem
        image = self._image()
        for name in sorted(image.state.topics):
            topic = image.topic(name)
            assert topic is not None
            for index, row in enumerate(topic.partitions):
                if row.leader == NO_LEADER:
                    return f"{name}-{index} has no leader: {row}"
                if set(row.isr) != set(row.replicas):
                    return f"{name}-{index} has replicas that are not in sync: {row}"
        return ""

    async def _check(self) -> None:
        """Wait for what readers are still to get, and look for everything that was promised."""
        host, checks = self.clients[0], self.checks
        names = [name for name in self.topics if name != COPIES]
        records = await host.run(self._until_read(names, read_committed=False))
        checks.check_records(records, set(names))
        committed = await self._until_decided()
        until = self.simulation.now + DELIVERY_SECONDS_MAX
        while missing := await self._find_missing(records, committed):
            expect(self.simulation.now < until, f"never delivered: {missing}")
            await asyncio.sleep(0.3)
        if "queue" in self.kinds:
            await asyncio.sleep(LOCK_SECONDS + 1)
        self.is_over = True
        for each in self._readers:
            with suppress(Crashed):
                await each
        await self._wait_for_equal_images()
        await self._until_equal()
        await host.run(self._check_groups())

    async def _until_decided(self) -> Any:
        """Return committed records when the last transactions have their markers everywhere."""
        until = self.simulation.now + self.EQUAL_SECONDS_MAX
        while True:
            read = self._until_read([ORDERS, PAIRS], read_committed=True)
            committed = await self.clients[0].run(read)
            try:
                self.checks.check_transactions(committed)
            except Violation:
                if self.simulation.now > until:
                    raise
                await asyncio.sleep(0.2)
            else:
                return committed

    async def _until_read(self, names: list[str], *, read_committed: bool) -> Any:
        read = replication_clients.read_all
        for _ in range(5):
            try:
                return await read(self, names, read_committed=read_committed)
            except HeadraceError as error:
                self.note(f"records cannot be read yet: {error!r}")
                await asyncio.sleep(0.5)
        raise Violation(f"{names} cannot be read: {read_committed=}")

    async def _find_missing(self, records: Any, committed: Any) -> str:
        """Return what groups, queues and the pipeline have not come to yet."""
        delivered = self.checks.delivered
        if "readers" in self.kinds:
            left = [value for value in committed.values() if (READERS, value) not in delivered]
            if left:
                return f"{READERS}: {left[:3]}"
        if "queue" in self.kinds:
            jobs = [value for place, value in records.items() if place[0].topic == JOBS]
            left = [value for value in jobs if (QUEUE, value) not in delivered]
            if left:
                return f"{QUEUE}: {left[:3]}"
        if "pipeline" in self.kinds:
            copies = await self.clients[0].run(self._until_read([COPIES], read_committed=True))
            wanted = sorted(
                f"copy.{place[0].partition}-{place[1]}=".encode() + value
                for place, value in committed.items()
                if place[0].topic == ORDERS
            )
            found = sorted(copies.values())
            expect(len(set(found)) == len(found), f"orders are copied twice: {found}")
            expect(set(found) <= set(wanted), "there are copies of what is not there")
            self.checks._check_order(copies)
            if found != wanted:
                return f"{COPIERS}: {sorted(set(wanted) - set(found))[:3]}"
        return ""

    async def _check_groups(self) -> None:
        async with Admin(self.bootstrap, SETTINGS) as admin:
            await replication_clients.check_offsets(self, admin)

    async def _until_equal(self) -> None:
        """Compare replicas when followers had the time to get what coordinators wrote last."""
        until = self.simulation.now + self.EQUAL_SECONDS_MAX
        while True:
            try:
                self._compare_replicas()
            except Violation:
                if self.simulation.now > until:
                    raise
                await asyncio.sleep(0.1)
            else:
                return

    def _compare_replicas(self) -> None:
        """Compare every replica of every partition with its leader, byte for byte."""
        image = self._image()
        for name in sorted(image.state.topics):
            topic = image.topic(name)
            assert topic is not None
            for index, row in enumerate(topic.partitions):
                leader = self._replica(row.leader, name, index)
                for node in row.replicas:
                    if node != row.leader:
                        follower = self._replica(node, name, index)
                        compare_copies(f"{name}-{index}", leader, follower, self.checks)

    def _replica(self, node_id: int, name: TopicName, index: int) -> Partition:
        node: Node | None = self.machines[node_id - 1].node
        assert node is not None
        partition = node.broker.replicas.find(name, index)
        assert partition is not None
        return partition
