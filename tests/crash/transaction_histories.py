"""A life of transactions: producers that come, fence each other, commit, abort and fall silent."""

from typing import Final

from headrace.config import load_settings
from headrace.errors import KafkaError
from headrace.txn.ending import Ended, complete, end, end_bumping
from headrace.txn.initialization import Initialized, init_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.partitions import add_partitions
from headrace.txn.records import RECORD_TYPES
from headrace.txn.state import Completion, Producer, TransactionsState
from tests.crash.coordinator_histories import Known, Life

NAMES: Final = ("x", "y", "z")
SETTINGS: Final = load_settings(
    overrides={
        "transactional.id.expiration.ms": "60000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
    }
)


class TransactionsLife(Life[TransactionsMachine]):
    """Three transactional ids."""

    types = RECORD_TYPES

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.producers: dict[str, Producer] = {}
        self.decided: list[Completion] = []

    def make(self) -> TransactionsMachine:
        return TransactionsMachine(TransactionsState(SETTINGS, lambda: 2, self._on_decided))

    def tell(self, machine: TransactionsMachine, before: Known) -> Known:
        return dict(machine.state.transactions)

    def _on_decided(self, completion: Completion | KafkaError) -> None:
        if isinstance(completion, Completion):
            self.decided.append(completion)

    def act(self) -> None:
        name = self.random.choice(NAMES)
        producer = self.producers.get(name)
        what = self.random.random()
        if producer is None or what < 0.1:
            self._init(name)
        elif what < 0.5:
            places = [(self.random.choice("tu"), self.random.randrange(3)) for _ in range(2)]
            self.do(add_partitions, producer, places, self.random.choice((0, 2)))
        elif what < 0.7:
            self._end(producer)
        elif self.decided:
            completion = self.decided.pop(self.random.randrange(len(self.decided)))
            self.write(
                lambda machine, now_ms: complete(machine.state, completion, now_ms), lambda _: None
            )

    def _init(self, name: str) -> None:
        def on_answer(answer: Initialized) -> None:
            self.producers[name] = Producer(name, *answer)

        timeout_ms = self.random.choice((1000, 60_000))
        new_id = 100 * self.number()
        self.do(init_producer_id, Producer(name), timeout_ms, new_id, on_answer=on_answer)

    def _end(self, producer: Producer) -> None:
        def on_answer(answer: Ended) -> None:
            name = producer.transactional_id
            self.producers[name] = Producer(name, *answer)

        is_commit = self.random.random() < 0.6
        if self.random.random() < 0.3:
            self.do(end, producer, is_commit, on_answer=on_answer)
        else:
            self.do(end_bumping, producer, is_commit, 100 * self.number(), on_answer=on_answer)
