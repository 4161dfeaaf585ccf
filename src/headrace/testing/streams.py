"""Streams of a simulated network: TCP and a loop's transport in one.

A stream is one end of a connection, the transport of one program. Written data waits in the
transport, as in a loop that could not pass it to the kernel yet, and from there goes to the other
end as fast as that reads it: a bounded number of bytes may be in flight or unread. Arriving data is
read in pieces of any size.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from headrace.wire.schema import Buffer

if TYPE_CHECKING:
    from headrace.testing.host_loop import HostLoop
    from headrace.testing.network import Network

WINDOW_BYTES: Final = 128 * 1024
"""How much may be in flight or unread: both kernels' buffers."""
HIGH_WATER_BYTES: Final = 64 * 1024
"""With this much in its transport a program must pause, as in asyncio."""
SPLIT_CHANCE: Final = 0.1
"""How often what is there is read in two pieces."""


class Fin:
    """The end of what a program writes."""


class Reset:
    """The end of a connection, at once."""


class SimulatedStream(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: "Network",
        loop: "HostLoop",
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.loop = loop
        self.local = local
        self.remote = remote
        self._network = network
        self._peer: SimulatedStream
        self._protocol: asyncio.BaseProtocol | None = None
        # What goes out
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._is_writing_paused = False
        self._is_sending_due = False
        self._window = WINDOW_BYTES
        self._pipe: deque[tuple[float, bytes | int | type[Fin | Reset]]] = deque()
        """What is in flight to the other end: bytes, counts of bytes read here, or an end."""
        self._last_arrival = 0.0
        self._is_moving = False
        """Whether the first item in flight has an arrival time."""
        # What comes in
        self._inbox = bytearray()
        self._is_reading = True
        self._is_read_due = False
        self._has_ended = False
        """Whether the other end has finished writing."""
        # How it ends
        self._is_closing = False
        self._is_gone = False
        """Whether the kernel has forgotten the connection."""

    def join(self, peer: "SimulatedStream") -> None:
        """Make one connection of two ends."""
        self._peer, peer._peer = peer, self
        self._network.streams[self] = self._network.streams[peer] = None

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Pass the connection to the program."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._is_gone:  # before the program came to it
            error = ConnectionResetError("the other side reset the connection")
            self.loop.call_soon(self._lose, error, context=self.loop.root.copy())
        self._read_soon()

    @property
    def is_orphaned(self) -> bool:
        """Whether the other end is gone, without a word that would have arrived here."""
        return self._peer._is_gone

    # What programs call

    def write(self, data: Buffer) -> None:
        if self._is_closing or not len(data):
            return
        view = memoryview(data).cast("B")  # not copied: a kernel might not have taken it either
        self._unsent.append(view)
        self._unsent_bytes += len(view)
        self._note_written()

    def _note_written(self) -> None:
        self._send_soon()
        if self._unsent_bytes > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        if self._is_closing:
            return
        views = [memoryview(data).cast("B") for data in list_of_data if len(data)]
        self._unsent.extend(views)
        self._unsent_bytes += sum(map(len, views))
        self._note_written()

    def write_eof(self) -> None:
        raise NotImplementedError("half-closed connections are not simulated")

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._read_soon()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def close(self) -> None:
        """Send what was written, then end."""
        if not self._is_closing:
            self._is_closing = True
            if not self._unsent:
                self._finish()

    def abort(self) -> None:
        """End at once; what was written and not sent is lost."""
        self._end(Reset, None)

    # What the network does

    def lose(self) -> None:
        """Lose the connection for a reason of the network's."""
        self._end(Reset, ConnectionResetError("the connection was reset"))

    def die(self, *, is_silent: bool) -> None:
        """Be the end of a program that is gone."""
        if not self._is_gone:
            if not is_silent:
                self._put(Reset if self._inbox else Fin)
            self._forget()

    def resume(self, seconds: float) -> None:
        """Go on after a cut."""
        if self._pipe and not self._is_moving:
            self._is_moving = True
            self._network.simulation.call_later(seconds, self._arrive)

    # Out

    def _send_soon(self) -> None:
        if not self._is_sending_due and self._unsent:
            self._is_sending_due = True
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        """Hand over to the kernel what it takes."""
        self._is_sending_due = False
        if self._is_gone:
            return
        sent = bytearray()
        while self._unsent and len(sent) < self._window:
            view = self._unsent[0]
            room = self._window - len(sent)
            if len(view) > room:
                self._unsent[0] = view[room:]
                view = view[:room]
            else:
                self._unsent.popleft()
            sent += view
        if sent:
            self._window -= len(sent)
            self._unsent_bytes -= len(sent)
            self._put(bytes(sent))
        if self._is_writing_paused and self._unsent_bytes <= self._low:
            self._is_writing_paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._finish()

    def _put(self, what: bytes | int | type[Fin | Reset]) -> None:
        """Send something; it arrives after everything sent before."""
        simulation = self._network.simulation
        link = self._network.link(self.local[0], self.remote[0])
        self._last_arrival = max(self._last_arrival, simulation.now + link.seconds())
        self._pipe.append((self._last_arrival, what))
        if not self._is_moving:
            if len(self._pipe) > 1:
                return  # held up by a cut
            self._is_moving = True
            simulation.call_at(self._last_arrival, self._arrive)

    def _arrive(self) -> None:
        """Deliver the oldest data to the other end, unless it is held up."""
        if not self._network.is_reachable(self.local[0], self.remote[0]):
            self._is_moving = False
            return
        _, what = self._pipe.popleft()
        if self._pipe:
            at = max(self._pipe[0][0], self._network.simulation.now)
            self._network.simulation.call_at(at, self._arrive)
        else:
            self._is_moving = False
            self._release()
        self._peer._take(what)

    def _take(self, what: bytes | int | type[Fin | Reset]) -> None:
        """Make the kernel accept what arrived from the other end."""
        if isinstance(what, int):
            self._window += what
            if not self._is_gone:
                self._send_soon()
        elif self._is_gone:
            # There is no such connection: the kernel says so, but not to one that is ending too.
            if isinstance(what, bytes):
                self._put(Reset)
        elif isinstance(what, bytes):
            self._note(f"gets {len(what)} bytes, {crc32(what)}")
            self._inbox += what
            self._read_soon()
        elif what is Fin:
            self._has_ended = True
            self._read_soon()
        else:
            self._end(None, ConnectionResetError("the other side reset the connection"))

    # In

    def _read_soon(self) -> None:
        if self._is_read_due or self._is_closing or not self._is_reading or self._protocol is None:
            return
        if self._inbox or self._has_ended:
            self._is_read_due = True
            self.loop.call_soon(self._read, context=self.loop.root.copy())

    def _read(self) -> None:
        self._is_read_due = False
        if self._is_closing or not self._is_reading:
            return
        if self._inbox:
            self._put(self._deliver())
        elif self._has_ended:
            assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            self._is_reading = False
            if not self._protocol.eof_received():
                self.close()
            return
        self._read_soon()

    def _deliver(self) -> int:
        """Pass some of the received data to the program; return how much."""
        count = len(self._inbox)
        if self.loop.host.random.random() < SPLIT_CHANCE:
            count = self.loop.host.random.randint(1, count)
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(count))
            count = min(count, len(buffer))
            buffer[:count] = self._inbox[:count]
            del self._inbox[:count]
            protocol.buffer_updated(count)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            data = bytes(self._inbox[:count])
            del self._inbox[:count]
            protocol.data_received(data)
        return count

    # Ends

    def _finish(self) -> None:
        self._end(Fin, None)

    def _end(self, last: type[Fin | Reset] | None, error: Exception | None) -> None:
        if self._is_gone:
            return
        self._is_closing = True
        if last is not None:
            self._put(last)
        self._forget()
        if self.loop.host.loop is self.loop and self._protocol is not None:
            self.loop.call_soon(self._lose, error, context=self.loop.root.copy())

    def _lose(self, error: Exception | None) -> None:
        self._note(f"ends: {error!r}")
        assert self._protocol is not None
        self._protocol.connection_lost(error)

    def _forget(self) -> None:
        self._is_gone = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._inbox.clear()
        self._release()

    def _release(self) -> None:
        """Be forgotten by the network, once all is said."""
        if self._is_gone and not self._pipe:
            self._network.streams.pop(self, None)

    def _note(self, what: str) -> None:
        self._network.simulation.note(
            self.local[0], f"{self.local[1]}<{self.remote[0]}:{self.remote[1]} {what}"
        )
