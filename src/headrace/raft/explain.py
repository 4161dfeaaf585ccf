"""A description of the quorum, from one node's view: its leader, lagging members, problems."""

from headrace.ids import BrokerId as NodeId
from headrace.raft import reads
from headrace.raft.messages import Refusal
from headrace.raft.progress import Mode, Progress
from headrace.raft.state import Role, State

_REFUSALS = {
    Refusal.OLD_TERM: "is in a later term already",
    Refusal.LOG_BEHIND: "has entries that this node lacks",
    Refusal.HAS_LEADER: "hears a leader",
    Refusal.HAS_VOTED: "voted for another node in this term",
}


def explain(
    state: State, now_ms: int, *, failure: str | None = None, full_disk: str | None = None
) -> list[str]:
    """Return the state of the quorum, one sentence per line, the most important one first.

    `now_ms` is the time that the core was last told, or later; `failure` is why the driver has
    stopped, if it has; `full_disk` is the disk's error when it last had no room.
    """
    lines: list[str] = []
    if failure is not None:
        lines.append(f"Node {state.node} has stopped: {failure}. What follows is from before.")
    elif full_disk is not None:
        lines.append(f"Node {state.node} has no room for its log: {full_disk}. It tries again.")
    if state.role is Role.LEADER:
        lines += _explain_leading(state, now_ms)
    elif state.leader is not None:
        lines += _explain_following(state, now_ms)
    else:
        lines += _explain_no_leader(state, now_ms)
    lines.append(_explain_log(state))
    lines.append(_explain_membership(state))
    return lines


def _explain_leading(state: State, now_ms: int) -> list[str]:
    since = _duration(now_ms - state.role_since_ms)
    lines = [f"Node {state.node} leads term {state.term} since {since}."]
    if not state.has_committed_in_term:
        lines.append(
            f"It has committed nothing in this term yet: entry {state.term_start_index} waits for "
            "a majority."
        )
    if state.transfer_target is not None:
        lines.append(f"It is handing leadership to node {state.transfer_target}.")
    for member, progress in sorted(state.progress.items()):
        lines.append(_explain_member(state, member, progress, now_ms))
    if reads.has_lease(state):
        left = _duration(state.lease_until_ms - now_ms)
        lines.append(f"Its lease lasts {left} more, so reads need no round of heartbeats.")
    return lines


def _explain_member(state: State, member: NodeId, progress: Progress, now_ms: int) -> str:
    kind = "voter" if member in state.membership.voters else "learner"
    lag = state.log.last_index - progress.match_index
    heard = _duration(now_ms - progress.contact_ms)
    if progress.mode is Mode.SNAPSHOT and progress.snapshot is not None:
        done = progress.snapshot_offset
        size = len(progress.snapshot.data)
        what = f"gets the snapshot of entry {progress.snapshot.index}, {done} of {size} bytes"
    elif progress.match_index == 0:
        what = "has not said yet what it has"
    elif lag == 0:
        what = "has everything"
    else:
        what = f"lags by {lag} {_plural(lag, 'entry', 'entries')}"
    return f"Node {member} ({kind}) {what}; it answered {heard} ago."


def _explain_following(state: State, now_ms: int) -> list[str]:
    since = _duration(now_ms - state.leader_since_ms)
    heard = _duration(now_ms - state.heard_ms)
    lines = [
        f"Node {state.leader} leads term {state.term} since {since}, as far as node {state.node} "
        f"knows; it was heard {heard} ago."
    ]
    if state.incoming is not None:
        index, _, size, _ = state.incoming.key
        lines.append(
            f"A snapshot of entry {index} is coming in: {len(state.incoming.data)} of {size} bytes."
        )
    return lines


def _explain_no_leader(state: State, now_ms: int) -> list[str]:
    membership = state.membership
    since = _duration(now_ms - state.leader_since_ms)
    lines = [f"Node {state.node} knows no leader since {since} (term {state.term})."]
    if not membership.voters:
        lines.append("It belongs to no quorum yet: the leader of one has to add it.")
        return lines
    if not state.may_stand:
        what = "a learner" if state.node in membership.learners else "no member any more"
        lines.append(f"It is {what}, so it waits for the voters to elect one.")
        return lines
    silent = [voter for voter in membership.voters if _is_silent(state, voter, now_ms)]
    heard = len(membership.voters) - len(silent)
    if heard < membership.quorum:
        names = ", ".join(map(str, silent))
        lines.append(
            f"An election needs {membership.quorum} of {len(membership.voters)} voters, and only "
            f"{heard} can be heard: {_plural(len(silent), 'node', 'nodes')} {names} said nothing "
            f"for {_duration(state.settings.election_timeout_ms * 2)}."
        )
    for voter, refusal in sorted(state.votes.items()):
        if refusal:
            lines.append(f"Node {voter} refused its vote: it {_REFUSALS[refusal]}.")
    if state.role is Role.FOLLOWER:
        wait = _duration(max(0, state.election_deadline_ms - now_ms))
        lines.append(f"It stands for election in {wait} if nobody else does.")
    else:
        granted = sum(refusal is Refusal.NONE for refusal in state.votes.values())
        kind = "pre-votes" if state.role is Role.PRE_CANDIDATE else "votes"
        lines.append(f"It stands and has {granted} of {membership.quorum} {kind}.")
    return lines


def _is_silent(state: State, voter: NodeId, now_ms: int) -> bool:
    if voter == state.node:
        return False
    heard_ms = state.heard_from.get(voter)
    return heard_ms is None or now_ms - heard_ms > state.settings.election_timeout_ms * 2


def _explain_log(state: State) -> str:
    log = state.log
    text = f"Its log ends at {log.last_index}, committed up to {log.commit}"
    if log.commit < log.last_index:
        count = log.last_index - log.commit
        text += f" ({count} {_plural(count, 'entry waits', 'entries wait')} for a majority)"
    if log.persisted < log.last_index:
        text += f", on its disk up to {log.persisted}"
    return f"{text}; the last snapshot is of {log.snapshot.index}."


def _explain_membership(state: State) -> str:
    membership = state.membership
    voters = ", ".join(map(str, membership.voters)) or "nobody"
    text = f"Voters are {voters}"
    if membership.learners:
        text += f"; learners are {', '.join(map(str, membership.learners))}"
    if state.log.membership_index > state.log.commit:
        text += f"; that is a change at entry {state.log.membership_index}, not committed yet"
    return text + "."


def _duration(duration_ms: int) -> str:
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if duration_ms < 120_000:
        return f"{duration_ms / 1000:.1f} s"
    return f"{duration_ms // 60_000} min"


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
