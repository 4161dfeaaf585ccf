"""The shell on a virtual loop, with a network in memory."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headrace.cluster.swim.addresses import SocketAddress
from headrace.cluster.swim.claims import Standing
from headrace.cluster.swim.events import Event, Joined, Left, Peer, Unreachable
from headrace.cluster.swim.machine import Swim
from headrace.cluster.swim.messages import Ping, encode_message
from headrace.cluster.swim.sealing import Sealer
from headrace.cluster.swim.settings import SwimSettings
from headrace.cluster.swim.shell import OpenEndpoint, SwimShell
from headrace.ids import BrokerId as NodeId
from headrace.testing.virtual_loop import run_virtual
from tests.unit.cluster.swim.members import claim, message, standing_of

SETTINGS = SwimSettings()
PEERS = [Peer(NodeId(node), f"10.0.0.{node}", 9093) for node in (1, 2, 3)]


class Endpoint:
    """A socket in memory."""

    def __init__(self, network: "Network", address: SocketAddress) -> None:
        self._network = network
        self._address = address

    def sendto(self, data: bytes, addr: SocketAddress, /) -> None:
        self._network.send(self._address, data, addr)

    def close(self) -> None:
        self._network.protocols.pop(self._address, None)


class Network:
    def __init__(self) -> None:
        self.protocols: dict[SocketAddress, asyncio.DatagramProtocol] = {}
        self.sent: list[tuple[SocketAddress, bytes]] = []

    def open_at(self, host: str, port: int) -> OpenEndpoint:
        async def open_endpoint(protocol: asyncio.DatagramProtocol) -> Endpoint:
            self.protocols[host, port] = protocol
            return Endpoint(self, (host, port))

        return open_endpoint

    def send(self, sender: SocketAddress, data: bytes, to: SocketAddress) -> None:
        self.sent.append((to, data))
        asyncio.get_running_loop().call_later(0.001, self._arrive, sender, data, to)

    def _arrive(self, sender: SocketAddress, data: bytes, to: SocketAddress) -> None:
        protocol = self.protocols.get(to)
        if protocol is not None:
            protocol.datagram_received(data, sender)


class Node:
    def __init__(self, network: Network, node: int, settings: SwimSettings = SETTINGS) -> None:
        self.network = network
        self.peer = PEERS[node - 1]
        self.events: list[Event] = []
        self.failures: list[Exception] = []
        self.shell = SwimShell(
            NodeId(node),
            1,
            settings=settings,
            sealer=sealer(node),
            below=Random(node).randrange,
            on_event=self.events.append,
            on_failure=self.failures.append,
        )

    async def open(self) -> None:
        await self.shell.open(self.network.open_at(self.peer.host, self.peer.port))
        self.shell.allow(PEERS)


def sealer(node: int) -> Sealer:
    return Sealer(NodeId(node), 1, cluster_id="mill", secret=b"s3cret")


def datagram(sender: Sealer, number: int = 1) -> bytes:
    return sender.seal(NodeId(1), encode_message(message(2, Ping(number))))


async def open_nodes() -> tuple[Network, list[Node]]:
    network = Network()
    nodes = [Node(network, number) for number in (1, 2, 3)]
    for node in nodes:
        await node.open()
    return network, nodes


def test_nodes_find_each_other_and_notice_a_death_and_a_farewell() -> None:
    async def play() -> None:
        _, (first, second, third) = await open_nodes()
        await asyncio.sleep(3)
        assert sorted(event.node for event in first.events) == [2, 3]
        assert all(isinstance(event, Joined) for event in first.events)
        third.shell.close()
        await asyncio.sleep(20)
        assert Unreachable(NodeId(3), 1) in first.events
        began = asyncio.get_running_loop().time()
        await second.shell.leave(timeout_seconds=30)
        assert asyncio.get_running_loop().time() - began < 10
        second.shell.close()
        await asyncio.sleep(1)
        assert first.events[-1] == Left(NodeId(2), 1)
        first.shell.close()
        assert first.failures == second.failures == third.failures == []

    run_virtual(play())


def test_leaving_gives_up_when_the_time_is_up() -> None:
    async def play() -> None:
        network = Network()
        node = Node(network, 1)
        await node.open()
        await asyncio.sleep(0.1)
        await node.shell.leave(timeout_seconds=0.001)
        node.shell.close()

    run_virtual(play())


def test_hostile_datagrams_change_nothing_and_raise_nothing() -> None:
    async def play() -> None:
        network = Network()
        node = Node(network, 1)
        await node.open()
        random = Random(5)
        good = datagram(sealer(2))
        wrong = Sealer(NodeId(2), 1, cluster_id="mill", secret=b"guess")
        hostile = [random.randbytes(random.randrange(1300)) for _ in range(100)]
        hostile += [good[: random.randrange(len(good))] for _ in range(100)]
        hostile += [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(len(good))]
        hostile += [datagram(wrong, number) for number in range(1, 100)]
        hostile += [sealer(2).seal(NodeId(1), random.randbytes(40)) for _ in range(1)]
        for data in hostile:
            node.shell.datagram_received(data, ("192.0.2.1", 1))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert node.shell.dropped.total() == len(hostile)
        assert (node.events, node.failures, network.sent) == ([], [], [])
        assert not any(seen.is_heard for seen in node.shell.swim.view())
        node.shell.close()

    run_virtual(play())


def test_a_flood_is_read_a_few_datagrams_per_turn_and_dropped_beyond_the_inbox() -> None:
    async def play() -> None:
        network = Network()
        node = Node(network, 1)
        await node.open()
        sender = sealer(2)
        for number in range(1, 2001):
            node.shell.datagram_received(datagram(sender, number), None)
        assert node.shell.dropped == {"inbox_full": 2000 - SETTINGS.inbox_datagrams_max}
        turns = 0
        while len(network.sent) < SETTINGS.inbox_datagrams_max:
            before = len(network.sent)
            await asyncio.sleep(0)
            turns += 1
            # The first contact is answered by a Sync, too.
            assert len(network.sent) - before <= SETTINGS.datagrams_per_turn + 1
        assert turns >= SETTINGS.inbox_datagrams_max // SETTINGS.datagrams_per_turn
        node.shell.close()

    run_virtual(play())


def test_an_oversized_datagram_is_dropped_unread() -> None:
    async def play() -> None:
        node = Node(Network(), 1)
        await node.open()
        node.shell.datagram_received(bytes(1201), None)
        assert node.shell.dropped == {"oversized": 1}
        node.shell.close()

    run_virtual(play())


def test_answers_go_to_the_address_of_the_image_and_not_to_the_senders() -> None:
    async def play() -> None:
        network = Network()
        node = Node(network, 1)
        await node.open()
        node.shell.datagram_received(datagram(sealer(2)), ("192.0.2.66", 6666))
        await asyncio.sleep(0)
        assert {to for to, _ in network.sent} == {("10.0.0.2", 9093)}
        node.shell.close()

    run_virtual(play())


def test_a_socket_that_is_full_costs_datagrams_and_not_memory() -> None:
    async def play() -> None:
        network = Network()
        node = Node(network, 1)
        await node.open()
        sender = sealer(2)
        node.shell.pause_writing()
        node.shell.datagram_received(datagram(sender, 1), None)
        await asyncio.sleep(0)
        assert network.sent == []
        assert node.shell.dropped["socket_full"] > 0
        node.shell.resume_writing()
        node.shell.datagram_received(datagram(sender, 2), None)
        await asyncio.sleep(0)
        assert len(network.sent) == 1
        node.shell.error_received(ConnectionRefusedError())
        node.shell.close()

    run_virtual(play())


def test_a_broken_machine_stops_swim_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Swim, now_ms: int) -> None:
        raise AssertionError("broken")

    async def play() -> None:
        network = Network()
        node = Node(network, 1)
        await node.open()
        monkeypatch.setattr(Swim, "tick", broken)
        await asyncio.sleep(60)
        assert [str(error) for error in node.failures] == ["broken"]
        assert network.protocols == {}
        node.shell.datagram_received(datagram(sealer(2)), None)
        node.shell.close()

    run_virtual(play())


def test_a_lost_socket_stops_swim_and_says_so() -> None:
    async def play() -> None:
        node = Node(Network(), 1)
        await node.open()
        leaving = asyncio.ensure_future(node.shell.leave(timeout_seconds=99))
        node.shell.connection_lost(OSError("gone"))
        await leaving
        assert [str(error) for error in node.failures] == ["gone"]
        node.shell.connection_lost(None)
        assert len(node.failures) == 1

    run_virtual(play())


def test_a_taker_of_events_that_fails_does_not_stop_the_reading() -> None:
    async def play() -> None:
        failed: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failed.append(context.get("exception")))
        network = Network()
        node = Node(network, 1)
        node.shell._on_event = lambda event: _raise(ValueError("not my day"))
        await node.open()
        sender = sealer(2)
        for number in (1, 2, 3):
            node.shell.datagram_received(datagram(sender, number), None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert [str(error) for error in failed] == ["not my day"]
        assert len(network.sent) == 4  # three answers and a Sync
        node.shell.close()

    run_virtual(play())


def test_names_are_looked_up_beside_the_loop() -> None:
    async def play() -> None:
        network = Network()
        asked: list[str] = []

        async def resolve(host: str, port: int) -> SocketAddress:
            asked.append(host)
            await asyncio.sleep(0.2)
            return ("10.0.0.2", port)

        shell = SwimShell(
            NodeId(1),
            1,
            settings=SETTINGS,
            sealer=sealer(1),
            below=Random(1).randrange,
            on_event=lambda event: None,
            on_failure=_raise,
            resolve=resolve,
        )
        await shell.open(network.open_at("10.0.0.1", 9093))
        shell.allow([Peer(NodeId(2), "two.example", 9093)])
        await asyncio.sleep(2)
        assert asked == ["two.example"]
        assert {to for to, _ in network.sent} == {("10.0.0.2", 9093)}
        assert shell.dropped["unresolved"] > 0
        shell.close()

    run_virtual(play())


def test_what_is_said_of_others_gets_through() -> None:
    async def play() -> None:
        node = Node(Network(), 1)
        await node.open()
        said = message(2, Ping(1), claim(3, Standing.SUSPECT, accuser=2))
        node.shell.datagram_received(sealer(2).seal(NodeId(1), encode_message(said)), None)
        await asyncio.sleep(0)
        assert standing_of(node.shell.swim, 3) is Standing.SUSPECT
        node.shell.close()

    run_virtual(play())


def _raise(error: Exception) -> None:
    raise error


def test_a_timer_of_a_loop_that_does_not_say_when_it_is_due() -> None:
    """uvloop's `call_at` is `call_soon` for what is due at once, and its handle has no time."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        network = Network()
        node = Node(network, 1)
        node.shell._loop = Soon(loop)  # type: ignore[assignment]
        await node.open()
        node.shell.allow(PEERS)
        await asyncio.sleep(5)
        assert network.sent
        assert node.failures == []
        node.shell.close()

    run_virtual(play())


class Soon:
    """A loop whose timers are handles without a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_at(self, when: float, act: Callable[[], None]) -> "Timeless":
        return Timeless(self._loop.call_at(when, act))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class Timeless:
    """A handle that can only be cancelled."""

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.cancel = timer.cancel
