"""Datagrams of a simulated network: lost, late, twice and in any order."""

import asyncio
from typing import TYPE_CHECKING, Any
from zlib import crc32

from headrace.wire.schema import Buffer

if TYPE_CHECKING:
    from headrace.testing.host_loop import HostLoop
    from headrace.testing.network import Network


class SimulatedDatagrams(asyncio.DatagramTransport):
    """What `create_datagram_endpoint` gives."""

    def __init__(
        self,
        network: "Network",
        loop: "HostLoop",
        local: tuple[str, int],
        remote: tuple[str, int] | None,
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self._network = network
        self._loop = loop
        self._local = local
        self._remote = remote
        self._is_closing = False
        self._protocol: asyncio.DatagramProtocol

    def begin(self, protocol: asyncio.DatagramProtocol) -> None:
        self._protocol = protocol
        self._loop.call_soon(protocol.connection_made, self)

    def sendto(self, data: Buffer, addr: Any = None) -> None:
        target: tuple[str, int] | None = addr or self._remote
        if target is None:
            raise ValueError("a datagram needs an address")
        if self._is_closing:
            return
        network, sent = self._network, bytes(data)
        link = network.link(self._local[0], target[0])
        if link.happens(link.loss):
            network.simulation.note(self._local[0], f"loses a datagram to {target[0]}")
            return
        for _ in range(2 if link.happens(link.duplication) else 1):
            network.simulation.call_later(link.seconds(), self._arrive, sent, target)

    def _arrive(self, data: bytes, target: tuple[str, int]) -> None:
        network, source = self._network, self._local
        if network.is_reachable(source[0], target[0]):
            there = network.datagrams_at(target)
            if there is not None:
                network.simulation.note(target[0], f"hears {source[0]}: {crc32(data)}")
                there.hear(data, source)

    def hear(self, data: bytes, source: tuple[str, int]) -> None:
        self._loop.call_soon(self._receive, data, source, context=self._loop.root.copy())

    def _receive(self, data: bytes, source: tuple[str, int]) -> None:
        if not self._is_closing:
            self._protocol.datagram_received(data, source)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._network.release(self._local, self)
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing
