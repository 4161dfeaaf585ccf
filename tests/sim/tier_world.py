"""Nodes whose partitions move to a tier, their clients, and what happens to them by seed.

What is promised of replicated partitions holds here, too (see `replication_world`), wherever the
records are: segments are tiny, move to a simulated store at once, and leave the disks. The store
fails before and after what it was to do, is slow, away for a time, lists late, or loses what it
took. Topics are deleted and created again, the first records of others are deleted, and one has
leaders that lack what was committed.

When it is calm, everything settles within a bound: all that is readable reads as it was written,
and the audit that users run (`headrace tier fsck`) is clean, without any grace period.
"""

import asyncio
from typing import Final

from headrace.client import (
    Admin,
    Consumer,
    KafkaError,
    Resource,
    ResourceType,
    Start,
    TopicPartition,
)
from headrace.client.remote_log import RemoteLogTopic
from headrace.errors import ErrorCode, HeadraceError
from headrace.ids import REMOTE_METADATA_TOPIC, TopicName
from headrace.metadata.state import NO_LEADER
from headrace.node.node import Node
from headrace.remote.audit import HEALTHY, Ages, Class, Report
from headrace.remote.inventory import Inventory, LeaderFacts, judge, take_inventory
from headrace.remote.layout import MARKER_KEY, topic_key
from headrace.remote.segments import SegmentEpoch
from headrace.testing.simulated_node import make_node
from headrace.testing.store import SimulatedStore
from headrace.tier.topic_event_log import CLIENT_SETTINGS
from tests.sim import replication_clients, replication_world, tier_clients
from tests.sim.cluster_world import Machine, Trouble
from tests.sim.node_checks import expect
from tests.sim.replication_clients import LOOSE, ORDERS, PAIRS, QUEUE, SETTINGS
from tests.sim.replication_raw import RawProducer, RawReader
from tests.sim.replication_world import Work
from tests.sim.tier_checks import TierChecks, watching_tier
from tests.sim.tier_clients import BRIEF, FLEETING, WILD, FleetingProducer, WholeReader

SETTLING_SECONDS_MAX: Final = 30.0


class World(replication_world.World):
    """A cluster with a tier, its clients, and the weather."""

    TROUBLES_A_SECOND = 0.6
    STORE_TROUBLES_A_SECOND = 1.2
    REQUESTS_A_SECOND = 14.0
    STORM_SECONDS = 6.0
    EQUAL_SECONDS_MAX = 5.0 + CLIENT_SETTINGS.request_timeout_ms / 1000
    """A follower that begins behind the tier needs its events, and the node that it reads them from
    may have lost its power during the storm: that is known when a request times out."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        simulation = self.simulation
        self.checks: TierChecks = TierChecks(simulation)
        self.checks.applied_by = self._applied_by
        self.checks.deleting = {BRIEF, WILD, *FLEETING}
        self.checks.find_starts = self._find_starts
        self.store = SimulatedStore(
            seed,
            time_ms=lambda: 1_700_000_000_000 + int(simulation.now * 1000),
            seconds=lambda: simulation.now,
        )
        self.local = self._choose_local()

    # What there is

    def _make_node(self, machine: Machine) -> Node:
        return make_node(machine.host, self._settings_of(machine), store=self.store)

    def _choose_settings(self) -> dict[str, str]:
        luck = self.random
        return {
            **super()._choose_settings(),
            "remote.log.manager.task.interval.ms": luck.choice(("100", "400")),
            "remote.log.manager.task.retry.backoff.ms": "100",
            "remote.log.manager.task.retry.backoff.max.ms": "800",
            "rlmm.config.remote.log.metadata.consume.wait.ms": "2000",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(self.FACTOR),
            "rlmm.config.remote.log.metadata.topic.min.isr": str(min(2, self.FACTOR)),
            "headrace.tier.orphan.grace.ms": "500",
            "headrace.tier.orphan.interval.ms": "1000",
            "headrace.tier.snapshot.interval.ms": luck.choice(("1000", "60000")),
            "log.retention.check.interval.ms": luck.choice(("100", "500")),
            "log.index.interval.bytes": "150",
        }

    def _choose_local(self) -> dict[str, str]:
        """Return how long segments stay on the disks."""
        return self.random.choice(
            ({"local.retention.bytes": "1"}, {"local.retention.ms": "700"}, {})
        )

    def _choose_kinds(self) -> tuple[str, ...]:
        kinds = ["transactions", "look", *self.random.sample(("producer", "raw", "readers"), 2)]
        kinds += self.random.sample(("fleeting", "brief", "wild", "admin", "move", "queue"), 3)
        return tuple(kinds)

    @property
    def topics(self) -> dict[str, tuple[int, int, int]]:
        topics = super().topics
        topics[BRIEF] = topics[PAIRS]
        topics[WILD] = (1, self.FACTOR, 1)
        return topics

    def configs_of(self, topic: str) -> dict[str, str]:
        """Return the configs of a topic in the tier."""
        configs = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": "500",
            **self.local,
        }
        if topic == BRIEF:
            configs |= {"retention.bytes": "2000"}
        if topic == WILD:
            configs |= {"unclean.leader.election.enable": "true"}
        return configs

    async def _create_topics(self) -> None:
        async with Admin(self.bootstrap, SETTINGS) as admin:
            for name, (partitions, factor, least) in self.topics.items():
                configs = {**self.configs_of(name), "min.insync.replicas": str(least)}
                try:
                    await admin.create_topic(name, partitions, factor, configs=configs)
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
            if "queue" in self.kinds:
                group = Resource(ResourceType.GROUP, QUEUE)
                await admin.alter_configs(group, set={"share.auto.offset.reset": "earliest"})

    async def _prepare(self) -> None:
        await super()._prepare()
        self.checks.topic_names.discard(WILD)
        self.checks.topic_names.add(REMOTE_METADATA_TOPIC)

    def _start_clients(self) -> "list[asyncio.Future[None]]":
        clients = replication_clients
        written = ((ORDERS, 2), (ORDERS, 2), (PAIRS, 1), (LOOSE, 1), (BRIEF, 1))
        looked_at = (*written, (WILD, 1)) if "wild" in self.kinds else written
        fleeting = tuple((name, 1) for name in FLEETING)
        works: dict[str, list[tuple[int, Work]]] = {
            "producer": [(0, lambda: clients.produce(self, "p1", self._written(written)))],
            "raw": [(1, lambda: RawProducer(self, "r1", self._written(written)).run())],
            "transactions": [(1, lambda: clients.transact(self, "t1", ((ORDERS, 2), (PAIRS, 1))))],
            "look": [(0, lambda: RawReader(self, "l1", looked_at).run())],
            "admin": [(1, lambda: clients.administrate(self, "admin"))],
            "brief": [(0, lambda: tier_clients.delete_records(self, "b1"))],
            "move": [(0, lambda: tier_clients.move(self, "m1"))],
            "wild": [(1, lambda: RawProducer(self, "w1", ((WILD, 1),)).run())],
            "fleeting": [
                (1, lambda: tier_clients.come_and_go(self, "f1")),
                (0, lambda: FleetingProducer(self, "f2", fleeting).run()),
            ],
        }
        read = (ORDERS, PAIRS)
        readers: dict[str, list[tuple[int, Work]]] = {
            "readers": [(0, lambda: clients.consume(self, "c1", "consumer", read))],
            "queue": [(1, lambda: clients.work(self, "s1"))],
        }
        running = self._launch(works)
        self._readers = self._launch(readers)
        return running

    def image_has(self, topic: str) -> bool:
        return self._image().topic(TopicName(topic)) is not None

    def leader_of(self, partition: TopicPartition) -> Machine:
        topic = self._image().topic(TopicName(partition.topic))
        assert topic is not None
        return self.machines[topic.partitions[partition.partition].leader - 1]

    # The weather

    async def _storm(self) -> None:
        await asyncio.gather(super()._storm(), self._storm_at_the_store())

    async def _storm_at_the_store(self) -> None:
        until = self.simulation.now + self.STORM_SECONDS
        troubles: tuple[Trouble, ...] = (
            self._fail_store,
            self._fail_store,
            self._lose_store,
            self._slow_store,
            self._list_late,
            self._lose_puts,
        )
        while self.simulation.now < until:
            await asyncio.sleep(self.random.expovariate(self.STORE_TROUBLES_A_SECOND))
            seconds = self.random.choice((0.1, 0.6, 1.5)) * self.random.uniform(0.5, 1.5)
            self.random.choice(troubles)(self.machines[0], seconds)

    def _fail_store(self, machine: Machine, seconds: float) -> None:
        """Let some requests fail, before or after they took effect."""
        self.store.fail_randomly(self.random.choice((0.05, 0.3, 0.6)))
        self.simulation.call_later(seconds, self.store.fail_randomly, 0.0)
        self.checks.seen["store faults"] += 1

    def _lose_store(self, machine: Machine, seconds: float) -> None:
        self.store.go_away()
        self.simulation.call_later(seconds, self.store.come_back)
        self.checks.seen["store outages"] += 1

    def _slow_store(self, machine: Machine, seconds: float) -> None:
        self.store.slow_down(1, self.random.choice((20, 200, 800)))
        self.simulation.call_later(seconds * 2, self.store.slow_down, 0.0)
        self.checks.seen["slow store"] += 1

    def _list_late(self, machine: Machine, seconds: float) -> None:
        self.store.list_late(int(seconds * 1000))
        self.simulation.call_later(seconds, self.store.list_late, 0)

    def _lose_puts(self, machine: Machine, seconds: float) -> None:
        """Let the store confirm objects of segments that it does not keep."""
        self.store.lose_puts("[!.]*", times=self.random.choice((1, 3, 10)))
        self.checks.seen["lost puts"] += 1

    # The end

    def run(self) -> None:
        with watching_tier(self.simulation, self.checks):
            self.simulation.run(self._play())

    async def _calm(self) -> None:
        self.store.heal()
        await super()._calm()
        self.store.heal()

    async def _check(self) -> None:
        await super()._check()
        await self._settle()
        await self.clients[0].run(self._check_fleeting())
        await self.clients[0].run(self._check_times())
        await self.clients[0].run(self._read_whole())
        self._check_leftovers()

    def _find_starts(self) -> dict[TopicPartition, int]:
        """Return where the logs start whose first records are deleted."""
        image, starts = self._image(), {}
        for name in (BRIEF, WILD):
            topic = image.topic(TopicName(name))
            assert topic is not None
            log = self._replica(topic.partitions[0].leader, TopicName(name), 0).log
            starts[TopicPartition(name, 0)] = log.start_offset
        return starts

    async def _settle(self) -> None:
        """Wait until everything is copied and deleted that is to be, and the audit is clean."""
        until = self.simulation.now + SETTLING_SECONDS_MAX
        while problem := await self._find_tier_problem():
            expect(self.simulation.now < until, f"the tier does not settle: {problem}")
            await asyncio.sleep(0.7)
        self.note("the tier has settled")

    async def _find_tier_problem(self) -> str:
        for node in self.nodes:
            for tiered in node.tier.tier if node.tier is not None else ():
                count, _ = tiered.copy_lag()
                if tiered.is_leader and count:
                    return f"node {node.node_id} has yet to copy {count} segments of {tiered.name}"
        return await self.clients[0].run(self._audit())

    async def _audit(self) -> str:
        """Return what fsck would report, empty if nothing."""
        try:
            async with Admin(self.bootstrap, SETTINGS) as admin:
                inventory = await take_inventory(self.store, RemoteLogTopic(admin.cluster))
        except HeadraceError as error:
            return f"events cannot be read: {error!r}"
        image = self._image()
        inventory.topic_ids = {image.topic(name).topic_id for name in image.state.topics}  # type: ignore[union-attr]
        self._ask_leaders(inventory)
        ages = Ages(2**62, -(2**62))
        report = await judge(self.store, inventory, ages, checks_checksums=True)
        self.checks.seen["segments audited"] += len(report.segments)
        return explain(report)

    def _ask_leaders(self, inventory: Inventory) -> None:
        image = self._image()
        leaders = {}
        for key, partition in inventory.after.partitions().items():
            topic = image.topic(partition.topic)
            if topic is None or topic.topic_id != key[0]:
                continue
            log = self._replica(topic.partitions[key[1]].leader, topic.name, key[1]).log
            leaders[key] = LeaderFacts(
                log_start_offset=log.start_offset,
                local_start_offset=log.local_start_offset,
                epochs=tuple(SegmentEpoch(*entry) for entry in log.epochs.entries()),
            )
        inventory.leaders = leaders

    async def _check_fleeting(self) -> None:
        """Look for what was acknowledged of topics that came, and did not go."""
        image = self._image()
        for name in FLEETING:
            topic = image.topic(TopicName(name))
            if topic is not None:
                found = await self._until_read([name], read_committed=False)
                for (index, offset), value in self.checks.by_id[topic.topic_id].items():
                    read = found.get((TopicPartition(name, index), offset))
                    where = f"{name}-{index}@{offset}"
                    expect(read == value, f"{value!r} was acknowledged at {where}: {read!r}")
                    self.checks.seen["fleeting records"] += 1

    async def _check_times(self) -> None:
        """Look records up by their timestamps, and compare with what is read."""
        partition = TopicPartition(PAIRS, 0)
        times: list[tuple[int, int]] = []
        async with Consumer(self.bootstrap, SETTINGS) as consumer:
            await consumer.assign(PAIRS, Start.BEGINNING, until_end=True)
            async for record in consumer:
                times.append((record.timestamp, record.offset))
        if not times:
            return
        offsets = {offset for _, offset in times}
        async with Admin(self.bootstrap, SETTINGS) as admin:
            for wanted, _ in self.random.sample(times, min(5, len(times))):
                expected = next(offset for time_ms, offset in times if time_ms >= wanted)
                found = (await admin.list_offsets({partition: wanted}))[partition]
                expect(
                    not isinstance(found, KafkaError)
                    and wanted <= found.timestamp
                    # Markers of transactions, which no reader sees, are found as well.
                    and (
                        found.offset == expected
                        or (found.offset < expected and found.offset not in offsets)
                    ),
                    f"the first record from {wanted} on is {expected}, not {found}",
                )
                self.checks.seen["times"] += 1

    async def _read_whole(self) -> None:
        """Read every partition in the tier, batch by batch, from its start to its end."""
        image, reader = self._image(), WholeReader(self)
        for name in sorted(image.state.topics):
            topic = image.topic(name)
            assert topic is not None
            for index, row in enumerate(topic.partitions):
                expect(row.leader != NO_LEADER, f"{name}-{index} has no leader")
                log = self._replica(row.leader, name, index).log
                if log.settings.is_tiered:
                    ends = log.start_offset, log.high_watermark
                    await reader.read(name, topic.topic_id, index, *ends)
        reader.close()

    def _check_leftovers(self) -> None:
        """Expect no description of a topic that does not exist."""
        image = self._image()
        own = {MARKER_KEY}
        for name in image.state.topics:
            topic = image.topic(name)
            assert topic is not None
            own.add(topic_key(topic.topic_id))
        left = [key for key in self.store.objects if key.startswith(".headrace/")]
        expect(set(left) <= own, f"these are left: {sorted(set(left) - own)}")


def explain(report: Report) -> str:
    """Return what needs attention; unfinished uploads are the store's."""
    bad = [
        f"{each.verdict} {each.segment.text}: {each.why}"
        for each in report.segments
        if each.verdict not in HEALTHY
    ]
    bad += [
        f"{each.verdict} {each.object.key}: {each.why}"
        for each in report.objects
        if each.verdict not in HEALTHY and each.verdict is not Class.UNFINISHED_UPLOAD
    ]
    bad += [f"gap {each}" for each in report.gaps]
    bad += [f"deletion {each}" for each in report.deletions]
    return "; ".join(bad)


class SingleNode(World):
    """One node: no other has what it loses, so everything is synced, or only killed."""

    FACTOR = 1

    def _make_machines(self) -> None:
        self._add_machine(1, self._seeds(1))

    def _choose_settings(self) -> dict[str, str]:
        settings = super()._choose_settings()
        if self.may_lose:
            self.is_synced = True
            settings["log.flush.interval.messages"] = "1"
        return settings
