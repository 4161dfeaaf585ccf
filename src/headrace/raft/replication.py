"""Replication from the leader to the others: sending, appending, acknowledging, committing."""

from headrace.raft import membership as members
from headrace.raft import reads, snapshots, transfer
from headrace.raft.entries import Entry, EntryKind
from headrace.raft.errors import EntriesLost, InvalidMessage, MembershipRefused
from headrace.raft.membership import Membership
from headrace.raft.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    Heartbeat,
    HeartbeatAnswer,
)
from headrace.raft.progress import Mode, Progress
from headrace.raft.state import Role, State

# The leader's side


def start_leading(state: State) -> None:
    """Start to lead with an entry of this term, as only that commits earlier leaders' entries."""
    state.set_role(Role.LEADER)
    state.set_leader(state.node)
    state.votes.clear()
    state.incoming = None
    state.round = 0
    state.round_times.clear()
    state.lease_until_ms = state.now_ms
    state.has_handed_over = False
    state.progress = {
        member: Progress(state.log.last_index + 1, state.now_ms)
        for member in state.membership.members
        if member != state.node
    }
    state.heartbeat_due_ms = state.now_ms
    state.term_start_index = append(state, EntryKind.NOOP, b"")


def append(state: State, kind: EntryKind, data: bytes) -> int:
    """Put an entry of this leader into its log; it is sent with the next Ready."""
    index = state.log.last_index + 1
    state.log.append([Entry(index, state.term, kind, data)])
    return index


def change_membership(state: State, membership: Membership) -> int:
    """Append a membership, which takes effect at once; refused while another one is pending.

    Also refused if its own voters could not commit it, as far as this leader knows: there would be
    no leader until the missing ones are back.
    """
    if state.log.membership_index > state.log.commit:
        raise MembershipRefused(
            f"the change at index {state.log.membership_index} is not committed yet; try again"
        )
    if not state.has_committed_in_term:
        raise MembershipRefused("the leader is new and has committed nothing yet; try again")
    if membership.voters != state.membership.voters:
        _check_majority_answers(state, membership)
        reads.end_lease(state)
    index = append(state, EntryKind.MEMBERSHIP, members.encode_membership(membership))
    for gone in state.progress.keys() - set(membership.members):
        del state.progress[gone]
        state.heard_from.pop(gone, None)
        if state.transfer_target == gone:
            state.transfer_target = None
    for member in membership.members:
        if member != state.node and member not in state.progress:
            state.progress[member] = Progress(index, state.now_ms)
    return index


def _check_majority_answers(state: State, membership: Membership) -> None:
    since_ms = state.now_ms - state.settings.election_timeout_ms
    silent = [
        voter
        for voter in membership.voters
        if voter != state.node and not state.progress[voter].has_answered_since(since_ms)
    ]
    if len(membership.voters) - len(silent) < membership.quorum:
        raise MembershipRefused(
            f"a majority of the {len(membership.voters)} voters after this change must answer, but "
            f"within headrace.raft.election.timeout.ms={state.settings.election_timeout_ms} these "
            f"did not: {', '.join(map(str, silent))}; wait until they are back, or remove them "
            "first"
        )


def send_appends(state: State) -> None:
    """Send every member what it may get now: entries, a new commit index, or a snapshot."""
    for member, progress in state.progress.items():
        while progress.can_send(state.settings):
            if progress.mode is Mode.SNAPSHOT:
                snapshots.send_piece(state, member, progress)
                continue
            previous_term = state.log.term_at(progress.next_index - 1)
            if previous_term is None:
                if state.offered is None:
                    state.is_snapshot_wanted = True
                    break
                progress.send_snapshot(state.offered)
                continue
            entries = state.log.read(progress.next_index, state.settings.append_bytes_max)
            commit = state.log.commit
            is_needed = progress.mode is Mode.PROBE or entries or progress.sent_commit < commit
            if not is_needed:
                break
            previous_index = progress.next_index - 1
            state.outbox.append(
                Append(
                    state.node,
                    member,
                    state.term,
                    previous_index,
                    previous_term,
                    commit,
                    entries,
                )
            )
            progress.sent_commit = commit
            progress.note_sent(entries, state.now_ms)
    state.offered = None  # who waited has it


def send_heartbeats(state: State) -> None:
    """Start a round, and treat messages without a response for long as lost."""
    state.round += 1
    state.is_round_wanted = False
    state.heartbeat_due_ms = state.now_ms + state.settings.heartbeat_ms
    state.round_times.append((state.round, state.now_ms))
    for member, progress in state.progress.items():
        progress.give_up_waiting(state.now_ms - state.settings.resend_ms)
        commit = min(progress.match_index, state.log.commit)
        state.outbox.append(Heartbeat(state.node, member, state.term, commit, state.round))
    reads.confirm(state)


def handle_accepted(state: State, message: AppendAccepted) -> None:
    progress = state.progress.get(message.sender)
    if progress is None:
        return
    if message.match_index > state.log.last_index:
        raise InvalidMessage(
            f"node {message.sender} has entry {message.match_index} of term {state.term}, whose "
            f"leader's log ends at {state.log.last_index}"
        )
    progress.note_answer(state.now_ms)
    is_news = progress.note_match(message.match_index)
    progress.note_end(state.log.last_index, state.now_ms)
    if is_news:
        advance_commit(state)
        transfer.hand_over_if_caught_up(state)


def handle_rejected(state: State, message: AppendRejected) -> None:
    """Go back to where the logs may meet: the last entry here no newer than the hint's term."""
    progress = state.progress.get(message.sender)
    if progress is None:
        return
    progress.note_answer(state.now_ms)
    if progress.is_stale_rejection(message.previous_index):
        return
    log = state.log
    index = min(message.hint_index, message.previous_index - 1, log.last_index)
    while (term := log.term_at(index)) is not None and term > message.hint_term:
        index -= 1
    progress.probe(index + 1)


def handle_heartbeat_answer(state: State, message: HeartbeatAnswer) -> None:
    progress = state.progress.get(message.sender)
    if progress is None:
        return
    progress.note_answer(state.now_ms)
    progress.note_end(state.log.last_index, state.now_ms)
    if message.round >= progress.acked_round:
        progress.acked_round, progress.hold_ms = min(message.round, state.round), message.hold_ms
    reads.confirm(state)


def advance_commit(state: State) -> None:
    """Commit what a majority has, if it is of this term: older entries only go along."""
    log = state.log
    matches = {member: progress.match_index for member, progress in state.progress.items()}
    index = state.quorum_value(log.persisted, matches)
    if log.term_at(index) != state.term or not log.commit_to(index):
        return
    reads.release_early(state)
    if log.membership_index <= log.commit and not state.is_voter:
        state.follow(state.term, None)  # this leader has removed itself


# The follower's side


def handle_append(state: State, message: Append) -> None:
    """Append a leader's entries, or respond with where the logs may match."""
    _check_entries(message)
    log = state.log
    if message.previous_index < log.commit:
        match = _skip_committed(state, message)
    elif log.term_at(message.previous_index) == message.previous_term:
        log.merge(message.entries)
        match = message.previous_index + len(message.entries)
    else:
        _reject(state, message)
        return
    log.commit_to(min(message.commit, match))
    state.outbox.append(AppendAccepted(state.node, message.sender, state.term, match))


def handle_heartbeat(state: State, message: Heartbeat) -> None:
    # The leader says no more than this node once confirmed.
    if message.commit > state.log.last_index:
        raise EntriesLost(state.node, message.commit, state.log.last_index)
    state.log.commit_to(message.commit)
    hold_ms = state.promise_hold()
    state.outbox.append(
        HeartbeatAnswer(state.node, message.sender, state.term, message.round, hold_ms)
    )


def _skip_committed(state: State, message: Append) -> int:
    """Return the entries after the commit index; committed ones are equal anyway."""
    rest = [entry for entry in message.entries if entry.index > state.log.commit]
    if rest:
        state.log.merge(rest)
    return max(state.log.commit, message.previous_index + len(message.entries))


def _reject(state: State, message: Append) -> None:
    log = state.log
    index = min(message.previous_index, log.last_index)
    while index > log.commit and (log.term_at(index) or 0) > message.previous_term:
        index -= 1
    state.outbox.append(
        AppendRejected(
            state.node,
            message.sender,
            state.term,
            message.previous_index,
            index,
            log.term_at(index) or 0,
        )
    )


def _check_entries(message: Append) -> None:
    """Refuse what no leader sends, before anything has changed."""
    index, term = message.previous_index, message.previous_term
    for entry in message.entries:
        if entry.index != index + 1 or not term <= entry.term <= message.term:
            raise InvalidMessage(
                f"node {message.sender} in term {message.term} sent entry {entry.index} of term "
                f"{entry.term} behind entry {index} of term {term}"
            )
        if entry.kind is EntryKind.MEMBERSHIP:
            members.decode_membership(entry.data)
        index, term = entry.index, entry.term
