"""The state of one partition of `__transaction_state`: a transaction for each transactional id.

A `Transaction` is the content of its id's last record. In addition there are deadlines, which
follow from the records, and `last_epochs`, which only help callers that repeat a request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

from headrace.config import AnySettings
from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import NO_PRODUCER_ID
from headrace.loop.deadlines import Deadlines
from headrace.records.builder import NO_PRODUCER_EPOCH

EPOCH_MAX: Final = 32767
"""The last epoch is for markers only: a producer with the one before gets a new id next."""
NOT_STARTED_MS: Final = -1
BUMPING: Final = 2
"""The transaction.version from which on each transaction has its own epoch."""

Place = tuple[str, int]
"""A topic and a partition."""


class Status(IntEnum):
    """Where a transaction is, by Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of it, as tools show it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided, and not every partition has its marker."""
        return self in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)

    @property
    def is_over(self) -> bool:
        """Whether no transaction is open or ending."""
        return self in (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)


TRANSITIONS: Final[Mapping[Status, Mapping[Status, str]]] = {
    Status.EMPTY: {
        Status.EMPTY: "InitProducerId",
        Status.ONGOING: "a partition joins",
        Status.PREPARE_ABORT: "EndTxn aborts nothing, for a new epoch",
    },
    Status.ONGOING: {
        Status.ONGOING: "a partition joins",
        Status.PREPARE_COMMIT: "EndTxn commits",
        Status.PREPARE_ABORT: "EndTxn aborts, timeout, or InitProducerId",
    },
    Status.PREPARE_COMMIT: {Status.COMPLETE_COMMIT: "all markers are written"},
    Status.PREPARE_ABORT: {Status.COMPLETE_ABORT: "all markers are written"},
    Status.COMPLETE_COMMIT: {
        Status.EMPTY: "InitProducerId",
        Status.ONGOING: "a partition joins",
        Status.PREPARE_ABORT: "EndTxn aborts nothing, for a new epoch",
    },
    Status.COMPLETE_ABORT: {
        Status.EMPTY: "InitProducerId",
        Status.ONGOING: "a partition joins",
        Status.PREPARE_ABORT: "EndTxn aborts nothing, for a new epoch",
    },
}
"""Where a transaction may go from each status, and why. What is over may be forgotten, too."""


class Transaction(Struct, frozen=True):
    """A transactional id: its producer, and the state of its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: Status = Status.EMPTY
    partitions: tuple[Place, ...] = ()
    updated_ms: int = 0
    started_ms: int = NOT_STARTED_MS
    previous_producer_id: int = NO_PRODUCER_ID
    """The id that this one took over from, in the record that says so; else the same id."""
    next_producer_id: int = NO_PRODUCER_ID
    """The id that takes over when this transaction is complete."""
    client_version: int = 0
    """The version of transactions (0 or 2) of the client that changed it last."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_MAX - 1


class Producer(NamedTuple):
    """The producer of a request, as the request states it."""

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Completion(NamedTuple):
    """A transaction that is decided: each of its partitions is to get a marker."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: tuple[Place, ...]
    transaction_version: int


@dataclass(slots=True)
class TransactionsState:
    """The transactional ids of one partition."""

    settings: AnySettings
    version_of: Callable[[], int]
    """Gives the level of the feature transaction.version."""
    complete: Reply[Completion]
    """Takes each transaction whose decision is committed: the shell's part."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    last_epochs: dict[str, int] = field(default_factory=dict)
    """The previous epoch, for a producer that missed its new one."""
    deadlines: Deadlines[str] = field(default_factory=Deadlines)
    """By transactional id: when an open transaction is aborted, or an unused id forgotten."""

    def find(self, producer: Producer) -> Transaction:
        """Return the transaction of a producer id; raise KafkaError if there is none."""
        found = self.transactions.get(producer.transactional_id)
        if found is None:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"nobody has transactional id {producer.transactional_id!r}",
            )
        return found

    def find_own(self, producer: Producer) -> Transaction:
        """Return the transaction of a producer; raise KafkaError if it no longer owns the id."""
        found = self.find(producer)
        if found.producer_id != producer.producer_id:
            raise wrong_id(producer, found)
        if found.producer_epoch != producer.producer_epoch or found.producer_epoch == EPOCH_MAX:
            raise fenced(producer, found)
        return found


def wrong_id(producer: Producer, found: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{producer.transactional_id!r} has producer id {found.producer_id}, "
        f"not {producer.producer_id}",
    )


def fenced(producer: Producer, found: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{producer.transactional_id!r} is at epoch {found.producer_epoch} of producer "
        f"{found.producer_id}; this request is of epoch {producer.producer_epoch}",
    )


def completing(found: Transaction) -> KafkaError:
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the transaction of {found.transactional_id!r} is being completed, try again",
    )


def new_completion(found: Transaction) -> Completion:
    return Completion(
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.status is Status.PREPARE_COMMIT,
        found.partitions,
        found.client_version,
    )
