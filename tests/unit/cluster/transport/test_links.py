"""Links among simulated hosts: lives, silence, slow and hostile peers."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from headrace.cluster.transport import connection
from headrace.cluster.transport.calls import (
    RAFT_KIND,
    REQUEST,
    REQUEST_LAYOUT,
    CallError,
    CallTimedOut,
    ConnectionLost,
    NotConnected,
    Status,
)
from headrace.cluster.transport.events import (
    Connected,
    ConnectFailed,
    ConnectionRefused,
    Disconnected,
)
from headrace.cluster.transport.hello import MAGIC, Purpose
from headrace.cluster.transport.links import Links, is_loopback_address
from headrace.cluster.transport.raft_transport import RaftTransport
from headrace.cluster.transport.refusals import Reason, Refused
from headrace.cluster.transport.settings import TransportSettings
from headrace.ids import BrokerId as NodeId
from headrace.raft.membership import Membership
from headrace.raft.messages import Heartbeat, InstallSnapshot, Message
from tests.unit.cluster.transport.raw_peer import (
    ECHO,
    HOLD,
    PORT,
    TELL,
    Node,
    RawPeer,
    World,
    address,
    identity,
    until,
)

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def tell(text: bytes) -> bytes:
    return bytes([1, TELL]) + text


def request(kind: int, correlation_id: int, payload: bytes = b"") -> bytes:
    return REQUEST_LAYOUT.pack(REQUEST, kind, correlation_id, 1000) + payload


def refusals(node: Node) -> list[Reason]:
    return [each.refused.reason for each in node.events if isinstance(each, ConnectionRefused)]


async def connected_pair(world: World, **options: Any) -> tuple[Node, Node]:
    one, two = await world.node(1, **options), await world.node(2, **options)
    world.hosts[1].call(one.links.set_peers, [TWO])
    world.hosts[2].call(two.links.set_peers, [ONE])
    await until(lambda: one.links.connected(TWO) and two.links.connected(ONE))
    return one, two


# Lives


@pytest.mark.parametrize("purpose", list(Purpose))
def test_nothing_of_an_older_life_is_delivered_once_a_newer_one_is_there(purpose: Purpose) -> None:
    world = World()

    async def main() -> None:
        node = await world.node(1)
        run = world.hosts[2].run
        old = await run(RawPeer.connect(identity(2, 10), purpose))
        old.send(tell(b"old"))
        await until(lambda: node.told)
        new = await run(RawPeer.connect(identity(2, 11)))
        old.send(tell(b"too late"))
        new.send(tell(b"new"))
        await until(lambda: len(node.told) == 2)
        await until(lambda: old.is_lost)
        assert [(who.boot_epoch, data) for who, data in node.told] == [(10, b"old"), (11, b"new")]

    world.run(main())


def test_an_older_life_is_refused_by_name() -> None:
    world = World()

    async def main() -> None:
        node = await world.node(1)
        await world.hosts[2].run(RawPeer.connect(identity(2, 5)))
        old = await world.hosts[3].run(RawPeer.connect(identity(2, 4)))
        assert isinstance(old.outcome, Refused)
        assert old.outcome.reason is Reason.OLD_LIFE
        assert "boot epoch 4" in old.outcome.sentence
        assert refusals(node) == [Reason.OLD_LIFE]

    world.run(main())


def test_a_second_folder_under_a_node_id_is_refused_by_name() -> None:
    world = World()

    async def main() -> None:
        await world.node(1, folder_of=lambda node: bytes([3]) * 16 if node == 3 else None)
        run = world.hosts[2].run
        await run(RawPeer.connect(identity(2)))
        second = await run(RawPeer.connect(identity(2)._replace(folder_id=b"x" * 16)))
        assert second.outcome.reason is Reason.DUPLICATE_NODE_ID
        unknown = await run(RawPeer.connect(identity(3)._replace(folder_id=b"x" * 16)))
        assert unknown.outcome.reason is Reason.DUPLICATE_NODE_ID
        known = await run(RawPeer.connect(identity(3)))
        assert known.outcome.peer.node == 1

    world.run(main())


def test_a_peer_with_another_folder_is_not_spoken_to() -> None:
    world = World()

    async def main() -> None:
        one = await world.node(1, folder_of=lambda node: b"x" * 16)
        await world.node(2)
        world.hosts[1].call(one.links.set_peers, [TWO])
        await until(lambda: one.events)
        assert refusals(one) == [Reason.DUPLICATE_NODE_ID]
        assert one.links.connected(TWO) is None
        assert "node.id" in one.links.describe()[0].last_problem

    world.run(main())


def test_a_second_connection_takes_the_place_of_the_first() -> None:
    world = World()

    async def main() -> None:
        node = await world.node(1)
        run = world.hosts[2].run
        peers = [await run(RawPeer.connect(identity(2))) for _ in range(5)]
        await until(lambda: sum(peer.is_lost for peer in peers) == 4, 2)
        assert not peers[-1].is_lost
        assert node.links.accepted_count == 1

    world.run(main())


# Silence


def test_a_peer_that_loses_power_is_noticed_and_its_calls_end() -> None:
    world = World()

    async def main() -> None:
        one, _ = await connected_pair(world)
        call = world.hosts[1].start(one.links.call(TWO, b"", 60_000, kind=HOLD))
        await asyncio.sleep(0.1)
        world.hosts[2].crash(power=True)
        with pytest.raises(ConnectionLost) as lost:
            await call
        assert lost.value.is_uncertain
        assert world.simulation.now < 5
        with pytest.raises(NotConnected):
            await world.hosts[1].run(one.links.call(TWO, b"", 60_000, kind=ECHO))
        await until(lambda: one.links.accepted_count == 0, 15)
        world.hosts[2].boot()
        two = await world.node(2, boot_epoch=2)
        await until(lambda: one.links.connected(TWO), 10)
        assert one.links.connected(TWO) == two.links.identity

    world.run(main())


def test_a_link_that_is_cut_one_way_is_noticed() -> None:
    world = World()

    async def main() -> None:
        one, _ = await connected_pair(world)
        world.simulation.network.cut(address(2), address(1))
        await until(lambda: one.links.connected(TWO) is None, 10)
        world.simulation.network.heal()
        await until(lambda: one.links.connected(TWO), 10)

    world.run(main())


def test_tries_grow_rare_and_a_new_address_is_used_at_once() -> None:
    world = World()
    addresses = {TWO: (address(3), 1)}

    async def main() -> None:
        one = await world.node(1, address_of=addresses.get)
        await world.node(2)
        world.hosts[1].call(one.links.set_peers, [TWO])
        await asyncio.sleep(60)
        failures = [each for each in one.events if isinstance(each, ConnectFailed)]
        assert 30 <= len(failures) <= 70
        assert one.links.describe()[0].state == "waiting"
        assert "refused" in one.links.describe()[0].last_problem
        addresses[TWO] = (address(2), PORT)
        world.hosts[1].call(one.links.address_changed, TWO)
        await until(lambda: one.links.connected(TWO), 1)

    world.run(main())


def test_a_peer_that_is_none_any_more_is_left() -> None:
    world = World()

    async def main() -> None:
        one, two = await connected_pair(world)
        world.hosts[1].call(one.links.set_peers, [])
        await until(lambda: two.links.accepted_count == 0)
        assert one.links.describe() == []
        assert not world.hosts[1].call(lambda: one.links.send(TWO, TELL, [b"x"]))
        ended = [each for each in one.events if isinstance(each, Disconnected)]
        assert ended[0].reason == "it is not a peer any more"

    world.run(main())


def test_joining_a_cluster_opens_connections_anew() -> None:
    world = World()

    async def main() -> None:
        one, two = await connected_pair(world)
        two.links.identity = two.links.identity._replace(cluster_id="")
        world.hosts[2].call(two.links.joined, "mill")
        before = len(one.events)
        await until(lambda: two.links.connected(ONE) and len(one.events) > before)
        accepted = [each for each in one.events if isinstance(each, Connected)]
        assert accepted[-1].peer.cluster_id == "mill"

    world.run(main())


# Bulk


def test_a_bulk_connection_is_opened_when_needed_and_closed_when_idle() -> None:
    world = World()

    async def main() -> None:
        settings = TransportSettings(bulk_idle_ms_max=2000)
        one, two = await connected_pair(world, settings=settings)
        assert [each.purpose for each in one.links.describe()] == [Purpose.CONTROL]
        data = bytes(1 << 20)
        ask = one.links.call(TWO, data, 5000, kind=ECHO, purpose=Purpose.BULK)
        assert await world.hosts[1].run(ask) == data
        assert two.links.accepted_count == 2
        await until(lambda: one.links.describe()[1].state != "connected", 10)
        assert one.links.describe()[1].state == "idle"
        await until(lambda: two.links.accepted_count == 1)
        ask = one.links.call(TWO, b"again", 5000, kind=ECHO, purpose=Purpose.BULK)
        assert await world.hosts[1].run(ask) == b"again"

    world.run(main())


def test_a_heartbeat_does_not_wait_for_a_snapshot() -> None:
    world = World()

    async def main() -> None:
        one, two = await connected_pair(world)
        got: list[Message] = []
        world.hosts[2].call(RaftTransport, two.links, lambda who, message: got.append(message))
        transport = world.hosts[1].call(RaftTransport, one.links, lambda who, message: None)
        pieces: list[Message] = [
            InstallSnapshot(ONE, TWO, 3, 9, 2, Membership((ONE,)), 5, 0, each, bytes(1 << 20))
            for each in range(20)
        ]
        world.hosts[1].call(transport.send, pieces)
        await asyncio.sleep(0.1)
        world.hosts[1].call(transport.send, [Heartbeat(ONE, TWO, 3, 4, 5)])
        await until(lambda: len(got) == 21)
        assert isinstance(got[-1], InstallSnapshot)
        assert [each.state for each in one.links.describe()] == ["connected", "connected"]
        assert one.links.describe()[1].purpose is Purpose.BULK

    world.run(main())


def test_a_bulk_connection_that_is_lost_fails_calls_at_once_and_waits_for_the_next() -> None:
    world = World()

    async def main() -> None:
        one, _ = await connected_pair(world)
        run = world.hosts[1].run
        await run(one.links.call(TWO, b"", 5000, kind=ECHO, purpose=Purpose.BULK))
        world.hosts[2].crash(power=False)
        await until(lambda: one.links.describe()[1].state == "waiting")
        began = world.simulation.now
        with pytest.raises(NotConnected):
            await run(one.links.call(TWO, b"", 60_000, kind=ECHO, purpose=Purpose.BULK))
        assert world.simulation.now - began < 0.1
        await asyncio.sleep(5)
        assert one.links.describe()[1].state == "idle"
        failed = {each.purpose for each in one.events if isinstance(each, ConnectFailed)}
        assert failed == {Purpose.CONTROL}
        with pytest.raises(NotConnected):
            await run(one.links.call(TWO, b"", 60_000, kind=ECHO, purpose=Purpose.BULK))

    world.run(main())


# Slow and hostile peers


def test_a_peer_that_does_not_read_gets_the_newest_when_it_does() -> None:
    world = World()

    async def main() -> None:
        settings = TransportSettings(queue_messages_max=10)
        one, two = await connected_pair(world, settings=settings)
        world.hosts[2].pause(1.5)
        for number in range(1000):
            world.hosts[1].call(one.links.send, TWO, TELL, [b"%d" % number, bytes(5000)])
            await asyncio.sleep(0.001)
            state = one.links.describe()[0]
            assert state.queued_messages <= 10
        await until(lambda: two.told and two.told[-1][1].startswith(b"999"))
        assert 20 < len(two.told) < 300
        counters = one.links.counters[TWO]
        assert counters.messages_dropped == 1000 - len(two.told)
        assert one.links.connected(TWO), "a short pause ends no connection"

    world.run(main())


def test_more_calls_than_are_taken_are_refused_and_hold_nothing() -> None:
    world = World()

    async def main() -> None:
        settings = TransportSettings(
            incoming_calls_max=5, frame_bytes_max=1000, incoming_call_bytes_max=3000
        )
        node = await world.node(1, settings)
        peer = await world.hosts[2].run(RawPeer.connect(identity(2)))
        for number in range(50):
            peer.send(request(HOLD, number, bytes(100)))
        await until(lambda: len(peer.payloads) == 45)
        assert {payload[0] for payload in peer.payloads} == {Status.BUSY}
        assert len(node.held) == 5
        for call in node.held:
            world.hosts[1].call(call.answer, b"done")
        for number in range(5):
            peer.send(request(HOLD, number, bytes(900)))
        await until(lambda: len(peer.payloads) == 52)
        assert len(node.held) == 8, "bytes are bounded too"
        with pytest.raises(RuntimeError):
            node.held[0].answer(b"twice")

    world.run(main())


def test_a_peer_that_reads_no_responses_is_held_then_dropped() -> None:
    world = World()

    async def main() -> None:
        settings = TransportSettings(
            frame_bytes_max=100_000, unsent_response_bytes_max=500_000, queue_bytes_max=100_000
        )
        node = await world.node(1, settings)
        peer = await world.hosts[2].run(RawPeer.connect(identity(2)))
        peer.transport.pause_reading()
        for number in range(200):
            peer.send(request(ECHO, number, bytes(50_000)))
        await asyncio.sleep(1)
        held = next(iter(node.links._accepted)).connection
        assert held.unsent_bytes < 500_000, "no more is read than is answered"
        assert not peer.is_lost
        other = await world.hosts[3].run(RawPeer.connect(identity(3)))
        other.transport.pause_reading()
        for number in range(20):
            other.send(request(HOLD, number))
        await until(lambda: len(node.held) == 20)
        for call in node.held:
            world.hosts[1].call(call.answer, bytes(90_000))
        await until(lambda: node.links.accepted_count == 1, 3)

    world.run(main())


class TlsTransport(asyncio.Transport):
    """A connection with TLS whose other side never takes leave, so that `close` ends nothing."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 41234), "ssl_object": self})
        self.calls: list[str] = []

    def getpeercert(self, binary_form: bool = False) -> None:
        return None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.calls.append("write")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


def test_a_stranger_behind_tls_that_is_told_why_it_is_refused_need_not_take_leave() -> None:
    async def main() -> None:
        links = Links(identity(1), secret=b"a secret", address_of=lambda node: None)
        transport = TlsTransport()
        accepted = links.accept()
        accepted.connection_made(transport)
        nonsense = MAGIC + b"\xff" * 64
        accepted.get_buffer(-1)[: len(nonsense)] = nonsense
        accepted.buffer_updated(len(nonsense))
        assert transport.calls == ["write"], "what was written needs a moment"
        for _ in range(connection.SENT_TURNS + 1):
            await asyncio.sleep(0)
        assert transport.calls == ["write", "abort"]
        await links.close()

    asyncio.run(main())


def test_connections_that_say_nothing_are_bounded_and_ended() -> None:
    world = World()

    async def main() -> None:
        settings = TransportSettings(unproven_connections_max=10)
        node = await world.node(1, settings)
        loop_of = asyncio.get_running_loop

        async def knock() -> None:
            for _ in range(50):
                await loop_of().create_connection(asyncio.Protocol, address(1), PORT)

        await world.hosts[2].run(knock())
        await asyncio.sleep(0.1)
        assert node.links.accepted_count == 10
        assert node.links.stranger_refusals[Reason.TOO_MANY_CONNECTIONS] == 40
        await until(lambda: node.links.accepted_count == 0)
        assert node.links.stranger_refusals[Reason.TIMED_OUT] == 10
        peer = await world.hosts[2].run(RawPeer.connect(identity(2)))
        assert not isinstance(peer.outcome, Refused)

    world.run(main())


def test_single_calls_make_room_for_those_of_others_and_keep_out_no_peer() -> None:
    world = World()

    async def main() -> None:
        settings = TransportSettings(single_calls_max=10, accepted_connections_max=1)
        node = await world.node(1, settings)
        run = world.hosts[2].run

        async def call_often(times: int) -> list[RawPeer]:
            return [await run(RawPeer.connect(identity(2), Purpose.ONE_CALL)) for _ in range(times)]

        many = await call_often(30)
        other = await world.hosts[3].run(RawPeer.connect(identity(3), Purpose.ONE_CALL))
        many += await call_often(10)
        await until(lambda: [each.is_lost for each in many] == [True] * 31 + [False] * 9)
        assert not other.is_lost
        peer = await world.hosts[3].run(RawPeer.connect(identity(3)))
        assert not isinstance(peer.outcome, Refused)
        assert node.links.accepted_count == 11

    world.run(main())


def test_many_tiny_frames_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TURN_NS_MAX", 200_000)
    world = World()

    async def main() -> None:
        node = await world.node(1)
        seen: list[int] = []

        def watch() -> None:
            seen.append(len(node.told))
            if len(node.told) < 4000:
                asyncio.get_running_loop().call_soon(watch)

        peer = await world.hosts[2].run(RawPeer.connect(identity(2)))
        peer.transport.write(b"".join(peer.sealed(tell(b"")) for _ in range(4000)))
        world.hosts[1].call(watch)
        await until(lambda: len(node.told) == 4000)
        steps = [after - before for before, after in pairwise(seen)]
        assert 0 < max(steps) < 300
        assert not peer.is_lost

    world.run(main())


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x01", b"\x02\x47\x00", b"\x00", b"\x09abc", bytes([1, RAFT_KIND]) + b"\x93\xc0"],
)
def test_a_proven_peer_that_sends_nonsense_is_refused(payload: bytes) -> None:
    world = World()

    async def main() -> None:
        node = await world.node(1)
        world.hosts[1].call(RaftTransport, node.links, lambda who, message: None)
        peer = await world.hosts[2].run(RawPeer.connect(identity(2)))
        peer.send(payload)
        await until(lambda: peer.is_lost)
        assert refusals(node) == [Reason.MALFORMED]
        assert node.links.counters[TWO].refusals == 1

    world.run(main())


def test_a_copied_frame_and_a_huge_one_are_refused() -> None:
    world = World()

    async def main() -> None:
        node = await world.node(1)
        run = world.hosts[2].run
        peer = await run(RawPeer.connect(identity(2)))
        frame = peer.sealed(tell(b"pay 5"))
        peer.transport.write(frame + frame)
        await until(lambda: peer.is_lost)
        assert [data for _, data in node.told] == [b"pay 5"]
        peer = await run(RawPeer.connect(identity(2)))
        peer.transport.write(b"\x7f\xff\xff\xff")
        await until(lambda: peer.is_lost)
        assert refusals(node) == [Reason.FORGED_FRAME, Reason.FRAME_TOO_LARGE]

    world.run(main())


def test_calls_end_when_nobody_answers() -> None:
    world = World()

    async def main() -> None:
        one, two = await connected_pair(world)
        with pytest.raises(CallTimedOut):
            await world.hosts[1].run(one.links.call(TWO, b"", 300, kind=HOLD))
        world.hosts[2].call(two.held[0].answer, b"late")  # reaches nobody
        echoed = await world.hosts[1].run(one.links.call(TWO, b"next", 300, kind=ECHO))
        assert echoed == b"next"
        call = world.hosts[1].start(one.links.call(TWO, b"", 60_000, kind=HOLD))
        await until(lambda: len(two.held) == 2)
        await world.hosts[1].run(one.links.close(drain_ms=100))
        with pytest.raises(CallError):
            await call
        with pytest.raises(NotConnected):
            await world.hosts[1].run(one.links.call(TWO, b"", 300, kind=ECHO))

    world.run(main())


@pytest.mark.parametrize(
    ("end", "is_loopback"),
    [
        (("127.0.0.1", 1), True),
        (("127.9.9.9", 1), True),
        (("::1", 1, 0, 0), True),
        (("::ffff:127.0.0.1", 1, 0, 0), True),
        (("fe80::1%eth0", 1, 0, 2), False),
        (("10.0.0.1", 1), False),
        (("mill.example", 1), False),
        (None, False),
        ("/tmp/socket", False),
    ],
)
def test_loopback_is_told_by_the_address(end: object, is_loopback: bool) -> None:
    assert is_loopback_address(end) is is_loopback
