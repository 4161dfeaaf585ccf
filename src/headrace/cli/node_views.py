"""The nodes of a cluster as they see themselves and each other, as tables and JSON."""

from headrace.cli.node_calls import Views
from headrace.cli.output import print_table
from headrace.cluster.operator_words import UNKNOWN_MS, NodeRow, NodeView, SessionView


def print_views(views: Views) -> None:
    """Print one row for each node that anybody knows, and one for each pair of nodes."""
    print_table(
        ("node", "node port", "role", "state", "session", "version"),
        [
            (
                each["node"],
                each["node_address"],
                each["role"],
                each["state"],
                each["session"],
                each["version"] or f"not asked: {each['problem']}",
            )
            for each in view_rows(views)
        ],
        title="nodes",
    )
    links = link_rows(views)
    if links:
        print_table(
            ("from", "to", "connection", "probes", "problem"),
            [
                (each["from"], each["to"], each["state"], each["probes"], each["problem"] or None)
                for each in links
            ],
            title="who reaches whom",
        )


def view_rows(views: Views) -> list[dict[str, object]]:
    """Return every known node with what is known of it, in the order of ids."""
    known: dict[int, NodeRow] = {}
    for view in _newest_first(views):
        for row in view.nodes:
            if row.node not in known or (row.is_registered and not known[row.node].is_registered):
                known[row.node] = row
        if view.node not in known:
            known[view.node] = NodeRow(view.node, view.address, "", False, False, False)
    controller = next((view for view in _newest_first(views) if view.is_controller), None)
    sessions = {} if controller is None else {row.node: row for row in controller.sessions}
    rows = []
    for node, row in sorted(known.items()):
        own = views.seen.get(node)
        rows.append(
            {
                "node": node,
                "node_address": row.address,
                "role": _role(views, node),
                "state": _state(row, own),
                "session": _session(node, controller, sessions.get(node)),
                "version": None if own is None else own.version,
                "waiting": (own.waiting or None) if own is not None else None,
                "problem": None
                if own is not None
                else views.failed.get(row.address, "it was not asked"),
            }
        )
    return rows


def link_rows(views: Views) -> list[dict[str, object]]:
    """Return how each node that could be asked reaches each other one."""
    rows: list[dict[str, object]] = []
    for node, view in sorted(views.seen.items()):
        standings = {row.node: row.standing.lower() for row in view.probes}
        rows += [
            {
                "from": node,
                "to": row.node,
                "state": row.state,
                "probes": standings.get(row.node),
                "problem": row.problem,
            }
            for row in view.links
        ]
    return rows


def cluster_id(views: Views) -> str:
    """Return the cluster that the nodes are of, nothing if they are of none yet."""
    return next((view.cluster_id for view in views.seen.values() if view.cluster_id), "")


def _newest_first(views: Views) -> list[NodeView]:
    def newness(view: NodeView) -> tuple[int, int]:
        return (view.quorum.term, view.quorum.applied) if view.quorum is not None else (-1, -1)

    return sorted(views.seen.values(), key=newness, reverse=True)


def _role(views: Views, node: int) -> str | None:
    own = views.seen.get(node)
    if own is not None and own.quorum is not None and own.quorum.role == "LEADER":
        return "leader"
    for view in _newest_first(views):
        if view.quorum is not None and node in view.quorum.voters:
            return "voter"
        if view.quorum is not None and node in view.quorum.learners:
            return "learner"
    return None


def _state(row: NodeRow, view: NodeView | None) -> str:
    if view is not None and view.waiting:
        return "waiting"
    if row.is_stopping:
        return "stopping"
    if row.is_fenced:
        return "fenced"
    return "active" if row.is_registered else "unknown"


def _session(node: int, controller: NodeView | None, session: SessionView | None) -> str | None:
    if controller is None:
        return None
    if node == controller.node:
        return "controller"
    if session is None:
        return None
    if session.heard_ms_ago == UNKNOWN_MS:
        return "not heard"
    suspect = ", suspect" if session.is_suspect else ""
    return f"heard {session.heard_ms_ago} ms ago{suspect}"
