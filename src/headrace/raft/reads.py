"""Reads that see everything that was committed before them, without an entry in the log.

The leader records its commit index, then makes sure that it still leads: by a round of heartbeats
that a majority acknowledges, which many reads share, or by its lease. Once this node has applied up
to that index, its state may be read. A follower asks the leader for the index.

A lease runs from the start of a round that a majority acknowledged: each of them promised for how
long it would not help elect another leader (`State.promise_hold`). So nodes may differ in their
settings, and change them with a restart. This relies on clocks running at the same rate, within
`clock_drift_ms_max`, and is off by default.
"""

from headrace.ids import BrokerId as NodeId
from headrace.raft.errors import NotLeader, TooManyProposals
from headrace.raft.messages import ReadAnswer, ReadRequest
from headrace.raft.state import PendingRead, Role, State


def request(state: State, read_id: int) -> None:
    """Begin a read of this node's own; it ends up in `served_reads` or `dropped_reads`."""
    waiting = len(state.reads) + len(state.early_reads) + len(state.forwarded_reads)
    maximum = state.settings.pending_reads_max
    if waiting >= maximum:
        raise TooManyProposals("reads", waiting, maximum, "headrace.raft.pending.reads.max")
    if state.role is Role.LEADER:
        _begin(state, PendingRead(read_id, state.node))
    elif state.leader is not None:
        state.forwarded_reads[read_id] = state.now_ms + state.settings.election_timeout_ms
        state.outbox.append(ReadRequest(state.node, state.leader, state.term, read_id))
    else:
        raise NotLeader(state.node, None)


def handle_request(state: State, message: ReadRequest) -> None:
    """Start a follower's read. Beyond the limit it is dropped: the follower retries."""
    waiting = len(state.reads) + len(state.early_reads)
    if state.role is Role.LEADER and waiting < state.settings.pending_reads_max:
        _begin(state, PendingRead(message.read_id, message.sender))


def handle_answer(state: State, message: ReadAnswer) -> None:
    if state.forwarded_reads.pop(message.read_id, None) is not None:
        state.served_reads.append((message.read_id, message.index))


def release_early(state: State) -> None:
    """Begin what waited for this leader's first commit: only now its commit index is true."""
    if state.early_reads and state.has_committed_in_term:
        early, state.early_reads = state.early_reads, []
        for read in early:
            _begin(state, read)


def confirm(state: State) -> None:
    """Serve what a majority has confirmed, and lengthen the lease."""
    acked = {member: progress.acked_round for member, progress in state.progress.items()}
    confirmed = state.quorum_value(state.round, acked)
    while state.reads and state.reads[0].round <= confirmed:
        _serve(state, state.reads.popleft())
    began_ms = None
    while state.round_times and state.round_times[0][0] <= confirmed:
        _, began_ms = state.round_times.popleft()
    if began_ms is not None and state.settings.has_lease_reads:
        _lengthen_lease(state, confirmed, began_ms)


def end_lease(state: State) -> None:
    """Require a new confirmation of the lease, by a majority of the changed voters."""
    state.lease_until_ms = state.now_ms


def _lengthen_lease(state: State, confirmed: int, began_ms: int) -> None:
    """Extend the lease for as long as the promises of a majority last.

    At most for this leader's own election timeout, for which the clock drift is specified.
    """
    settings = state.settings
    holds = {
        member: progress.hold_ms if progress.acked_round >= confirmed else 0
        for member, progress in state.progress.items()
    }
    hold_ms = min(
        settings.election_timeout_ms, state.quorum_value(settings.election_timeout_ms, holds)
    )
    state.lease_until_ms = began_ms + hold_ms - settings.clock_drift_ms_max


def drop_expired(state: State) -> None:
    """Fail the reads that got no response from the leader."""
    for read_id, deadline_ms in list(state.forwarded_reads.items()):
        if state.now_ms >= deadline_ms:
            del state.forwarded_reads[read_id]
            state.dropped_reads.append(read_id)


def has_lease(state: State) -> bool:
    return (
        state.settings.has_lease_reads
        and state.has_committed_in_term
        and not state.has_handed_over
        and state.now_ms < state.lease_until_ms
    )


def _begin(state: State, read: PendingRead) -> None:
    if not state.has_committed_in_term:
        state.early_reads.append(read)
        return
    read.index = state.log.commit
    if has_lease(state):
        _serve(state, read)
        return
    read.round = state.round + 1  # one that begins after this read
    state.reads.append(read)
    state.is_round_wanted = True


def _serve(state: State, read: PendingRead) -> None:
    if read.origin == state.node:
        state.served_reads.append((read.read_id, read.index))
    else:
        _answer(state, read.origin, read)


def _answer(state: State, origin: NodeId, read: PendingRead) -> None:
    state.outbox.append(ReadAnswer(state.node, origin, state.term, read.read_id, read.index))
