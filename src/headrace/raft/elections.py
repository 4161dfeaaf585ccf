"""Becoming a leader: pre-votes, votes, and what makes a voter refuse.

A node without a leader first asks whether it could win (pre-vote), without changing any term: so a
node that was partitioned does not disturb the others when it returns. Voters with a live leader
refuse both kinds of vote, except for an election that the leader itself requested.
"""

from headrace.ids import BrokerId as NodeId
from headrace.raft import replication
from headrace.raft.messages import (
    PreVote,
    PreVoteAnswer,
    Refusal,
    RequestVote,
    VoteAnswer,
)
from headrace.raft.state import Role, State


def lose_leader(state: State) -> None:
    """Drop the leader and stand soon: an election timeout is for when a leader may be alive.

    Harmless if the leader lives after all: a majority must have lost it before anybody stands, and
    its next heartbeat is heeded.
    """
    gone = state.leader
    state.set_leader(None)
    state.hasten_election(gone)


def start_pre_vote(state: State) -> None:
    """Ask the voters whether they would vote for this node."""
    state.postpone_election()
    if state.is_held or not state.may_stand:
        return
    state.set_role(Role.PRE_CANDIDATE)
    state.set_leader(None)
    state.votes = {state.node: Refusal.NONE}
    if _granted(state):
        start_election(state, is_transfer=False)
        return
    log = state.log
    for voter in _others(state):
        state.outbox.append(
            PreVote(state.node, voter, state.term + 1, log.last_index, log.last_term)
        )


def start_election(state: State, *, is_transfer: bool) -> None:
    """Stand in a new term; our own vote is durable before others are asked for theirs."""
    state.postpone_election()
    state.set_role(Role.CANDIDATE)
    state.set_leader(None)
    state.term += 1
    state.vote = state.node
    state.votes = {state.node: Refusal.NONE}
    if _granted(state):
        replication.start_leading(state)
        return
    log = state.log
    for voter in _others(state):
        state.outbox.append(
            RequestVote(state.node, voter, state.term, log.last_index, log.last_term, is_transfer)
        )


def handle_pre_vote(state: State, message: PreVote) -> None:
    """Answer what a vote would be. Nothing is promised by that, so nothing changes."""
    if message.term <= state.term:
        refusal = Refusal.OLD_TERM
    elif state.hears_leader():
        refusal = Refusal.HAS_LEADER
    elif not state.log.is_covered_by(message.last_index, message.last_term):
        refusal = Refusal.LOG_BEHIND
    else:
        refusal = Refusal.NONE
    term = state.term if refusal else message.term
    state.outbox.append(PreVoteAnswer(state.node, message.sender, term, refusal))


def handle_pre_vote_answer(state: State, message: PreVoteAnswer) -> None:
    if state.role is not Role.PRE_CANDIDATE:
        return
    if message.is_granted and message.term != state.term + 1:
        return  # for an earlier attempt
    state.votes[message.sender] = message.refusal
    if _granted(state):
        start_election(state, is_transfer=False)
    elif _refused(state):
        state.follow(state.term, None)


def handle_request_vote(state: State, message: RequestVote) -> None:
    """Vote at most once in a term, and only for a log that has all that may be committed."""
    if state.vote not in (None, message.sender) or state.leader is not None:
        refusal = Refusal.HAS_VOTED
    elif state.is_held and not message.is_transfer:
        refusal = Refusal.HAS_LEADER
    elif not state.log.is_covered_by(message.last_index, message.last_term):
        refusal = Refusal.LOG_BEHIND
    else:
        refusal = Refusal.NONE
        state.vote = message.sender
        state.postpone_election()
    state.outbox.append(VoteAnswer(state.node, message.sender, state.term, refusal))


def handle_vote_answer(state: State, message: VoteAnswer) -> None:
    if state.role is not Role.CANDIDATE:
        return
    state.votes[message.sender] = message.refusal
    if _granted(state):
        replication.start_leading(state)
        return
    if message.refusal is Refusal.HAS_VOTED:
        state.hasten_election()  # the votes may be split, and the timeout of all would be no help
    if _refused(state):
        state.follow(state.term, None)


def _others(state: State) -> list[NodeId]:
    return [voter for voter in state.membership.voters if voter != state.node]


def _granted(state: State) -> bool:
    membership = state.membership
    granted = sum(state.votes.get(voter) is Refusal.NONE for voter in membership.voters)
    return granted >= membership.quorum


def _refused(state: State) -> bool:
    """Return whether so many refused that the rest is not a majority."""
    voters = state.membership.voters
    refused = sum(bool(state.votes.get(voter, Refusal.NONE)) for voter in voters)
    return refused > len(voters) - state.membership.quorum
