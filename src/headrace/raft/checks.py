"""The invariants of a node between any two inputs; the core ends every step with them.

On in production: a node that has broken its own rules must not break the quorum's. This runs for
every proposal, so messages are only built for violations.
"""

from typing import NoReturn

from headrace.raft.errors import BrokenInvariant
from headrace.raft.progress import Mode
from headrace.raft.state import Role, State


class Marks:
    """What must not go back."""

    __slots__ = ("commit", "term", "vote")

    def __init__(self, state: State) -> None:
        self.term = state.term
        self.vote = state.vote
        self.commit = state.log.commit


def check(state: State, before: Marks) -> None:
    """Raise BrokenInvariant if the state cannot be, or cannot follow what was before."""
    log = state.log
    if state.term != before.term or state.vote != before.vote:
        _check_vote(state, before)
    if not before.commit <= log.commit:
        _break(state, f"commit {log.commit} after {before.commit}")
    last_index = log.last_index
    if not log.base_index <= log.snapshot.index <= log.applied <= log.commit <= last_index:
        _break(state, "marks out of order")
    if not log.applied <= log.persisted <= last_index:
        _break(state, "persisted out of order")
    if log.last_term > state.term:
        _break(state, f"an entry of term {log.last_term}")
    if log.uncommitted_bytes < 0:
        _break(state, "fewer than no uncommitted bytes")
    if state.role is Role.LEADER:
        _check_leader(state)
        if log.commit != before.commit and log.term_at(log.commit) != state.term:
            _break(state, "commits an older term's entry by counting")
    else:
        if state.progress or state.reads:
            _break(state, "a leader's things")
        if state.leader == state.node:
            _break(state, "follows itself")
        if state.role is Role.CANDIDATE and state.vote != state.node:
            _break(state, "a candidate that voted for another")
    before.commit = log.commit


def _check_vote(state: State, before: Marks) -> None:
    if state.term < before.term:
        _break(state, f"term {state.term} after {before.term}")
    if state.term == before.term and before.vote is not None and state.vote != before.vote:
        _break(state, f"a second vote, after {before.vote}")
    before.term, before.vote = state.term, state.vote


def _check_leader(state: State) -> None:
    if state.leader != state.node:
        _break(state, "leads and follows")
    others = 0
    for member in state.membership.members:
        if member != state.node:
            others += 1
            if member not in state.progress:
                _break(state, f"no progress of {member}")
    if others != len(state.progress):
        _break(state, f"progress of {sorted(state.progress)}, who are not all members")
    if others == 0:
        return
    end = state.log.last_index + 1
    for member, progress in state.progress.items():
        if not progress.match_index < progress.next_index <= end or progress.in_flight_bytes < 0:
            _break(state, f"progress of {member} out of order")
        if (progress.snapshot is not None) != (progress.mode is Mode.SNAPSHOT):
            _break(state, f"a snapshot astray on the way to {member}")


def _break(state: State, what: str) -> NoReturn:
    log = state.log
    raise BrokenInvariant(
        f"node {state.node}, {state.role.value} of term {state.term} that voted {state.vote}: "
        f"{what} (log {log.base_index} to {log.last_index}, snapshot {log.snapshot.index}, "
        f"applied {log.applied}, persisted {log.persisted}, commit {log.commit})"
    )
