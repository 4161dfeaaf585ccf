"""A peer that speaks the handshake and then whatever a test wants, in a simulation."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.cluster.transport.calls import IncomingCall
from headrace.cluster.transport.events import Event
from headrace.cluster.transport.handshake import Established, Initiator, Local
from headrace.cluster.transport.hello import Identity, Purpose
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.sealing import Opener, Sealer, frame_reader
from headrace.cluster.transport.settings import TransportSettings
from headrace.ids import BrokerId as NodeId
from headrace.testing.hosts import Host
from headrace.testing.simulation import Simulation

SECRET = b"s3cret"
PORT = 9093
TELL, ECHO, HOLD = 70, 71, 72


def address(number: int) -> str:
    return f"10.0.0.{number}"


def identity(number: int, boot_epoch: int = 1) -> Identity:
    return Identity(NodeId(number), bytes([number]) * 16, boot_epoch, "mill")


class Node:
    """Links on a simulated host, which keep what they hear."""

    def __init__(self, who: Identity, settings: TransportSettings, **options: Any) -> None:
        self.told: list[tuple[Identity, bytes]] = []
        self.held: list[IncomingCall] = []
        self.events: list[Event] = []
        options.setdefault("address_of", lambda node: (address(node), PORT))
        self.links = Links(
            who, secret=SECRET, on_event=self.events.append, settings=settings, **options
        )
        self.links.on_message(TELL, lambda who, data: self.told.append((who, bytes(data))))
        self.links.serve(ECHO, lambda call: call.answer(call.payload))
        self.links.serve(HOLD, self.held.append)

    async def open(self) -> "Node":
        await self.links.open(address(self.links.identity.node), PORT)
        return self


class World:
    """Hosts by number, and nodes on them."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.hosts: dict[int, Host] = {
            number: self.simulation.host(address(number)) for number in (1, 2, 3)
        }

    async def node(
        self,
        number: int,
        settings: TransportSettings | None = None,
        *,
        boot_epoch: int = 1,
        **options: Any,
    ) -> Node:
        host = self.hosts[number]
        who = identity(number, boot_epoch)
        node = host.call(lambda: Node(who, settings or TransportSettings(), **options))
        return await host.run(node.open())

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        self.simulation.run(main)


async def until(is_so: Callable[[], object], seconds: float = 30) -> None:
    """Wait in virtual time."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.01)


class RawPeer(asyncio.Protocol):
    """Make one with `connect`."""

    def __init__(self, who: Identity, purpose: Purpose, to: int = 1) -> None:
        local = Local(who, SECRET, b"r" * 32, is_loopback=False)
        self._machine = Initiator(local, to=NodeId(to), purpose=purpose)
        self._reader = frame_reader(1 << 24)
        self._sealer: Sealer | None = None
        self._opener: Opener | None = None
        self.outcome: Any = None
        self.payloads: list[bytes] = []
        self.is_lost = False
        self.transport: Any = None

    @classmethod
    async def connect(cls, who: Identity, purpose: Purpose = Purpose.CONTROL) -> "RawPeer":
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: cls(who, purpose), address(1), PORT)
        await until(lambda: peer.outcome is not None)
        return peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._machine.start().send)

    def data_received(self, data: bytes) -> None:
        if self._opener is None:
            step = self._machine.receive(data)
            self.transport.write(step.send)
            self.outcome = step.outcome
            if not isinstance(step.outcome, Established):
                return
            self._sealer = Sealer(step.outcome.send_key)
            self._opener = Opener(step.outcome.receive_key)
            data = step.outcome.rest
        for frame in self._reader.feed(data):
            payload = self._opener.open(frame)
            assert payload is not None
            self.payloads.append(bytes(payload))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def sealed(self, payload: bytes) -> bytes:
        assert self._sealer is not None
        return b"".join(self._sealer.seal([payload]))

    def send(self, payload: bytes) -> None:
        self.transport.write(self.sealed(payload))
