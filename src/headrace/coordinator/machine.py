"""The state of a coordinator: a pure machine that is changed by records only.

An operation reads the machine and returns what to write and what to reply; it changes nothing
that has to survive. The runtime appends the records, replays them into the machine and sends the
replies once the records are committed. What is not written (pending replies, when a member was
last heard from) may be kept beside the records; it is lost with the machine, and clients start
over.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NewType, Protocol, TypeAlias, TypeVar

from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import KafkaError
from headrace.wire.schema import Message

A = TypeVar("A")
M = TypeVar("M", bound="Machine")

Reply: TypeAlias = Callable[[A | KafkaError], None]
"""Takes the reply to a request, or the KafkaError that it failed with. Machines only keep it."""
OnError: TypeAlias = Callable[[KafkaError], None]
"""Takes the KafkaError that something failed with. Every `Reply` is also an `OnError`."""
Told = NewType("Told", tuple[OnError, Any])
"""A reply with its answer, made by `told` or `effect`, which check that their types match."""


def told(reply: Reply[A], answer: A | KafkaError) -> Told:
    """Return a reply with its answer; an answer of another type is a type error."""
    return Told((reply, answer))


class Effect:
    """Takes what committed records set off on this node: no client waits for it.

    A client that waits too long for replicas gets an error. This waits on: the records may be
    committed later, and what they set off has to happen then.
    """

    __slots__ = ("_take",)

    def __init__(self, take: OnError) -> None:
        self._take = take

    def __call__(self, answer: Any) -> None:
        self._take(answer)


def effect(take: Reply[A], what: A) -> Told:
    """Return what to do once records are committed, as one of the replies of their outcome.

    `take` gets the KafkaError if they are not, or if this node stops coordinating before.
    """
    return Told((Effect(take), what))


class Outcome(NamedTuple):
    """What an operation wants written and replied."""

    records: tuple[CoordinatorRecord, ...] = ()
    """Records to be written together or not at all."""
    replies: tuple[Told, ...] = ()
    """Replies, made by `told`, to send when these records, and all before them, are committed; and
    what they set off then, made by `effect`."""
    is_divisible: bool = False
    """Whether its records are independent and may be written in several batches. A record too large
    for any batch is then dropped, and retried at the next deadline of its kind."""
    notes: tuple[Callable[[], None], ...] = ()
    """Called just before the records are replayed, and only if they can be written. Operations
    change here what they keep beside the records, if it would be wrong without them."""


NOTHING = Outcome()


class Machine(Protocol):
    """The state of one partition of an internal topic."""

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record: one that was just written, or one that is read while loading."""

    def id_of(self, key: Message) -> str | None:
        """Return the id by which requests name the subject of a record; None if they do not."""

    def set_aside(self, id_: str) -> None:
        """Start nothing for an id: one of its records could not be read.

        Its later records are still replayed, and make it known again.
        """

    def end_transaction(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Apply or discard the records of a producer's transaction."""

    def on_loaded(self, now_ms: int) -> Outcome:
        """Return what has to continue where the previous leader stopped."""

    def next_deadline_ms(self) -> int | None:
        """Return when `on_deadline` is to be called."""

    def on_deadline(self, now_ms: int) -> Outcome:
        """Do what is due first, and nothing else: the next call sees the state that it leaves."""

    def on_deadline_unmet(self, now_ms: int) -> None:
        """Schedule what `on_deadline` did last again: its outcome could not be written."""

    def waiting(self) -> Iterable[OnError]:
        """Return all pending replies: their callers are told that this node cannot answer."""


Operation: TypeAlias = Callable[[M, int], Outcome]
"""A function of the machine and the time. A KafkaError that it raises is sent as the response."""
