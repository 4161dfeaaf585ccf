"""Readiness of a node, and the reason if it is not ready."""

from typing import TYPE_CHECKING

from headrace import config

if TYPE_CHECKING:
    from headrace.node.node import Node


def explain_unready(node: "Node") -> str | None:
    """Return why the node is not ready, or None if it is.

    A node is ready, for a load balancer for example, when the metadata log has a leader, so that
    changes can be made, this node has nearly all of it, others count on this node, and the
    listeners accept connections.
    """
    waiting = node.explain_waiting()
    if waiting is not None:
        return waiting
    if node.decommissioned.is_set():
        return "this node was decommissioned: it has left the cluster and stops"
    return _explain_started(node)


def explain_leaving(node: "Node") -> str | None:
    """Return what is left to do for a node that is to leave the cluster, None for any other.

    It is ready meanwhile: what only it has it serves to the end.
    """
    image = node.broker.image
    if not image.is_leaving(node.node_id):
        return None
    left = image.replica_count(node.node_id)
    return f"being decommissioned: {left} replicas are yet to move to other nodes"


def _explain_started(node: "Node") -> str | None:
    broker = node.broker
    driver = broker.quorum.driver
    if driver.failure is not None:
        return f"the metadata log has stopped: {driver.failure}"
    if driver.state.leader is None:
        return "the metadata log has no leader: " + " ".join(broker.quorum.explain())
    lag = driver.state.log.commit - driver.applied_index
    if lag > node.settings[config.READY_LAG_ENTRIES_MAX]:
        return f"this node lacks {lag} committed entries of the metadata log"
    registered = broker.image.broker(node.node_id)
    if registered is None or registered.is_fenced:
        return "the controller has fenced this node: it has not heard from it in time"
    if not node.is_ready:
        return "the listeners do not serve: the node is starting or stopping"
    return None
