"""Admin methods for topics, records and configs."""

from collections.abc import Iterable, Mapping, Sequence

from headrace.client import configs, offsets, topics
from headrace.client.administration.connected import Connected
from headrace.client.configs import Change, Config, Resource, ResourceType
from headrace.client.metadata import Topic
from headrace.client.outcomes import Outcomes, values_of
from headrace.client.topics import CreatedTopic, NewTopic, TopicPartition
from headrace.errors import KafkaError


class TopicMethods(Connected):
    """Topics, records and configs."""

    async def create_topic(
        self,
        name: str,
        partitions: int = topics.BROKERS_DEFAULT,
        replication_factor: int = topics.BROKERS_DEFAULT,
        *,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create a topic; the broker chooses counts that are not given."""
        topic = NewTopic(name, partitions, replication_factor, configs or {})
        return values_of(await self.create_topics([topic], validate_only=validate_only))[name]

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics, or only validate the request."""
        return await topics.create_topics(self.cluster, new, validate_only=validate_only)

    async def list_topics(self, *, with_internal: bool = False) -> list[Topic]:
        """Return the topics with their partitions, sorted by name."""
        found = await self.cluster.list_topics()
        return [topic for topic in found if with_internal or not topic.is_internal]

    async def describe_topic(self, name: str) -> Topic:
        """Return the current description of a topic."""
        self.cluster.forget(name)
        return await self.cluster.topic(name)

    async def describe_topics(self, names: Sequence[str]) -> Outcomes[str, Topic]:
        """Return the current descriptions of topics."""
        outcomes: Outcomes[str, Topic] = {}
        for name in names:
            try:
                outcomes[name] = await self.describe_topic(name)
            except KafkaError as error:
                outcomes[name] = error
        return outcomes

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records."""
        values_of(await self.delete_topics([name]))

    async def delete_topics(self, names: Sequence[str]) -> Outcomes[str, None]:
        """Delete topics and their records."""
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
        """Return the configs of resources, all or some by name, with their sources."""
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
        """Return the resources of a type that exist or have configs."""
        return await configs.list_resources(self.cluster, kind)

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, is_committed: bool = False
    ) -> Outcomes[TopicPartition, offsets.FoundOffset]:
        """Look offsets up by `Start` or by time in ms since 1970.

        With `is_committed` the end is the last stable offset.
        """
        return await offsets.list_offsets(self.cluster, times, is_committed=is_committed)

    async def delete_records(
        self, up_to: Mapping[TopicPartition, int]
    ) -> Outcomes[TopicPartition, int]:
        """Delete records before these offsets (-1: all); return the new start offsets."""
        return await offsets.delete_records(self.cluster, up_to)
