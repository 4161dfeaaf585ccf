"""What a coordinator's state is: a pure machine that records change, and nothing else does.

An operation looks at the machine and says what should be written and answered; it changes nothing
that has to survive. The runtime appends the records, replays them into the machine and sends the
answers once the records are committed. What is not written (who waits for an answer, when a member
was last heard of) may be kept beside; it is lost with the machine, and clients begin anew.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NewType, Protocol, TypeAlias, TypeVar

from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import KafkaError
from headrace.wire.schema import Message

A = TypeVar("A")
M = TypeVar("M", bound="Machine")

Reply: TypeAlias = Callable[[A | KafkaError], None]
"""Takes the answer of a request, or the KafkaError that it failed with. Machines only keep it."""
OnError: TypeAlias = Callable[[KafkaError], None]
"""Takes the KafkaError that something failed with. Every reply is one, whatever its answer is."""
Told = NewType("Told", tuple[OnError, Any])
"""A reply with its answer, made by `told`, which has them agree."""


def told(reply: Reply[A], answer: A | KafkaError) -> Told:
    """Return a reply with what it is to be told; an answer of another type is a type error."""
    return Told((reply, answer))


class Outcome(NamedTuple):
    """What an operation wants."""

    records: tuple[CoordinatorRecord, ...] = ()
    """To be written together or not at all."""
    replies: tuple[Told, ...] = ()
    """Answers, made by `told`, to be sent when the records, and all before them, are committed."""
    is_divisible: bool = False
    """Whether its records stand for themselves, and may be written in several batches. What is too
    large for any batch is left out then, and tried again with the next deadline of the kind."""
    notes: tuple[Callable[[], None], ...] = ()
    """What to do just before the records are replayed, and only if they can be written: operations
    put here what they keep beside the records, if it would be wrong without them."""


NOTHING = Outcome()


class Machine(Protocol):
    """The state of one partition of an internal topic."""

    def replay(self, record: CoordinatorRecord) -> None:
        """Be changed by a record: one that was just written, or one that is read at a start."""

    def id_of(self, key: Message) -> str | None:
        """Return the id by which requests name what a record is about; None if they do not."""

    def set_aside(self, id_: str) -> None:
        """Begin nothing about an id: a record of it could not be read.

        Its later records are replayed all the same, and make it known again.
        """

    def end_transaction(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Keep or drop what the records of a producer's transaction said."""

    def on_loaded(self, now_ms: int) -> Outcome:
        """Look at what was loaded: what has to go on where a former leader left it."""

    def next_deadline_ms(self) -> int | None:
        """Say when `on_deadline` wants to be called."""

    def on_deadline(self, now_ms: int) -> Outcome:
        """Do what is due first, and nothing else: the next is done on what this leaves behind."""

    def on_deadline_unmet(self, now_ms: int) -> None:
        """Have what `on_deadline` did last due again: its outcome could not be written."""

    def waiting(self) -> Iterable[OnError]:
        """Return all replies that are kept: who waits is told that this node cannot answer."""


Operation: TypeAlias = Callable[[M, int], Outcome]
"""A function of the machine and the time. A KafkaError that it raises is the request's answer."""
