"""Producer ids: each once in the life of a cluster, however many ask, stop and fail."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.entries import SurrogateAlloc
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.surrogates import PRODUCER_ID_BLOCK_SIZE
from headrace.testing.disk import SimulatedDisk
from headrace.txn.producer_ids import FETCH_AHEAD_IDS, ProducerIds


def run(work: Callable[[MetadataQuorum], Awaitable[None]], disk: SimulatedDisk) -> None:
    async def whole() -> None:
        quorum = MetadataQuorum(BrokerId(1), disk)
        await quorum.start()
        await quorum.read()
        try:
            await work(quorum)
        finally:
            await quorum.stop()

    asyncio.run(whole())


def blocks_taken(quorum: MetadataQuorum) -> int:
    return quorum.image.state.surrogate_hwm


def test_ids_are_given_in_order_and_each_once() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        ids = ProducerIds(quorum)
        count = PRODUCER_ID_BLOCK_SIZE * 2 + 1
        assert [await ids.next() for _ in range(count)] == list(range(count))

    run(work, SimulatedDisk(seed=1))


def test_many_who_ask_at_once_share_one_block() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        ids = ProducerIds(quorum)
        given = await asyncio.gather(*(ids.next() for _ in range(50)))
        assert sorted(given) == list(range(50))
        assert blocks_taken(quorum) == 1

    run(work, SimulatedDisk(seed=1))


def test_many_who_ask_at_once_for_more_than_a_block_get_all_of_them() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        ids = ProducerIds(quorum)
        count = PRODUCER_ID_BLOCK_SIZE + 300
        given = await asyncio.gather(*(ids.next() for _ in range(count)))
        assert len(set(given)) == count
        assert blocks_taken(quorum) == 2

    run(work, SimulatedDisk(seed=1))


def test_the_next_block_is_there_before_the_last_runs_out() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        ids = ProducerIds(quorum)
        for _ in range(PRODUCER_ID_BLOCK_SIZE - FETCH_AHEAD_IDS + 1):
            await ids.next()
        async with asyncio.timeout(5):
            while blocks_taken(quorum) < 2:
                await asyncio.sleep(0)
        await quorum.stop()  # from now on there are only the ids that were fetched
        for _ in range(PRODUCER_ID_BLOCK_SIZE):
            await ids.next()

    run(work, SimulatedDisk(seed=1))


def test_a_block_that_another_node_took_meanwhile_is_not_given_again() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        first, other = ProducerIds(quorum), ProducerIds(quorum)
        given = await asyncio.gather(first.next(), other.next())
        assert len(set(given)) == 2
        assert blocks_taken(quorum) == 2

    run(work, SimulatedDisk(seed=1))


def test_ids_of_a_former_life_are_not_given_again() -> None:
    disk = SimulatedDisk(seed=1)

    async def first_life(quorum: MetadataQuorum) -> None:
        assert await ProducerIds(quorum).next() == 0

    async def second_life(quorum: MetadataQuorum) -> None:
        assert await ProducerIds(quorum).next() == PRODUCER_ID_BLOCK_SIZE

    run(first_life, disk)
    run(second_life, disk)


def test_a_caller_that_gives_up_does_not_take_the_block_from_the_others() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        ids = ProducerIds(quorum)
        impatient = asyncio.create_task(ids.next())
        patient = asyncio.create_task(ids.next())
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == 0
        assert blocks_taken(quorum) == 1

    run(work, SimulatedDisk(seed=1))


def test_without_the_metadata_log_clients_are_told_to_try_again() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        ids = ProducerIds(quorum)
        await quorum.stop()
        with pytest.raises(KafkaError) as refusal:
            await ids.next()
        assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert refusal.value.is_retriable

    run(work, SimulatedDisk(seed=1))


def test_a_block_that_was_proposed_elsewhere_is_skipped() -> None:
    async def work(quorum: MetadataQuorum) -> None:
        await quorum.propose(SurrogateAlloc(7))
        assert await ProducerIds(quorum).next() == 7 * PRODUCER_ID_BLOCK_SIZE

    run(work, SimulatedDisk(seed=1))
