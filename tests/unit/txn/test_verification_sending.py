"""Questions for transaction coordinators on other nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.testing.virtual_loop import run_virtual
from headrace.txn import verification_sending
from headrace.txn.state import Place, Producer
from headrace.txn.verification_sending import TRANSACTIONS_A_REQUEST_MAX, VerificationSender
from tests.unit.txn.peers_world import THERE, YONDER, FakePeers, Unreachable

ORDERS, STOCK = ("orders", 0), ("stock", 0)
OK = ErrorCode.NONE
PRODUCER = Producer("t", 7, 1)


class World:
    def __init__(self) -> None:
        self.peers = FakePeers()
        self.sender = VerificationSender(self.peers)
        self.answers: list[Any] = []

    def ask(
        self, *places: Place, producer: Producer = PRODUCER, adds: bool = True, to: Any = THERE
    ) -> None:
        self.sender.ask(to, producer, places, self._take, adds=adds)

    def _take(self, answer: Any) -> None:
        self.answers.append(answer.code if isinstance(answer, KafkaError) else answer)


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World()
        await test(world)
        world.sender.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(work())


def test_questions_that_wait_are_one_request_with_each_id_once() -> None:
    async def test(world: World) -> None:
        world.ask(ORDERS)
        world.ask(STOCK)
        world.ask(ORDERS, producer=Producer("other", 8, 1), adds=False)
        await asyncio.sleep(1)
        ((node_id, request),) = world.peers.asked
        assert node_id == THERE
        assert [
            (each.transactional_id, each.verify_only, [topic.name for topic in each.topics])
            for each in request.transactions
        ] == [("t", False, ["orders", "stock"]), ("other", True, ["orders"])]
        assert world.answers == [{ORDERS: OK, STOCK: OK}] * 2 + [{ORDERS: OK}]

    run(test)


def test_two_epochs_of_an_id_are_two_requests_in_order() -> None:
    async def test(world: World) -> None:
        world.ask(ORDERS)
        world.ask(ORDERS, producer=PRODUCER._replace(producer_epoch=2))
        await asyncio.sleep(1)
        epochs = [request.transactions[0].producer_epoch for _, request in world.peers.asked]
        assert epochs == [1, 2]
        assert world.peers.in_flight_max == 1

    run(test)


def test_one_request_is_in_flight_for_each_node() -> None:
    async def test(world: World) -> None:
        world.peers.may_answer.clear()
        for number in range(5):
            world.ask(ORDERS, producer=Producer(f"t{number}", number, 1))
            world.ask(ORDERS, producer=Producer(f"u{number}", number, 1), to=YONDER)
            await asyncio.sleep(0.1)
        assert len(world.peers.asked) == 2
        world.peers.may_answer.set()
        await asyncio.sleep(1)
        assert [len(request.transactions) for _, request in world.peers.asked] == [1, 1, 4, 4]
        assert len(world.answers) == 10

    run(test)


def test_requests_are_bounded() -> None:
    async def test(world: World) -> None:
        for number in range(TRANSACTIONS_A_REQUEST_MAX + 1):
            world.ask(ORDERS, producer=Producer(f"t{number}", number, 1))
        await asyncio.sleep(1)
        sizes = [len(request.transactions) for _, request in world.peers.asked]
        assert sizes == [TRANSACTIONS_A_REQUEST_MAX, 1]

    run(test)


def test_questions_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_sending, "QUESTIONS_MAX", 2)

    async def test(world: World) -> None:
        for number in range(3):
            world.ask(ORDERS, producer=Producer(f"t{number}", number, 1))
        assert world.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        await asyncio.sleep(1)
        assert world.answers[1:] == [{ORDERS: OK}] * 2

    run(test)


def test_the_coordinator_has_a_word_for_each_partition() -> None:
    async def test(world: World) -> None:
        world.peers.codes[STOCK] = ErrorCode.TRANSACTION_ABORTABLE
        world.ask(ORDERS, STOCK)
        await asyncio.sleep(1)
        assert world.answers == [{ORDERS: OK, STOCK: ErrorCode.TRANSACTION_ABORTABLE}]

    run(test)


def test_a_node_that_does_not_answer_is_a_network_error_and_the_next_question_goes_out() -> None:
    async def test(world: World) -> None:
        world.peers.failures.append(Unreachable("down"))
        world.ask(ORDERS)
        await asyncio.sleep(1)
        world.ask(ORDERS)
        await asyncio.sleep(1)
        assert world.answers == [ErrorCode.NETWORK_EXCEPTION, {ORDERS: OK}]

    run(test)


def test_everybody_hears_when_the_node_stops() -> None:
    async def test(world: World) -> None:
        world.peers.may_answer.clear()
        world.ask(ORDERS)
        await asyncio.sleep(1)
        world.ask(STOCK)
        world.sender.close()
        await asyncio.sleep(1)
        world.ask(ORDERS)
        assert world.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3

    run(test)


def test_a_reply_that_fails_does_not_keep_the_others_from_theirs() -> None:
    async def test(world: World) -> None:
        def fail(_: object) -> None:
            raise RuntimeError("a bug")

        world.sender.ask(THERE, PRODUCER, [ORDERS], fail, adds=True)
        world.ask(ORDERS, producer=Producer("other", 8, 1))
        await asyncio.sleep(1)
        assert world.answers == [{ORDERS: OK}]

    run(test)
