"""What must hold of a quorum at every step, seen from outside and above.

One leader a term; a leader has all that is committed; entries of one index and term are the same
everywhere, and so is what precedes them; what is committed never changes; every node applies it
once, in order, and comes to the same state; reads are not older than what was committed when they
began; what a node confirmed is on its disk after a crash; and once calm, all agree.
"""

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from headrace.raft.core import Raft
from headrace.raft.entries import Entry, EntryKind
from headrace.raft.ready import Ready
from headrace.raft.state import Role

if TYPE_CHECKING:
    from tests.sim.raft_node import Node
    from tests.sim.raft_world import World


class Violation(AssertionError):
    """Something that must never be, was."""


class Machine:
    """The state that the log is of, and what the checks need to know of it."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._life = node.life
        self.index = 0
        """Of the last proposal that is part of the state."""
        self.digest = 0
        """Tells states apart; the same for the same log."""

    def apply(self, index: int, data: bytes) -> None:
        if self._life == self._node.life:
            self._node.world.checks.check_applied(self._node, index, data)
        self.apply_data(index, data)
        self.index = index
        if self._life == self._node.life:
            self._node.world.checks.note_state(self._node)

    def restore(self, index: int, data: bytes) -> None:
        self.restore_data(index, data)
        if self._life == self._node.life:
            self._node.world.checks.check_restored(self._node, index)

    def apply_data(self, index: int, data: bytes) -> None:
        """Change the state and the digest."""
        raise NotImplementedError

    def restore_data(self, index: int, data: bytes) -> None:
        """Be what a snapshot says, index and digest included."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        raise NotImplementedError


class DigestMachine(Machine):
    """A checksum of everything applied, so that order counts."""

    def apply_data(self, index: int, data: bytes) -> None:
        self.digest = crc32(data, self.digest)

    def restore_data(self, index: int, data: bytes) -> None:
        self.index, self.digest, _ = msgspec.msgpack.decode(data)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.index, self.digest, b"." * 150))


def is_unborn(raft: Raft) -> bool:
    """Say whether a node leads a term that its disk does not know yet.

    Only a sole voter does, and nobody hears of it: it neither sends nor commits anything. If it
    goes down, another may lead that term, as the leader that removed itself and has to stand again.
    """
    return raft.state.role is Role.LEADER and raft.durable.term < raft.state.term


class Promised:
    """What a node had confirmed when it went down, and what it was storing."""

    def __init__(self, raft: Raft, snapshot_index: int, storing: Ready | None) -> None:
        log = raft.state.log
        self.terms = {
            entry.index: entry.term for entry in log.entries if entry.index <= log.persisted
        }
        self.snapshot_index = snapshot_index
        self.durable = raft.durable
        self.pending = storing.hard_state if storing is not None else None


class Checks:
    """The view from above."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.leaders: dict[int, int] = {}
        self.entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        """By index and term: content, and the term of the entry before."""
        self.committed: dict[int, Entry] = {}
        self.lost: set[bytes] = set()
        """Proposals that were said to be lost for sure."""
        self.states: dict[int, int] = {0: 0}
        """Digest of the state after each proposal."""
        self.promised: dict[int, Promised] = {}
        self.reads = 0
        self.refusals = 0
        """How many proposals were refused because a disk was full."""
        self.retries = 0
        """How often it was tried to store again what had found a disk full."""
        self.installs = 0
        """How often a node stored a leader's snapshot."""
        self._led_commits: dict[int, int] = {}
        """How far the leader of each term has committed."""
        self._settled_from = 0

    def check_node(self, node: "Node") -> None:
        raft = node.raft
        assert raft is not None
        state = raft.state
        if state.role is not Role.LEADER or is_unborn(raft):
            return
        known = self.leaders.get(state.term)
        if known is None:
            known = self.leaders[state.term] = node.number
            self._world.note_leader(node)
        if known != node.number:
            raise Violation(f"nodes {known} and {node.number} both lead term {state.term}")
        if state.log.last_index == state.term_start_index:
            self._check_complete(node)
        if state.log.commit > self._led_commits.get(state.term, state.term_start_index - 1):
            self._led_commits[state.term] = state.log.commit
            self._check_durable(node)

    def _check_complete(self, node: "Node") -> None:
        """Check that a new leader has all that leaders of earlier terms committed.

        What later ones commit of earlier terms it need not have: with slow disks, a leader may be
        elected when a later term has one already.
        """
        assert node.raft is not None
        log = node.raft.state.log
        led = (commit for term, commit in self._led_commits.items() if term < node.term)
        for index in range(log.base_index + 1, max(led, default=0) + 1):
            entry = self.committed.get(index)
            if entry is not None and log.term_at(index) != entry.term:
                raise Violation(f"node {node.number} leads {node.term} without entry {index}")

    def _check_durable(self, node: "Node") -> None:
        """Check that what a leader commits is on the disks of a majority, down or up."""
        assert node.raft is not None
        log = node.raft.state.log
        index, term = log.commit, log.term_at(log.commit)
        voters = log.membership.voters
        count = 0
        for voter in voters:
            other = self._world.nodes[voter]
            if other.raft is not None:
                theirs = other.raft.state.log
                has_it = theirs.persisted >= index and theirs.term_at(index) in (term, None)
            else:
                promised = self.promised.get(voter)
                has_it = promised is not None and (
                    promised.terms.get(index) == term or promised.snapshot_index >= index
                )
            count += has_it
        if count <= len(voters) // 2:
            raise Violation(f"node {node.number} commits {index} that only {count} disks have")

    def check_ready(self, node: "Node", ready: Ready) -> None:
        """Check that equal places of all logs hold equal entries, with equal ones before them."""
        assert node.raft is not None
        log = node.raft.state.log
        if is_unborn(node.raft):
            return
        for entry in ready.entries:
            content = bytes([entry.kind]) + entry.data
            before = log.term_at(entry.index - 1)
            assert before is not None
            known = self.entries.setdefault((entry.index, entry.term), (content, before))
            if known != (content, before):
                raise Violation(f"node {node.number} has another entry {entry.index}/{entry.term}")

    def check_applied(self, node: "Node", index: int, data: bytes) -> None:
        """Check a proposal that is applied, and what takes an index before it but is none."""
        assert node.raft is not None
        log = node.raft.state.log
        if index <= node.machine.index:
            raise Violation(f"node {node.number} applies {index} after {node.machine.index}")
        for at in range(max(node.machine.index, log.base_index) + 1, index + 1):
            entry = log.entries[at - log.base_index - 1]
            if (entry.kind is EntryKind.DATA) != (at == index):
                raise Violation(f"node {node.number} applies {index} after {node.machine.index}")
            known = self.committed.setdefault(at, entry)
            if known != entry:
                raise Violation(f"node {node.number} commits {entry}, committed was {known}")
        if self.committed[index].data != data:
            raise Violation(f"node {node.number} applies something else at {index}")
        if data in self.lost:
            raise Violation(f"node {node.number} commits {data!r}, which was lost for sure")
        self._world.say(f"{node.number} applies {index}")

    def note_state(self, node: "Node") -> None:
        machine = node.machine
        known = self.states.setdefault(machine.index, machine.digest)
        if known != machine.digest:
            raise Violation(f"node {node.number} is in another state at {machine.index}")

    def check_restored(self, node: "Node", index: int) -> None:
        """Check a state that came from a snapshot."""
        machine = node.machine
        self._world.say(f"{node.number} restores {index}")
        skipped = (self.committed.get(at) for at in range(machine.index + 1, index + 1))
        if any(entry is not None and entry.kind is EntryKind.DATA for entry in skipped):
            raise Violation(f"node {node.number} restored too old a state at {index}")
        if machine.index > index or self.states.get(machine.index) != machine.digest:
            raise Violation(f"node {node.number} restored another state at {index}")

    def check_confirmed(self, node: "Node", index: int, value: bytes) -> None:
        """Check a proposal that its proposer was told is committed."""
        known = self.committed.get(index)
        if known is None or known.data != value:
            raise Violation(f"node {node.number} confirmed {value!r} at {index}, there is {known}")

    def note_lost(self, node: "Node", value: bytes) -> None:
        self.lost.add(value)
        if any(entry.data == value for entry in self.committed.values()):
            raise Violation(f"node {node.number} calls {value!r} lost, but it is committed")

    def read_floor(self) -> int:
        """Give what a read that begins now must at least see."""
        return max(
            (each.raft.state.log.commit for each in self._world.nodes.values() if each.raft),
            default=0,
        )

    def check_read(self, node: "Node", index: int, floor: int) -> None:
        self.reads += 1
        if index < floor:
            raise Violation(f"node {node.number} read at {index}, {floor} was committed before")

    def remember(self, node: "Node") -> None:
        assert node.raft is not None
        self.promised[node.number] = Promised(node.raft, node.snapshot_index, node.storing)

    def check_recovered(self, node: "Node") -> None:
        """Check that a disk has what its node confirmed before it went down."""
        promised = self.promised.pop(node.number, None)
        raft = node.raft
        if promised is None or raft is None:
            return
        log = raft.state.log
        if raft.durable not in (promised.durable, promised.pending):
            raise Violation(f"node {node.number} forgot {promised.durable}: {raft.durable}")
        if log.snapshot.index < promised.snapshot_index:
            raise Violation(f"node {node.number} lost snapshot {promised.snapshot_index}")
        for index, term in promised.terms.items():
            if index > log.snapshot.index and log.term_at(index) != term:
                raise Violation(f"node {node.number} lost its confirmed entry {index}/{term}")

    # The end

    def is_settled(self) -> bool:
        """Say whether, once calm, a value was committed and everybody has applied it."""
        world = self._world
        if not self._settled_from:
            self._settled_from = max(self.committed, default=0) + 3
        leader = world.leader()
        if leader is None or leader.machine.index < self._settled_from:
            return False
        assert leader.raft is not None
        members = (world.nodes[member] for member in leader.raft.state.membership.members)
        return all(
            member.is_burned or member.machine.index == leader.machine.index for member in members
        )

    def check_end(self) -> None:
        if not self._world.is_settled():
            raise Violation("calm, but the quorum has not settled")
        world = self._world
        leader = world.leader()
        assert leader is not None
        if self.leaders[leader.term] != leader.number:
            raise Violation(f"{leader.number} leads, {self.leaders[leader.term]} was elected")
