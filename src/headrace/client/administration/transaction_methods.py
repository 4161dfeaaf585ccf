"""What an administrator does with producers and their transactions."""

from collections.abc import Iterable, Sequence

from headrace.client import nodes, transactions
from headrace.client.administration.connected import Connected
from headrace.client.nodes import ActiveProducer
from headrace.client.outcomes import Outcomes
from headrace.client.topics import TopicPartition
from headrace.client.transactions import ListedTransaction, TransactionDescription
from headrace.errors import KafkaError


class TransactionMethods(Connected):
    """Transactions and producers."""

    async def list_transactions(
        self, states: Iterable[str] = (), duration_ms: int | None = None
    ) -> list[ListedTransaction]:
        """Return the transactional ids of the cluster, sorted.

        `states` are like Ongoing or CompleteCommit; with `duration_ms` only those that are open
        for at least so long.
        """
        return await transactions.list_transactions(self.cluster, states, duration_ms)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return what the coordinator knows of a transactional id."""
        return await transactions.describe_transaction(self.cluster, transactional_id)

    async def describe_transactions(
        self, transactional_ids: Sequence[str]
    ) -> Outcomes[str, TransactionDescription]:
        """Return what the coordinators know of transactional ids."""
        outcomes: Outcomes[str, TransactionDescription] = {}
        for transactional_id in transactional_ids:
            try:
                outcomes[transactional_id] = await self.describe_transaction(transactional_id)
            except KafkaError as error:
                outcomes[transactional_id] = error
        return outcomes

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of an id and shut its producer out.

        TRANSACTIONAL_ID_NOT_FOUND if nobody has used the id.
        """
        await transactions.abort_transaction(self.cluster, transactional_id)

    async def abort_hanging_transaction(self, partition: TopicPartition, producer_id: int) -> None:
        """Write the abort marker that a partition lacks, for a transaction no coordinator knows."""
        await transactions.abort_hanging(self.cluster, partition, producer_id)

    async def fence_producers(self, transactional_ids: Sequence[str]) -> Outcomes[str, None]:
        """Shut the producers of ids out and abort what they have open; an unused id is created."""
        outcomes: Outcomes[str, None] = {}
        for transactional_id in transactional_ids:
            try:
                await transactions.fence_producer(self.cluster, transactional_id)
                outcomes[transactional_id] = None
            except KafkaError as error:
                outcomes[transactional_id] = error
        return outcomes

    async def describe_producers(
        self, partitions: Sequence[TopicPartition]
    ) -> Outcomes[TopicPartition, list[ActiveProducer]]:
        """Return the producers that the leader of each partition knows."""
        return await nodes.describe_producers(self.cluster, partitions)
