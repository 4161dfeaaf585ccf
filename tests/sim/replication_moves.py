"""Replicated clusters whose partitions move between nodes, and whose moves are aborted, by seed.

All that `replication_world` promises holds, and besides:

- A move never takes a replica out of a partition before all that replace it are in sync, and an
  abort takes out nobody but those who were to come.
- In the end, when all nodes are up, every move has ended.
- No node has a folder of a partition that the metadata does not place there.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from headrace.client import Admin, Resource, ResourceType, TopicPartition
from headrace.errors import HeadraceError
from headrace.ids import TopicName
from headrace.metadata.events import MigrationAborted, MigrationAdvanced
from headrace.metadata.quorum import _ImageMachine
from headrace.metadata.state import Partition as Row
from tests.sim.node_checks import Violation, expect
from tests.sim.replication_checks import ReplicationChecks
from tests.sim.replication_clients import LOOSE, ORDERS, PAIRS, SETTINGS
from tests.sim.replication_world import World

if TYPE_CHECKING:
    from headrace.testing.simulation import Simulation

MOVES_A_SECOND: Final = 2.0
THROTTLE_CHANCE: Final = 0.3
RATE: Final = 1000
"""How many bytes per second throttled replicas have; there is little to copy."""
FOLDERS_SECONDS_MAX: Final = 10.0


class MoveChecks(ReplicationChecks):
    """What is looked for at every change of a partition."""

    def __init__(self, simulation: "Simulation") -> None:
        super().__init__(simulation)
        self._journal_at = 0

    def note_rows(self, machine: _ImageMachine, index: int) -> None:
        super().note_rows(machine, index)
        if index <= self._journal_at:
            return
        self._journal_at = index
        for event in machine.applier.outcome(index).events:
            if isinstance(event, MigrationAdvanced):
                self.seen[f"move: {event.phase.value}"] += 1
            elif isinstance(event, MigrationAborted):
                self.seen["move: aborted"] += 1

    def _check_row(self, machine: _ImageMachine, name: str, before: Row, row: Row) -> None:
        super()._check_row(machine, name, before, row)
        change = f"{name} changed from {before} to {row}"
        left = set(before.replicas) - set(row.replicas)
        if not left:
            return
        if left & set(before.removing):
            expect(left <= set(before.removing), f"more than those to be removed left: {change}")
            expect(set(row.isr) == set(row.replicas), f"a move ended too early: {change}")
            settled = set(before.isr) - set(before.adding)
            fewest = min(len(settled), len(row.replicas))
            expect(len(row.isr) >= fewest, f"a move cost a replica in sync: {change}")
        else:
            expect(left <= set(before.adding), f"one that stays was dropped: {change}")
            kept = set(before.isr) - set(before.adding)
            expect(kept <= set(row.isr), f"an abort cost a replica in sync: {change}")


class Moves(World):
    """Partitions on the move while nodes come and go."""

    KINDS: tuple[str, ...] | None = ("producer", "raw", "look")
    TROUBLES_A_SECOND = 0.7

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.checks: MoveChecks = MoveChecks(self.simulation)
        self.checks.applied_by = self._applied_by

    def _make_machines(self) -> None:
        for number in range(1, self.random.choice((4, 4, 5)) + 1):
            self._add_machine(number, self._seeds(3))

    def _start_clients(self) -> "list[asyncio.Future[None]]":
        mover = self.clients[1].start(self._move())
        mover.add_done_callback(self._on_ended)
        return [*super()._start_clients(), mover]

    async def _move(self) -> None:
        """Reassign partitions, and cancel some of it, until the storm is over."""
        luck = self.luck("mover")
        is_throttled = luck.random() < THROTTLE_CHANCE
        while self.is_storming:
            try:
                async with Admin(self.bootstrap, SETTINGS) as admin:
                    if is_throttled:
                        await self._throttle(admin)
                    while self.is_storming:
                        await self._move_once(admin, luck)
                        await asyncio.sleep(luck.expovariate(MOVES_A_SECOND))
            except HeadraceError as error:
                if isinstance(error, Violation):
                    raise
                self.note(f"the mover begins again: {error!r:.200}")
                await asyncio.sleep(0.2)

    async def _throttle(self, admin: Admin) -> None:
        """Let replicas that are behind have little, for good."""
        sides = [f"{side}.replication.throttled" for side in ("leader", "follower")]
        rates = {f"{side}.rate": str(RATE) for side in sides}
        await admin.alter_configs(Resource(ResourceType.BROKER, ""), set=rates)
        for name in (ORDERS, PAIRS):
            replicas = {f"{side}.replicas": "*" for side in sides}
            await admin.alter_configs(Resource(ResourceType.TOPIC, name), set=replicas)

    async def _move_once(self, admin: Admin, luck: Random) -> None:
        if luck.random() < 0.3:
            moving = list(await admin.list_reassignments())
            chosen = [each for each in moving if luck.random() < 0.7]
            if chosen:
                await admin.cancel_reassignments(chosen)
            return
        topics = self.topics
        name = luck.choice((ORDERS, ORDERS, PAIRS, LOOSE))
        count, factor, _ = topics[name]
        nodes = [machine.node_id for machine in self.machines]
        partition = TopicPartition(name, luck.randrange(count))
        await admin.alter_reassignments({partition: luck.sample(nodes, factor)})

    def _find_problem(self) -> str:
        problem = super()._find_problem()
        if problem:
            return problem
        image = self._image()
        for slot in image.moving():
            row = slot.topic.partitions[slot.partition]
            return f"{slot.topic.name}-{slot.partition} is still on the move: {row}"
        for name, (_, factor, _) in self.topics.items():
            for number, row in enumerate(image.state.topics[TopicName(name)].partitions):
                if len(row.replicas) != factor:
                    return f"{name}-{number} does not have {factor} replicas: {row}"
        for migration_id, journal in image.state.migrations.items():
            return f"migration {migration_id} has not ended: {journal}"
        return ""

    async def _check(self) -> None:
        await super()._check()
        until = self.simulation.now + FOLDERS_SECONDS_MAX
        while orphans := self._find_orphans():
            expect(self.simulation.now < until, f"folders that nobody knows: {orphans}")
            await asyncio.sleep(0.2)

    def _find_orphans(self) -> list[str]:
        image, found = self._image(), []
        for machine in self.machines:
            assert machine.node is not None
            folder = machine.node.broker.folder
            names = {*folder.disk.list_folders("")}
            for name in sorted(names):
                topic, _, index = name.rpartition("-")
                if not index.isdecimal():
                    continue
                known = image.topic(TopicName(topic))
                is_known = known is not None and (
                    int(index) < len(known.partitions)
                    and machine.node_id in known.partitions[int(index)].replicas
                )
                if not is_known:
                    found.append(f"{name} on node {machine.node_id}")
        return found
