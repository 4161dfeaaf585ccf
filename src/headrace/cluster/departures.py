"""Nodes that leave the cluster for good, step by step (seed 004).

    departures = Departures(quorum, members)
    await departures.start(node, is_dead=False)      # marked: it gets nothing new, leads nothing
    await departures.cancel(node)                    # it stays after all
    await departures.finish(node, timeout_ms)        # it has no replicas: it gives up its vote

Between the first step and the last its replicas move to others: that takes as long as it takes, and
whoever moves them (`headrace cluster decommission`) may stop and go on later, as the mark is in the
metadata log. After the last step the node stops by itself, and the controller removes it once it is
gone (`controller`). Each step may be repeated: what is so already changes nothing.
"""

from typing import Final

from headrace.cluster.quorum_members import QuorumMembers
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.ddl import CancelDecommission, encode_ddl
from headrace.metadata.entries import (
    Batch,
    CatalogDdlAudited,
    DescriptorLeaseRelease,
    Entry,
    FinishDecommission,
    RemoveMember,
    RoutingChange,
    StartDecommission,
    TopologyChange,
)
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import METADATA_GROUP, Node, NodeState

OPERATOR: Final = "operator"
"""Who asks for a change through a node port: whoever knows the cluster's secret."""
MAY_VOTE: Final = (NodeState.LEARNER, NodeState.ACTIVE)


class Departures:
    """What an operator asks for, on any node."""

    def __init__(self, quorum: MetadataQuorum, members: QuorumMembers) -> None:
        self._quorum = quorum
        self._members = members

    async def start(self, image: Image, node: BrokerId, *, is_dead: bool) -> None:
        """Mark a node as one that leaves; KafkaError with the reason if it cannot.

        `image` has all that was committed before. A node that is dead must be down, any other up.
        """
        row = _require(image, node)
        if row.state is NodeState.DECOMMISSIONED:
            raise _refuse(f"node {node} is decommissioned already: it is about to be removed")
        _check_state(image, node, is_dead=is_dead)
        if not _others(image, node):
            raise _refuse(f"node {node} is the last node that is up: there is none to take over")
        await self._quorum.propose(TopologyChange(StartDecommission(node)))

    async def cancel(self, image: Image, node: BrokerId) -> None:
        """Cancel the departure of a node."""
        row = _require(image, node)
        if row.state in MAY_VOTE:
            raise _refuse(f"node {node} is not being decommissioned")
        payload = encode_ddl(CancelDecommission(node))
        text = f"headrace cluster decommission {node} --abort"
        await self._quorum.propose(CatalogDdlAudited(payload, "", OPERATOR, text))

    async def finish(self, image: Image, node: BrokerId, timeout_ms: int) -> None:
        """Take a node's vote and let it stop; its vote goes to another node first, if one can."""
        row = image.node(node)
        if row is None or row.state is NodeState.DECOMMISSIONED:
            return
        if row.state is not NodeState.DRAINING:
            raise _refuse(f"node {node} is not being decommissioned")
        if replicas := image.replica_count(node):
            raise _refuse(f"node {node} still has {replicas} replicas")
        if node in image.state.metadata_group.members:
            await self._replace_voter(image, node, timeout_ms)
        changes: list[Entry] = []
        if node in self._quorum.image.state.metadata_group.learners:
            changes.append(RoutingChange(RemoveMember(METADATA_GROUP, node)))
        leases = self._quorum.image.state.leases
        if held := tuple(each for each, holders in leases.items() if node in holders):
            changes.append(DescriptorLeaseRelease(node, held))
        changes.append(TopologyChange(FinishDecommission(node)))
        await self._quorum.propose(Batch(tuple(changes)))

    async def _replace_voter(self, image: Image, node: BrokerId, timeout_ms: int) -> None:
        """Take a node's vote; first another one gets it, so that the quorum is never weaker."""
        voters = image.state.metadata_group.members
        heir = _heir(image, node, is_needed=voters == (node,))
        if heir is not None:
            broker = image.broker(heir)
            assert broker is not None, "an heir is up"
            await self._members.add(heir, broker.log_dirs[0], timeout_ms)
        elif voters == (node,):
            raise _refuse(
                f"node {node} is the only voter of the metadata log, and no other node can vote"
            )
        await self._members.remove(node, None, timeout_ms)


def _check_state(image: Image, node: BrokerId, *, is_dead: bool) -> None:
    broker = image.broker(node)
    is_up = broker is not None and not broker.is_fenced
    if is_dead and is_up:
        raise _refuse(f"node {node} is up: leave --dead away, so that it hands over what it has")
    if not is_dead and not is_up:
        raise _refuse(
            f"node {node} is down: start it, or if it is gone for good, decommission it with --dead"
        )


def _heir(image: Image, node: BrokerId, *, is_needed: bool) -> BrokerId | None:
    """Return who gets the vote of a node: one that has never lost its own, unless it must be."""
    candidates = []
    for other in _others(image, node):
        row, group = image.node(other), image.state.metadata_group
        if row is not None and other not in group.members:
            candidates.append((row.state is not NodeState.LEARNER, other))
    if not candidates:
        return None
    has_lost, heir = min(candidates)
    return None if has_lost and not is_needed else heir


def _others(image: Image, node: BrokerId) -> list[BrokerId]:
    """Return the other nodes that are up and stay."""
    return [
        each.broker_id
        for each in image.brokers()
        if each.broker_id != node
        and each.log_dirs
        and not each.is_fenced
        and not image.is_leaving(each.broker_id)
    ]


def _require(image: Image, node: BrokerId) -> Node:
    row = image.node(node)
    if row is None:
        known = ", ".join(map(str, sorted(image.state.nodes)))
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node}: the nodes are {known}"
        )
    return row


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
