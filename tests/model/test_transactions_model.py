"""A transaction ends once, and in the same way for all of its partitions.

Two producers share a transactional id, repeat and delay what they say, run out of time; markers
reach partitions one by one, and the coordinator begins anew from its log between any two steps.
The model is the partitions: what they hold of a transaction is open until a marker says otherwise.
"""

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headrace.coordinator.machine import Outcome
from headrace.errors import KafkaError
from headrace.txn.ending import complete, is_to_complete
from headrace.txn.state import Completion, Place, Producer, Status
from tests.unit.txn.world import TIMEOUT_MS, World

NAME = "a"
PLACES: tuple[Place, ...] = (("orders", 0), ("orders", 1), ("stock", 0))
SLOTS = st.integers(0, 1)


class Sent(NamedTuple):
    """An EndTxn that a producer sent."""

    producer: Producer
    is_commit: bool


class Share:
    """What one partition has of one producer's transactions."""

    def __init__(self) -> None:
        self.epoch = -1
        self.open: int | None = None

    def append(self, epoch: int, number: int) -> None:
        assert self.open in (None, number), "records of two transactions are open at once"
        self.epoch, self.open = epoch, number


class Transactions(RuleBasedStateMachine):
    """The coordinator of one transactional id, its producers and its partitions."""

    sent = Bundle("sent")

    @initialize(is_bumping=st.booleans(), level=st.integers(0, 2))
    def begin(self, is_bumping: bool, level: int) -> None:
        self.is_bumping = is_bumping
        self.world = World(2 if is_bumping else level)
        self.producers: list[Producer | None] = [None, None]
        self.shares: dict[tuple[Place, int], Share] = {}
        self.number = 0
        """Of the transaction that was begun last."""
        self.begun: dict[int, Producer] = {}
        """Who began each transaction, and in which epoch."""
        self.ends: dict[int, bool] = {}
        """How each transaction was decided: True for a commit."""
        self.todo: dict[Completion, set[Place]] = {}

    # Producers

    @rule(slot=SLOTS, is_naming=st.booleans())
    def init(self, slot: int, is_naming: bool) -> None:
        known = self.producers[slot]
        self.attempt(lambda: self.take(slot, known if is_naming else None))

    def take(self, slot: int, named: Producer | None) -> None:
        self.producers[slot] = self.world.init(NAME, named)

    @rule(slot=SLOTS, place=st.sampled_from(PLACES))
    def produce(self, slot: int, place: Place) -> None:
        """Have a partition join, and write a record there if it did."""
        if self.producers[slot] is None:
            self.attempt(lambda: self.take(slot, None))
        producer = self.producers[slot]
        if producer is None or not self.attempt(lambda: self.join(producer, place)):
            return
        share = self.shares.setdefault((place, producer.producer_id), Share())
        if producer.producer_epoch >= share.epoch:
            share.append(producer.producer_epoch, self.number)

    def join(self, producer: Producer, place: Place) -> None:
        was = self.status()
        self.world.add(producer, place, version=2 if self.is_bumping else 0)
        if was is not Status.ONGOING:
            is_new = producer not in self.begun.values()
            assert is_new or not self.is_bumping, "two transactions have the same epoch"
            self.number += 1
            self.begun[self.number] = producer

    @rule(target=sent, slot=SLOTS, is_commit=st.booleans())
    def send_end_late(self, slot: int, is_commit: bool) -> Sent:
        """Send an EndTxn that arrives later, once, often or never."""
        return self.new_end(slot, is_commit)

    def new_end(self, slot: int, is_commit: bool) -> Sent:
        return Sent(self.producers[slot] or Producer(NAME), is_commit)

    @rule(target=sent, slot=SLOTS, is_commit=st.booleans())
    def send_end_at_once(self, slot: int, is_commit: bool) -> Sent:
        """Send an EndTxn that arrives now, and may come again."""
        end = self.new_end(slot, is_commit)
        self.receive_end(slot, end)
        return end

    @rule(slot=SLOTS, end=sent)
    def receive_end_late(self, slot: int, end: Sent) -> None:
        self.receive_end(slot, end)

    def receive_end(self, slot: int, end: Sent) -> None:
        was, number = self.status(), self.number
        if self.attempt(lambda: self.end(slot, end)):
            told = self.ends.get(number)
            if was is Status.ONGOING:
                assert told is end.is_commit
                assert self.begun[number] == end.producer, "it ended a later transaction"

    def end(self, slot: int, end: Sent) -> None:
        if not self.is_bumping:
            self.world.end_unbumped(end.producer, is_commit=end.is_commit)
            return
        following = self.world.end(end.producer, is_commit=end.is_commit)
        if self.producers[slot] == end.producer:
            self.producers[slot] = following

    @rule()
    def run_out_of_time(self) -> None:
        self.world.pass_time(TIMEOUT_MS + 10_000)
        self.take_decisions()

    # The coordinator's shell

    @rule()
    def write_all_markers(self) -> None:
        for place in PLACES:
            self.write_markers(place)

    @rule(place=st.sampled_from(PLACES))
    def write_markers(self, place: Place) -> None:
        for completion, left in tuple(self.todo.items()):
            if place in left:
                self.mark(completion, place)
                left.discard(place)
            if not left:
                del self.todo[completion]
                self.commit(complete(self.world.state, completion, self.world.now_ms))

    def mark(self, completion: Completion, place: Place) -> None:
        found = self.world.state.transactions[NAME]
        assert is_to_complete(found, completion)
        share = self.shares.setdefault((place, completion.producer_id), Share())
        assert completion.producer_epoch >= share.epoch, "a marker would be refused"
        if completion.transaction_version == 2 and share.open is not None:
            assert completion.producer_epoch > share.epoch, "a marker would be refused"
        if share.open is not None:
            assert self.ends[share.open] is completion.is_commit, "partitions see different ends"
        share.epoch, share.open = completion.producer_epoch, None

    @rule()
    def crash(self) -> None:
        """Lose all but the log; what was decided is handed over again."""
        before = dict(self.world.state.transactions)
        self.todo.clear()
        self.world.reload()
        assert self.world.state.transactions == before
        self.take_decisions()

    # What every step has to keep

    @invariant()
    def nothing_is_open_that_the_coordinator_does_not_know(self) -> None:
        for (place, _), share in getattr(self, "shares", {}).items():
            if share.open is not None:
                found = self.world.of(NAME)
                assert not found.status.is_over
                assert place in found.partitions

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.status() is Status.ONGOING:
            self.run_out_of_time()
        self.write_all_markers()
        assert not self.todo
        assert all(share.open is None for share in self.shares.values())
        assert set(self.ends) >= set(range(1, self.number + 1))

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do what may be refused; say whether it was done."""
        try:
            work()
        except KafkaError:
            return False
        finally:
            self.take_decisions()
        return True

    def commit(self, outcome: Outcome) -> None:
        self.world.commit(outcome)

    def take_decisions(self) -> None:
        for completion in self.world.decided:
            if completion.partitions:
                decided = self.ends.setdefault(self.number, completion.is_commit)
                assert decided is completion.is_commit, "a decision was changed"
            self.todo = {completion: set(completion.partitions)}
        self.world.decided.clear()
        for completion, left in tuple(self.todo.items()):
            if not left:
                del self.todo[completion]
                self.commit(complete(self.world.state, completion, self.world.now_ms))

    def status(self) -> Status | None:
        found = self.world.state.transactions.get(NAME)
        return None if found is None else found.status


def test_a_transaction_is_committed_or_aborted_once_and_for_all_its_partitions() -> None:
    run_state_machine_as_test(
        Transactions, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )
