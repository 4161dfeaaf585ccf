"""How transactions end: by a commit or abort, a timeout, or another producer with the same id.

First the decision is written (PrepareCommit, PrepareAbort), which is final. Once it is committed
the shell writes a marker to each partition (`Completion`) and then records that all have it
(`complete`). From version 2 on the decision bumps the epoch: a late request of this transaction
has an old epoch and cannot affect the next one.
"""

from typing import NamedTuple

from msgspec.structs import replace

from headrace.coordinator.machine import NOTHING, Outcome, Reply, Told, effect, told
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import NO_PRODUCER_ID
from headrace.records.builder import NO_PRODUCER_EPOCH
from headrace.txn.records import to_record
from headrace.txn.state import (
    BUMPING,
    EPOCH_MAX,
    Completion,
    Producer,
    Status,
    Transaction,
    TransactionsState,
    completing,
    fenced,
    new_completion,
    wrong_id,
)


class Ended(NamedTuple):
    """The producer id and epoch with which the producer continues after a transaction."""

    producer_id: int
    producer_epoch: int


def needs_producer_id(state: TransactionsState, transactional_id: str) -> bool:
    """Return whether `end_bumping` may need a new producer id."""
    found = state.transactions.get(transactional_id)
    return found is not None and found.is_epoch_exhausted


def end(
    state: TransactionsState,
    producer: Producer,
    is_commit: bool,
    now_ms: int,
    reply: Reply[Ended],
) -> Outcome:
    """End a transaction for clients of version 1; reply `Ended` with the current id and epoch.

    A repeated request is fine, a contradicting one is INVALID_TXN_STATE.
    """
    found = state.find_own(producer)
    if found.status is Status.ONGOING:
        prepared = replace(
            found,
            status=_prepared(is_commit=is_commit),
            updated_ms=now_ms,
            previous_producer_id=NO_PRODUCER_ID,
            client_version=0,
        )
        answer = Ended(found.producer_id, found.producer_epoch)
        return _decide(state, prepared, (told(reply, answer),))
    if found.status is _prepared(is_commit=is_commit):
        raise completing(found)
    if found.status is not _complete(is_commit=is_commit):
        raise _not_possible(found, is_commit=is_commit)
    return Outcome(replies=(told(reply, Ended(found.producer_id, found.producer_epoch)),))


def end_bumping(  # noqa: PLR0917  the request, and what every operation gets
    state: TransactionsState,
    producer: Producer,
    is_commit: bool,
    new_producer_id: int,
    now_ms: int,
    reply: Reply[Ended],
) -> Outcome:
    """End a transaction for clients of version 2; reply `Ended` with the next id and epoch.

    One without records may be aborted too: the client wants the new epoch. A repeated request has
    the previous epoch and gets the same reply, until the next transaction begins.
    """
    found = state.find(producer)
    if _is_repeated(producer, found):
        return _repeat(found, producer, is_commit, reply)
    found = state.find_own(producer)
    if found.status.is_prepared:
        if found.status is _prepared(is_commit=is_commit):
            raise completing(found)
        raise _not_possible(found, is_commit=is_commit)
    if is_commit and found.status is not Status.ONGOING:
        raise _not_possible(found, is_commit=is_commit)
    is_last_epoch = found.is_epoch_exhausted
    if is_last_epoch and new_producer_id == NO_PRODUCER_ID:
        raise completing(found)
    prepared = replace(
        found,
        status=_prepared(is_commit=is_commit),
        partitions=found.partitions if found.status is Status.ONGOING else (),
        producer_epoch=min(found.producer_epoch + 1, EPOCH_MAX),
        updated_ms=now_ms,
        started_ms=found.started_ms if found.status is Status.ONGOING else now_ms,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=new_producer_id if is_last_epoch else NO_PRODUCER_ID,
        client_version=BUMPING,
    )
    state.last_epochs[found.transactional_id] = found.producer_epoch
    return _decide(state, prepared, (told(reply, _following(prepared)),))


def abort(
    state: TransactionsState,
    found: Transaction,
    now_ms: int,
    *,
    new_producer_id: int = NO_PRODUCER_ID,
) -> Outcome:
    """Abort an open transaction whose producer is late or replaced; its epoch is over with that.

    After the last epoch comes a new producer id, here if there is one, else with InitProducerId.
    """
    is_bumping = state.version_of() >= BUMPING
    state.last_epochs[found.transactional_id] = (
        found.producer_epoch if is_bumping else NO_PRODUCER_EPOCH
    )
    prepared = replace(
        found,
        status=Status.PREPARE_ABORT,
        producer_epoch=min(found.producer_epoch + 1, EPOCH_MAX),
        updated_ms=now_ms,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=new_producer_id if found.is_epoch_exhausted else NO_PRODUCER_ID,
        client_version=BUMPING if is_bumping else 0,
    )
    return _decide(state, prepared, ())


def complete(state: TransactionsState, completion: Completion, now_ms: int) -> Outcome:
    """Record that every partition has its marker; does nothing if that is known already."""
    found = state.transactions.get(completion.transactional_id)
    if found is None or not is_to_complete(found, completion):
        return NOTHING
    changed = replace(
        found,
        status=_complete(is_commit=completion.is_commit),
        partitions=(),
        updated_ms=now_ms,
        previous_producer_id=NO_PRODUCER_ID,
    )
    if found.next_producer_id != NO_PRODUCER_ID:
        changed = replace(
            changed,
            producer_id=found.next_producer_id,
            producer_epoch=0,
            previous_producer_id=found.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
    return Outcome((to_record(changed, state.version_of()),))


def is_to_complete(found: Transaction, completion: Completion) -> bool:
    """Return whether a transaction is the decided one and still waits for its markers.

    This prevents the caller from ending a later transaction, which may have the same epoch.
    """
    return found.status is _prepared(is_commit=completion.is_commit) and (
        found.producer_id,
        found.producer_epoch,
    ) == (completion.producer_id, completion.producer_epoch)


def _is_repeated(producer: Producer, found: Transaction) -> bool:
    """Return whether a request repeats the one that ended its transaction."""
    if producer.producer_id == found.producer_id:
        return producer.producer_epoch + 1 == found.producer_epoch
    is_rotated = producer.producer_id == found.previous_producer_id and found.producer_epoch == 0
    return is_rotated and producer.producer_epoch == EPOCH_MAX - 1


def _repeat(
    found: Transaction, producer: Producer, is_commit: bool, reply: Reply[Ended]
) -> Outcome:
    if not found.status.is_prepared and found.status not in _COMPLETE:
        raise (wrong_id if producer.producer_id != found.producer_id else fenced)(producer, found)
    if found.status is _prepared(is_commit=is_commit):
        raise completing(found)
    if found.status is not _complete(is_commit=is_commit):
        raise _not_possible(found, is_commit=is_commit)
    if found.producer_epoch == EPOCH_MAX:
        raise fenced(producer, found)  # there is no epoch to go on with: InitProducerId gives one
    return Outcome(replies=(told(reply, _following(found)),))


def _decide(state: TransactionsState, prepared: Transaction, replies: tuple[Told, ...]) -> Outcome:
    # The markers first: on one node the transaction is complete before its producer hears of it.
    completion = effect(state.complete, new_completion(prepared))
    return Outcome((to_record(prepared, state.version_of()),), (completion, *replies))


def _following(transaction: Transaction) -> Ended:
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return Ended(transaction.next_producer_id, 0)
    return Ended(transaction.producer_id, transaction.producer_epoch)


def _prepared(*, is_commit: bool) -> Status:
    return Status.PREPARE_COMMIT if is_commit else Status.PREPARE_ABORT


def _complete(*, is_commit: bool) -> Status:
    return Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT


_COMPLETE = (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)


def _not_possible(found: Transaction, *, is_commit: bool) -> KafkaError:
    word = "committed" if is_commit else "aborted"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of {found.transactional_id!r} is {found.status.label} and cannot be "
        f"{word}",
    )
