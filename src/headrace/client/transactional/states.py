"""The states of a transactional producer, as a table: pure, no I/O, no clock.

`NEXT` is complete: steps that are not in it are not allowed. The shell around it is `producer`.

    NEW --start--> READY --begin--> OPEN --close--> CLOSING --commit--> COMMITTING --end--> READY
                                     |fail           |fail               |fail
                                     v               v                   v
                                    DOOMED <---------+-------------------+
                                     |abort (from OPEN and CLOSING too)
                                     v
                                    ABORTING --end--> READY             any --break--> BROKEN

A transaction is decided by one request. Until it is sent (CLOSING), leaving the transaction can
still turn into an abort; once it is in flight (COMMITTING), only the coordinator's response tells
the outcome.
"""

from enum import Enum
from typing import Final

from headrace.client.errors import ClientError
from headrace.client.topics import TopicPartition


class State(Enum):
    """Where a transactional producer is."""

    NEW = "has not started"
    READY = "has no open transaction"
    OPEN = "has an open transaction"
    CLOSING = "waits for the records of its transaction, to commit it"
    DOOMED = "has a transaction that can only be aborted"
    COMMITTING = "is committing its transaction"
    ABORTING = "is aborting its transaction"
    BROKEN = "cannot go on"


class Step(Enum):
    """What may happen to it."""

    START = "start"
    BEGIN = "begin a transaction"
    CLOSE = "close the transaction"
    COMMIT = "commit the transaction"
    ABORT = "abort the transaction"
    END = "end the transaction"
    FAIL = "fail the transaction"
    BREAK = "break"


NEXT: Final[dict[tuple[State, Step], State]] = {
    (State.NEW, Step.START): State.READY,
    (State.READY, Step.BEGIN): State.OPEN,
    (State.OPEN, Step.CLOSE): State.CLOSING,
    (State.OPEN, Step.ABORT): State.ABORTING,
    (State.CLOSING, Step.COMMIT): State.COMMITTING,
    (State.CLOSING, Step.ABORT): State.ABORTING,
    (State.DOOMED, Step.ABORT): State.ABORTING,
    (State.COMMITTING, Step.END): State.READY,
    (State.ABORTING, Step.END): State.READY,
    # A record, or the offsets of a group, did not get into the transaction.
    (State.OPEN, Step.FAIL): State.DOOMED,
    (State.CLOSING, Step.FAIL): State.DOOMED,
    (State.DOOMED, Step.FAIL): State.DOOMED,
    (State.ABORTING, Step.FAIL): State.ABORTING,
    (State.COMMITTING, Step.FAIL): State.DOOMED,  # the coordinator asks for an abort
    **{(state, Step.BREAK): State.BROKEN for state in State},
}

WITH_TRANSACTION: Final = frozenset(
    {State.OPEN, State.CLOSING, State.DOOMED, State.COMMITTING, State.ABORTING}
)
"""States in which a transaction is not over."""
MAY_ABORT: Final = frozenset(state for state, step in NEXT if step is Step.ABORT)


class InvalidTransactionStep(ClientError):
    """A step that a transactional producer cannot take now, such as two transactions at a time."""


class TransactionStates:
    """The state of one transactional producer, and what it knows of its transaction."""

    def __init__(self) -> None:
        self.state = State.NEW
        self.number = 0
        """Which transaction it is, counted from 1."""
        self.error: Exception | None = None
        """Why the transaction can only be aborted, or the producer is unusable."""
        self.is_known = False
        """Whether the coordinator may know of it, and so must be told its end."""
        self.uses_implicit_adds = False
        """Whether brokers add partitions themselves (KIP-890, transaction.version 2)."""
        self.partitions: set[TopicPartition] = set()
        """The partitions that the coordinator knows."""
        self.groups: set[str] = set()
        """The groups that the coordinator knows."""

    def begin(self, *, uses_implicit_adds: bool) -> None:
        """Open the next transaction."""
        self.step(Step.BEGIN)
        self.number += 1
        self.error = None
        self.is_known = False
        self.uses_implicit_adds = uses_implicit_adds
        self.partitions.clear()
        self.groups.clear()

    def fail(self, error: Exception) -> None:
        """Remember the first failure: the transaction can only be aborted now."""
        if (self.state, Step.FAIL) not in NEXT:
            return  # of a transaction that is over
        if self.error is None:
            self.error = error
        self.step(Step.FAIL)

    def break_down(self, error: Exception) -> None:
        """Refuse everything from now on, with this error."""
        if self.state is not State.BROKEN:
            self.error = error
        self.step(Step.BREAK)

    def step(self, step: Step) -> None:
        """Go to the next state; InvalidTransactionStep if the table has none."""
        following = NEXT.get((self.state, step))
        if following is None:
            raise InvalidTransactionStep(f"cannot {step.value}: this producer {self.state.value}")
        self.state = following
