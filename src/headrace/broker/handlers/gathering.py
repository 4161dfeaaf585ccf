"""Answers that are put together from those of several shards."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.coordinator.machine import Operation, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import KafkaError

OperationFor = Callable[[Reply], Operation]
"""Gives what is to be done in a shard, and answers through the reply that it takes."""


class Gathering:
    """Answers of a number of operations, in the order in which they were asked for."""

    __slots__ = ("_answers", "_left", "_on_all")

    def __init__(self, count: int, on_all: Callable[[list[Any]], None]) -> None:
        """`on_all` is called once, with answers and KafkaErrors, when the last is there."""
        self._answers: list[Any] = [None] * count
        self._left = count
        self._on_all = on_all
        if not count:
            on_all([])

    def take(self, position: int, answer: Any) -> None:
        if not self._left:
            # The response could not be sent, and whoever came last is told: it holds for all.
            self._on_all([answer] * len(self._answers))
            return
        self._answers[position] = answer
        self._left -= 1
        if not self._left:
            self._on_all(self._answers)


def ask_each(
    asked: Sequence[tuple[Callable[[], Shard[Any]], OperationFor]],
    on_all: Callable[[list[Any]], None],
) -> None:
    """Do an operation in the shard of each; a shard that is not here is a KafkaError's answer."""
    gathering = Gathering(len(asked), on_all)
    for position, (find, operation) in enumerate(asked):
        reply = _reply_at(gathering, position)
        try:
            shard = find()
        except KafkaError as error:
            reply(error)
            continue
        shard.write(operation(reply), reply)


def ask_all(
    shards: Iterable[Shard[Any]], operation: OperationFor, on_all: Callable[[list[Any]], None]
) -> None:
    """Do the same in all shards."""
    ask_each([(_always(shard), operation) for shard in shards], on_all)


def _always(shard: Shard[Any]) -> Callable[[], Shard[Any]]:
    return lambda: shard


def _reply_at(gathering: Gathering, position: int) -> Reply:
    return lambda answer: gathering.take(position, answer)
