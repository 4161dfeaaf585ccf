"""Metrics of a node's part in its cluster: the metadata log, sessions, probes and connections.

Reasons and states are rows from the start, with zero: a dashboard need not guess their names.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

from headrace.cluster.swim.claims import Standing
from headrace.cluster.swim.sealing import Refusal
from headrace.cluster.transport.hello import OPERATOR, Purpose
from headrace.cluster.transport.refusals import Reason
from headrace.raft.state import Role
from headrace.web.families import counter, counters, gauge, gauges

if TYPE_CHECKING:
    from headrace.cluster.cluster import Cluster
    from headrace.node.node import Node

_DROPS: Final = (
    *(each.value for each in Refusal),
    *("oversized", "inbox_full", "network", "unresolved", "socket_full"),
)
"""Why datagrams of SWIM are dropped."""


def cluster_metrics(node: "Node") -> Iterator[Metric]:
    """Yield the metrics of a node's part in its cluster."""
    yield from _metadata_log(node)
    yield from _sessions(node.cluster)
    yield from _probes(node.cluster)
    yield from _connections(node.cluster)


def _metadata_log(node: "Node") -> Iterator[Metric]:
    driver, cluster = node.broker.quorum.driver, node.cluster
    state = driver.state
    yield gauge(
        "headrace_raft_term",
        "The term of the metadata log (raft-metrics current-epoch)",
        state.term,
    )
    yield gauges(
        "headrace_raft_role",
        "1, labelled with this node's role in the metadata log (raft-metrics current-state)",
        [((each.name.lower(),), int(state.role is each)) for each in Role],
        labels=("role",),
    )
    yield gauge(
        "headrace_raft_committed_entries",
        "Up to which entry the metadata log is committed (raft-metrics high-watermark)",
        state.log.commit,
    )
    yield gauge(
        "headrace_raft_last_entry",
        "The last entry of this node's metadata log (raft-metrics log-end-offset)",
        state.log.last_index,
    )
    lags = [((str(node.node_id),), 0)] if state.role is Role.LEADER else []
    lags += [
        ((str(member),), max(state.log.last_index - progress.match_index, 0))
        for member, progress in sorted(state.progress.items())
        if state.role is Role.LEADER
    ]
    yield gauges(
        "headrace_raft_lag_entries",
        "Entries that each member of the metadata log lacks; on its leader only",
        lags,
        labels=("member",),
    )
    yield counter(
        "headrace_raft_leader_changes",
        "How often this node heard of another leader of the metadata log",
        cluster.leader_changes,
    )
    forwarding = cluster.forwarding
    yield counter(
        "headrace_forwarded_changes",
        "Changes of metadata that this node sent to the leader",
        forwarding.sent,
    )
    yield counter(
        "headrace_forwarded_changes_failed",
        "Of these, those that failed or whose outcome is not known; most are retried",
        forwarding.failed,
    )
    yield counter(
        "headrace_forwarded_changes_served",
        "Changes of metadata that other nodes sent to this one",
        forwarding.served,
    )


def _sessions(cluster: "Cluster") -> Iterator[Metric]:
    controller, presence = cluster.controller, cluster.presence
    assert controller is not None
    assert presence is not None
    yield gauge(
        "headrace_active_controller",
        "Whether this node is the controller: 1 or 0 (KafkaController ActiveControllerCount)",
        int(controller.is_active),
    )
    states = controller.sessions.count_states()
    if not controller.is_active:
        states = dict.fromkeys(states, 0)
    yield gauges(
        "headrace_node_sessions",
        "Sessions of other nodes with this controller, by state "
        "(KafkaController ActiveBrokerCount, FencedBrokerCount)",
        [((state,), count) for state, count in states.items()],
        labels=("state",),
    )
    yield counter(
        "headrace_fencings",
        "How many nodes this controller fenced, those that stopped included",
        controller.fencings,
    )
    yield counter(
        "headrace_session_pauses",
        "How often this controller itself stood still, so that every session began anew",
        controller.sessions.pauses,
    )
    yield counter(
        "headrace_heartbeats_failed",
        "Heartbeats of this node that no controller answered",
        presence.failed,
    )


def _probes(cluster: "Cluster") -> Iterator[Metric]:
    shell = cluster.swim
    assert shell is not None
    standings = Counter(seen.standing for seen in shell.swim.view())
    done = shell.swim.counters
    yield gauges(
        "headrace_probed_nodes",
        "Other nodes by what probes found of them",
        [((each.name.lower(),), standings[each]) for each in Standing],
        labels=("standing",),
    )
    yield counter("headrace_probes", "Probes of other nodes that were sent", done.probes)
    yield counter(
        "headrace_probes_failed",
        "Probes that got no response, neither directly nor by way of other nodes",
        done.probe_failures,
    )
    yield counter(
        "headrace_probe_suspicions", "How often another node became suspect", done.suspicions
    )
    yield counter(
        "headrace_probe_refutations",
        "How often this node refuted that it is gone",
        done.refutations,
    )
    yield counters(
        "headrace_probe_datagrams_dropped",
        "Datagrams of probes that were dropped, by reason",
        [((reason,), shell.dropped[reason]) for reason in _DROPS],
        labels=("reason",),
    )


def _connections(cluster: "Cluster") -> Iterator[Metric]:
    links = cluster.links
    control = [each for each in links.describe() if each.purpose is Purpose.CONTROL]
    connected = sum(each.peer is not None for each in control)
    yield gauges(
        "headrace_peers",
        "Other nodes by whether this node is connected to them",
        [(("connected",), connected), (("unconnected",), len(control) - connected)],
        labels=("state",),
    )
    peers = [each for node, each in links.counters.items() if node != OPERATOR]
    yield counter(
        "headrace_peer_bytes_sent",
        "Bytes sent to other nodes",
        sum(each.bytes_sent for each in peers),
    )
    yield counter(
        "headrace_peer_bytes_received",
        "Bytes received from other nodes",
        sum(each.bytes_received for each in peers),
    )
    yield counter(
        "headrace_peer_messages_dropped",
        "Messages to other nodes that were dropped: nothing was connected, or too much waited",
        sum(each.messages_dropped for each in peers),
    )
    yield counter(
        "headrace_peer_calls_failed",
        "Calls to other nodes without a response",
        sum(each.calls_failed for each in peers),
    )
    yield counter(
        "headrace_peer_connects_failed",
        "Failed attempts to connect to other nodes",
        sum(each.failed_connects for each in peers),
    )
    yield counters(
        "headrace_peer_refusals",
        "Connections between nodes that this side or the other refused, by reason",
        [((each.name.lower(),), links.refusals[each]) for each in Reason],
        labels=("reason",),
    )
