"""Scenarios of the simulated quorum, each against one kind of trouble more than the others.

A scenario is a `World` with other settings and other harm. Each is about what the common world
reaches too seldom, and where a bug could hide from it.
"""

from contextlib import suppress
from functools import partial
from random import Random

import msgspec

from headrace.ids import BrokerId
from headrace.raft.errors import RaftError
from headrace.raft.messages import Heartbeat, Message, PreVoteAnswer, ReadAnswer, ReadRequest
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Role
from tests.sim.raft_checks import Machine
from tests.sim.raft_image import MetadataMachine, random_entry
from tests.sim.raft_node import Node
from tests.sim.raft_world import World


class Installs(World):
    """Followers that need a snapshot, of one piece or many, and lose power while they store it."""

    name = "installs"

    def set_up(self) -> None:
        self.voters, self.cruelty = self.random.choice((3, 5)), 0.0
        self.change_settings(
            kept_entries=self.random.choice((0, 0, 3)),
            snapshot_chunk_bytes=self.random.choice((64, 1 << 20)),
            snapshot_trigger_bytes=self.random.choice((200, 500)),
        )

    def loses(self, message: Message) -> bool:
        # So a snapshot is often the first that a node hears of a term.
        is_news = message.term > self.nodes[message.to].term and not self.is_calm
        if is_news and (isinstance(message, Heartbeat) or _is_refusal(message)):
            return self.random.random() < 0.9
        return super().loses(message)

    def harm(self) -> None:
        # Who is away while another is elected and compacts needs its snapshot.
        leader = self.leader()
        if leader is not None and self.random.random() < 0.3:
            leader.lose_power()
            first = list(self.nodes.values())[: self.voters]
            self.random.choice(first).lose_power()
        else:
            super().harm()

    def downtime_ms(self) -> float:
        return self.random.choice((self.random.uniform(5, 100), self.random.uniform(300, 700)))

    def note_install(self, node: Node) -> None:
        is_news = node.storing is not None and node.storing.hard_state is not None
        if not self.is_calm and self.random.random() < (0.9 if is_news else 0.4):
            self.after(node.sync_ms / 4, partial(node.lose_power, changes_max=10))


class OneWayCuts(World):
    """Links that carry one way only, many of them at a time."""

    name = "one_way"

    def set_up(self) -> None:
        self.change_settings(snapshot_trigger_bytes=300)

    def harm(self) -> None:
        kind = self.random.random()
        if kind < 0.5:
            links = [(a, b) for a in self.nodes for b in self.nodes if a != b]
            self.cut = {link for link in links if self.random.random() < 0.35}
        elif kind < 0.7:
            super().harm()
        elif kind < 0.8:
            self.random.choice(list(self.nodes.values())).lose_power()
        else:
            self.reconnect()


class Members(World):
    """Members that come and go all the time, while leaders fall and everybody loses power.

    Some quorums begin with one or two, and some keep their first snapshot: after a restart nobody
    knows more than that to be committed.
    """

    name = "members"

    def set_up(self) -> None:
        self.voters = self.random.choice((1, 1, 2, 3))
        self.zeal, self.cruelty = 6, 0.3
        self.change_settings(
            kept_entries=self.random.choice((0, 3)),
            snapshot_trigger_bytes=self.random.choice((300, 1 << 20)),
            promotion_lag_entries_max=1000,
        )

    def act(self) -> None:
        if self.random.random() < 0.35:
            for _ in range(3):
                self.spawn(self.change_members())
        else:
            super().act()

    async def change_members(self) -> None:
        leader = self.leader()
        if leader is None or leader.driver is None:
            return
        voters = leader.driver.state.membership.voters
        if len(voters) > 2 or self.random.random() < 0.5:
            await super().change_members()
        elif len(voters) == 2 and leader.number in voters:
            # Only its own disk hears of that, and then nobody remembers what was committed.
            leader.isolate()
            self.after(self.random.uniform(1, 5), self.black_out)
            self.after(50, self.reconnect)
            with suppress(RaftError):
                await leader.driver.remove(leader.number)

    def harm(self) -> None:
        if self.random.random() < 0.1:
            self.black_out()
        else:
            super().harm()

    def black_out(self) -> None:
        for node in self.nodes.values():
            node.lose_power()


class Burning(World):
    """Nodes that never come back, while members are changed: the others must get on.

    Changes begin when all know that the nodes are gone. A minority burns, so that a leader remains,
    and in the end they have to be removed.
    """

    name = "burning"

    def set_up(self) -> None:
        self.are_members_fixed = True

    def start_chaos(self) -> None:
        super().start_chaos()
        self.after(400, self.burn)
        self.after(800, self.let_members_change)

    def burn(self) -> None:
        numbers = list(self.nodes)[: self.voters]
        for number in self.random.sample(numbers, (self.voters - 1) // 2):
            self.nodes[number].burn()

    def let_members_change(self) -> None:
        self.are_members_fixed = False
        self.zeal = 2

    async def change_members(self) -> None:
        if not self.are_members_fixed:
            await super().change_members()

    def propose_to_leader(self) -> None:
        super().propose_to_leader()
        self.spawn(self.remove_burned())

    async def remove_burned(self) -> None:
        leader = self.leader()
        for number in self.burned_members():
            if leader is not None and leader.driver is not None:
                with suppress(RaftError):
                    await leader.driver.remove(number)

    def burned_members(self) -> list[BrokerId]:
        leader = self.leader()
        if leader is None or leader.raft is None:
            return []
        members = leader.raft.state.membership.members
        return [number for number in members if self.nodes[number].is_burned]

    def is_settled(self) -> bool:
        return super().is_settled() and not self.burned_members()


class FullDisks(World):
    """Two disks at a time without room, for bytes or for names; none that fails otherwise."""

    name = "full_disks"
    has_failing_syncs = False

    def set_up(self) -> None:
        self.is_cramped = True
        self.change_settings(
            kept_entries=0,
            segment_bytes=600,
            snapshot_trigger_bytes=self.random.choice((300, 2000)),
        )

    def cramp(self) -> None:
        nodes = list(self.nodes.values())
        if self.random.random() < 0.4:
            for node in nodes:
                node.disk.make_room()
            return
        for node in self.random.sample(nodes, 2):
            self.fill(node)
        if self.random.random() < 0.4:
            self.after(self.random.uniform(1, 60), self.random.choice(nodes).lose_power)

    def fill(self, node: Node) -> None:
        if self.random.random() < 0.5:
            super().fill(node)
        else:
            node.disk.make_room()
            node.fail_roll(self.random.randrange(4))
            node.sync_ms = self.random.choice((0.3, 20.0))
            self.after(self.random.uniform(1, 300), node.lose_power)


class Leases(World):
    """Nodes with lease reads or without, with election timeouts of their own.

    Both change when a node starts again, which is soon. Leaders are cut off, and asked anyhow.
    """

    name = "leases"

    def set_up(self) -> None:
        self.change_settings(has_lease_reads=True)
        self.is_cramped = False
        self.cruelty = 0.5

    def settings_of(self, node: Node) -> RaftSettings:
        luck = Random(f"{self.seed} {node.number} {node.life}")
        return msgspec.structs.replace(
            self.settings,
            has_lease_reads=luck.random() < 0.6,
            election_timeout_ms=luck.choice((50, 150)),
        )

    def act(self) -> None:
        super().act()
        for node in self.nodes.values():
            if node.raft is not None and node.raft.state.role is Role.LEADER:
                self.spawn(node.read())

    def harm(self) -> None:
        leader = self.leader()
        if self.cut or leader is None or self.random.random() < 0.3:
            if self.random.random() < 0.5:
                self.reconnect()
            else:
                super().harm()
            return
        leader.isolate()
        for node in self.nodes.values():
            if node is not leader and self.random.random() < 0.7:
                node.kill()

    def downtime_ms(self) -> float:
        return self.random.uniform(1, 10)


class LateMessages(World):
    """Messages that outlive their receiver, or their sender, who is back at once."""

    name = "late"

    def set_up(self) -> None:
        self.loss = self.cruelty = 0.0
        self.is_cramped = False

    def delay_ms(self, message: Message) -> float:
        is_read = isinstance(message, ReadAnswer | ReadRequest)
        if not self.is_calm and self.random.random() < (0.3 if is_read else 0.05):
            return self.random.uniform(5, 200)
        return self.random.uniform(0.2, 3.0)

    def act(self) -> None:
        super().act()
        if self.random.random() < 0.7:
            for node in self.nodes.values():
                self.spawn(node.read())

    def harm(self) -> None:
        leader = self.leader()
        if self.random.random() < 0.1:
            super().harm()
            return
        others = [node for node in self.nodes.values() if node is not leader and node.driver]
        if others:
            self.random.choice(others).kill()

    def downtime_ms(self) -> float:
        return self.random.uniform(0.5, 5)


class RealImage(World):
    """The metadata image, its entries and its snapshots, in place of a checksum."""

    name = "image"

    def set_up(self) -> None:
        self.change_settings(
            snapshot_chunk_bytes=self.random.choice((500, 1 << 20)),
            snapshot_trigger_bytes=self.random.choice((2000, 8000)),
            kept_entries=self.random.choice((0, 3)),
        )

    def make_machine(self, node: Node) -> Machine:
        return MetadataMachine(node)

    def new_value(self) -> bytes:
        self.value_count += 1
        return random_entry(self.random, self.value_count)


def _is_refusal(message: Message) -> bool:
    return isinstance(message, PreVoteAnswer) and not message.is_granted


SCENARIOS: tuple[type[World], ...] = (
    Installs,
    OneWayCuts,
    Members,
    Burning,
    FullDisks,
    Leases,
    LateMessages,
    RealImage,
)
