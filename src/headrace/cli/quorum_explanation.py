"""What is wrong with the metadata quorum, from what the nodes that can be asked see. Pure.

A healthy quorum has a leader that a majority of voters follows, no voter that is silent or far
behind, and no node that cannot be asked.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headrace.cluster.operator_words import UNKNOWN_MS, FollowerRow, NodeView, QuorumView

LAG_ENTRIES_MAX: Final = 1000
"""A member that lacks more entries than these counts as behind."""
SILENT_MS_MAX: Final = 5000


class Explanation(msgspec.Struct, frozen=True):
    """The state of a quorum in sentences, and what to do about it."""

    is_healthy: bool
    findings: tuple[str, ...]
    remedies: tuple[str, ...]


def explain(seen: Mapping[int, NodeView], failed: Mapping[str, str]) -> Explanation:
    """Explain the quorum by the views of nodes, and why other addresses gave none."""
    findings: list[str] = []
    remedies: list[str] = []
    quorums = {node: view.quorum for node, view in sorted(seen.items()) if view.quorum is not None}
    leader = _leader(quorums)
    voters = _latest(quorums).voters if quorums else ()
    if leader is not None:
        _explain_leader(leader, quorums[leader], findings)
    else:
        _explain_no_leader(quorums, voters, findings, remedies)
    for node, view in sorted(seen.items()):
        if view.waiting:
            findings.append(f"Node {node} does not serve yet: {view.waiting}.")
    for node, quorum in quorums.items():
        _explain_log(node, quorum, findings, remedies)
    findings += _explain_unasked(seen, failed, voters, remedies, may_remove=leader is not None)
    _explain_links(seen, findings, remedies)
    is_behind = leader is not None and any(map(_is_behind, quorums[leader].followers))
    is_waiting = any(view.waiting for view in seen.values())
    is_healthy = leader is not None and not remedies and not is_behind and not is_waiting
    return Explanation(is_healthy, tuple(findings), tuple(remedies))


def _explain_leader(leader: int, quorum: QuorumView, findings: list[str]) -> None:
    count = len(quorum.voters)
    findings.append(
        f"Node {leader} leads term {quorum.term}; committed up to {quorum.commit}, and "
        f"{count} {'node votes' if count == 1 else 'nodes vote'}: {_names(quorum.voters)}."
    )
    _explain_followers(quorum, findings)


def _explain_no_leader(
    quorums: Mapping[int, QuorumView],
    voters: tuple[int, ...],
    findings: list[str],
    remedies: list[str],
) -> None:
    findings.append("No node that can be asked leads the metadata log.")
    silent = [node for node in voters if node not in quorums]
    majority, there = len(voters) // 2 + 1, len(voters) - len(silent)
    if voters:
        findings.append(
            f"An election needs {majority} of the voters {_names(voters)}; {there} can be asked."
        )
    if voters and there < majority:
        remedies.append(
            f"At least {majority - there} more of the nodes {_names(silent)} must run before there "
            "can be a leader; no node can be removed until then."
        )
    for node, quorum in quorums.items():
        findings += [f"Node {node} says: {line}" for line in quorum.explanation]


def _explain_log(node: int, quorum: QuorumView, findings: list[str], remedies: list[str]) -> None:
    if quorum.failure:
        findings.append(f"The metadata log of node {node} has stopped: {quorum.failure}.")
        remedies.append(f"See the log of node {node}, repair what failed, and start it again.")
    elif quorum.full_disk:
        findings.append(f"The disk of node {node} is full: {quorum.full_disk}.")
        remedies.append(f"Free room on the disk of node {node}; it goes on by itself.")


def _explain_unasked(
    seen: Mapping[int, NodeView],
    failed: Mapping[str, str],
    voters: tuple[int, ...],
    remedies: list[str],
    *,
    may_remove: bool,
) -> list[str]:
    """Return why nodes and addresses could not be asked."""
    findings = []
    addresses = {row.node: row.address for view in seen.values() for row in view.nodes}
    for node, address in sorted(addresses.items()):
        if node in seen:
            continue
        why = failed.get(address) or _why_unreachable(seen, node) or "it was not asked"
        kind = "a voter" if node in voters else "a learner"
        findings.append(f"Node {node} at {address} ({kind}) cannot be asked: {why}.")
        remedy = f"Start node {node}, or mend the network to {address}."
        if may_remove:
            remedy += f" If it is gone for good: `headrace cluster remove {node}`."
        remedies.append(remedy)
    known = set(addresses.values()) | {view.address for view in seen.values()}
    findings += [
        f"{address} cannot be asked: {why}."
        for address, why in sorted(failed.items())
        if address not in known
    ]
    return findings


def _leader(quorums: Mapping[int, QuorumView]) -> int | None:
    """Return the leader of the highest term among the nodes that were asked."""
    leaders = [
        (quorum.term, node)
        for node, quorum in quorums.items()
        if quorum.role == "LEADER" and not quorum.failure
    ]
    if not leaders:
        return None
    term, node = max(leaders)
    newest = max(quorum.term for quorum in quorums.values())
    return node if term == newest else None


def _latest(quorums: Mapping[int, QuorumView]) -> QuorumView:
    return max(quorums.values(), key=lambda quorum: (quorum.term, quorum.last_index))


def _explain_followers(quorum: QuorumView, findings: list[str]) -> None:
    for row in quorum.followers:
        kind = "voter" if row.node in quorum.voters else "learner"
        lag = "has everything" if row.lag == 0 else f"lags by {row.lag} entries"
        heard = (
            "has not responded in this term"
            if row.silent_ms == UNKNOWN_MS
            else f"responded {row.silent_ms} ms ago"
        )
        findings.append(f"Node {row.node} ({kind}) {lag} and {heard}.")


def _is_behind(row: FollowerRow) -> bool:
    is_silent = row.silent_ms == UNKNOWN_MS or row.silent_ms > SILENT_MS_MAX
    return row.lag > LAG_ENTRIES_MAX or is_silent


def _why_unreachable(seen: Mapping[int, NodeView], node: int) -> str:
    for view in seen.values():
        for row in view.links:
            if row.node == node and row.problem:
                return f"node {view.node} says {row.problem}"
    return ""


def _explain_links(seen: Mapping[int, NodeView], findings: list[str], remedies: list[str]) -> None:
    """Name nodes that run and cannot reach each other."""
    for node, view in sorted(seen.items()):
        for row in view.links:
            if row.node in seen and row.state != "connected":
                why = row.problem or row.state
                findings.append(f"Node {node} is not connected to node {row.node}: {why}.")
                remedies.append(
                    f"Look at the network from node {node} to node {row.node}: both run."
                )


def _names(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes)) or "nobody"
