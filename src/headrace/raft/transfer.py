"""Leadership transfer: a voter is brought up to date, then told to stand at once.

Proposals are refused in the meantime, or it would never be up to date. If it fails within an
election timeout, the leader continues as before, but without leases in its term: the TimeoutNow may
still be in flight.
"""

from headrace.ids import BrokerId as NodeId
from headrace.raft.errors import TransferRefused
from headrace.raft.messages import TimeoutNow
from headrace.raft.state import Role, State


def start(state: State, target: NodeId) -> None:
    """Begin to hand over to `target`; TransferRefused if it cannot lead."""
    if target not in state.membership.voters:
        raise TransferRefused(f"node {target} is no voter: only a voter can lead")
    if target == state.node:
        raise TransferRefused(f"node {target} leads already")
    if state.transfer_target not in (None, target):
        raise TransferRefused(f"leadership is being handed to node {state.transfer_target}")
    state.transfer_target = target
    state.transfer_deadline_ms = state.now_ms + state.settings.election_timeout_ms
    hand_over_if_caught_up(state)


def heir(state: State) -> NodeId | None:
    """Return the voter that can best replace this leader, or None.

    Also None if the responding voters are no majority without this node: without its vote none of
    them would be elected.
    """
    if state.role is not Role.LEADER:
        return None
    membership, since_ms = state.membership, state.now_ms - state.settings.election_timeout_ms
    heard = [
        voter
        for voter in membership.voters
        if voter != state.node and state.progress[voter].has_answered_since(since_ms)
    ]
    if len(heard) < membership.quorum:
        return None
    return max(heard, key=lambda voter: state.progress[voter].match_index)


def hand_over_if_caught_up(state: State) -> None:
    target = state.transfer_target
    if target is None or state.progress[target].match_index < state.log.last_index:
        return
    state.has_handed_over = True
    state.outbox.append(TimeoutNow(state.node, target, state.term))


def give_up_if_late(state: State) -> None:
    if state.transfer_target is not None and state.now_ms >= state.transfer_deadline_ms:
        state.transfer_target = None
