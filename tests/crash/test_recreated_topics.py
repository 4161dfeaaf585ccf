"""Topics that are deleted and made again: power may fail at any change, and nothing mixes them up.

Offsets of a deleted topic stand in the checkpoints of the directory by name. Were they still there
when a topic of the same name has records, a start would cut these off, or give them other offsets.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from headrace.ids import TopicName
from headrace.log.settings import LogSettings
from tests.crash.histories import quiet
from tests.crash.topic_histories import COMPACTED, ROLLED, FilmedDisk, Moment, Node

T, KEPT = TopicName("t"), TopicName("kept")
CRASHES, CRASHES_MAX = 2, 4
"""How often each moment is crashed, each time with another outcome."""
History = Callable[[Node], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


async def first_life(node: Node) -> None:
    """A topic whose rows are in every checkpoint, and a bystander that must keep its own."""
    node.create(T)
    node.create(KEPT)
    await node.replicas.settle()
    for name, start in ((T, 6), (KEPT, 3)):
        node.append(name, 8)
        await node.flush(name)
        await node.delete_records(name, start)


async def recreate_after_a_while(node: Node) -> None:
    await first_life(node)
    node.delete(T)
    await node.replicas.settle()
    node.create(T)
    await node.replicas.settle()
    node.append(T, 3)
    await node.flush(T)
    node.append(T, 3)


async def recreate_at_once(node: Node) -> None:
    await first_life(node)
    node.delete(T)
    node.create(T)
    await node.replicas.settle()
    node.append(T, 3)
    await node.flush(T)


async def recreate_while_checkpoints_are_written(
    node: Node, *, thread_is_slow: bool = False
) -> None:
    await first_life(node)
    node.threads.is_next_slow = thread_is_slow
    writing = [asyncio.ensure_future(node.folder.checkpoint())]
    await asyncio.sleep(0)
    node.delete(T)
    writing.append(asyncio.ensure_future(node.folder.checkpoint()))
    node.create(T)
    for _ in range(4):
        await asyncio.sleep(0)
        writing.append(asyncio.ensure_future(node.folder.checkpoint()))
    try:
        await node.replicas.settle()
        node.append(T, 3)
        await node.flush(T)
    finally:
        outcomes = await asyncio.gather(*writing, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


async def recreate_before_a_checkpoint_is_written(node: Node) -> None:
    await recreate_while_checkpoints_are_written(node, thread_is_slow=True)


async def recreate_twice(node: Node) -> None:
    await first_life(node)
    for how_many in (4, 2):
        node.delete(T)
        node.create(T)
        await node.replicas.settle()
        node.append(T, how_many)
        await node.flush(T)
        await node.delete_records(T, how_many - 1)


async def delete_what_was_never_flushed(node: Node) -> None:
    node.create(T)
    node.create(KEPT)
    await node.replicas.settle()
    node.append(T, 5)
    node.append(KEPT, 5)
    node.delete(T)
    node.create(T)
    await node.replicas.settle()
    node.append(T, 2)
    await node.flush(T)


HISTORIES: tuple[History, ...] = (
    recreate_after_a_while,
    recreate_at_once,
    recreate_while_checkpoints_are_written,
    recreate_before_a_checkpoint_is_written,
    recreate_twice,
    delete_what_was_never_flushed,
)


def film(history: History, settings: LogSettings, thread_seed: int = 0) -> list[Moment]:
    """Run a history; return what a loss of power would find at each change, and at the end."""
    disk = FilmedDisk(seed=1)
    node = Node(disk, settings)
    moments: list[Moment] = []
    disk.on_change = lambda: moments.append(node.moment())
    node.run(history(node), thread_seed)
    assert len(moments) > 20
    return [*moments, node.moment()]


@pytest.mark.parametrize(
    ("history", "thread_seed", "settings", "crashes"),
    [
        *((history, 1, ROLLED, CRASHES) for history in HISTORIES),
        *(
            pytest.param(history, *more, CRASHES_MAX, marks=pytest.mark.exhaustive)
            for history in HISTORIES
            for more in ((1, ROLLED), (2, COMPACTED))
        ),
        *((delete_what_was_never_flushed, seed, ROLLED, CRASHES) for seed in range(3, 6)),
    ],
)
def test_power_lost_at_any_change_mixes_no_two_topics_of_one_name(
    history: History, thread_seed: int, settings: LogSettings, crashes: int
) -> None:
    for changes, moment in enumerate(film(history, settings, thread_seed)):
        for seed in range(thread_seed, thread_seed + crashes):
            again = moment.crashed(seed)
            again.run(again.settle(), seed)
            again.check((T, KEPT), f"{history.__name__}, {changes} changes, crash seed {seed}")


@pytest.mark.parametrize("history", [recreate_after_a_while, recreate_at_once])
def test_a_topic_made_again_after_a_crash_has_nothing_of_the_one_before(history: History) -> None:
    """The rows that the crash left must be gone before the new topic has records."""

    async def live_on(node: Node) -> None:
        await node.settle()
        if node.image.topic(T) is not None:
            node.delete(T)
        node.create(T)
        await node.replicas.settle()
        node.append(T, 2)
        await node.flush(T)

    for changes, moment in enumerate(film(history, ROLLED)):
        again = moment.crashed(changes)
        again.run(live_on(again))
        twice = again.moment().crashed(changes + 1)
        twice.run(twice.settle())
        twice.check((T, KEPT), f"{history.__name__}, {changes} changes")
