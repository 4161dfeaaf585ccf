"""Listening sockets of a simulated network, as far as programs use them."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.testing.streams import SimulatedStream

if TYPE_CHECKING:
    from headrace.testing.host_loop import HostLoop
    from headrace.testing.network import Network


class SimulatedSocket:
    """An address that is taken."""

    def __init__(self, network: "Network", address: tuple[str, int]) -> None:
        self._network = network
        self.address = address
        self.options: dict[tuple[int, int], int] = {}

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options[level, option] = value

    def close(self) -> None:
        self._network.release(self.address, self)


class Listening:
    """The listener at an address."""

    def __init__(self, loop: "HostLoop", factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.loop = loop
        self._factory = factory

    def accept(self, stream: SimulatedStream) -> None:
        """Pass a client's accepted connection to the program."""
        self.loop.call_soon(self._begin, stream, context=self.loop.root.copy())

    def _begin(self, stream: SimulatedStream) -> None:
        stream.begin(self._factory())


class SimulatedServer(asyncio.AbstractServer):
    """What `create_server` gives."""

    def __init__(self, network: "Network", bound: SimulatedSocket, listening: Listening) -> None:
        self._network = network
        self._bound = bound
        self._listening = listening
        self._is_serving = False

    @property
    def sockets(self) -> tuple[SimulatedSocket, ...]:
        return (self._bound,)

    def begin(self) -> None:
        self._is_serving = True
        self._network.set_listening(self._bound.address, self._listening)

    def close(self) -> None:
        self._is_serving = False
        self._network.release(self._bound.address, self._bound)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._listening.loop

    def is_serving(self) -> bool:
        return self._is_serving

    async def start_serving(self) -> None:
        self.begin()

    async def serve_forever(self) -> None:
        self.begin()
        await self._listening.loop.create_future()

    async def wait_closed(self) -> None:
        """Return: connections that are there do not count."""
