"""What an administrator does: topics, configs, offsets, nodes.

Methods about one thing raise the `KafkaError` with which it is refused. Methods about several give
an outcome for each, a value or the error: `outcomes.values_of` turns them into values or raises.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from headrace.client import configs, nodes, offsets, topics
from headrace.client.cluster import Cluster
from headrace.client.configs import Change, Config, Resource, ResourceType
from headrace.client.metadata import Topic
from headrace.client.outcomes import Outcomes, values_of
from headrace.client.settings import DEFAULT_BOOTSTRAP, ClientSettings
from headrace.client.topics import CreatedTopic, NewTopic, TopicPartition
from headrace.errors import KafkaError


class Admin:
    """An administrator of one cluster: `async with Admin("127.0.0.1:9092") as admin`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Cluster = DEFAULT_BOOTSTRAP,
        settings: ClientSettings | None = None,
    ) -> None:
        """Take addresses, or a `Cluster` that somebody else closes."""
        self._is_owner = not isinstance(bootstrap, Cluster)
        self.cluster = bootstrap if isinstance(bootstrap, Cluster) else Cluster(bootstrap, settings)

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
        if self._is_owner:
            await self.cluster.close()

    async def create_topic(
        self,
        name: str,
        partitions: int = topics.BROKERS_DEFAULT,
        replication_factor: int = topics.BROKERS_DEFAULT,
        *,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; counts that are not given are the broker's to choose."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return values_of(await self.create_topics([topic], validate_only=validate_only))[name]

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics, or only find out whether they could be."""
        return await topics.create_topics(self.cluster, new, validate_only=validate_only)

    async def list_topics(self, *, with_internal: bool = False) -> list[Topic]:
        """Give the topics with their partitions, sorted by name."""
        found = await self.cluster.list_topics()
        return [topic for topic in found if with_internal or not topic.is_internal]

    async def describe_topic(self, name: str) -> Topic:
        """Give a topic as it is now."""
        self.cluster.forget(name)
        return await self.cluster.topic(name)

    async def describe_topics(self, names: Sequence[str]) -> Outcomes[str, Topic]:
        """Give topics as they are now."""
        outcomes: Outcomes[str, Topic] = {}
        for name in names:
            try:
                outcomes[name] = await self.describe_topic(name)
            except KafkaError as error:
                outcomes[name] = error
        return outcomes

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and everything in it."""
        values_of(await self.delete_topics([name]))

    async def delete_topics(self, names: Sequence[str]) -> Outcomes[str, None]:
        """Delete topics and everything in them."""
        return await topics.delete_topics(self.cluster, names)

    async def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `total` partitions. Keys move: their records stay where they are."""
        totals = {name: total}
        values_of(await topics.add_partitions(self.cluster, totals, validate_only=validate_only))

    async def describe_configs(
        self,
        resources: Sequence[Resource],
        *,
        names: Sequence[str] | None = None,
        with_documentation: bool = False,
    ) -> Outcomes[Resource, list[Config]]:
        """Give the configs of resources, all or some by name, with where each comes from."""
        return await configs.describe_configs(
            self.cluster, resources, names=names, with_documentation=with_documentation
        )

    async def alter_configs(
        self,
        resource: Resource,
        *,
        set: Mapping[str, str] | None = None,  # noqa: A002  Kafka's word
        unset: Iterable[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change some configs of a resource; `append` and `subtract` are for lists."""
        changes: list[tuple[Change, str, str | None]] = [
            *((Change.SET, name, value) for name, value in (set or {}).items()),
            *((Change.DELETE, name, None) for name in unset),
            *((Change.APPEND, name, value) for name, value in (append or {}).items()),
            *((Change.SUBTRACT, name, value) for name, value in (subtract or {}).items()),
        ]
        values_of(
            await configs.alter_configs(
                self.cluster, {resource: changes}, validate_only=validate_only
            )
        )

    async def list_resources(self, kind: ResourceType) -> list[Resource]:
        """Give the resources of a kind that exist or have configs."""
        return await configs.list_resources(self.cluster, kind)

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> Outcomes[TopicPartition, offsets.FoundOffset]:
        """Look offsets up by `Start` or by time in ms since 1970."""
        return await offsets.list_offsets(self.cluster, times, is_committed=is_committed)

    async def delete_records(
        self, up_to: Mapping[TopicPartition, int]
    ) -> Outcomes[TopicPartition, int]:
        """Delete records before these offsets (-1: all); give where the partitions begin now."""
        return await offsets.delete_records(self.cluster, up_to)

    async def describe_cluster(self) -> nodes.ClusterDescription:
        """Give the cluster's id, nodes and features."""
        return await nodes.describe_cluster(self.cluster)

    async def describe_quorum(self) -> nodes.QuorumDescription:
        """Give the state of the metadata log."""
        return await nodes.describe_quorum(self.cluster)

    async def describe_log_dirs(
        self,
        node_ids: Iterable[int] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[int, list[nodes.LogDir]]:
        """Give what replicas take on the disks of nodes."""
        return await nodes.describe_log_dirs(self.cluster, node_ids, partitions)

    async def describe_producers(
        self, partitions: Sequence[TopicPartition]
    ) -> Outcomes[TopicPartition, list[nodes.ActiveProducer]]:
        """Give the producers that partitions know."""
        return await nodes.describe_producers(self.cluster, partitions)
