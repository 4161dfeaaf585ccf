"""The pure core: a message, a proposal or a tick goes in, a `Ready` comes out.

    raft = Raft(node, settings=..., stored=..., jitter=..., now_ms=...)
    raft.step(message, now_ms); proposed = raft.propose(data, now_ms); raft.tick(now_ms)
    while (ready := raft.ready(now_ms)) is not None:
        send(ready.early_messages)
        apply(ready.committed)
        if ready.must_persist:
            store(ready.snapshot, ready.hard_state, ready.entries)  # durable when this returns
            raft.persisted(ready, now_ms)
            restore(ready.snapshot); send(ready.messages)
        answer(ready.reads)

Same state and input, same output: there is no clock, disk, network or randomness here. Inputs may
arrive while a Ready is being stored, and other Readies may be taken, which have nothing to store.
Every input ends in `checks.check`. Read next: `dispatch`, `elections`, `replication`, `snapshots`,
`reads`, `transfer`.
"""

from typing import Final

from headrace.ids import BrokerId as NodeId
from headrace.raft import dispatch, elections, reads, replication, transfer
from headrace.raft import membership as members
from headrace.raft.checks import Marks, check
from headrace.raft.entries import Entry, EntryKind, HardState, Snapshot, SnapshotMark
from headrace.raft.entry_log import EntryLog
from headrace.raft.errors import (
    InvalidMessage,
    MembershipRefused,
    NotLeader,
    ProposalTooLarge,
    SnapshotTooLarge,
    TooManyProposals,
    TransferInProgress,
)
from headrace.raft.messages import AppendAccepted, Message
from headrace.raft.ready import COMMITTED_AT_ONCE_MAX, Proposed, Ready, Stored
from headrace.raft.settings import RaftSettings
from headrace.raft.state import Jitter, Role, State

LATE_MESSAGES_MAX: Final = 1000
"""How many messages wait for the disk; older ones are lost, as any message may be."""


class Raft:
    """A node of the quorum."""

    def __init__(
        self,
        node: NodeId,
        *,
        settings: RaftSettings,
        stored: Stored,
        jitter: Jitter,
        now_ms: int,
    ) -> None:
        """Start as a follower; a sole voter elects itself at the first tick."""
        base = (stored.base_index, stored.base_term)
        log = EntryLog(stored.snapshot.mark(), base, stored.entries)
        self.state = State(
            node,
            settings=settings,
            log=log,
            hard_state=stored.hard_state,
            jitter=jitter,
            now_ms=now_ms,
        )
        self.durable = stored.hard_state
        """What the disk has of term, vote and promise."""
        self._storing: Ready | None = None
        self._storing_since_ms = now_ms
        self._marks = Marks(self.state)
        check(self.state, self._marks)

    # Inputs

    def step(self, message: Message, now_ms: int) -> None:
        """Handle a message of another node; raise InvalidMessage, without a change, if invalid."""
        state = self._at(now_ms)
        if message.to != state.node or message.sender == state.node:
            raise InvalidMessage(f"a message from {message.sender} to {message.to} at {state.node}")
        state.note_heard(message.sender)
        dispatch.handle(state, message)
        check(state, self._marks)

    def tick(self, now_ms: int) -> None:
        """Do what is due by now; `deadline_ms` says when something will be."""
        state = self._at(now_ms)
        reads.drop_expired(state)
        if state.role is not Role.LEADER:
            if now_ms >= state.election_deadline_ms:
                elections.start_pre_vote(state)
        elif self._has_lost_quorum() or self._has_lost_disk():
            state.follow(state.term, None)
        else:
            transfer.give_up_if_late(state)
            if now_ms >= state.heartbeat_due_ms:
                replication.send_heartbeats(state)
        check(state, self._marks)

    def note_gone(self, node: NodeId, now_ms: int) -> None:
        """Learn that a node does not run, as far as this one can tell."""
        state = self._at(now_ms)
        if state.role is Role.FOLLOWER and state.leader == node:
            elections.lose_leader(state)
        check(state, self._marks)

    def propose(self, data: bytes, now_ms: int) -> Proposed:
        """Append an entry; it is committed when it is handed out with this index and term."""
        state = self._at(now_ms)
        self._check_leads()
        settings, log = state.settings, state.log
        if len(data) > settings.entry_bytes_max:
            raise ProposalTooLarge(len(data), settings.entry_bytes_max)
        waiting = log.last_index - log.commit
        if waiting >= settings.uncommitted_entries_max:
            raise TooManyProposals(
                "proposals",
                waiting,
                settings.uncommitted_entries_max,
                "headrace.raft.uncommitted.entries.max",
            )
        if log.uncommitted_bytes and (
            log.uncommitted_bytes + len(data) > settings.uncommitted_bytes_max
        ):
            raise TooManyProposals(
                "bytes of proposals",
                log.uncommitted_bytes,
                settings.uncommitted_bytes_max,
                "headrace.raft.uncommitted.bytes.max",
            )
        index = replication.append(state, EntryKind.DATA, data)
        check(state, self._marks)
        return Proposed(index, state.term)

    def read(self, read_id: int, now_ms: int) -> None:
        """Begin a linearizable read; a Ready says when, and at which index, or drops it."""
        reads.request(self._at(now_ms), read_id)
        check(self.state, self._marks)

    def add_learner(self, node: NodeId, now_ms: int) -> Proposed:
        state = self._at(now_ms)
        self._check_leads()
        changed = members.with_learner(state.membership, node, state.settings.members_max)
        return self._change_membership(changed)

    def promote(self, node: NodeId, now_ms: int) -> Proposed:
        """Make a learner a voter; refused if it lags or is silent: it could hold up the quorum."""
        state = self._at(now_ms)
        self._check_leads()
        changed = members.with_voter(state.membership, node)
        if node == state.node:
            raise MembershipRefused(f"node {node} has demoted itself and is about to step down")
        match = state.progress[node].match_index
        lag_max = state.settings.promotion_lag_entries_max
        if match + lag_max < state.log.commit or match == 0:
            raise MembershipRefused(
                f"node {node} has entries up to {match} of {state.log.commit}; let it catch up to "
                f"within headrace.raft.promotion.lag.entries.max={lag_max}"
            )
        return self._change_membership(changed)

    def demote(self, node: NodeId, now_ms: int) -> Proposed:
        """Make a voter a learner; refused if no majority of the remaining voters responds.

        A leader may demote itself, and steps down once that is committed.
        """
        state = self._at(now_ms)
        self._check_leads()
        return self._change_membership(members.with_demoted(state.membership, node))

    def remove(self, node: NodeId, now_ms: int) -> Proposed:
        """Remove a member; refused if no majority of the remaining voters responds.

        A leader may remove itself, and steps down once that is committed.
        """
        state = self._at(now_ms)
        self._check_leads()
        return self._change_membership(members.without(state.membership, node))

    def transfer(self, target: NodeId, now_ms: int) -> None:
        """Begin to hand leadership to a voter."""
        state = self._at(now_ms)
        if state.role is not Role.LEADER:
            raise NotLeader(state.node, state.leader)
        transfer.start(state, target)
        check(state, self._marks)

    # Outputs

    def ready(self, now_ms: int) -> Ready | None:
        """Return the work to do, or None.

        A Ready that must be persisted may be followed by others before `persisted`: they have
        nothing to store, and no message that promises what is being stored. So a slow disk does
        not keep other nodes from hearing that this node is alive.
        """
        state = self._at(now_ms)
        log = state.log
        if state.role is Role.LEADER:
            if state.is_round_wanted:
                replication.send_heartbeats(state)
            replication.send_appends(state)
        early, late = self._sort_outbox()
        wants_snapshot = state.is_snapshot_wanted and not state.is_snapshot_asked_for
        is_idle = not (
            (self._storing is None and self._has_to_store())
            or early
            or log.has_committed
            or state.served_reads
            or state.dropped_reads
            or wants_snapshot
        )
        if is_idle:
            return None
        hard_state, entries, installing = None, list[Entry](), None
        if self._storing is None:
            if not self._is_hard_state_durable():
                hard_state = HardState(state.term, state.vote, state.hold_ms)
            entries, installing = log.unpersisted(), log.installing
            log.installing = None
            state.outbox = []
        else:
            state.outbox, late = late, []
        ready = Ready(
            early,
            installing,
            hard_state,
            entries,
            late,
            log.take_committed(COMMITTED_AT_ONCE_MAX),
            state.served_reads,
            state.dropped_reads,
            wants_snapshot,
        )
        state.served_reads, state.dropped_reads = [], []
        state.is_snapshot_asked_for |= wants_snapshot
        if ready.must_persist:
            self._storing, self._storing_since_ms = ready, now_ms
        return ready

    def persisted(self, ready: Ready, now_ms: int) -> None:
        """Record that a Ready is stored; what that commits is in the next one."""
        state = self._at(now_ms)
        assert ready is self._storing, "another Ready is being stored"
        self._storing = None
        if ready.hard_state is not None:
            self.durable = ready.hard_state
        if ready.entries:
            last = ready.entries[-1]
            state.log.persisted_to(last.index, last.term)
            if state.role is Role.LEADER:
                replication.advance_commit(state)
                if state.role is Role.LEADER:
                    transfer.hand_over_if_caught_up(state)
        check(state, self._marks)

    def take_committed(self) -> list[Entry]:
        """Return what the next Ready would have as committed, and remove it from there.

        For a caller that has just called `persisted` and does not want to wait.
        """
        return self.state.log.take_committed(COMMITTED_AT_ONCE_MAX)

    def offer_snapshot(self, snapshot: Snapshot) -> None:
        """Provide the snapshot that a Ready wanted: the last durable one."""
        state = self.state
        state.is_snapshot_wanted = state.is_snapshot_asked_for = False
        # One that is older than the log is asked for again: a later one is on the disk by now.
        if state.role is Role.LEADER and snapshot.index >= state.log.base_index:
            state.offered = snapshot

    def make_snapshot(self, index: int, data: bytes) -> Snapshot:
        """Describe the state as of an applied index; `compact` with it once it is durable."""
        state = self.state
        log = state.log
        if len(data) > state.settings.snapshot_bytes_max:
            raise SnapshotTooLarge(len(data), state.settings.snapshot_bytes_max)
        assert log.snapshot.index <= index <= log.applied, "only what is applied"
        term = log.term_at(index)
        assert term is not None
        return Snapshot(index, term, log.membership_at(index), data)

    def compact(self, snapshot: SnapshotMark) -> None:
        """Drop entries that a durable snapshot covers, except a few."""
        if snapshot.index > self.state.snapshot.index:
            self.state.log.compact(snapshot, self.state.settings.kept_entries)
        check(self.state, self._marks)

    def deadline_ms(self) -> int:
        """Return when the next tick has something to do."""
        state = self.state
        is_leader = state.role is Role.LEADER
        due_ms = state.heartbeat_due_ms if is_leader else state.election_deadline_ms
        return min(due_ms, *state.forwarded_reads.values()) if state.forwarded_reads else due_ms

    # Inside

    def _at(self, now_ms: int) -> State:
        state = self.state
        assert now_ms >= state.now_ms, f"time went back from {state.now_ms} to {now_ms}"
        state.now_ms = now_ms
        return state

    def _has_lost_quorum(self) -> bool:
        """Return whether no majority has responded to this leader for an election timeout."""
        state = self.state
        contacts = {member: each.contact_ms for member, each in state.progress.items()}
        contact_ms = state.quorum_value(state.now_ms, contacts)
        return state.now_ms - contact_ms >= state.settings.election_timeout_ms

    def _has_lost_disk(self) -> bool:
        """Return whether this leader's disk is stuck, and another voter could do better."""
        state = self.state
        return (
            self._storing is not None
            and state.now_ms - self._storing_since_ms >= state.settings.stuck_disk_ms
            and not state.membership.is_sole_voter(state.node)
        )

    def _is_hard_state_durable(self) -> bool:
        state, durable = self.state, self.durable
        return (
            state.term == durable.term
            and state.vote == durable.vote
            and state.hold_ms == durable.hold_ms
        )

    def _has_to_store(self) -> bool:
        log = self.state.log
        return (
            log.persisted < log.last_index
            or log.installing is not None
            or not self._is_hard_state_durable()
        )

    def _sort_outbox(self) -> tuple[list[Message], list[Message]]:
        """Return the messages to send at once, and those that wait for the disk.

        All wait for the hard state: a node that forgets it could vote or lead twice. Only durable
        entries are acknowledged.
        """
        state, log = self.state, self.state.log
        if not state.outbox:
            return [], []
        # What an earlier leader sent may have been cut off since, so it is not confirmed any more.
        outbox = [
            message
            for message in state.outbox
            if message.term == state.term or not isinstance(message, AppendAccepted)
        ]
        if not self._is_hard_state_durable():
            return [], outbox[-LATE_MESSAGES_MAX:]
        is_installing = log.installing is not None or (
            self._storing is not None and self._storing.snapshot is not None
        )
        early: list[Message] = []
        late: list[Message] = []
        for message in outbox:
            is_late = isinstance(message, AppendAccepted) and (
                is_installing or message.match_index > log.persisted
            )
            (late if is_late else early).append(message)
        return early, late[-LATE_MESSAGES_MAX:]

    def _check_leads(self) -> None:
        state = self.state
        if state.role is not Role.LEADER:
            raise NotLeader(state.node, state.leader)
        if state.transfer_target is not None:
            raise TransferInProgress(state.node, state.transfer_target)

    def _change_membership(self, membership: members.Membership) -> Proposed:
        index = replication.change_membership(self.state, membership)
        check(self.state, self._marks)
        return Proposed(index, self.state.term)
