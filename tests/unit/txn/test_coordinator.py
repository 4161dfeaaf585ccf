"""Transactions whose coordinator moves, lacks replicas, or whose partitions move."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from headrace.config import REQUEST_TIMEOUT_MS, load_settings
from headrace.coordinator.machine import Outcome, Reply
from headrace.coordinator.shard import Shard, State
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TRANSACTIONS_TOPIC, BrokerId, TopicId, TopicName
from headrace.loop.clock import Clock
from headrace.metadata.image import Image
from headrace.metadata.state import Partition, Topic
from headrace.testing.virtual_loop import run_virtual
from headrace.txn.coordinator import transaction_coordinator
from headrace.txn.ending import Ended, end_bumping
from headrace.txn.initialization import Initialized, init_producer_id
from headrace.txn.machine import TransactionsMachine
from headrace.txn.marker_sending import MarkerSender
from headrace.txn.markers import Marker, MarkerWriter
from headrace.txn.partitions import add_partitions, verify_partitions
from headrace.txn.state import Place, Producer, Status
from tests.unit.coordinator.shards import Journal, new_log, turn
from tests.unit.txn.peers_world import HERE, THERE, YONDER, FakePeers

ORDERS: Place = ("orders", 0)
TIMEOUT_SECONDS = REQUEST_TIMEOUT_MS.default / 2000


class Writer:
    """The partitions of this node: takes every marker, or refuses."""

    def __init__(self) -> None:
        self.written: list[Marker] = []
        self.refusal: KafkaError | None = None

    def write(self, place: Place, marker: Marker, on_written: Callable[[Any], None]) -> None:
        if self.refusal is None:
            self.written.append(marker)
        on_written(self.refusal)


class World:
    """One partition of `__transaction_state`, and whoever coordinates it."""

    def __init__(self) -> None:
        self.image = Image()
        self.add_topic(TRANSACTIONS_TOPIC, HERE)
        self.add_topic("orders", HERE)
        self.journal = Journal(new_log())
        self.writer = Writer()
        self.peers = FakePeers()
        self.coordinator = self._new_coordinator()

    def add_topic(self, name: str, leader: BrokerId) -> None:
        rows = [Partition((leader,), (leader,), leader, 1)]
        self.image.add_topic(Topic(TopicName(name), TopicId(name[:16].encode().ljust(16)), rows))

    def move_orders(self, leader: BrokerId) -> None:
        topic = self.image.topic(TopicName("orders"))
        assert topic is not None
        topic.partitions[0] = Partition((leader,), (leader,), leader, 1)

    def _new_coordinator(self) -> Any:
        sender = MarkerSender(HERE, lambda: self.image, cast(MarkerWriter, self.writer), self.peers)
        return transaction_coordinator(load_settings(), lambda: self.image, Clock(), sender)

    async def lead(self) -> None:
        """Begin to coordinate, in an epoch of its own."""
        self.journal.leader_epoch += 1
        self.journal.is_leader = True
        self.coordinator.lead(0, self.journal)
        await self.shard.loaded()
        await turn()

    async def move(self) -> None:
        """Have a new coordinator take over the log; the former one does not hear of it yet."""
        self.former = self.coordinator
        self.coordinator = self._new_coordinator()
        await self.lead()

    @property
    def shard(self) -> Shard[TransactionsMachine]:
        found: Shard[TransactionsMachine] | None = self.coordinator.shard_at(0)
        assert found is not None
        return found

    @property
    def status(self) -> Status:
        return self.shard.machine.state.transactions["a"].status

    async def ask(
        self, operation: Callable[[TransactionsMachine, int, Reply[Any]], Outcome]
    ) -> Any:
        """Do an operation; raise its error. None as long as there is no answer."""
        answers: list[Any] = []
        self.begin(operation, answers.append)
        await turn()
        if not answers:
            return None
        if isinstance(answers[0], KafkaError):
            raise answers[0]
        return answers[0]

    def begin(
        self,
        operation: Callable[[TransactionsMachine, int, Reply[Any]], Outcome],
        reply: Reply[Any],
    ) -> None:
        self.shard.write(lambda machine, now_ms: operation(machine, now_ms, reply), reply)

    async def open(self) -> Producer:
        """Begin a transaction with a partition."""
        init: Initialized = await self.ask(
            lambda machine, now_ms, reply: init_producer_id(
                machine.state, Producer("a"), 60_000, 5000, now_ms, reply
            )
        )
        producer = Producer("a", *init)
        await self.ask(
            lambda machine, now_ms, reply: add_partitions(
                machine.state, producer, [ORDERS], 2, now_ms, reply
            )
        )
        return producer


def ending(
    producer: Producer, *, is_commit: bool = True
) -> Callable[[TransactionsMachine, int, Reply[Any]], Outcome]:
    return lambda machine, now_ms, reply: end_bumping(
        machine.state, producer, is_commit, -1, now_ms, reply
    )


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World()
        await world.lead()
        await test(world)
        world.coordinator.close()
        await turn()

    run_virtual(work())


def test_a_decision_that_is_not_committed_writes_no_marker() -> None:
    async def test(world: World) -> None:
        producer = await world.open()
        world.journal.is_replicated = False
        answers: list[Any] = []
        world.begin(ending(producer), answers.append)
        await asyncio.sleep(TIMEOUT_SECONDS + 1)
        assert answers[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (world.writer.written, world.status) == ([], Status.PREPARE_COMMIT)
        # The client has its error; the decision stands nevertheless once it is committed.
        world.journal.is_replicated = True
        world.journal.replicate()
        await turn()
        assert [each.is_commit for each in world.writer.written] == [True]
        assert world.status is Status.COMPLETE_COMMIT

    run(test)


def test_a_decision_that_is_lost_with_its_leader_is_never_carried_out() -> None:
    async def test(world: World) -> None:
        producer = await world.open()
        world.journal.is_replicated = False
        answers: list[Any] = []
        world.begin(ending(producer), answers.append)
        await turn()
        world.journal.lose_leadership()
        world.journal.replicate()  # of somebody else's records
        await turn()
        assert answers[0].code is ErrorCode.NOT_COORDINATOR
        assert world.writer.written == []

    run(test)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_prepared_transaction_is_ended_by_the_next_coordinator(is_commit: bool) -> None:
    async def test(world: World) -> None:
        producer = await world.open()
        world.writer.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
        ended: Ended = await world.ask(ending(producer, is_commit=is_commit))
        assert world.status.is_prepared
        world.writer.refusal = None
        former_epoch = world.shard.leader_epoch
        await world.move()
        (marker,) = world.writer.written
        assert (marker.is_commit, marker.coordinator_epoch) == (is_commit, former_epoch + 1)
        assert (marker.producer_id, marker.producer_epoch) == tuple(ended)
        expected = Status.COMPLETE_COMMIT if is_commit else Status.COMPLETE_ABORT
        assert world.status is expected
        # The former coordinator, which tries again, finds that it is none any more.
        await asyncio.sleep(10)
        assert len(world.writer.written) == 1

    run(test)


def test_producers_stay_fenced_when_the_coordinator_moves() -> None:
    async def test(world: World) -> None:
        producer = await world.open()
        ended: Ended = await world.ask(ending(producer))
        await world.move()
        with pytest.raises(KafkaError) as refused:
            await world.ask(
                lambda machine, now_ms, reply: add_partitions(
                    machine.state, producer, [ORDERS], 2, now_ms, reply
                )
            )
        assert refused.value.code is ErrorCode.PRODUCER_FENCED
        # One whose response was lost repeats its request, and gets the same.
        assert await world.ask(ending(producer)) == ended

    run(test)


def test_an_open_transaction_is_known_to_the_next_coordinator() -> None:
    async def test(world: World) -> None:
        producer = await world.open()
        await world.move()
        verified = await world.ask(
            lambda machine, _, reply: verify_partitions(machine.state, producer, [ORDERS], reply)
        )
        assert verified == {ORDERS: ErrorCode.NONE}
        await world.ask(ending(producer))
        assert world.status is Status.COMPLETE_COMMIT

    run(test)


def test_a_transaction_is_completed_once_there_are_replicas_again() -> None:
    async def test(world: World) -> None:
        producer = await world.open()
        world.move_orders(THERE)
        world.peers.may_answer.clear()
        await world.ask(ending(producer))
        world.journal.has_enough_replicas = False
        world.peers.may_answer.set()
        await asyncio.sleep(30)
        assert (world.status, world.shard.load_count) == (Status.PREPARE_COMMIT, 1)
        world.journal.has_enough_replicas = True
        await asyncio.sleep(2)
        assert world.status is Status.COMPLETE_COMMIT
        assert len(world.peers.asked) == 1  # the markers are where they belong

    run(test)


def test_the_leader_of_a_partition_is_looked_up_at_each_try() -> None:
    async def test(world: World) -> None:
        producer = await world.open()
        world.move_orders(THERE)
        world.peers.codes[ORDERS] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await world.ask(ending(producer))
        await asyncio.sleep(5)
        assert {node_id for node_id, _ in world.peers.asked} == {THERE}
        asked = len(world.peers.asked)
        world.move_orders(YONDER)
        world.peers.codes.clear()
        await asyncio.sleep(5)
        assert [node_id for node_id, _ in world.peers.asked[asked:]] == [YONDER]
        assert world.status is Status.COMPLETE_COMMIT

    run(test)


def test_an_old_completion_does_not_end_a_newer_transaction() -> None:
    """KAFKA-16352."""

    async def test(world: World) -> None:
        producer = await world.open()
        world.move_orders(THERE)
        world.peers.may_answer.clear()
        await world.ask(ending(producer))
        former = world.shard
        await world.move()
        world.former.lead(0, world.journal)  # it leads again, and asks again
        again = world.former.shard_at(0)
        assert again is not former
        world.coordinator, world.former = world.former, world.coordinator
        await world.shard.loaded()
        await turn()
        world.peers.may_answer.set()
        await asyncio.sleep(5)
        assert former.state is State.CLOSED
        assert world.status is Status.COMPLETE_COMMIT
        world.former.close()

    run(test)
