"""The nodes of the cluster and the states that they go through (seed 004).

    (unknown) -- Join --> LEARNER -- PromoteToVoter --> ACTIVE
    ACTIVE, LEARNER -- StartDecommission --> DRAINING -- FinishDecommission --> DECOMMISSIONED
    DRAINING -- CancelDecommission (a DDL) --> ACTIVE, or LEARNER if it never had a vote
    LEARNER, DECOMMISSIONED, ACTIVE without a vote -- Leave --> (unknown)

An ACTIVE node loses its vote by `RemoveMember` of the metadata group, and is not given one again by
itself: that takes another PromoteToVoter. What is so already changes nothing; whatever else is not
in the table is refused.
"""

from typing import Final

from msgspec.structs import replace

from headrace.config import INT32_MAX
from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.ddl import CancelDecommission
from headrace.metadata.entries import (
    FinishDecommission,
    Join,
    Leave,
    NodeChange,
    PromoteToVoter,
    StartDecommission,
)
from headrace.metadata.errors import refuse
from headrace.metadata.events import Event, MetadataGroupChanged, NodeChanged
from headrace.metadata.image import Image
from headrace.metadata.leases import release_all
from headrace.metadata.routing import drop_from_metadata_group
from headrace.metadata.state import Node, NodeState

TRANSITIONS: Final[dict[type[NodeChange], tuple[frozenset[NodeState], NodeState | None]]] = {
    PromoteToVoter: (frozenset({NodeState.LEARNER}), NodeState.ACTIVE),
    StartDecommission: (
        frozenset({NodeState.JOINING, NodeState.LEARNER, NodeState.ACTIVE}),
        NodeState.DRAINING,
    ),
    FinishDecommission: (frozenset({NodeState.DRAINING}), NodeState.DECOMMISSIONED),
    Leave: (
        frozenset(
            {NodeState.JOINING, NodeState.LEARNER, NodeState.ACTIVE, NodeState.DECOMMISSIONED}
        ),
        None,
    ),
}
"""From which states a change leads where; None is a node that is gone."""


def change_topology(image: Image, change: NodeChange) -> list[Event]:
    """Apply a change of a node, and with it the membership of the metadata group."""
    if isinstance(change, Join):
        return _join(image, change)
    node = _require_node(image, change)
    allowed, target = TRANSITIONS[type(change)]
    if node.state is target and not _lost_its_vote(image, change):
        return []
    if node.state not in allowed and node.state is not target:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"{type(change).__name__} of node {node.node_id}, which is {node.state.name}: it must "
            f"be one of {', '.join(sorted(state.name for state in allowed))}",
        )
    events: list[Event] = []
    match change:
        case PromoteToVoter():
            events += _promote(image, node.node_id)
        case FinishDecommission():
            _check_is_empty(image, node.node_id)
            _check_has_no_seat(image, node.node_id)
            events += release_all(image, node.node_id)
        case Leave():
            _check_is_empty(image, node.node_id)
            _check_does_not_vote(image, node.node_id)
            events += drop_from_metadata_group(image, node.node_id)
            events += release_all(image, node.node_id)
        case StartDecommission():
            pass
    image.state.topology_version += 1
    if target is None:
        del image.state.nodes[node.node_id]
    else:
        image.state.nodes[node.node_id] = replace(node, state=target)
    return [*events, NodeChanged(node.node_id, target)]


def cancel_decommission(image: Image, ddl: CancelDecommission) -> list[Event]:
    """Cancel a decommission; refused once it is complete. A vote that the node lost stays lost."""
    node = _require_node(image, ddl)
    if node.state is NodeState.DECOMMISSIONED:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {ddl.node_id} is decommissioned: it is too late to keep it",
        )
    if node.state is not NodeState.DRAINING:
        return []
    is_learner = ddl.node_id in image.state.metadata_group.learners
    state = NodeState.LEARNER if is_learner else NodeState.ACTIVE
    image.state.nodes[ddl.node_id] = replace(node, state=state)
    image.state.topology_version += 1
    return [NodeChanged(ddl.node_id, state)]


def is_address(text: str) -> bool:
    """Return whether a text is `host:port` or `[IPv6]:port`, with a valid port."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host.strip("[]") or (":" in host and not is_bracketed):
        return False
    return port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535


def _join(image: Image, change: Join) -> list[Event]:
    node = image.node(change.node_id)
    if node is not None and node.state is NodeState.DECOMMISSIONED:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {change.node_id} was decommissioned: it must leave before it joins again",
        )
    if node is not None and node.addr == change.addr:
        return []
    if not is_address(change.addr):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {change.node_id} joins from {change.addr[:256]!r}: give host:port",
        )
    if node is not None:  # whose data folder is the same: its registration says so
        image.state.nodes[change.node_id] = replace(node, addr=change.addr)
        image.state.topology_version += 1
        return [NodeChanged(change.node_id, node.state)]
    if change.node_id > INT32_MAX:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {change.node_id}: a node is a broker, whose ids end at {INT32_MAX}",
        )
    group = image.state.metadata_group
    image.state.nodes[change.node_id] = Node(change.node_id, change.addr, NodeState.LEARNER)
    image.state.topology_version += 1
    image.state.metadata_group = replace(group, learners=(*group.learners, change.node_id))
    return [MetadataGroupChanged(), NodeChanged(change.node_id, NodeState.LEARNER)]


def _promote(image: Image, node_id: int) -> list[Event]:
    group = image.state.metadata_group
    image.state.metadata_group = replace(
        group,
        members=(*(each for each in group.members if each != node_id), node_id),
        learners=tuple(each for each in group.learners if each != node_id),
    )
    return [MetadataGroupChanged()]


def _check_is_empty(image: Image, node_id: int) -> None:
    """A node that still keeps something is not done: its copies would be lost unnoticed."""
    if replicas := image.replica_count(BrokerId(node_id)):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} still has {replicas} replicas: move them away first",
        )


def _lost_its_vote(image: Image, change: NodeChange) -> bool:
    """Return whether a change gives a node the vote again that it lost."""
    is_promotion = isinstance(change, PromoteToVoter)
    return is_promotion and change.node_id not in image.state.metadata_group.members


def _check_does_not_vote(image: Image, node_id: int) -> None:
    if node_id in image.state.metadata_group.members:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} votes on the metadata log: remove it from the voters first",
        )


def _check_has_no_seat(image: Image, node_id: int) -> None:
    group = image.state.metadata_group
    if node_id in group.members + group.learners:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {node_id} still has a seat in the metadata group: remove it from there first",
        )


def _require_node(image: Image, change: NodeChange | CancelDecommission) -> Node:
    node = image.node(change.node_id)
    if node is None:
        raise refuse(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"{type(change).__name__}: there is no node {change.node_id}",
        )
    return node
