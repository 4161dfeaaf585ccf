"""Clients that have not authenticated, or whose session is over: what they can ask, and cost."""

import asyncio
from itertools import count
from typing import Any

import pytest

from headrace.security.authentication import Mechanism
from headrace.security.plain import PlainExchange
from headrace.server.accepting import BEGINNINGS_MAX, Beginnings
from headrace.server.dispatch import Undecodable
from headrace.server.gate import REQUESTS_MAX, SessionGate
from headrace.server.secured import GATED_READ_BYTES, ListenerSecurity, SecuredConnection
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from tests.unit.harness import FakePeer
from tests.unit.server.test_connection import Client, Wire, World, set_clock

SECURITY = ListenerSecurity(
    "SASL_PLAINTEXT",
    "SASL_PLAINTEXT",
    60_000,
    lambda: 0,
    mechanisms={"PLAIN": Mechanism(lambda: PlainExchange({}))},
    receive_bytes_max=1 << 19,
)


class Stranger(Client):
    """A client that has not authenticated."""

    def __init__(self, world: World, host: str = "10.0.0.1") -> None:
        super().__init__(world, host)
        self.wire = Wire(host)
        self.connection = SecuredConnection(SECURITY, world.dispatcher, world.traffic)
        self.connection.connection_made(self.wire)


async def turns(number: int = 200) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_many_strangers_share_the_time_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a tick: what is handled in a turn is bounded for all together."""
    ticks = count()
    monkeypatch.setattr("headrace.server.traffic.TURN_NS_MAX", 10)
    set_clock(monkeypatch, lambda: next(ticks))
    answered: list[int] = []

    async def run() -> None:
        world = World()
        clients = [Stranger(world) for _ in range(40)]
        for each in clients:
            each.send(*(each.ask(ApiVersionsRequest()) for _ in range(5)))
        while len(answered) < 400 and sum(answered) < 200:
            answered.append(sum(len(each.answers()) for each in clients))
            await asyncio.sleep(0)
        for each in clients:
            each.connection.connection_lost(None)

    asyncio.run(run())
    assert sum(answered) == 200, "everybody is answered"
    assert max(answered) <= 10


def test_a_stranger_may_ask_a_few_times_and_is_closed_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def run() -> int:
        client = Stranger(World())
        client.send(*(client.ask(ApiVersionsRequest()) for _ in range(REQUESTS_MAX + 1)))
        await turns()
        assert client.wire.is_aborted
        client.connection.connection_lost(None)
        return len(client.answers())

    assert asyncio.run(run()) == REQUESTS_MAX
    assert "that has not authenticated" in caplog.text


def test_a_flood_of_one_host_closes_no_connection_of_another() -> None:
    """However fast it opens them, and however long others take to authenticate."""

    async def run() -> None:
        world = World()
        world.traffic.handshakes_max = 10
        patient = Stranger(world, "10.0.0.1")
        flood = [Stranger(world, "10.0.0.2") for _ in range(200)]
        assert not patient.connection.is_closed
        assert [each.connection.is_closed for each in flood] == [True] * 191 + [False] * 9
        for each in (patient, *flood):
            each.connection.connection_lost(None)
        assert len(world.traffic.handshakes) == 0

    asyncio.run(run())


def test_little_is_read_at_once_of_a_stranger() -> None:
    async def run() -> None:
        client = Stranger(World())
        assert len(client.connection.get_buffer(-1)) == GATED_READ_BYTES
        authentication = client.connection.authentication
        assert authentication is not None
        authentication.principal = "User:alice"
        client.connection.on_authenticated()
        assert len(client.connection.get_buffer(-1)) > GATED_READ_BYTES
        client.connection.connection_lost(None)

    asyncio.run(run())


def test_a_large_request_of_a_session_that_is_over_is_not_read() -> None:
    """Large requests are read in threads, and must not get around the gate there."""

    class Behind:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: pytest.fail(f"{name} was called")

    async def run() -> None:
        gate, peer = SessionGate(Behind()), FakePeer(None)
        peer.is_expired = True
        for key in (0, 3):
            frame = memoryview(key.to_bytes(2) + bytes(100_000))
            with pytest.raises(Undecodable, match="has ended"):
                await gate.read_in_thread(peer, frame, 0)

    asyncio.run(run())


def test_a_few_handshakes_begin_in_a_turn() -> None:
    async def run() -> list[int]:
        beginnings, begun = Beginnings(), 0

        async def begin() -> None:
            nonlocal begun
            await beginnings.wait()
            begun += 1

        tasks = [asyncio.ensure_future(begin()) for _ in range(100)]
        gone = asyncio.ensure_future(begin())
        await asyncio.sleep(0)
        gone.cancel()
        steps = []
        while begun < 100:
            before = begun
            await asyncio.sleep(0)
            steps.append(begun - before)
        await asyncio.gather(*tasks)
        return steps

    assert max(asyncio.run(run())) <= BEGINNINGS_MAX
