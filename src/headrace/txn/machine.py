"""The machine of one partition of `__transaction_state`: records, deadlines, and the start."""

from collections.abc import Iterable

from headrace import config
from headrace.coordinator.machine import NOTHING, OnError, Outcome, effect
from headrace.coordinator.records import CoordinatorRecord
from headrace.txn.ending import abort
from headrace.txn.records import to_transaction, tombstone
from headrace.txn.state import TRANSITIONS, Status, Transaction, TransactionsState, new_completion
from headrace.wire.messages.transaction_log_key import TransactionLogKey
from headrace.wire.messages.transaction_log_value import TransactionLogValue
from headrace.wire.schema import Message


class TransactionsMachine:
    """Transactional ids and what their producers are at."""

    def __init__(self, state: TransactionsState) -> None:
        self.state = state
        self._is_loaded = False

    def replay(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        state, transactional_id = self.state, key.transactional_id
        if value is None:
            state.transactions.pop(transactional_id, None)
            state.last_epochs.pop(transactional_id, None)
            state.deadlines.drop(transactional_id)
            return
        assert isinstance(value, TransactionLogValue)
        changed = to_transaction(transactional_id, value)
        if self._is_loaded:  # before, compaction may have removed what lies between
            self._check_transition(changed)
        state.transactions[transactional_id] = changed
        due_ms = _due_ms(state, changed)
        if due_ms is None:
            state.deadlines.drop(transactional_id)
        else:
            state.deadlines.set(transactional_id, due_ms)

    def _check_transition(self, changed: Transaction) -> None:
        before = self.state.transactions.get(changed.transactional_id)
        status = Status.EMPTY if before is None else before.status
        assert changed.status in TRANSITIONS[status], f"{status.name} -> {changed.status.name}"

    def id_of(self, key: Message) -> str | None:
        """Return the transactional id that a record is about."""
        return getattr(key, "transactional_id", None)

    def set_aside(self, id_: str) -> None:
        """Forget a transactional id: a decision that may be outdated must not be carried out."""
        self.state.transactions.pop(id_, None)
        self.state.last_epochs.pop(id_, None)
        self.state.deadlines.drop(id_)

    def end_transaction(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Change nothing: records of this topic are not part of transactions."""

    def on_loaded(self, now_ms: int) -> Outcome:
        """Complete the transactions that were decided before."""
        self._is_loaded = True
        return Outcome(
            replies=tuple(
                effect(self.state.complete, new_completion(each))
                for each in self.state.transactions.values()
                if each.status.is_prepared
            )
        )

    def next_deadline_ms(self) -> int | None:
        return self.state.deadlines.next_ms()

    def on_deadline(self, now_ms: int) -> Outcome:
        """Abort a transaction that was open too long, or expire an unused id."""
        transactional_id = self.state.deadlines.take_due(now_ms)
        if transactional_id is None:
            return NOTHING
        found = self.state.transactions[transactional_id]
        if found.status is Status.ONGOING:
            return abort(self.state, found, now_ms)
        return Outcome((tombstone(transactional_id),))

    def on_deadline_unmet(self, now_ms: int) -> None:
        self.state.deadlines.put_back(now_ms)

    def waiting(self) -> Iterable[OnError]:
        """Return nothing: no request waits."""
        return ()


def _due_ms(state: TransactionsState, transaction: Transaction) -> int | None:
    """Return when a transaction times out or expires if nothing else happens.

    Rounded to intervals, so that many are written together.
    """
    settings = state.settings
    if transaction.status is Status.ONGOING:
        due_ms = transaction.started_ms + transaction.timeout_ms
        interval_ms: int = settings[config.TRANSACTION_ABORT_TIMED_OUT_INTERVAL_MS]
    elif transaction.status.is_over:
        due_ms = transaction.updated_ms + settings[config.TRANSACTIONAL_ID_EXPIRATION_MS]
        interval_ms = settings[config.TRANSACTION_REMOVE_EXPIRED_INTERVAL_MS]
    else:
        return None
    return -(-due_ms // interval_ms) * interval_ms
