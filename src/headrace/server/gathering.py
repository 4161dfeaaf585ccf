"""Responses that are put together from the answers of several shards.

A request may name a few groups or tens of thousands. What is more than a slice of it is worked off
by a coroutine, slice by slice, so that others on the loop get their turn; requests that follow on
the same connection wait for it, and find what it has done.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from headrace.coordinator.machine import Machine, Operation, Reply
from headrace.coordinator.shard import Shard
from headrace.errors import KafkaError
from headrace.loop.slices import Slices, finish
from headrace.server.request import LATER, Answer, Request
from headrace.surroundings import clocks
from headrace.wire.schema import Message

NAMES_AT_ONCE: Final = 50
"""How many things that a request names are looked up or changed in one turn of the loop."""
INLINE_NAMES_MAX: Final = 8
"""How many are looked up at once, without a task; each of them may be large."""
TURN_NS_MAX: Final = 3_000_000
"""How long names are looked up in one turn, if they are large."""
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
    `row` makes its row of that. What has a name is asked for once, however often it is named.
    """
    if len(names) > INLINE_NAMES_MAX:
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
    wanted: Sequence[T] = names
    if isinstance(names[0], str) and len(once := dict.fromkeys(names)) < len(names):
        wanted = list(once)
    answers = await ask_in_slices(wanted, ask)
    rows: list[R] = []
    for start in range(0, len(wanted), ROWS_AT_ONCE):
        stop = start + ROWS_AT_ONCE
        rows += map(row, wanted[start:stop], answers[start:stop])
        await asyncio.sleep(0)
    if wanted is not names:
        by_name = dict(zip(wanted, rows, strict=True))
        rows = [by_name[name] for name in names]
    return response(rows)


async def ask_in_slices(
    names: Sequence[T], ask: Callable[[T, Reply[A]], None], *, at_once: int = NAMES_AT_ONCE
) -> list[A | KafkaError]:
    """Return the answers for all names, with turns for others on the loop in between."""
    answered: asyncio.Future[list[A | KafkaError]] = asyncio.get_running_loop().create_future()

    def on_all(answers: list[A | KafkaError]) -> None:
        if not answered.done():
            answered.set_result(answers)

    await finish(_asking(names, ask, Gathering(len(names), on_all), at_once))
    return await answered


def _asking(
    names: Sequence[T], ask: Callable[[T, Reply[A]], None], gathering: Gathering[A], at_once: int
) -> Slices[None]:
    """Ask for everything: so much at once, or less if that takes long, as a group may be large."""
    now_ns = clocks().monotonic_ns
    left, ends_ns = at_once, now_ns() + TURN_NS_MAX
    for position, name in enumerate(names):
        if left == 0 or now_ns() >= ends_ns:
            yield
            left, ends_ns = at_once, now_ns() + TURN_NS_MAX
        ask(name, _reply_at(gathering, position))
        left -= 1


def ask_in_turns(names: Sequence[T], ask: Callable[[T, Reply[A]], None], on_all: OnAll[A]) -> None:
    """Ask for a few names at once and for the rest in later turns of the loop.

    For callers that have callbacks; coroutines use `ask_in_slices`. `ask` must not raise.
    """
    gathering = Gathering(len(names), on_all)

    work = _asking(names, ask, gathering, NAMES_AT_ONCE)

    def go_on() -> None:
        with suppress(StopIteration):
            next(work)
            asyncio.get_running_loop().call_soon(go_on)

    go_on()


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
