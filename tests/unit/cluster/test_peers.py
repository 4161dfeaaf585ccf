"""Lines to other brokers: where they lead, how they end, and what they do not cost."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.client.addresses import Address
from headrace.client.errors import NotReachable, UnsupportedApi
from headrace.client.settings import ClientSettings
from headrace.cluster import peers as peers_module
from headrace.cluster.peers import REQUESTS_MAX, BrokerPeers
from headrace.config import load_settings
from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.metadata.state import Broker, Endpoint
from headrace.testing.virtual_loop import run_virtual
from headrace.wire.messages.heartbeat_request import HeartbeatRequest

THERE = BrokerId(2)
REQUEST = HeartbeatRequest(group_id="g")


class FakeConnection:
    """A connection that answers when a test says so."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_open = True
        self.requests: list[Any] = []
        self.answers: list[asyncio.Future[Any]] = []

    def version_of(self, key: int) -> int:
        return 3

    async def request(self, body: Any, answer_type: Any) -> Any:
        self.requests.append(body)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer

    def close(self) -> None:
        self.is_open = False
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(NotReachable("closed"))


class World:
    """Peers whose connections are not real."""

    def __init__(self) -> None:
        self.image = Image()
        listeners = "OTHER://127.0.0.1:1,NODES://127.0.0.1:2"
        settings = load_settings(
            overrides={
                "listeners": listeners,
                "listener.security.protocol.map": "OTHER:PLAINTEXT,NODES:PLAINTEXT",
                "inter.broker.listener.name": "NODES",
            }
        )
        self.peers = BrokerPeers(settings, lambda: self.image)
        self.opened: list[FakeConnection] = []
        self.opens = 0
        self.is_down = False
        self.is_stuck = False
        self.register("first", 9092, epoch=1)

    def register(self, host: str, port: int, *, epoch: int, is_fenced: bool = False) -> None:
        endpoints = (Endpoint("OTHER", host, 1, 0), Endpoint("NODES", host, port, 0))
        self.image.put_broker(
            Broker(THERE, epoch, epoch.to_bytes(16), endpoints, is_fenced=is_fenced)
        )

    async def open(self, address: Address, _: Any) -> FakeConnection:
        self.opens += 1
        await asyncio.sleep(0.01)
        if self.is_stuck:
            await asyncio.get_running_loop().create_future()
        if self.is_down:
            raise NotReachable(f"cannot connect to {address}")
        connection = FakeConnection(address)
        self.opened.append(connection)
        return connection

    async def send(self, purpose: str = "states") -> "asyncio.Task[Any]":
        """Send a request and let it get as far as it gets."""
        sent = asyncio.create_task(self.peers.line(purpose).send(THERE, REQUEST))
        await asyncio.sleep(0.1)
        return sent


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]:
    def run_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        async def work() -> None:
            world = World()
            monkeypatch.setattr(peers_module, "open_connection", world.open)
            await test(world)
            world.peers.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_virtual(work())

    return run_world


def test_each_purpose_has_a_connection_and_requests_share_it(run: Any) -> None:
    async def test(world: World) -> None:
        sent = [await world.send(each) for each in ("states", "states", "letters")]
        assert [len(each.requests) for each in world.opened] == [2, 1]
        for connection in world.opened:
            for answer in connection.answers:
                answer.set_result("ok")
        assert await asyncio.gather(*sent) == ["ok"] * 3

    run(test)


def test_a_broker_that_registers_elsewhere_is_reached_there(run: Any) -> None:
    async def test(world: World) -> None:
        waiting = await world.send()
        world.register("second", 9192, epoch=2)
        later = await world.send()
        reached = [each.address for each in world.opened]
        assert reached == [Address("first", 9092), Address("second", 9192)]
        with pytest.raises(NotReachable):
            await waiting
        world.opened[1].answers[0].set_result("ok")
        assert await later == "ok"

    run(test)


def test_a_connection_that_is_being_opened_to_an_old_address_is_given_up(run: Any) -> None:
    async def test(world: World) -> None:
        world.is_stuck = True
        waiting = await world.send()
        world.is_stuck = False
        world.register("second", 9192, epoch=2)
        later = await world.send()
        with pytest.raises(NotReachable):
            await waiting
        world.opened[0].answers[0].set_result("ok")
        assert await later == "ok"

    run(test)


def test_a_fenced_broker_fails_what_is_in_flight(run: Any) -> None:
    async def test(world: World) -> None:
        waiting = await world.send()
        world.register("first", 9092, epoch=1, is_fenced=True)
        world.peers.refresh()
        with pytest.raises(NotReachable):
            await waiting
        with pytest.raises(NotReachable):
            await (await world.send())
        assert world.opens == 1

    run(test)


def test_an_unchanged_broker_keeps_its_connection(run: Any) -> None:
    async def test(world: World) -> None:
        waiting = await world.send()
        world.peers.refresh()
        world.opened[0].answers[0].set_result("ok")
        assert await waiting == "ok"

    run(test)


def test_a_broker_that_is_down_is_left_alone_for_a_while(run: Any) -> None:
    async def test(world: World) -> None:
        world.is_down = True
        for _ in range(1000):
            with pytest.raises(NotReachable):
                await world.peers.line("states").send(THERE, REQUEST)
            await asyncio.sleep(0.01)
        assert world.opens < 40
        world.is_down = False
        await asyncio.sleep(1)
        sent = await world.send()
        world.opened[0].answers[0].set_result("ok")
        assert await sent == "ok"

    run(test)


def test_a_lost_connection_is_opened_again(run: Any) -> None:
    async def test(world: World) -> None:
        waiting = await world.send()
        world.opened[0].close()
        with pytest.raises(NotReachable):
            await waiting
        await asyncio.sleep(1)
        sent = await world.send()
        world.opened[1].answers[0].set_result("ok")
        assert await sent == "ok"

    run(test)


def test_requests_that_wait_are_bounded(run: Any) -> None:
    async def test(world: World) -> None:
        line = world.peers.line("states")
        waiting = [asyncio.create_task(line.send(THERE, REQUEST)) for _ in range(REQUESTS_MAX)]
        await asyncio.sleep(0.1)
        with pytest.raises(NotReachable):
            await line.send(THERE, REQUEST)
        for answer in world.opened[0].answers:
            answer.set_result("ok")
        await asyncio.gather(*waiting)
        assert world.opens == 1

    run(test)


def test_closing_fails_everything_even_what_is_being_opened(run: Any) -> None:
    async def test(world: World) -> None:
        waiting = await world.send("states")
        world.is_stuck = True
        opening = await world.send("letters")
        world.peers.close()
        for each in (waiting, opening):
            with pytest.raises(NotReachable):
                await each
        with pytest.raises(NotReachable):
            await world.peers.line("states").send(THERE, REQUEST)

    run(test)


def test_a_caller_that_is_cancelled_does_not_take_the_connection_along(run: Any) -> None:
    async def test(world: World) -> None:
        line = world.peers.line("states")
        first = asyncio.create_task(line.send(THERE, REQUEST))
        second = asyncio.create_task(line.send(THERE, REQUEST))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0.1)
        assert first.cancelled()
        world.opened[0].answers[0].set_result("ok")
        assert await second == "ok"

    run(test)


def test_a_version_that_is_too_old_is_not_used(run: Any) -> None:
    async def test(world: World) -> None:
        with pytest.raises(UnsupportedApi):
            await world.peers.line("verification").send(THERE, REQUEST, version_min=4)

    run(test)


def test_a_line_has_its_own_timeout_and_receive_buffer(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[ClientSettings] = []

    async def test(world: World) -> None:
        async def open_connection(address: Address, client: ClientSettings) -> FakeConnection:
            opened.append(client)
            return FakeConnection(address)

        monkeypatch.setattr(peers_module, "open_connection", open_connection)
        lines = (
            world.peers.line("a"),
            world.peers.line("b", request_timeout_ms=1234, receive_buffer_bytes=4096),
        )
        for line in lines:
            sending = asyncio.ensure_future(line.send(THERE, REQUEST))
            await asyncio.sleep(1)
            sending.cancel()
        limits = [(each.request_timeout_ms, each.receive_buffer_bytes) for each in opened]
        assert limits == [(30_000, -1), (1234, 4096)]

    run(test)
