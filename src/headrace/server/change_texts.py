"""Changes of the metadata in words: what they are about, without any value that may be a secret."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headrace.ids import TopicId
from headrace.metadata import ddl
from headrace.metadata.entries import Entry
from headrace.metadata.image import Image
from headrace.metadata.state import Acl
from headrace.security.authorizer import describe_acl
from headrace.security.quotas.entities import describe as describe_entity

DETAILED_MAX: Final = 20
"""How many parts of a change are described."""


class ChangeText(NamedTuple):
    """What a change is and what it is about."""

    change: str
    resource: str
    name: str
    details: str = ""

    def __str__(self) -> str:
        return f"{self.change} {self.resource} {self.name}".rstrip()


def describe_change(image: Image, change: "Entry | ddl.Ddl") -> ChangeText:
    """Return a change in words; call it before the change is made, which may take a name away."""
    describe = _TEXTS.get(type(change))
    kind = _KINDS.get(type(change)) or type(change).__name__
    if describe is None:
        return ChangeText(kind, "cluster", "")
    return ChangeText(kind, *describe(image, change))


def _topic_name(image: Image, topic_id: bytes) -> str:
    topic = image.topic_by_id(TopicId(topic_id))
    return topic_id.hex() if topic is None else str(topic.name)


def _created(image: Image, change: ddl.CreateTopic) -> tuple[str, ...]:
    return "topic", change.name, f"{len(change.partitions)} partitions"


def _configured(image: Image, change: ddl.SetConfigs | ddl.SetConfigsIf) -> tuple[str, ...]:
    kind = change.resource_type.name.lower().replace("_", "-")
    return kind, change.resource_name, ", ".join(sorted(change.values)[:DETAILED_MAX])


def _partition(image: Image, change: ddl.ChangePartition) -> tuple[str, ...]:
    replicas = change.replicas
    return (
        "partition",
        f"{_topic_name(image, change.topic_id)}-{change.partition}",
        "" if replicas is None else f"replicas {', '.join(map(str, replicas))}",
    )


def _acls(image: Image, change: Any) -> tuple[str, ...]:
    acls: tuple[Acl, ...] = change.acls
    name = acls[0].pattern.name if acls else ""
    return "acl", name, "; ".join(map(describe_acl, acls[:DETAILED_MAX]))


def _token(image: Image, change: Any) -> tuple[str, ...]:
    token = image.delegation_token(change.token_id)
    return "delegation-token", change.token_id, "" if token is None else f"of {token.owner}"


_KINDS: Final[Mapping[type[Any], str]] = {ddl.SetConfigsIf: ddl.SetConfigs.__name__}
"""Changes that are called as others are: to whoever reads it they are the same."""
_TEXTS: Final[Mapping[type[Any], Callable[[Image, Any], tuple[str, ...]]]] = {
    ddl.CreateTopic: _created,
    ddl.DeleteTopic: lambda image, change: ("topic", _topic_name(image, change.topic_id)),
    ddl.AddPartitions: lambda image, change: (
        "topic",
        _topic_name(image, change.topic_id),
        f"{change.expected_count} and {len(change.partitions)} more partitions",
    ),
    ddl.ChangePartition: _partition,
    ddl.SetConfigs: _configured,
    ddl.SetConfigsIf: _configured,
    ddl.SetFeaturesIf: lambda image, change: (
        "feature",
        ", ".join(change.levels),
        ", ".join(f"level {level}" for level in change.levels.values()),
    ),
    ddl.SetFeature: lambda image, change: ("feature", change.name, f"level {change.level}"),
    ddl.AddAcls: _acls,
    ddl.RemoveAcls: _acls,
    ddl.SetScramCredential: lambda image, change: ("user", change.user),
    ddl.RemoveScramCredential: lambda image, change: ("user", change.user),
    ddl.SetQuota: lambda image, change: ("quota", describe_entity(change.entity), change.key),
    ddl.SetDelegationToken: lambda image, change: (
        "delegation-token",
        change.token.token_id,
        f"of {change.token.owner}",
    ),
    ddl.ChangeTokenExpiry: _token,
    ddl.RemoveDelegationToken: _token,
    ddl.UnregisterBroker: lambda image, change: ("node", str(change.broker_id)),
}
