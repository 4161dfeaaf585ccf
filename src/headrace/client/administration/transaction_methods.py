"""Admin methods for producers and transactions."""

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

        `states` are names such as Ongoing or CompleteCommit; with `duration_ms` only transactions
        that are open for at least this long.
        """
        return await transactions.list_transactions(self.cluster, states, duration_ms)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return the coordinator's description of a transactional id."""
        return await transactions.describe_transaction(self.cluster, transactional_id)

    async def describe_transactions(
        self, transactional_ids: Sequence[str]
    ) -> Outcomes[str, TransactionDescription]:
        """Return the coordinators' descriptions of transactional ids."""
        outcomes: Outcomes[str, TransactionDescription] = {}
        for transactional_id in transactional_ids:
            try:
                outcomes[transactional_id] = await self.describe_transaction(transactional_id)
            except KafkaError as error:
                outcomes[transactional_id] = error
        return outcomes

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction of an id and fence its producer.

        Raise TRANSACTIONAL_ID_NOT_FOUND if the id was never used.
        """
        await transactions.abort_transaction(self.cluster, transactional_id)

    async def abort_hanging_transaction(self, partition: TopicPartition, producer_id: int) -> None:
        """Write the missing abort marker of a transaction that its coordinator does not know."""
        await transactions.abort_hanging(self.cluster, partition, producer_id)

    async def fence_producers(self, transactional_ids: Sequence[str]) -> Outcomes[str, None]:
        """Fence the producers of ids and abort their transactions; an unused id is created."""
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
