"""The network of a simulation: reachability, latency and loss.

Addresses are those of hosts (`10.0.0.1`); 127.0.0.1 is the host itself. Between two hosts there is
a link each way. A cut link delays streams and loses datagrams; bytes of a stream are never lost or
reordered, as in TCP, but a connection may be lost.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from headrace.server.listeners import Address, CannotListen
from headrace.testing.datagrams import SimulatedDatagrams
from headrace.testing.sockets import Listening, SimulatedServer, SimulatedSocket
from headrace.testing.streams import SimulatedStream

if TYPE_CHECKING:
    from headrace.testing.host_loop import HostLoop
    from headrace.testing.hosts import Host
    from headrace.testing.simulation import Simulation

OWN_ADDRESSES: Final = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESSES: Final = (None, "", "0.0.0.0", "::")
FIRST_FREE_PORT: Final = 32768
CONNECT_RETRY_SECONDS: Final = 1.0
"""How long TCP waits for the response to its first packet; then twice as long."""
RETRANSMIT_SECONDS_MAX: Final = 0.4
"""The longest time until a stream continues after a cut."""
LOOPBACK_SECONDS: Final = 20e-6

Factory = Callable[[], asyncio.BaseProtocol]


class Link:
    """The way from one host to another."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.is_cut = False
        self.seconds_min = 0.0001
        self.seconds_max = 0.002
        self.late_chance = 0.01
        """How often something takes ten times as long."""
        self.loss = 0.0
        """Which part of the datagrams is lost."""
        self.duplication = 0.0
        """Which part of the datagrams comes twice."""

    def seconds(self) -> float:
        """Return how long the next packet takes."""
        took = self._random.uniform(self.seconds_min, self.seconds_max)
        return took * 10 if self._random.random() < self.late_chance else took

    def happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance


class Network:
    """Links, listeners and connections of all hosts."""

    def __init__(self, simulation: "Simulation") -> None:
        self.simulation = simulation
        self.random = Random(f"network/{simulation.seed}")
        self.links: dict[tuple[str, str], Link] = {}
        self.streams: dict[SimulatedStream, None] = {}
        """The ends of connections that are not closed, in the order in which they were made."""
        self._bound: dict[tuple[str, int], SimulatedSocket] = {}
        self._listening: dict[tuple[str, int], Listening] = {}
        self._datagrams: dict[tuple[str, int], SimulatedDatagrams] = {}
        self._ports: dict[str, int] = {}

    # What a test does

    def link(self, source: str, target: str) -> Link:
        """Return the way from one host to another, to set how it is."""
        link = self.links.get((source, target))
        if link is None:
            link = self.links[source, target] = Link(Random(f"{self.random.random()}"))
            if source == target:
                link.seconds_min = link.seconds_max = LOOPBACK_SECONDS
                link.late_chance = 0.0
        return link

    def cut(self, source: str, target: str) -> None:
        """Cut a link, one way."""
        self.simulation.note(source, f"is cut off from {target}")
        self.link(source, target).is_cut = True

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut all links between groups of hosts, both ways."""
        sides = [tuple(group) for group in groups]
        for one in sides:
            for other in sides:
                if one is not other:
                    for source in one:
                        for target in other:
                            self.cut(source, target)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Restore links: one, or all."""
        for (begin, end), link in self.links.items():
            if source in (None, begin) and target in (None, end) and link.is_cut:
                link.is_cut = False
                self.simulation.note(begin, f"reaches {end} again")
                self._resume(begin, end)

    def reset(self, one: str, other: str) -> None:
        """Drop every connection between two hosts, as a firewall that restarts does."""
        for stream in tuple(self.streams):
            if {stream.local[0], stream.remote[0]} == {one, other}:
                stream.lose()

    # What hosts do

    def bind(self, loop: "HostLoop", address: Address) -> Any:
        """Bind an address for a listener (`headrace.server.listeners.Bind`)."""
        try:
            return self._bind(loop, address.host, address.port)
        except OSError as error:
            raise CannotListen(
                f"{address.name}: cannot listen on {address.host}:{address.port}: {error.strerror}"
            ) from None

    def listen(
        self,
        loop: "HostLoop",
        factory: Factory,
        host: str | None,
        port: int | None,
        options: dict[str, Any],
    ) -> SimulatedServer:
        """Serve at an address, or on a socket that `bind` gave."""
        _refuse_tls(options)
        bound: SimulatedSocket = options.get("sock") or self._bind(loop, host, port or 0)
        server = SimulatedServer(self, bound, Listening(loop, factory))
        if options.get("start_serving", True):
            server.begin()
        return server

    def set_listening(self, address: tuple[str, int], listening: Listening | None) -> None:
        if listening is None:
            self._listening.pop(address, None)
        else:
            self._listening[address] = listening

    async def connect(
        self,
        loop: "HostLoop",
        factory: Factory,
        host: str | None,
        port: int | None,
        options: dict[str, Any],
    ) -> tuple[SimulatedStream, asyncio.BaseProtocol]:
        _refuse_tls(options)
        source = loop.host.name
        target = self._resolve(loop, host)
        local = source, self._free_port(source)
        opened: asyncio.Future[SimulatedStream] = loop.create_future()
        self._knock(loop, local, (target, port or 0), opened, CONNECT_RETRY_SECONDS)
        try:
            stream = await opened
        except asyncio.CancelledError:
            if opened.done() and not opened.cancelled() and opened.exception() is None:
                opened.result().abort()  # it was made while the program gave up
            raise
        protocol = factory()
        stream.begin(protocol)
        return stream, protocol

    def open_datagrams(
        self,
        loop: "HostLoop",
        factory: Callable[[], asyncio.DatagramProtocol],
        local: tuple[str, int] | None,
        remote: tuple[str, int] | None,
        options: dict[str, Any],
    ) -> tuple[SimulatedDatagrams, asyncio.DatagramProtocol]:
        name = loop.host.name
        port = local[1] if local is not None and local[1] else self._free_port(name)
        if (name, port) in self._datagrams:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        peer = None if remote is None else (self._resolve(loop, remote[0]), remote[1])
        transport = SimulatedDatagrams(self, loop, (name, port), peer)
        self._datagrams[name, port] = transport
        protocol = factory()
        transport.begin(protocol)
        return transport, protocol

    def datagrams_at(self, address: tuple[str, int]) -> SimulatedDatagrams | None:
        return self._datagrams.get(address)

    def release(self, address: tuple[str, int], held: object) -> None:
        """Release an address, if the holder still has it."""
        if self._bound.get(address) is held:
            del self._bound[address]
            self._listening.pop(address, None)
        elif self._datagrams.get(address) is held:
            del self._datagrams[address]

    def note_crash(self, host: "Host", loop: "HostLoop", *, is_silent: bool) -> None:
        """Drop a host's connections; unless it is silent, its kernel closes them all."""
        for stream in tuple(self.streams):
            if stream.loop is loop:
                stream.die(is_silent=is_silent)
        for table in (self._bound, self._listening, self._datagrams):
            for address in [each for each in table if each[0] == host.name]:
                del table[address]

    def note_boot(self, host: "Host") -> None:
        """Make a rebooted host reset connections from its previous life."""
        for source, target in tuple(self.links):
            if target == host.name:
                self._resume(source, target)

    def is_reachable(self, source: str, target: str) -> bool:
        """Return whether a packet that is there now gets in."""
        host = self.simulation.hosts.get(target)
        return host is not None and host.is_powered and not self.link(source, target).is_cut

    # How it is done

    def _resume(self, source: str, target: str) -> None:
        for stream in tuple(self.streams):
            if stream.local[0] == source and stream.remote[0] == target:
                stream.resume(self.random.uniform(0, RETRANSMIT_SECONDS_MAX))

    def _knock(
        self,
        loop: "HostLoop",
        local: tuple[str, int],
        remote: tuple[str, int],
        opened: "asyncio.Future[SimulatedStream]",
        retry_seconds: float,
    ) -> None:
        """Send the first word of a connection, again and again until it is heard."""
        if opened.done() or loop.host.loop is not loop:
            return
        simulation, source, target = self.simulation, local[0], remote[0]
        if target not in simulation.hosts:
            opened.set_exception(OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)))
            return

        def arrive() -> None:
            if loop.host.loop is not loop:
                return
            if not (self.is_reachable(source, target) and self.is_reachable(target, source)):
                simulation.call_later(
                    retry_seconds, self._knock, loop, local, remote, opened, 2 * retry_seconds
                )
                return
            listening = self._listening.get(remote)
            if listening is None:
                simulation.call_later(self.link(target, source).seconds(), refuse)
                return
            simulation.note(source, f"connects from {local[1]} to {target}:{remote[1]}")
            here = SimulatedStream(self, loop, local, remote)
            there = SimulatedStream(self, listening.loop, remote, local)
            here.join(there)
            listening.accept(there)
            simulation.call_later(self.link(target, source).seconds(), answer, here)

        def refuse() -> None:
            if not opened.done():
                error = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
                loop.call_soon(_fail, opened, error)

        def answer(here: SimulatedStream) -> None:
            if loop.host.loop is loop:
                loop.call_soon(_open, opened, here)

        simulation.call_later(self.link(source, target).seconds(), arrive)

    def _bind(self, loop: "HostLoop", host: str | None, port: int) -> SimulatedSocket:
        name = loop.host.name
        if self._resolve(loop, host) != name:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        address = name, port or self._free_port(name)
        if address in self._bound:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        bound = self._bound[address] = SimulatedSocket(self, address)
        return bound

    def _resolve(self, loop: "HostLoop", host: str | None) -> str:
        return loop.host.name if host in ANY_ADDRESSES or host in OWN_ADDRESSES else str(host)

    def _free_port(self, name: str) -> int:
        port = self._ports[name] = self._ports.get(name, FIRST_FREE_PORT) + 1
        return port


def _open(opened: "asyncio.Future[SimulatedStream]", stream: SimulatedStream) -> None:
    if opened.done():  # who wanted it gave up
        stream.abort()
    else:
        opened.set_result(stream)


def _fail(opened: "asyncio.Future[SimulatedStream]", error: OSError) -> None:
    if not opened.done():
        opened.set_exception(error)


def _refuse_tls(options: dict[str, Any]) -> None:
    if options.get("ssl") is not None:
        raise NotImplementedError("a simulated network has no TLS")
