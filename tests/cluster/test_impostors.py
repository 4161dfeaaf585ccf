"""Somebody at the addresses of other nodes, who tells a node that a newer life of it was seen."""

import asyncio
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from headrace.cluster.address_book import parse_address
from headrace.cluster.transport.handshake import Acceptor, Local, encode_refusal
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.refusals import Reason, Refused
from headrace.testing.cluster import TestCluster

SECRET = b"a secret of the mill and its own nodes"
LEFT = 3
OTHERS = (1, 2)
OLD_LIFE = Refused(Reason.OLD_LIFE, "a newer one was seen", "stop")


class Stranger(asyncio.Protocol):
    """Refuses everybody at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened = cast(asyncio.Transport, transport)
        opened.write(encode_refusal(OLD_LIFE))
        opened.close()


class Member(asyncio.Protocol):
    """Refuses who has proven that it knows the secret."""

    def __init__(self, identity: Identity) -> None:
        local = Local(identity, SECRET, b"n" * 32, is_loopback=True)
        self._machine = Acceptor(local, lambda peer, purpose: OLD_LIFE)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        step = self._machine.receive(data)
        self._transport.write(step.send)
        if step.outcome is not None:
            self._transport.close()


@pytest.mark.parametrize("is_stranger", [True, False])
def test_a_node_stops_by_the_word_of_nodes_that_know_the_secret(
    tmp_path: Path, is_stranger: bool
) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_bytes(SECRET)
    secret_file.chmod(0o600)
    settings = {"headrace.cluster.secret.file": str(secret_file)}
    with TestCluster(nodes=3, settings=settings) as cluster:
        life = cluster.nodes[LEFT].node
        links = [cluster.nodes[node].node.cluster.links for node in OTHERS]
        identities = [each.identity for each in links]
        addresses = [cluster.nodes[node].node.cluster.address for node in OTHERS]
        for node in OTHERS:
            cluster.nodes[node].crash()

        async def listen() -> list[asyncio.Server]:
            loop = asyncio.get_running_loop()
            return [
                await loop.create_server(
                    Stranger if is_stranger else partial(Member, identity), *parse_address(address)
                )
                for address, identity in zip(addresses, identities, strict=True)
            ]

        servers = cluster.run(listen())
        refusals = life.cluster.links.refusals
        driver = life.broker.quorum.driver
        if is_stranger:
            cluster.wait_for(lambda: refusals[Reason.OLD_LIFE] > len(OTHERS), "the refusals")
            assert driver.failure is None
        else:
            cluster.wait_for(lambda: driver.failure is not None, "the node to stop")
            cluster.nodes[LEFT].crash()

        async def end() -> None:
            for server in servers:
                server.close()

        cluster.run(end())
