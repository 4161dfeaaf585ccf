"""What a node of the quorum knows, and the few changes that every part of the core makes.

The parts are modules of functions on this state: `elections`, `replication`, `snapshots`, `reads`
and `transfer`. Only `core` calls them. Nothing here knows a clock, a disk or a network.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from headrace.ids import BrokerId as NodeId
from headrace.raft.entries import HardState, Snapshot, SnapshotMark
from headrace.raft.entry_log import EntryLog
from headrace.raft.membership import Membership
from headrace.raft.messages import Message, Refusal
from headrace.raft.progress import Progress
from headrace.raft.settings import RaftSettings

ROUNDS_MAX: Final = 1024
"""How many unanswered rounds are remembered; of older ones a lease is just not lengthened."""

Jitter = Callable[[int], int]
"""Gives a number from 0 up to below its argument, by chance: so nodes time out apart."""


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class PendingRead:
    """A read that waits until the quorum confirms that its leader still leads."""

    __slots__ = ("index", "origin", "read_id", "round")

    def __init__(self, read_id: int, origin: NodeId) -> None:
        self.read_id = read_id
        self.origin = origin
        self.index = 0
        self.round = 0


class IncomingSnapshot:
    """The pieces of a leader's snapshot that have come."""

    __slots__ = ("checksum", "data", "key")

    def __init__(self, key: tuple[int, int, int, int]) -> None:
        self.key = key
        self.data = bytearray()
        self.checksum = 0
        """The checksum of the data so far."""


class State:
    """One node; `core.Raft` is its face."""

    def __init__(
        self,
        node: NodeId,
        *,
        settings: RaftSettings,
        log: EntryLog,
        hard_state: HardState,
        jitter: Jitter,
        now_ms: int,
    ) -> None:
        self.node = node
        self.settings = settings
        self.log = log
        self.jitter = jitter
        self.now_ms = now_ms
        self.term, self.vote = hard_state.term, hard_state.vote
        self.hold_ms = hard_state.hold_ms
        """The longest promise that may be running."""
        self.hold_until_ms = now_ms + hard_state.hold_ms
        """At the start as if it had just been made."""
        self.role = Role.FOLLOWER
        self.role_since_ms = now_ms
        self.leader: NodeId | None = None
        self.leader_since_ms = now_ms
        """Since when `leader` has its value, None included."""
        self.heard_ms = now_ms
        """When a leader last spoke; at the start as if it just had."""
        self.heard_from: dict[NodeId, int] = {}
        """When each other member last said anything, for people."""
        self.outbox: list[Message] = []
        self.election_deadline_ms = now_ms
        if not log.membership.is_sole_voter(node):
            self.postpone_election()
        # A candidate's
        self.votes: dict[NodeId, Refusal] = {}
        # A leader's
        self.progress: dict[NodeId, Progress] = {}
        """Every member but this node."""
        self.term_start_index = 0
        """Where this leader's own no-op is: once that is committed, so is all before."""
        self.heartbeat_due_ms = now_ms
        self.round = 0
        self.is_round_wanted = False
        self.round_times: deque[tuple[int, int]] = deque(maxlen=ROUNDS_MAX)
        """Rounds of heartbeats and their start, back to the last that a quorum acknowledged."""
        self.lease_until_ms = now_ms
        self.transfer_target: NodeId | None = None
        self.transfer_deadline_ms = now_ms
        self.has_handed_over = False
        """Whether a TimeoutNow of this term was sent, which ends every lease of the term."""
        self.offered: Snapshot | None = None
        """The snapshot that was read for members that need it."""
        self.is_snapshot_wanted = False
        self.is_snapshot_asked_for = False
        # Reads
        self.early_reads: list[PendingRead] = []
        """Those that came before this leader's first commit."""
        self.reads: deque[PendingRead] = deque()
        self.forwarded_reads: dict[int, int] = {}
        """Reads requested from the leader, and their deadlines."""
        self.served_reads: list[tuple[int, int]] = []
        self.dropped_reads: list[int] = []
        # A follower's
        self.incoming: IncomingSnapshot | None = None

    @property
    def membership(self) -> Membership:
        return self.log.membership

    @property
    def snapshot(self) -> SnapshotMark:
        return self.log.snapshot

    @property
    def is_voter(self) -> bool:
        return self.node in self.membership.voters

    @property
    def may_stand(self) -> bool:
        """Return whether this node may try to lead.

        One that is removed by a possibly uncommitted entry still may: no other node might be able
        to win, if only this node has that entry. The members just before that entry count. The
        commit index does not help: after a restart it is the snapshot's.
        """
        log = self.log
        is_removal_pending = log.membership_index > log.commit
        return self.is_voter or (is_removal_pending and self.node in log.previous_membership.voters)

    @property
    def has_committed_in_term(self) -> bool:
        return self.role is Role.LEADER and self.log.commit >= self.term_start_index

    def hears_leader(self) -> bool:
        """Return whether this node must not help replace the leader."""
        if self.role is Role.LEADER or self.is_held:
            return True
        if self.leader is None:
            return False
        return self.now_ms - self.heard_ms < self.settings.election_timeout_ms

    @property
    def is_held(self) -> bool:
        """Return whether a promise not to elect another leader is active."""
        return self.now_ms < self.hold_until_ms

    def promise_hold(self) -> int:
        """Promise a leader to hold still from now on, and return for how long.

        The promise outlives this node: it is part of the hard state, and what tells of it waits for
        that. A shorter one takes the place of a longer one when that has run out.
        """
        hold_ms = self.settings.hold_ms
        if hold_ms > self.hold_ms or not self.is_held:
            self.hold_ms = hold_ms
        self.hold_until_ms = max(self.hold_until_ms, self.now_ms + hold_ms)
        return hold_ms

    def postpone_election(self) -> None:
        timeout_ms = self.settings.election_timeout_ms
        self.election_deadline_ms = self.now_ms + timeout_ms + self.jitter(timeout_ms)

    def hasten_election(self, gone: NodeId | None = None) -> None:
        """Stand soon, if nobody leads by then, and one voter after the other.

        The first voter has its answers before the second one stands: they would split the votes.
        """
        heartbeat_ms = self.settings.heartbeat_ms
        before = sum(voter < self.node for voter in self.membership.voters if voter != gone)
        soon_ms = self.now_ms + before * heartbeat_ms + self.jitter(max(1, heartbeat_ms // 2))
        self.election_deadline_ms = min(self.election_deadline_ms, max(soon_ms, self.hold_until_ms))

    def follow(self, term: int, leader: NodeId | None) -> None:
        """Be a follower in `term`, of `leader` if one is known."""
        if term > self.term:
            self.term, self.vote = term, None
        was_leader = self.role is Role.LEADER
        self.set_role(Role.FOLLOWER)
        self.set_leader(leader)
        self.votes.clear()
        if was_leader:
            self.progress.clear()
            self.round_times.clear()
            self.transfer_target = None
            self.is_round_wanted = False
            self.offered = None
            self.is_snapshot_wanted = self.is_snapshot_asked_for = False
            for read in (*self.early_reads, *self.reads):
                if read.origin == self.node:
                    self.dropped_reads.append(read.read_id)
            self.early_reads.clear()
            self.reads.clear()
            self.postpone_election()

    def set_role(self, role: Role) -> None:
        if role is not self.role:
            self.role, self.role_since_ms = role, self.now_ms

    def set_leader(self, leader: NodeId | None) -> None:
        if leader != self.leader:
            self.leader, self.leader_since_ms = leader, self.now_ms
            # The former leader need not answer any more; whoever reads asks the next one.
            self.dropped_reads.extend(self.forwarded_reads)
            self.forwarded_reads.clear()

    def note_heard(self, node: NodeId) -> None:
        if node in self.membership.members:
            self.heard_from[node] = self.now_ms

    def quorum_value(self, own: int, others: dict[NodeId, int]) -> int:
        """Return the largest value that a majority of the voters has reached."""
        membership = self.membership
        values = [
            own if voter == self.node else others.get(voter, 0) for voter in membership.voters
        ]
        values.sort()
        return values[-membership.quorum]
