"""Readiness of a node, and the reason if it is not ready."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.node.node import Node


def explain_unready(node: "Node") -> str | None:
    """Return why the node is not ready, or None if it is.

    A node is ready, for a load balancer for example, when the metadata log has a leader, so that
    changes can be made, and the listeners accept connections.
    """
    driver = node.broker.quorum.driver
    if driver.failure is not None:
        return f"the metadata log has stopped: {driver.failure}"
    if driver.state.leader is None:
        return "the metadata log has no leader: " + " ".join(node.broker.quorum.explain())
    if not node.is_ready:
        return "the listeners do not serve: the node is starting or stopping"
    return None
