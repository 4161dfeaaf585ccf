"""Configs of topics, brokers and groups, features, and cluster-wide state.

Names and values of configs are checked before the proposal, against `headrace.config`: a later
version may know more of them, and an older log must stay readable.
"""

from headrace.errors import ErrorCode
from headrace.ids import TopicName
from headrace.metadata.ddl import (
    RaiseLevel,
    SetClusterId,
    SetConfigs,
    SetConfigsIf,
    SetFeature,
    SetFeaturesIf,
)
from headrace.metadata.eligible import ALL_BROKERS, MIN_INSYNC_REPLICAS
from headrace.metadata.entries import ClusterVersionBump
from headrace.metadata.errors import refuse
from headrace.metadata.events import (
    ClusterIdSet,
    ClusterVersionChanged,
    ConfigsChanged,
    Event,
    FeatureChanged,
)
from headrace.metadata.features import HEADRACE_VERSION, METADATA_VERSION
from headrace.metadata.image import Image
from headrace.metadata.partitions import clear_eligible
from headrace.metadata.state import ResourceType


def set_configs(image: Image, ddl: SetConfigs) -> list[Event]:
    """Set and take away configs of a resource; refused for a topic that does not exist."""
    topic = None
    if ddl.resource_type is ResourceType.TOPIC:
        topic = image.topic(TopicName(ddl.resource_name))
        if topic is None:
            raise refuse(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {ddl.resource_name}"
            )
    key = (ddl.resource_type, ddl.resource_name)
    current = image.state.configs.get(key, {})
    changed = {name: value for name, value in ddl.values.items() if current.get(name) != value}
    if not changed:
        return []
    merged = {**current, **changed}
    values = {name: value for name, value in merged.items() if value is not None}
    if values:
        image.state.configs[key] = values
    else:
        image.state.configs.pop(key, None)
    if topic is not None:
        topic.version += 1
    events: list[Event] = [ConfigsChanged(ddl.resource_type, ddl.resource_name, tuple(changed))]
    if MIN_INSYNC_REPLICAS in changed:
        events += _clear_eligible(image, *key)
    return events


def set_configs_if(image: Image, ddl: SetConfigsIf) -> list[Event]:
    """Set configs of a resource; refused if others have changed what they were planned from."""
    current = image.configs(ddl.resource_type, ddl.resource_name)
    for name, expected in ddl.expected.items():
        if current.get(name) != expected:
            raise refuse(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{name} of {ddl.resource_name} was changed at the same time",
            )
    return set_configs(image, SetConfigs(ddl.resource_type, ddl.resource_name, ddl.values))


def _clear_eligible(image: Image, resource_type: ResourceType, name: str) -> list[Event]:
    """Empty the ELRs that were made with another min.insync.replicas."""
    if resource_type is ResourceType.TOPIC:
        return clear_eligible(image, (TopicName(name),))
    if resource_type is not ResourceType.BROKER or name != ALL_BROKERS:
        return []
    inheriting = [
        topic
        for topic in image.topics_with_elr()
        if MIN_INSYNC_REPLICAS not in image.configs(ResourceType.TOPIC, topic)
    ]
    return clear_eligible(image, inheriting)


def set_feature(image: Image, ddl: SetFeature) -> list[Event]:
    """Finalize a feature; zero is the level of one that is not."""
    if image.feature_level(ddl.name) == ddl.level:
        return []
    if ddl.level:
        image.state.features[ddl.name] = ddl.level
    else:
        del image.state.features[ddl.name]
    return [FeatureChanged(ddl.name, ddl.level)]


def set_features_if(image: Image, ddl: SetFeaturesIf) -> list[Event]:
    """Finalize features; refused if others have changed what they were planned from."""
    for name, expected in ddl.expected.items():
        if image.feature_level(name) != expected:
            raise refuse(ErrorCode.INVALID_UPDATE_VERSION, f"{name} was changed at the same time")
    events: list[Event] = []
    for name, level in ddl.levels.items():
        events += set_feature(image, SetFeature(name, level))
    version, current = ddl.levels.get(METADATA_VERSION, 0), image.state.cluster_version
    if version > current:
        events += bump_version(image, ClusterVersionBump(current, version))
    return events


def raise_level(image: Image, ddl: RaiseLevel) -> list[Event]:
    """Raise headrace.version; refused while a broker is registered that does not know the level."""
    if ddl.level <= image.feature_level(HEADRACE_VERSION):
        return []
    for broker in image.brokers():
        _, highest = broker.features.get(HEADRACE_VERSION, (0, 0))
        if highest < ddl.level:
            raise refuse(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{HEADRACE_VERSION} cannot go to {ddl.level}: broker {broker.broker_id} can be at "
                f"{highest} at most; upgrade it first",
            )
    image.state.features[HEADRACE_VERSION] = ddl.level
    return [FeatureChanged(HEADRACE_VERSION, ddl.level)]


def set_cluster_id(image: Image, ddl: SetClusterId) -> list[Event]:
    """Set the cluster's id; refused if it has another."""
    if image.state.cluster_id == ddl.cluster_id:
        return []
    if image.state.cluster_id or not ddl.cluster_id:
        raise refuse(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the cluster's id is {image.state.cluster_id!r} and cannot become {ddl.cluster_id!r}",
        )
    image.state.cluster_id = ddl.cluster_id
    return [ClusterIdSet(ddl.cluster_id)]


def bump_version(image: Image, entry: ClusterVersionBump) -> list[Event]:
    """Raise the cluster's version; refused unless it starts at the present one and goes up."""
    current = image.state.cluster_version
    if entry.from_version != current or entry.to_version <= current:
        raise refuse(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the cluster's version is {current}: it cannot go from {entry.from_version} to "
            f"{entry.to_version}",
        )
    image.state.cluster_version = entry.to_version
    return [ClusterVersionChanged(entry.to_version)]
