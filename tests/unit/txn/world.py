"""One partition of `__transaction_state` in memory: what it wrote, answered and handed over."""

from collections.abc import Callable
from typing import Any

from headrace.config import Settings, load_settings
from headrace.coordinator.machine import Outcome
from headrace.coordinator.records import CoordinatorRecord
from headrace.errors import KafkaError
from headrace.txn.ending import complete, end, end_bumping
from headrace.txn.initialization import init_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.partitions import add_partitions
from headrace.txn.state import Completion, Place, Producer, Transaction, TransactionsState

T0 = 1_700_000_000_000
TIMEOUT_MS = 60_000
NEW_ID = 5000
"""The first producer id that is given out."""


class World:
    """A machine whose records are committed as soon as they are written."""

    def __init__(self, level: int = 2, settings: dict[str, str] | None = None) -> None:
        self.level = level
        self.settings: Settings = load_settings(overrides=settings or {})
        self.now_ms = T0
        self.log: list[CoordinatorRecord] = []
        self.decided: list[Completion] = []
        self.next_id = NEW_ID
        self.machine = self._new()

    def _new(self) -> TransactionsMachine:
        return TransactionsMachine(
            TransactionsState(self.settings, lambda: self.level, self._complete)
        )

    def _complete(self, completion: Completion | KafkaError) -> None:
        assert not isinstance(completion, KafkaError)
        self.decided.append(completion)

    @property
    def state(self) -> TransactionsState:
        return self.machine.state

    def do(self, operation: Callable[..., Outcome], *arguments: Any) -> Any:
        """Do an operation that takes a reply last; give its answer, or raise the error."""
        answers: list[Any] = []
        self.commit(operation(self.state, *arguments, answers.append))
        (answer,) = answers
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def commit(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.log.append(record)
            self.machine.replay(record)
        for reply, answer in outcome.replies:
            reply(answer)

    def reload(self) -> None:
        """Begin anew with what is in the log."""
        self.machine = self._new()
        for record in self.log:
            self.machine.replay(record)
        self.commit(self.machine.on_loaded(self.now_ms))

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, and everything happen that is due meanwhile."""
        self.now_ms += milliseconds
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= self.now_ms:
            self.commit(self.machine.on_deadline(self.now_ms))

    # What clients do, in few words

    def init(self, name: str = "a", producer: Producer | None = None) -> Producer:
        """Have a producer take a transactional id over."""
        self.next_id += 1
        asked = producer or Producer(name)
        timeout_ms, new_id = TIMEOUT_MS, self.next_id
        answer = self.do(init_producer_id, asked, timeout_ms, new_id, self.now_ms)
        return Producer(asked.transactional_id, *answer)

    def add(self, producer: Producer, *places: Place, version: int = 2) -> None:
        self.do(add_partitions, producer, places, version, self.now_ms)

    def end(self, producer: Producer, *, is_commit: bool = True) -> Producer:
        """End a transaction as version 2 does; give what its producer goes on with."""
        self.next_id += 1
        answer = self.do(end_bumping, producer, is_commit, self.next_id, self.now_ms)
        return Producer(producer.transactional_id, *answer)

    def end_unbumped(self, producer: Producer, *, is_commit: bool = True) -> None:
        """End a transaction as version 1 does."""
        self.do(end, producer, is_commit, self.now_ms)

    def complete(self) -> None:
        """Take it that every partition has the markers of everything that was decided."""
        while self.decided:
            self.commit(complete(self.state, self.decided.pop(0), self.now_ms))

    def of(self, name: str = "a") -> Transaction:
        return self.state.transactions[name]
