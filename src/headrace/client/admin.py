"""The admin client: topics, configs, groups, offsets, transactions, nodes, users, ACLs.

    async with Admin("127.0.0.1:9092") as admin:
        await admin.create_topic("orders", partitions=3)
        for group in await admin.list_groups():
            print(group.group_id, await admin.list_group_offsets(group.group_id))

Methods for one resource raise a `KafkaError` if it is refused. Methods for several return an
outcome for each, a value or the error: `values_of` turns them into values or raises. A request that
the broker does not support raises `UnsupportedApi`.

The methods are in `administration`, by subject.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from headrace.client.administration.cluster_methods import ClusterMethods
from headrace.client.administration.group_methods import GroupMethods
from headrace.client.administration.rights_methods import RightsMethods
from headrace.client.administration.topic_methods import TopicMethods
from headrace.client.administration.transaction_methods import TransactionMethods
from headrace.client.cluster import Cluster
from headrace.client.security.settings import SecurityLike
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings


class Admin(TopicMethods, GroupMethods, TransactionMethods, ClusterMethods, RightsMethods):
    """The admin client of one cluster: `async with Admin("127.0.0.1:9092") as admin`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Cluster = DEFAULT_BOOTSTRAP,
        settings: ClientSettings | None = None,
        *,
        security: SecurityLike | None = None,
    ) -> None:
        """Take addresses, or a `Cluster` that the caller closes.

        `security` is a `ClientSecurity` or settings by Kafka's names.
        """
        self._is_owner = not isinstance(bootstrap, Cluster)
        self.cluster = Cluster.of(bootstrap, settings, security)

    async def __aenter__(self) -> Self:
        await self.cluster.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, unless the cluster was passed in."""
        if self._is_owner:
            await self.cluster.close()
