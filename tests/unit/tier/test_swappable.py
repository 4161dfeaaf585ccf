"""Metadata that is exchanged while it is in use."""

import asyncio

import pytest

from headrace.remote.segments import PartitionKey, SegmentState
from headrace.testing.virtual_loop import run_virtual
from headrace.tier.event_log import InProcessEventLog
from headrace.tier.metadata_manager import MetadataWaits, TopicMetadata
from headrace.tier.ports import NotReady, RemoteMetadata
from headrace.tier.swappable import NotReadyMetadata, SwappableMetadata
from tests.unit.remote.segments import ORDERS, segment, update
from tests.unit.tier.logs import FaultyLog, until

KEY = ORDERS.key


async def started(log: InProcessEventLog) -> TopicMetadata:
    metadata = TopicMetadata(log, waits=MetadataWaits(consume_wait_ms=5_000))
    await metadata.start()
    return metadata


def test_what_is_not_ready_refuses_everything() -> None:
    async def main() -> None:
        metadata = NotReadyMetadata()
        metadata.follow([ORDERS])
        metadata.lead([1])
        assert not metadata.is_ready(KEY)
        for ask in (
            lambda: metadata.find(KEY, 0, 0),
            lambda: metadata.find_with_aborted(KEY, 0, 0),
            lambda: metadata.highest_offset(KEY, 0),
            lambda: metadata.segments(KEY),
            lambda: metadata.segments_of(KEY, 0),
            lambda: metadata.unreferenced(KEY),
            lambda: metadata.size_bytes(KEY, 0),
            lambda: metadata.delete_state(KEY),
            lambda: metadata.keys_in(0),
        ):
            with pytest.raises(NotReady):
                ask()
        one = segment(1, 0, 99)
        for change in (
            metadata.add(one),
            metadata.update(update(one, SegmentState.COPY_FINISHED)),
            metadata.catch_up(KEY),
        ):
            with pytest.raises(NotReady):
                await change

    run_virtual(main())


def test_the_next_one_follows_what_was_followed_and_tells_the_same_listeners() -> None:
    async def main() -> None:
        swappable = SwappableMetadata()
        typed: RemoteMetadata = swappable  # it is one
        typed.follow([ORDERS])
        swappable.lead([3])
        heard: list[PartitionKey] = []
        swappable.on_changed.append(heard.append)
        with pytest.raises(NotReady):
            await swappable.add(segment(1, 0, 99))
        metadata = await started(InProcessEventLog())
        former = swappable.swap(metadata)
        assert isinstance(former, NotReadyMetadata)
        assert not former.on_changed
        await until(lambda: swappable.is_ready(KEY))
        assert metadata.assigned == {metadata.partition_of(KEY), 3}
        assert heard == [KEY]
        await swappable.add(segment(1, 0, 99))
        assert heard == [KEY, KEY]
        assert swappable.segments(KEY) == metadata.segments(KEY)
        await metadata.stop()

    run_virtual(main())


def test_a_call_ends_with_the_one_that_it_began_with() -> None:
    async def main() -> None:
        first_log, second_log = FaultyLog(), FaultyLog()
        first, second = await started(first_log), await started(second_log)
        swappable = SwappableMetadata(first)
        swappable.follow([ORDERS])
        await until(lambda: swappable.is_ready(KEY))
        first_log.is_delivering.clear()
        adding = asyncio.create_task(swappable.add(segment(1, 0, 99)))
        await asyncio.sleep(0.1)
        assert swappable.swap(second) is first
        await until(lambda: swappable.is_ready(KEY))
        assert list(swappable.segments(KEY)) == []
        await swappable.add(segment(2, 0, 99))
        first_log.is_delivering.set()
        await adding
        assert [len(first.segments(KEY)), len(second.segments(KEY))] == [1, 1]
        await first.stop()
        assert len(swappable.segments(KEY)) == 1
        await second.stop()

    run_virtual(main())


def test_swaps_while_many_calls_are_made_lose_none_of_them() -> None:
    async def main() -> None:
        log = InProcessEventLog()
        managers = [await started(log) for _ in range(4)]
        swappable = SwappableMetadata(managers[0])
        swappable.follow([ORDERS])
        for metadata in managers:
            metadata.follow([ORDERS])
        await until(lambda: all(metadata.is_ready(KEY) for metadata in managers))

        async def copy(number: int) -> None:
            await asyncio.sleep(number / 1000)
            one = segment(number + 1, number * 10, number * 10 + 9)
            await swappable.add(one)
            await swappable.catch_up(KEY)
            await swappable.update(update(one, SegmentState.COPY_FINISHED))

        async def swap() -> None:
            for turn in range(200):
                await asyncio.sleep(0.0005)
                swappable.swap(managers[turn % 4])

        await asyncio.gather(swap(), *(copy(number) for number in range(100)))
        for metadata in managers:
            await metadata.catch_up(KEY)
            assert metadata.highest_offset(KEY, 0) == 999
            assert len(metadata.segments(KEY)) == 100
            await metadata.stop()

    run_virtual(main())
