"""Plans of the controller on their way into the log: others on the loop have their turns."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from headrace.cluster.controller import _plan_repair
from headrace.cluster.plans import ENTRY_CHANGES_MAX, LOOKED_AT_MAX, propose_plan
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.ddl import Assignment, CreateTopic, RegisterBroker
from headrace.metadata.quorum import MetadataQuorum
from headrace.testing.disk import SimulatedDisk

NODE, OTHER, LATE = BrokerId(1), BrokerId(2), BrokerId(3)
COUNT = 10 * LOOKED_AT_MAX


def topic(count: int) -> CreateTopic:
    partitions = (Assignment((NODE, OTHER), (NODE, OTHER), NODE),) * count
    return CreateTopic(TopicName("orders"), TopicId(bytes(16)), partitions)


def run(work: Callable[[MetadataQuorum], Awaitable[None]]) -> None:
    async def whole() -> None:
        quorum = MetadataQuorum(NODE, SimulatedDisk(seed=1))
        await quorum.start()
        try:
            for node in (NODE, OTHER):
                broker = RegisterBroker(node, int(node).to_bytes(16), (), is_fenced=False)
                await quorum.propose(broker)
            await quorum.propose(topic(COUNT))
            await work(quorum)
        finally:
            await quorum.stop()

    asyncio.run(whole())


def test_a_plan_that_changes_nothing_lets_others_have_their_turns() -> None:
    """A new controller looks at every partition, most of which need nothing."""

    async def work(quorum: MetadataQuorum) -> None:
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        await propose_plan(quorum, _plan_repair)
        counting.cancel()
        assert turns >= COUNT // LOOKED_AT_MAX

    run(work)


def test_a_repair_goes_on_when_a_broker_registers_meanwhile() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        image = quorum.image
        broker = image.broker(NODE)
        assert broker is not None
        image.put_broker(replace(broker, is_fenced=True))  # all that it leads is to move
        repairing = asyncio.create_task(propose_plan(quorum, _plan_repair))
        await asyncio.sleep(0)
        await quorum.propose(RegisterBroker(LATE, int(LATE).to_bytes(16), ()))
        await repairing
        found = image.topic(TopicName("orders"))
        assert found is not None
        assert {row.leader for row in found.partitions} == {OTHER}
        assert len(found.partitions) > 2 * ENTRY_CHANGES_MAX

    run(work)
