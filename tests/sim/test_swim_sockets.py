"""Shells on real sockets of the loopback: what a virtual loop cannot show."""

import asyncio
import socket
from collections.abc import Callable
from random import Random

import pytest
import uvloop

from headrace.cluster.swim.claims import Standing
from headrace.cluster.swim.events import Event, Left, Peer, Unreachable
from headrace.cluster.swim.sealing import Sealer
from headrace.cluster.swim.settings import SwimSettings
from headrace.cluster.swim.shell import Endpoint, OpenEndpoint, SwimShell, udp_endpoint
from headrace.ids import BrokerId as NodeId

SETTINGS = SwimSettings(probe_interval_ms=60, probe_timeout_ms=25)
DEADLINE_SECONDS = 30


def on_socket(bound: socket.socket) -> OpenEndpoint:
    async def open_endpoint(protocol: asyncio.DatagramProtocol) -> Endpoint:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: protocol, sock=bound)
        return transport

    return open_endpoint


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


async def play() -> None:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
        each.setblocking(False)
    peers = [
        Peer(NodeId(number), "localhost" if number == 3 else "127.0.0.1", each.getsockname()[1])
        for number, each in enumerate(sockets, 1)
    ]
    events: list[Event] = []
    failures: list[Exception] = []
    shells = [
        SwimShell(
            peer.node,
            1,
            settings=SETTINGS,
            sealer=Sealer(peer.node, 1, cluster_id="mill", secret=b"s3cret"),
            below=Random(peer.node).randrange,
            on_event=events.append if peer.node == 1 else lambda event: None,
            on_failure=failures.append,
        )
        for peer in peers
    ]
    for shell, bound in zip(shells, sockets, strict=True):
        await shell.open(on_socket(bound))
        shell.allow(peers)
    first, second, third = shells
    try:
        await live(first, second, third, events)
    finally:
        for shell in shells:
            shell.close()
        await asyncio.sleep(0.01)  # uvloop closes sockets in its next turns
    assert failures == []


async def live(first: SwimShell, second: SwimShell, third: SwimShell, events: list[Event]) -> None:
    """Let three nodes find each other, then lose one and see one off."""
    shells = (first, second, third)
    await until(
        lambda: all(
            seen.is_heard and seen.standing is Standing.ALIVE
            for shell in shells
            for seen in shell.swim.view()
        )
    )
    third.close()
    await until(lambda: any(isinstance(event, Unreachable) for event in events))
    await second.leave(timeout_seconds=DEADLINE_SECONDS)
    await until(lambda: any(isinstance(event, Left) for event in events))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nodes_find_and_miss_each_other(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(play())


def test_a_udp_endpoint_opens_and_closes() -> None:
    async def open_and_close() -> None:
        endpoint = await udp_endpoint("127.0.0.1", 0)(asyncio.DatagramProtocol())
        endpoint.close()
        await asyncio.sleep(0)

    asyncio.run(open_and_close())
