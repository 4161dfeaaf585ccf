"""A producer pays for what it sends, not for every partition that it knows."""

import asyncio

from headrace.client.accumulator import Accumulator
from tests.growth.steps import assert_grows_linearly, steps

RECORD = (None, b"value", ())


def test_records_for_many_partitions_cost_as_much_each_as_for_few() -> None:
    def send(partitions: int) -> int:
        return asyncio.run(count(partitions, linger_seconds=0))

    assert_grows_linearly(send, 200)


def test_records_that_linger_cost_as_much_each_in_many_partitions_as_in_few() -> None:
    def send(partitions: int) -> int:
        return asyncio.run(count(partitions, linger_seconds=1))

    assert_grows_linearly(send, 200)


def test_batches_that_come_back_one_by_one_cost_as_much_each() -> None:
    async def work(partitions: int) -> int:
        waiting = Accumulator(batch_bytes=1000, memory_bytes=10**9, linger_seconds=0)
        for index in range(partitions):
            for _ in range(2):
                waiting.append(("topic", index), 0, RECORD, 900, lambda: 0.0)
        taken = waiting.take_ready(0.0)

        def finish() -> None:
            for batch in taken:
                waiting.finish(batch)
                waiting.take_ready(0.0)
                waiting.next_due()

        return steps(finish)

    assert_grows_linearly(lambda partitions: asyncio.run(work(partitions)), 200)


async def count(partitions: int, linger_seconds: float) -> int:
    waiting = Accumulator(batch_bytes=1000, memory_bytes=10**9, linger_seconds=linger_seconds)

    def send() -> None:
        for index in range(partitions):
            waiting.append(("topic", index), 0, RECORD, 100, lambda: 0.0)
            waiting.take_ready(0.0)
            waiting.next_due()

    return steps(send)
