"""Admin methods for nodes: quorum, features, disks, placement of partitions."""

from collections.abc import Iterable, Mapping, Sequence

from headrace.client import features, nodes, reassignments, voters
from headrace.client.addresses import Address
from headrace.client.administration.connected import Connected
from headrace.client.cluster import ANY_NODE
from headrace.client.features import Feature
from headrace.client.nodes import ClusterDescription, LogDir, QuorumDescription
from headrace.client.outcomes import Outcomes
from headrace.client.reassignments import Reassignment
from headrace.client.topics import TopicPartition


class ClusterMethods(Connected):
    """Nodes, and the partitions on them."""

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, nodes and finalized features."""
        return await nodes.describe_cluster(self.cluster)

    async def describe_quorum(self) -> QuorumDescription:
        """Return the state of the metadata log."""
        return await nodes.describe_quorum(self.cluster)

    async def add_raft_voter(
        self,
        node_id: int,
        directory_id: str | None = None,
        listeners: Mapping[str, Address] | None = None,
    ) -> None:
        """Make a node a voter of the metadata log that has joined the cluster and caught up.

        `directory_id` is its data folder's, as `describe_quorum` has it, by default the one that it
        has joined with. Apache Kafka must also be told its `listeners`.
        """
        await voters.add_raft_voter(self.cluster, node_id, directory_id, listeners or {})

    async def remove_raft_voter(self, node_id: int, directory_id: str | None = None) -> None:
        """Take a node's vote on the metadata log; it stays in the cluster."""
        await voters.remove_raft_voter(self.cluster, node_id, directory_id)

    async def unregister_broker(self, node_id: int) -> None:
        """Remove a node from the cluster that is down and has no replicas.

        Headrace takes its vote, too, and lets another node join under its id.
        """
        await voters.unregister_broker(self.cluster, node_id)

    async def describe_features(self, node_id: int = ANY_NODE) -> dict[str, Feature]:
        """Return the features of the cluster by name, sorted: finalized level, supported levels.

        The levels are those that a node supports, any one unless it is named.
        """
        return await features.describe_features(self.cluster, node_id)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        may_lose_metadata: bool = False,
        may_downgrade: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Finalize features at other levels, all or none; a lower level needs `may_downgrade`.

        `may_lose_metadata` allows a downgrade that drops what the lower level cannot represent.
        """
        await features.update_features(
            self.cluster,
            levels,
            may_downgrade=may_downgrade,
            may_lose_metadata=may_lose_metadata,
            validate_only=validate_only,
        )

    async def describe_log_dirs(
        self,
        node_ids: Iterable[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[int, list[LogDir]]:
        """Return the disk usage of replicas on nodes."""
        return await nodes.describe_log_dirs(self.cluster, node_ids, partitions)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, is_unclean: bool = False
    ) -> Outcomes[TopicPartition, None]:
        """Elect the preferred leaders of partitions, of all of them if none are named.

        `is_unclean` allows a replica that is not in sync to lead if no other is left: records that
        it lacks are lost. A partition that needs no election gets ELECTION_NOT_NEEDED.
        """
        return await reassignments.elect_leaders(self.cluster, partitions, is_unclean=is_unclean)

    async def alter_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_replication_factor: bool = True,
    ) -> Outcomes[TopicPartition, None]:
        """Move partitions to these nodes, the preferred leader first; None cancels a move.

        Returns when the moves have started: `list_reassignments` shows those in progress.
        """
        return await reassignments.alter_reassignments(
            self.cluster,
            replicas,
            may_change_replication_factor=may_change_replication_factor,
        )

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """Cancel moves; NO_REASSIGNMENT_IN_PROGRESS for a partition that is not being moved."""
        return await self.alter_reassignments(dict.fromkeys(partitions))

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the moves in progress, sorted; of some partitions if any are named."""
        return await reassignments.list_reassignments(self.cluster, partitions)
