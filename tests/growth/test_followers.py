"""What following costs: what happens to partitions, not how many there are."""

import asyncio

from tests.growth.steps import assert_grows_linearly, assert_stays_flat, steps
from tests.unit.replication.followers import Loop, Node, until


def follow(loop: asyncio.AbstractEventLoop, node: Node, partitions: int) -> None:
    """Follow idle partitions until the leader knows all of them."""

    async def begin() -> None:
        for index in range(partitions):
            node.leader.lead(index)
            node.follow(index=index)
        await until(lambda: len(node.leader.positions) == partitions)
        # From here on the leader has nothing to say, and does not look for it.
        node.leader.led = {}
        node.leader.positions = {}

    loop.run_until_complete(begin())


async def some_rounds(node: Node) -> None:
    count = len(node.leader.requests)
    await until(lambda: len(node.leader.requests) >= count + 3)


def test_a_round_without_news_costs_the_same_for_any_number_of_partitions() -> None:
    def cost(partitions: int) -> int:
        with asyncio.Runner(loop_factory=Loop) as runner:
            loop = runner.get_loop()
            node = Node()
            follow(loop, node, partitions)
            return steps(lambda: loop.run_until_complete(some_rounds(node)))

    assert_stays_flat(cost, 20)


def test_beginning_to_follow_grows_with_the_partitions() -> None:
    def cost(partitions: int) -> int:
        with asyncio.Runner(loop_factory=Loop) as runner:
            loop = runner.get_loop()
            node = Node()
            return steps(lambda: follow(loop, node, partitions))

    assert_grows_linearly(cost, 40)
