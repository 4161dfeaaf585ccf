"""InitProducerId with a transactional id: a producer takes over the id and fences its predecessor.

The new producer gets a higher epoch, so that requests and records of the previous one are refused.
A producer that continues after an error sends its id and epoch (KIP-360) and is refused if another
one took over in the meantime. An open transaction is aborted first; the new producer must retry.
"""

from typing import NamedTuple

from msgspec.structs import replace

from headrace.coordinator.machine import Outcome, Reply, told
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import NO_PRODUCER_ID
from headrace.records.builder import NO_PRODUCER_EPOCH
from headrace.txn.ending import abort
from headrace.txn.records import to_record
from headrace.txn.state import (
    EPOCH_MAX,
    NOT_STARTED_MS,
    Producer,
    Status,
    Transaction,
    TransactionsState,
    completing,
    fenced,
)


class Initialized(NamedTuple):
    """What a producer has from now on."""

    producer_id: int
    producer_epoch: int


def needs_producer_id(state: TransactionsState, transactional_id: str) -> bool:
    """Return whether `init_producer_id` will need a new producer id."""
    found = state.transactions.get(transactional_id)
    return found is None or found.is_epoch_exhausted


def init_producer_id(  # noqa: PLR0917  the request, and what every operation gets
    state: TransactionsState,
    asked: Producer,
    timeout_ms: int,
    new_producer_id: int,
    now_ms: int,
    reply: Reply[Initialized],
) -> Outcome:
    """Hand over the transactional id to the caller; reply `Initialized`.

    `new_producer_id` is an unused one, or -1 if not `needs_producer_id`. KafkaError
    PRODUCER_FENCED for a producer with an outdated id or epoch, CONCURRENT_TRANSACTIONS while the
    open transaction is being ended.
    """
    found = state.transactions.get(asked.transactional_id)
    if found is not None:
        _check_producer_id(asked, found)
        if found.status.is_prepared:
            raise completing(found)
        if found.status is Status.ONGOING:
            aborted = abort(state, found, now_ms, new_producer_id=new_producer_id)
            return aborted._replace(replies=(*aborted.replies, told(reply, completing(found))))
    taken, last_epoch = _take(state, asked, found, new_producer_id)
    state.last_epochs[asked.transactional_id] = last_epoch
    changed = replace(
        taken,
        timeout_ms=timeout_ms,
        status=Status.EMPTY,
        partitions=(),
        updated_ms=now_ms,
        started_ms=NOT_STARTED_MS,
        next_producer_id=NO_PRODUCER_ID,
    )
    return Outcome(
        (to_record(changed, state.version_of()),),
        (told(reply, Initialized(changed.producer_id, changed.producer_epoch)),),
    )


def _check_producer_id(asked: Producer, found: Transaction) -> None:
    """Refuse a caller with another producer's id.

    The previous id is valid for a producer that used up its epochs and missed the new id.
    """
    is_named = asked.producer_id != NO_PRODUCER_ID
    is_retry = (
        asked.producer_id == found.previous_producer_id and asked.producer_epoch >= EPOCH_MAX - 1
    )
    if is_named and asked.producer_id != found.producer_id and not is_retry:
        raise fenced(asked, found)


def _take(
    state: TransactionsState, asked: Producer, found: Transaction | None, new_producer_id: int
) -> tuple[Transaction, int]:
    """Return the transactional id with its new epoch, and the previous epoch to remember."""
    transactional_id = asked.transactional_id
    if found is None:
        _check_new_id(transactional_id, new_producer_id)
        return Transaction(transactional_id, new_producer_id, 0, 0), NO_PRODUCER_EPOCH
    named = asked.producer_epoch
    last_epoch = state.last_epochs.get(transactional_id, NO_PRODUCER_EPOCH)
    if named not in (NO_PRODUCER_EPOCH, found.producer_epoch):
        if named != last_epoch:
            raise fenced(asked, found)
        if found.producer_epoch < EPOCH_MAX:  # else nobody gets it, it was for markers only
            return replace(found, previous_producer_id=NO_PRODUCER_ID), last_epoch
    if found.is_epoch_exhausted:
        _check_new_id(transactional_id, new_producer_id)
        rotated = replace(
            found,
            producer_id=new_producer_id,
            producer_epoch=0,
            previous_producer_id=found.producer_id,
        )
        return rotated, named
    bumped = replace(
        found, producer_epoch=found.producer_epoch + 1, previous_producer_id=NO_PRODUCER_ID
    )
    return bumped, named


def _check_new_id(transactional_id: str, new_producer_id: int) -> None:
    """Make the caller retry if the id was used up between the check and the operation."""
    if new_producer_id == NO_PRODUCER_ID:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"{transactional_id!r} was changed meanwhile, try again",
        )
