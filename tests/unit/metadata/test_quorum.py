"""A quorum of one: what is proposed is applied, durable, and in the image again after a start."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, TopicId, TopicName
from headrace.metadata.ddl import Assignment, CreateTopic, RegisterBroker, encode_ddl
from headrace.metadata.entries import Batch, CatalogDdl, SurrogateAlloc
from headrace.metadata.errors import Refused
from headrace.metadata.events import Event, SurrogatesAllocated, TopicCreated
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.raft.errors import RaftStopped
from headrace.raft.settings import RaftSettings
from headrace.testing.disk import SimulatedDisk

NODE = BrokerId(1)


def topic(number: int) -> CreateTopic:
    name, topic_id = TopicName(f"topic-{number}"), TopicId(number.to_bytes(16))
    return CreateTopic(name, topic_id, (Assignment((NODE,), (NODE,), NODE),))


def run(
    disk: SimulatedDisk,
    work: Callable[[MetadataQuorum], Awaitable[None]],
    settings: RaftSettings | None = None,
) -> Image:
    """Start a node, do some work with it, stop it; give its image."""

    async def whole() -> Image:
        quorum = MetadataQuorum(NODE, disk, settings=settings)
        await quorum.start()
        try:
            await quorum.propose(RegisterBroker(NODE, bytes(16), ()))
            await work(quorum)
            return await quorum.read()
        finally:
            await quorum.stop()

    return asyncio.run(whole())


async def nothing(quorum: MetadataQuorum) -> None:
    """Only start, and read."""


def test_a_proposal_is_in_the_image_when_it_returns() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        index = await quorum.propose(topic(1))
        assert quorum.image.applied_index == index
        assert quorum.image.topic(TopicName("topic-1")) is not None

    run(SimulatedDisk(seed=1), work)


def test_a_proposal_that_the_image_does_not_allow_is_refused() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        await quorum.propose(topic(1))
        with pytest.raises(Refused) as refusal:
            await quorum.propose(topic(1))
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS

    run(SimulatedDisk(seed=1), work)


def test_concurrent_allocations_each_learn_their_own_block_of_producer_ids() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        async def block() -> tuple[Event, ...]:
            while True:
                hwm = quorum.image.state.surrogate_hwm
                outcome = await quorum.propose_for_outcome(SurrogateAlloc(hwm + 1))
                if not outcome.refusals:
                    return outcome.events

        blocks = await asyncio.gather(*(block() for _ in range(10)))
        assert sorted(blocks, key=str) == [
            (SurrogatesAllocated(number, number),) for number in range(10)
        ]

    run(SimulatedDisk(seed=1), work)


def test_the_proposer_of_a_batch_learns_what_became_of_each_part() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        parts = [CatalogDdl(encode_ddl(topic(number))) for number in (1, 1, 2)]
        outcome = await quorum.propose_for_outcome(Batch(tuple(parts)))
        created = [event for event in outcome.events if isinstance(event, TopicCreated)]
        assert [event.name for event in created] == ["topic-1", "topic-2"]
        assert [refusal.position for refusal in outcome.refusals] == [1]
        assert quorum.image.applied_index == outcome.index

    run(SimulatedDisk(seed=1), work)


def test_the_image_is_the_same_after_a_crash() -> None:
    disk = SimulatedDisk(seed=1)

    async def work(quorum: MetadataQuorum) -> None:
        await asyncio.gather(*(quorum.propose(topic(number)) for number in range(20)))

    before = run(disk, work)
    disk.crash()
    after = run(disk, nothing)
    assert after.state.topics == before.state.topics


def test_the_image_comes_back_from_a_snapshot_and_what_followed() -> None:
    disk = SimulatedDisk(seed=1)
    settings = RaftSettings(snapshot_trigger_bytes=4096, kept_entries=2)

    async def work(quorum: MetadataQuorum) -> None:
        for number in range(100):
            await quorum.propose(topic(number))

    before = run(disk, work, settings)
    seen: list[Image] = []

    async def start_again() -> Image:
        quorum = MetadataQuorum(NODE, disk, settings=settings, on_restored=seen.append)
        await quorum.start()
        try:
            return await quorum.read()
        finally:
            await quorum.stop()

    after = asyncio.run(start_again())
    assert after.state.topics == before.state.topics
    assert len(seen) == 1


def test_the_quorum_is_explained_in_words() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        await quorum.read()
        assert quorum.explain()[0].startswith("Node 1 leads term 1 since ")

    run(SimulatedDisk(seed=1), work)


def test_a_node_that_stopped_says_why() -> None:
    async def whole() -> None:
        quorum = MetadataQuorum(NODE, SimulatedDisk(seed=1))
        await quorum.start()
        await quorum.stop()
        with pytest.raises(RaftStopped, match="it was told to stop"):
            await quorum.propose(topic(2))

    asyncio.run(whole())
