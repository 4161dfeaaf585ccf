"""Configs of topics, brokers, groups and client-metrics subscriptions: read them, change them."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, Self

import msgspec

from headrace.client.cluster import ANY_NODE, Cluster
from headrace.client.errors import raise_for, refusal
from headrace.client.outcomes import Outcomes
from headrace.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from headrace.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.messages.list_config_resources_response import ListConfigResourcesResponse


class ResourceType(IntEnum):
    """Resource types with configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value, by Kafka's names."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """The type of a value, by Kafka's names."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Change(IntEnum):
    """The operations on a config."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


DEFAULT_SOURCES: Final = frozenset(
    {ConfigSource.UNKNOWN, ConfigSource.DEFAULT_CONFIG, ConfigSource.STATIC_BROKER_CONFIG}
)
"""Sources of values that were not set dynamically."""


class Resource(msgspec.Struct, frozen=True):
    """A topic by name, a broker by id ("" for all of them), a group, a subscription."""

    resource_type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        """Return a topic by name."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> Self:
        """Return a broker by id, or the cluster-wide default of brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Return a group by name."""
        return cls(ResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, subscription: str) -> Self:
        """Return a subscription to metrics of clients (KIP-714) by name."""
        return cls(ResourceType.CLIENT_METRICS, subscription)

    def __str__(self) -> str:
        word = self.resource_type.name.lower().replace("_", "-")
        return f"{word} {self.name}" if self.name else f"every {word}"


class Synonym(msgspec.Struct, frozen=True):
    """The value's next source if the previous ones were unset."""

    name: str
    value: str | None
    source: ConfigSource


class Config(msgspec.Struct, frozen=True):
    """One config of a resource. The value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    config_type: ConfigType
    synonyms: tuple[Synonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether it was not set dynamically."""
        return self.source in DEFAULT_SOURCES


async def describe_configs(
    cluster: Cluster,
    resources: Sequence[Resource],
    *,
    names: Sequence[str] | None = None,
    with_documentation: bool = False,
) -> Outcomes[Resource, list[Config]]:
    """Return the configs of each resource, sorted by name; a broker's own from that broker."""
    outcomes: Outcomes[Resource, list[Config]] = {}
    for node_id, group in _by_node(resources).items():
        body = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.resource_type,
                    resource_name=resource.name,
                    configuration_keys=None if names is None else list(names),
                )
                for resource in group
            ],
            include_synonyms=True,
            include_documentation=with_documentation,
        )
        answer = await cluster.ask(body, DescribeConfigsResponse, node_id=node_id)
        for row in answer.results:
            resource = Resource(ResourceType(row.resource_type), row.resource_name)
            if row.error_code:
                outcomes[resource] = refusal(row.error_code, row.error_message, str(resource))
            else:
                outcomes[resource] = sorted(map(_config, row.configs), key=lambda item: item.name)
    return outcomes


async def alter_configs(
    cluster: Cluster,
    changes: Mapping[Resource, Sequence[tuple[Change, str, str | None]]],
    *,
    validate_only: bool = False,
) -> Outcomes[Resource, None]:
    """Change some configs of each resource; the others are unchanged.

    A change is (what, name, value); the value is None for DELETE.
    """
    outcomes: Outcomes[Resource, None] = {}
    for node_id, group in _by_node(changes).items():
        body = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.resource_type,
                    resource_name=resource.name,
                    configs=[
                        AlterableConfig(name=name, config_operation=change, value=value)
                        for change, name, value in changes[resource]
                    ],
                )
                for resource in group
            ],
            validate_only=validate_only,
        )
        answer = await cluster.ask(body, IncrementalAlterConfigsResponse, node_id=node_id)
        for row in answer.responses:
            resource = Resource(ResourceType(row.resource_type), row.resource_name)
            outcomes[resource] = (
                refusal(row.error_code, row.error_message, str(resource))
                if row.error_code
                else None
            )
    return outcomes


async def list_resources(cluster: Cluster, kind: ResourceType) -> list[Resource]:
    """Return the resources of a type that exist or have configs."""
    body = ListConfigResourcesRequest(resource_types=[kind])
    answer = await cluster.ask(
        body, ListConfigResourcesResponse, code_of=lambda answer: answer.error_code
    )
    raise_for(answer.error_code, None, "the list of resources")
    rows = [
        Resource(ResourceType(row.resource_type), row.resource_name)
        for row in answer.config_resources
    ]
    return sorted(rows, key=lambda resource: resource.name)


def _by_node(
    resources: Mapping[Resource, object] | Sequence[Resource],
) -> dict[int, list[Resource]]:
    """Group resources by target node: a broker for itself, any node for the rest."""
    groups: dict[int, list[Resource]] = {}
    for resource in resources:
        is_own = resource.resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        node_id = int(resource.name) if is_own and resource.name.isdecimal() else ANY_NODE
        groups.setdefault(node_id, []).append(resource)
    return groups


def _config(row: DescribeConfigsResourceResult) -> Config:
    return Config(
        row.name,
        row.value,
        _source(row.config_source),
        row.read_only,
        row.is_sensitive,
        ConfigType(row.config_type) if row.config_type in _TYPES else ConfigType.UNKNOWN,
        tuple(Synonym(item.name, item.value, _source(item.source)) for item in row.synonyms),
        row.documentation or None,
    )


def _source(code: int) -> ConfigSource:
    return ConfigSource(code) if code in _SOURCES else ConfigSource.UNKNOWN


_SOURCES: Final = frozenset(ConfigSource)
_TYPES: Final = frozenset(ConfigType)
