"""Links on real sockets of the loopback: what a simulated network cannot show."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from headrace.cluster.transport.calls import (
    CallError,
    CallFailed,
    IncomingCall,
    InvalidPayload,
    NotConnected,
    TooManyCalls,
)
from headrace.cluster.transport.events import ConnectionRefused, Event
from headrace.cluster.transport.handshake import Initiator, Local
from headrace.cluster.transport.hello import Identity, Purpose
from headrace.cluster.transport.links import Links, OnClient
from headrace.cluster.transport.raft_transport import RaftTransport
from headrace.cluster.transport.refusals import Reason
from headrace.cluster.transport.settings import TransportSettings
from headrace.ids import BrokerId as NodeId
from headrace.raft.membership import Membership
from headrace.raft.messages import Heartbeat, InstallSnapshot, Message

DEADLINE_SECONDS = 30
SETTINGS = TransportSettings(ping_interval_ms=50, reconnect_ms_max=200)
ECHO, FAIL, HOLD, BREAK, READ = 100, 101, 102, 103, 104
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
NewLoop = Callable[[], asyncio.AbstractEventLoop]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.005)


def run(new_loop: NewLoop, test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


def break_down(call: IncomingCall) -> None:
    raise ZeroDivisionError("a bug in a handler")


def read_nothing(call: IncomingCall) -> None:
    raise InvalidPayload("it cannot be read")


class Node:
    """Links with a few handlers, on a free port."""

    addresses: dict[int, tuple[str, int]]

    def __init__(
        self,
        number: int,
        addresses: dict[int, tuple[str, int]],
        *,
        secret: bytes | None = b"s3cret",
        on_client: OnClient | None = None,
        settings: TransportSettings = SETTINGS,
    ) -> None:
        self.number = NodeId(number)
        self.events: list[Event] = []
        self.held: list[IncomingCall] = []
        self.addresses = addresses
        self.links = Links(
            Identity(NodeId(number), bytes([number]) * 16, 1, "mill"),
            secret=secret,
            address_of=addresses.get,
            on_event=self.events.append,
            on_client=on_client,
            settings=settings,
        )
        self.links.serve(ECHO, lambda call: call.answer(call.payload))
        self.links.serve(FAIL, lambda call: call.fail("no such thing"))
        self.links.serve(HOLD, self.held.append)
        self.links.serve(BREAK, break_down)
        self.links.serve(READ, read_nothing)

    async def open(self) -> "Node":
        port = await self.links.open("127.0.0.1", 0)
        self.addresses[self.number] = ("127.0.0.1", port)
        return self

    def reasons(self) -> list[Reason]:
        return [each.refused.reason for each in self.events if isinstance(each, ConnectionRefused)]


async def pair(secret: bytes | None = b"s3cret") -> tuple[Node, Node]:
    addresses: dict[int, tuple[str, int]] = {}
    one = await Node(1, addresses, secret=secret).open()
    two = await Node(2, addresses, secret=secret).open()
    for node in (one, two):
        node.links.set_peers([NodeId(1), NodeId(2)])
    await until(lambda: one.links.connected(NodeId(2)) and two.links.connected(NodeId(1)))
    return one, two


async def close(*nodes: Node) -> None:
    for node in nodes:
        await node.links.close()
    await asyncio.sleep(0.01)


@LOOPS
@pytest.mark.parametrize("secret", [b"s3cret", None])
def test_calls_of_any_size_are_answered(new_loop: NewLoop, secret: bytes | None) -> None:
    async def test() -> None:
        one, two = await pair(secret)
        for size in (0, 1, 5000, 100_000, 4_000_000):
            payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
            for purpose in (Purpose.CONTROL, Purpose.BULK):
                response = await one.links.call(
                    NodeId(2), payload, 10_000, kind=ECHO, purpose=purpose
                )
                assert response == payload
        many = [one.links.call(NodeId(2), b"%d" % each, 10_000, kind=ECHO) for each in range(200)]
        assert await asyncio.gather(*many) == [b"%d" % each for each in range(200)]
        await close(one, two)

    run(new_loop, test)


@LOOPS
def test_calls_fail_with_a_reason(new_loop: NewLoop, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        one, two = await pair()
        with pytest.raises(CallFailed, match="no such thing"):
            await one.links.call(NodeId(2), b"", 10_000, kind=FAIL)
        with pytest.raises(CallFailed, match="does not know this kind"):
            await one.links.call(NodeId(2), b"", 10_000, kind=200)
        with pytest.raises(CallFailed, match="internal error"):
            await one.links.call(NodeId(2), b"", 10_000, kind=BREAK)
        with pytest.raises(CallFailed, match="too large"):
            await one.links.call(NodeId(2), bytes(9 << 20), 10_000, kind=ECHO)
        with pytest.raises(NotConnected):
            await one.links.call(NodeId(3), b"", 10_000, kind=ECHO)
        with pytest.raises(CallError, match="no response within 20 ms"):
            await one.links.call(NodeId(2), b"", 20, kind=HOLD)
        calls = [
            asyncio.ensure_future(one.links.call(NodeId(2), b"", 10_000, kind=HOLD))
            for _ in range(SETTINGS.calls_in_flight_max)
        ]
        await until(lambda: len(two.held) == 1 + SETTINGS.calls_in_flight_max)
        with pytest.raises(TooManyCalls):
            await one.links.call(NodeId(2), b"", 10_000, kind=ECHO)
        for held in two.held:
            held.answer(b"at last")
        assert await asyncio.gather(*calls) == [b"at last"] * len(calls)
        await close(one, two)

    run(new_loop, test)


@LOOPS
def test_a_request_of_no_sense_is_answered_so_and_ends_the_connection(
    new_loop: NewLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no error of the node that it comes to, whose log stays empty."""

    async def test() -> None:
        one, two = await pair()
        with pytest.raises(CallFailed, match="it cannot be read"):
            await one.links.call(NodeId(2), b"?", 10_000, kind=READ)
        assert two.reasons() == [Reason.MALFORMED]
        assert not caplog.records
        await close(one, two)

    run(new_loop, test)


@LOOPS
def test_closing_waits_for_calls_under_way(new_loop: NewLoop) -> None:
    async def test() -> None:
        one, two = await pair()
        call = asyncio.ensure_future(one.links.call(NodeId(2), b"", 10_000, kind=HOLD))
        await until(lambda: two.held)
        closing = asyncio.ensure_future(two.links.close(drain_ms=10_000))
        await asyncio.sleep(0)
        two.held[0].answer(b"done")
        assert await call == b"done"
        await closing
        await close(one)

    run(new_loop, test)


@LOOPS
def test_raft_messages_come_from_who_sent_them(new_loop: NewLoop) -> None:
    async def test() -> None:
        one, two = await pair()
        received: list[tuple[Identity, Message]] = []
        RaftTransport(two.links, lambda sender, message: received.append((sender, message)))
        transport = RaftTransport(one.links, lambda sender, message: None)
        piece = InstallSnapshot(
            NodeId(1), NodeId(2), 3, 9, 2, Membership((NodeId(1),)), 5, 0, 0, bytes(1 << 20)
        )
        beat = Heartbeat(NodeId(1), NodeId(2), 3, 4, 5)
        transport.send([piece, beat])
        await until(lambda: len(received) == 2)
        assert {type(message) for _, message in received} == {InstallSnapshot, Heartbeat}
        assert all(sender.node == 1 for sender, _ in received)
        transport.send([Heartbeat(NodeId(7), NodeId(2), 3, 4, 5)])  # says that it is another's
        await until(lambda: Reason.MALFORMED in two.reasons())
        assert len(received) == 2
        await until(lambda: one.links.connected(NodeId(2)))
        await close(one, two)

    run(new_loop, test)


@LOOPS
def test_a_program_of_seed_002_is_handed_over(new_loop: NewLoop) -> None:
    async def test() -> None:
        served: list[bytes] = []

        class Seed(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                served.append(data)

        def on_client(transport: asyncio.Transport, first_bytes: bytes) -> None:
            protocol = Seed()
            transport.set_protocol(protocol)
            protocol.data_received(first_bytes)
            transport.resume_reading()
            transport.write(b"welcome")

        node = await Node(1, {}, on_client=on_client).open()
        reader, writer = await asyncio.open_connection(*node.addresses[1])
        writer.write(b"\0\0\0\x08\0\x01\x07abc")
        assert await reader.readexactly(7) == b"welcome"
        writer.write(b"defgh")
        await until(lambda: b"".join(served) == b"\0\0\0\x08\0\x01\x07abcdefgh")
        assert node.links.accepted_count == 0
        writer.close()
        await close(node)

    run(new_loop, test)


@LOOPS
def test_strangers_are_refused_and_leave_nothing(new_loop: NewLoop) -> None:
    async def test() -> None:
        settings = TransportSettings(handshake_timeout_ms=100)
        node = await Node(1, {}, settings=settings).open()
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000, b"\0\0\0\x20\0\x12\0\x03\0\0", b""):
            reader, writer = await asyncio.open_connection(*node.addresses[1])
            writer.write(sent)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        assert node.reasons() == [Reason.NOT_HEADRACE] * 3 + [Reason.TIMED_OUT]
        assert sum(node.links.stranger_refusals.values()) == 4
        await until(lambda: node.links.accepted_count == 0)
        await close(node)

    run(new_loop, test)


@LOOPS
def test_a_forged_frame_ends_the_connection_and_reaches_nobody(new_loop: NewLoop) -> None:
    async def test() -> None:
        node = await Node(1, {}).open()
        got: list[object] = []
        node.links.on_message(7, lambda sender, payload: got.append(bytes(payload)))
        local = Local(Identity(NodeId(2), b"2" * 16, 1, "mill"), b"s3cret", b"n" * 32, True)
        machine = Initiator(local, to=NodeId(1), purpose=Purpose.CONTROL)
        reader, writer = await asyncio.open_connection(*node.addresses[1])
        writer.write(machine.start().send)
        outcome = None
        while outcome is None:
            step = machine.receive(await reader.read(1000))
            writer.write(step.send)
            outcome = step.outcome
        writer.write(b"\0\0\0\x1d" + bytes(8) + b"\x01\x07hello" + bytes(14))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert node.reasons() == [Reason.FORGED_FRAME]
        assert not got
        writer.close()
        await close(node)

    run(new_loop, test)


@LOOPS
def test_a_node_at_an_address_can_be_asked_who_it_is(new_loop: NewLoop) -> None:
    async def test() -> None:
        one, two = await Node(1, {}).open(), Node(2, {})
        peer, response = await two.links.call_address(
            one.addresses[1], b"may I join?", 5000, kind=ECHO
        )
        assert peer == one.links.identity
        assert response == b"may I join?"
        with pytest.raises(NotConnected, match="itself"):
            await one.links.call_address(one.addresses[1], b"", 5000, kind=ECHO)
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(NotConnected):
            await two.links.call_address(bound.getsockname(), b"", 5000, kind=ECHO)
        bound.close()
        await until(lambda: one.links.accepted_count == 0)
        await close(one, two)

    run(new_loop, test)
