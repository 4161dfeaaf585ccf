"""Whether a node serves, and in words why it does not."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.node.node import Node


def explain_unready(node: "Node") -> str | None:
    """Say why clients are not served, or None if they are.

    Ready is what a load balancer should know: the metadata log has a leader, so that changes can
    be made, and the listeners take connections.
    """
    driver = node.broker.quorum.driver
    if driver.failure is not None:
        return f"the metadata log has stopped: {driver.failure}"
    if driver.state.leader is None:
        return "the metadata log has no leader: " + " ".join(node.broker.quorum.explain())
    if not node.is_ready:
        return "the listeners do not serve: the node starts or stops"
    return None
