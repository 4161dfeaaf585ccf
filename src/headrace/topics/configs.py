"""The configs of a new topic: validation, and all effective values."""

from collections.abc import Iterable, Mapping
from typing import Final

from headrace import config
from headrace.config import ConfigSource, InvalidSetting, effective_topic_configs
from headrace.config.effective import topic_candidates
from headrace.config.topic import TOPIC_CONFIGS
from headrace.config.topic_checks import check_topic_configs
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.state import ResourceType
from headrace.server.broker import Broker
from headrace.wire.messages.create_topics_response import CreatableTopicConfigs

CLUSTER_DEFAULT: Final = ""
"""The name of the broker whose dynamic configs are every broker's default."""


def checked_configs(broker: Broker, configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the configs of a request, the last value of each; raise INVALID_CONFIG if invalid."""
    own: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name} has no value: omit it for the default"
            )
        own[name] = value
    if own:
        cluster_dynamic, broker_dynamic = _dynamic(broker)
        inherited = effective_topic_configs(
            {}, cluster_dynamic, broker_dynamic, broker.settings.at_start
        )
        try:
            check_topic_configs(own, inherited, has_tier=has_tier(broker))
        except InvalidSetting as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return own


def has_tier(broker: Broker) -> bool:
    """Return whether topics of this broker can be in the tier."""
    return broker.settings.at_start[config.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]


class TopicConfigRows:
    """The configs of new topics in one response. Topics with equal configs share their rows."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shared: dict[object, list[CreatableTopicConfigs]] = {}

    def of(self, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return every config of a topic with its source; its own values as written."""
        key = tuple(own.items())
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = _topic_config_rows(self._broker, own)
        return found


def _topic_config_rows(broker: Broker, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    cluster_dynamic, broker_dynamic = _dynamic(broker)
    rows = []
    for name, setting in sorted(TOPIC_CONFIGS.items()):
        found = topic_candidates(
            name, own, cluster_dynamic, broker_dynamic, broker.settings.at_start
        )
        if setting.is_internal or not found:
            continue
        holds = found[0]
        rows.append(
            CreatableTopicConfigs(
                name=name,
                value=own[name] if holds.source is ConfigSource.TOPIC else holds.text,
                config_source=holds.source,
                is_sensitive=setting.is_sensitive,
            )
        )
    return rows


def _dynamic(broker: Broker) -> tuple[Mapping[str, str], Mapping[str, str]]:
    image = broker.image
    return (
        image.configs(ResourceType.BROKER, CLUSTER_DEFAULT),
        image.configs(ResourceType.BROKER, str(broker.node_id)),
    )
