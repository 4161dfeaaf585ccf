"""What becomes of a message: its term is heeded, its leader is heard, its handler is called."""

from collections.abc import Callable
from typing import Any, Final

from headrace.raft import elections, reads, replication, snapshots
from headrace.raft.errors import InvalidMessage
from headrace.raft.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    FromLeader,
    Heartbeat,
    HeartbeatAnswer,
    InstallSnapshot,
    Message,
    NewerTerm,
    PreVote,
    PreVoteAnswer,
    ReadAnswer,
    ReadRequest,
    Refusal,
    RequestVote,
    SnapshotProgress,
    TimeoutNow,
    VoteAnswer,
)
from headrace.raft.state import Role, State


def handle(state: State, message: Message) -> None:
    """Pass a message to its part of the core, unless its term is over."""
    if not is_of_this_term(state, message):
        return
    if isinstance(message, FromLeader):
        _hear_leader(state, message)
    handlers = LEADERS_HANDLERS if state.role is Role.LEADER else HANDLERS
    handler = handlers.get(type(message))
    if handler is not None:
        handler(state, message)


def is_of_this_term(state: State, message: Message) -> bool:
    """Adopt a later term; respond to outdated senders; return whether to continue."""
    if message.term == state.term or isinstance(message, PreVote):
        return True
    if isinstance(message, PreVoteAnswer) and message.is_granted:
        return True  # of the term that would be
    if message.term > state.term:
        return _step_up(state, message)
    if isinstance(message, RequestVote):
        state.outbox.append(VoteAnswer(state.node, message.sender, state.term, Refusal.OLD_TERM))
    elif isinstance(message, FromLeader):
        state.outbox.append(NewerTerm(state.node, message.sender, state.term))
    return False


def _step_up(state: State, message: Message) -> bool:
    if isinstance(message, RequestVote):
        if state.hears_leader() and not message.is_transfer:
            return False  # not even the term: the leader is well
    elif isinstance(message, VoteAnswer | PreVoteAnswer):
        state.follow(message.term, None)
        return False
    state.follow(message.term, message.sender if isinstance(message, FromLeader) else None)
    return True


def _hear_leader(state: State, message: FromLeader) -> None:
    if state.role is Role.LEADER:
        raise InvalidMessage(
            f"node {message.sender} leads term {message.term}, and so does {state.node}"
        )
    if state.role is not Role.FOLLOWER or state.leader is None:
        state.follow(message.term, message.sender)
    elif state.leader != message.sender:
        raise InvalidMessage(
            f"node {message.sender} leads term {message.term}, and so does {state.leader}"
        )
    state.heard_ms = state.now_ms
    state.postpone_election()


def _stand_at_once(state: State, _: TimeoutNow) -> None:
    if state.may_stand:
        elections.start_election(state, is_transfer=True)


HANDLERS: Final[dict[type[Message], Callable[[State, Any], None]]] = {
    PreVote: elections.handle_pre_vote,
    PreVoteAnswer: elections.handle_pre_vote_answer,
    RequestVote: elections.handle_request_vote,
    VoteAnswer: elections.handle_vote_answer,
    Append: replication.handle_append,
    Heartbeat: replication.handle_heartbeat,
    InstallSnapshot: snapshots.handle_install,
    TimeoutNow: _stand_at_once,
    ReadRequest: reads.handle_request,
    ReadAnswer: reads.handle_answer,
}
LEADERS_HANDLERS: Final[dict[type[Message], Callable[[State, Any], None]]] = {
    **HANDLERS,
    AppendAccepted: replication.handle_accepted,
    AppendRejected: replication.handle_rejected,
    HeartbeatAnswer: replication.handle_heartbeat_answer,
    SnapshotProgress: snapshots.handle_progress,
}
del LEADERS_HANDLERS[TimeoutNow]
"""Messages without a handler are obsolete: responses to a former leader, a handled NewerTerm."""
