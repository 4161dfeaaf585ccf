"""Responses that are put together from the answers of several shards.

A request may name a few groups or tens of thousands. What is more than a slice of it is worked off
by a coroutine, slice by slice, so that others on the loop get their turn; requests that follow on
the same connection wait for it, and find what it has done.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from headrace.coordinator.machine import Machine, Operation, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import KafkaError
from headrace.server.request import LATER, Answer, Request
from headrace.wire.schema import Message

NAMES_AT_ONCE: Final = 50
"""How many things that a request names are looked up or changed in one turn of the loop."""
ROWS_AT_ONCE: Final = 1000
"""How many rows of a response are made in one turn of the loop."""

A = TypeVar("A")
"""What is answered for one name."""
M = TypeVar("M", bound=Machine)
R = TypeVar("R")
"""A row of a response."""
T = TypeVar("T")

OperationFor: TypeAlias = Callable[[Reply[A]], Operation[M]]
"""Returns what is to be done in a shard, and answers through the reply that it takes."""
OnAll: TypeAlias = Callable[[list[A | KafkaError]], None]
"""Takes the answers of all, in order."""


class Gathering(Generic[A]):
    """Answers of a number of operations, in the order in which they were asked for."""

    __slots__ = ("_answers", "_left", "_on_all")

    def __init__(self, count: int, on_all: OnAll[A]) -> None:
        """`on_all` is called once, with answers and KafkaErrors, when the last is there."""
        # Nobody sees it before every place has its answer.
        self._answers = cast("list[A | KafkaError]", [None] * count)
        self._left = count
        self._on_all = on_all
        if not count:
            on_all([])

    def take(self, position: int, answer: A | KafkaError) -> None:
        if not self._left:
            # The response could not be sent, and whoever came last is told: it holds for all.
            self._on_all([answer] * len(self._answers))
            return
        if isinstance(answer, KafkaError):
            # Its frames hold everything that was done for one name, and there may be very many.
            answer.__traceback__ = answer.__context__ = None
        self._answers[position] = answer
        self._left -= 1
        if not self._left:
            self._on_all(self._answers)


def answer_each(
    request: Request,
    names: Sequence[T],
    ask: Callable[[T, Reply[A]], None],
    row: Callable[[T, A | KafkaError], R],
    response: Callable[[list[R]], Message],
) -> Answer | Coroutine[Any, Any, Message]:
    """Answer a request with a row for each thing that it names, in order.

    `ask` begins what is to be done for one, and has its reply told the answer or a KafkaError;
    `row` makes its row of that.
    """
    if len(names) > NAMES_AT_ONCE:
        return _answer_in_slices(names, ask, row, response)

    def on_all(answers: list[A | KafkaError]) -> None:
        request.answer(response([*map(row, names, answers)]))

    gathering = Gathering(len(names), on_all)
    for position, name in enumerate(names):
        ask(name, _reply_at(gathering, position))
    return LATER


async def _answer_in_slices(
    names: Sequence[T],
    ask: Callable[[T, Reply[A]], None],
    row: Callable[[T, A | KafkaError], R],
    response: Callable[[list[R]], Message],
) -> Message:
    answers = await ask_in_slices(names, ask)
    rows: list[R] = []
    for start in range(0, len(names), ROWS_AT_ONCE):
        stop = start + ROWS_AT_ONCE
        rows += map(row, names[start:stop], answers[start:stop])
        await asyncio.sleep(0)
    return response(rows)


async def ask_in_slices(
    names: Sequence[T], ask: Callable[[T, Reply[A]], None], *, at_once: int = NAMES_AT_ONCE
) -> list[A | KafkaError]:
    """Return the answers for all names, with turns for others on the loop in between."""
    answered: asyncio.Future[list[A | KafkaError]] = asyncio.get_running_loop().create_future()

    def on_all(answers: list[A | KafkaError]) -> None:
        if not answered.done():
            answered.set_result(answers)

    gathering = Gathering(len(names), on_all)
    for position, name in enumerate(names):
        if position % at_once == 0:
            await asyncio.sleep(0)
        ask(name, _reply_at(gathering, position))
    return await answered


def ask_in_turns(names: Sequence[T], ask: Callable[[T, Reply[A]], None], on_all: OnAll[A]) -> None:
    """Ask for a few names at once and for the rest in later turns of the loop.

    For callers that have callbacks; coroutines use `ask_in_slices`. `ask` must not raise.
    """
    gathering = Gathering(len(names), on_all)

    def ask_from(start: int) -> None:
        stop = min(start + NAMES_AT_ONCE, len(names))
        for position in range(start, stop):
            ask(names[position], _reply_at(gathering, position))
        if stop < len(names):
            asyncio.get_running_loop().call_soon(ask_from, stop)

    ask_from(0)


def ask_shard(find: Callable[[], Shard[M]], operation: OperationFor[A, M], reply: Reply[A]) -> None:
    """Do an operation in a shard; one that is not here is a KafkaError's answer."""
    try:
        shard = find()
    except KafkaError as error:
        reply(error)
        return
    shard.write(operation(reply), reply)


def ask_each(
    asked: Sequence[tuple[Callable[[], Shard[M]], OperationFor[A, M]]], on_all: OnAll[A]
) -> None:
    """Do an operation in the shard of each of a few; KafkaErrors are answers too."""
    gathering = Gathering(len(asked), on_all)
    for position, (find, operation) in enumerate(asked):
        ask_shard(find, operation, _reply_at(gathering, position))


def _reply_at(gathering: Gathering[A], position: int) -> Reply[A]:
    return lambda answer: gathering.take(position, answer)
