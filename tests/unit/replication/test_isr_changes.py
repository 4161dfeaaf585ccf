"""Changes of ISRs on their way into the metadata log: together, until they are decided."""

import asyncio
from collections.abc import Callable
from typing import cast

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId
from headrace.loop.counters import Counters
from headrace.metadata.applier import Outcome, Refusal
from headrace.metadata.ddl import ChangePartition, decode_ddl
from headrace.metadata.entries import Batch, CatalogDdl, Entry
from headrace.metadata.errors import refuse
from headrace.metadata.image import Image
from headrace.metadata.state import Broker
from headrace.raft.errors import NoLeader
from headrace.replication.in_sync import IsrChange
from headrace.replication.isr_changes import CHANGES_MAX, IsrChanges
from headrace.replication.partition import Partition

ME, A = BrokerId(1), BrokerId(2)


class Led:
    """What `IsrChanges` sees of a partition."""

    topic_id = TopicId(bytes(16))

    def __init__(self, index: int) -> None:
        self.index = PartitionIndex(index)
        self.name = f"orders-{index}"
        self.pending: IsrChange | None = None
        self.refused: list[IsrChange] = []
        self.looks = 0

    def is_pending(self, change: IsrChange) -> bool:
        return self.pending == change

    def refuse_isr(self, change: IsrChange) -> None:
        self.refused.append(change)
        self.pending = None

    def drop_lagging(self) -> None:
        self.looks += 1


class Quorum:
    """Takes proposals as a test says."""

    def __init__(self) -> None:
        self.proposals: list[list[ChangePartition]] = []
        self.answer: Callable[[list[ChangePartition]], Outcome] = lambda _: Outcome(1)

    async def propose_for_outcome(self, change: Entry) -> Outcome:
        assert isinstance(change, Batch)
        changes = []
        for entry in change.entries:
            assert isinstance(entry, CatalogDdl)
            ddl = decode_ddl(entry.payload)
            assert isinstance(ddl, ChangePartition)
            changes.append(ddl)
        self.proposals.append(changes)
        await asyncio.sleep(0)
        return self.answer(changes)


class World:
    """The changes of one node, and what becomes of them."""

    def __init__(self) -> None:
        self.image = Image()
        self.quorum = Quorum()
        self.counters = Counters()
        self.changes = IsrChanges(lambda: self.image, self.quorum, lambda: 10, self.counters)

    def propose(self, led: Led, *isr: BrokerId) -> IsrChange:
        change = IsrChange(isr, tuple(isr), 7, LeaderEpoch(3), is_join=len(isr) > 1)
        led.pending = change
        self.changes.propose(cast(Partition, led), change)
        return change

    async def settle(self) -> None:
        async with asyncio.timeout(20):
            while self.changes.is_busy:
                await asyncio.sleep(0.001)  # polls, up to the deadline


def test_what_is_asked_for_together_is_proposed_together() -> None:
    async def main() -> None:
        world = World()
        partitions = [Led(number) for number in range(CHANGES_MAX + 1)]
        for led in partitions:
            world.propose(led, ME, A)
        await world.settle()
        sizes = [len(proposal) for proposal in world.quorum.proposals]
        assert sizes == [CHANGES_MAX, 1]
        first = world.quorum.proposals[0][0]
        assert (first.isr, first.isr_epochs, first.leader) == ((ME, A), (1, 2), None)
        assert (first.expected_partition_epoch, first.expected_leader_epoch) == (7, 3)
        assert (world.counters.isr_expansions, world.counters.isr_shrinks) == (CHANGES_MAX + 1, 0)

    asyncio.run(main())


def test_what_may_be_in_the_log_is_proposed_until_it_is_decided() -> None:
    async def main() -> None:
        world, led = World(), Led(0)
        failures = [2]

        def answer(_: list[ChangePartition]) -> Outcome:
            if failures[0]:
                failures[0] -= 1
                raise NoLeader(ME, 1)
            return Outcome(1)

        world.quorum.answer = answer
        world.propose(led, ME)
        await world.settle()
        assert len(world.quorum.proposals) == 3
        assert not led.refused

    asyncio.run(main())


def test_what_the_log_has_decided_otherwise_is_not_proposed_again() -> None:
    async def main() -> None:
        world, led = World(), Led(0)

        def answer(_: list[ChangePartition]) -> Outcome:
            led.pending = None  # the partition has another row by now
            raise NoLeader(ME, 1)

        world.quorum.answer = answer
        world.propose(led, ME)
        await world.settle()
        assert len(world.quorum.proposals) == 1

    asyncio.run(main())


def test_each_refusal_is_that_of_its_own_partition() -> None:
    async def main() -> None:
        world, partitions = World(), [Led(0), Led(1), Led(2)]
        error = refuse(ErrorCode.INELIGIBLE_REPLICA, "it is fenced")
        world.quorum.answer = lambda _: Outcome(1, refusals=(Refusal(1, error),))
        changes = [world.propose(led, ME, A) for led in partitions]
        await world.settle()
        assert [led.refused for led in partitions] == [[], [changes[1]], []]
        assert world.counters.isr_expansions == 2

    asyncio.run(main())


def test_who_may_be_in_sync() -> None:
    world = World()
    assert world.changes.epoch_of(A) is None
    for is_fenced, is_stopping in ((False, False), (True, False), (False, True)):
        world.image.put_broker(
            Broker(A, 5, bytes(16), (), is_fenced=is_fenced, is_shutting_down=is_stopping)
        )
        may_be = not (is_fenced or is_stopping)
        assert world.changes.epoch_of(A) == (5 if may_be else None)
        assert world.changes.registered_epoch(A) == 5


def test_partitions_are_looked_at_for_followers_that_lag() -> None:
    async def main() -> None:
        world, led = World(), Led(0)
        world.changes.led[cast(Partition, led)] = None
        world.changes.start()
        async with asyncio.timeout(20):
            while led.looks < 2:
                await asyncio.sleep(0.001)  # polls, up to the deadline
        world.changes.close()

    asyncio.run(main())
