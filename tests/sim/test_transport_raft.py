"""A quorum of three over the real links, in virtual time: elections, cuts, crashes, a snapshot."""

import asyncio
from random import Random
from typing import cast

import pytest

from headrace.cluster.transport.events import Connected, Event
from headrace.cluster.transport.hello import Identity, Purpose
from headrace.cluster.transport.links import Links
from headrace.cluster.transport.raft_transport import RaftTransport
from headrace.ids import BrokerId as NodeId
from headrace.raft.driver import RaftDriver
from headrace.raft.errors import RaftError
from headrace.raft.membership import Membership
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role
from headrace.testing.host_loop import HostLoop, SimulatedRaftHost
from headrace.testing.hosts import Crashed, Host
from headrace.testing.simulation import Simulation
from tests.unit.raft.quorums import Journal

PORT = 9093
NODES = tuple(map(NodeId, (1, 2, 3)))
SETTINGS = RaftSettings(
    snapshot_trigger_bytes=20_000, kept_entries=10, snapshot_chunk_bytes=8000, segment_bytes=20_000
)


def address(node: int) -> str:
    return f"10.0.0.{node}"


class Member:
    """One life of a voter."""

    def __init__(self, host: Host, node: NodeId) -> None:
        loop = cast(HostLoop, asyncio.get_running_loop())
        self.node = node
        self.journal = Journal()
        self.events: list[Event] = []
        self.links = Links(
            Identity(node, bytes([node]) * 16, host.boots, "mill"),
            secret=b"s3cret",
            address_of=lambda peer: (address(peer), PORT),
            on_event=self.events.append,
        )
        self.driver = RaftDriver(
            node,
            host.disk,
            "raft",
            machine=self.journal,
            transport=RaftTransport(
                self.links, lambda sender, message: self.driver.receive([message])
            ),
            settings=SETTINGS,
            host=SimulatedRaftHost(loop),
        )

    async def start(self) -> None:
        await self.driver.start(bootstrap=Membership(NODES))
        await self.links.open(address(self.node), PORT)
        self.links.set_peers(NODES)


class Quorum:
    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.random = Random(f"transport raft/{seed}")
        self.hosts = {node: self.simulation.host(address(node)) for node in NODES}
        self.members: dict[NodeId, Member] = {}
        self.committed: list[bytes] = []

    async def start(self, node: NodeId) -> None:
        host = self.hosts[node]
        if not host.is_up:
            host.boot()
        self.members[node] = host.call(Member, host, node)
        await host.run(self.members[node].start())

    async def crash(self, node: NodeId) -> None:
        self.members.pop(node)
        self.hosts[node].crash(power=self.random.random() < 0.5)

    def leader(self) -> Member | None:
        leaders = [each for each in self.members.values() if each.driver.state.role is Role.LEADER]
        return max(leaders, key=lambda each: each.driver.state.term, default=None)

    async def propose(self, data: bytes) -> None:
        """Propose until it is known to be committed, maybe more than once."""
        async with asyncio.timeout(60):
            while True:
                leader = self.leader()
                if leader is not None:
                    try:
                        await self.hosts[leader.node].run(leader.driver.propose(data))
                    except (RaftError, Crashed):
                        pass
                    else:
                        self.committed.append(data)
                        return
                await asyncio.sleep(0.05)

    async def catch_up(self) -> None:
        """Wait until every voter has everything, in the same order."""
        async with asyncio.timeout(60):
            while True:
                values = [member.journal.values for member in self.members.values()]
                if all(each == values[0] for each in values) and set(self.committed) <= set(
                    values[0]
                ):
                    return
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(4))
def test_a_quorum_lives_on_the_links(seed: int) -> None:
    quorum = Quorum(seed)

    async def main() -> None:
        for node in NODES:
            await quorum.start(node)
        network = quorum.simulation.network
        for number in range(12):
            await quorum.propose(b"%d" % number)
            leader = quorum.leader()
            victim = leader.node if leader is not None else NODES[0]
            trouble = quorum.random.randrange(4)
            if trouble == 0:
                await quorum.crash(victim)
                await quorum.propose(b"%d without %d" % (number, victim))
                await quorum.start(victim)
            elif trouble == 1:
                others = [address(node) for node in NODES if node != victim]
                network.partition([address(victim)], others)
                await asyncio.sleep(quorum.random.uniform(0, 5))
                network.heal()
            elif trouble == 2:
                quorum.hosts[victim].pause(quorum.random.uniform(0, 4))
            else:
                network.cut(address(victim), address(victim % 3 + 1))
                await asyncio.sleep(quorum.random.uniform(0, 5))
                network.heal()
        await quorum.catch_up()
        assert all(member.driver.refused_messages == 0 for member in quorum.members.values())

    quorum.simulation.run(main())


def test_a_voter_that_was_away_gets_a_snapshot_over_the_bulk_connection() -> None:
    quorum = Quorum(1)

    async def main() -> None:
        for node in NODES:
            await quorum.start(node)
        await quorum.propose(b"first")
        leader = quorum.leader()
        assert leader is not None
        away = next(node for node in NODES if node != leader.node)
        await quorum.crash(away)
        for number in range(120):
            await quorum.propose(b"%d " % number + b"x" * 1000)
        await quorum.start(away)
        await quorum.catch_up()
        assert any(
            isinstance(event, Connected) and event.purpose is Purpose.BULK
            for event in quorum.members[away].events
        )
        assert len(quorum.members[away].journal.values) == 121

    quorum.simulation.run(main())
