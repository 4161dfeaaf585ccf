"""What DescribeConfigs shows of a resource: a row for each config, with its source and synonyms."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from headrace.config import ConfigSource, Settings, effective_topic_configs
from headrace.config.broker import DYNAMIC_ONLY
from headrace.config.client_metrics import CLIENT_METRICS_CONFIGS
from headrace.config.effective import Candidate, broker_candidates
from headrace.config.group_configs import BROKER_RANGES, GROUP_CONFIGS
from headrace.config.registry import broker_settings, find_setting
from headrace.config.setting import AnySetting
from headrace.config.topic import SYNONYMS, TOPIC_CONFIGS
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.metadata.state import ResourceType
from headrace.server import loggers
from headrace.server.broker import Broker
from headrace.topics.configs import CLUSTER_DEFAULT
from headrace.topics.validation import check_name
from headrace.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

UNKNOWN_TYPE: Final = 0

Row = DescribeConfigsResourceResult
Layers = tuple[Mapping[str, str], Mapping[str, str]]
"""Dynamic configs: those of all brokers, those of this one."""


class ConfigRows:
    """The rows of one response. Resources that are configured alike share theirs."""

    def __init__(self, broker: Broker, *, has_synonyms: bool, has_documentation: bool) -> None:
        self._broker = broker
        self._layers = _layers(broker)
        self._has_synonyms = has_synonyms
        self._has_documentation = has_documentation
        self._shared: dict[object, list[Row]] = {}
        self._cost = 0

    def of(self, resource_type: int, name: str) -> list[Row]:
        """Return every config of a resource sorted by name; do not modify the result.

        Raise KafkaError if there is no such resource, or if another node has it.
        """
        broker, layers = self._broker, self._layers
        match resource_type:
            case ResourceType.BROKER:
                return self._share(
                    (resource_type, name), lambda: _broker_rows(broker, name, *layers)
                )
            case ResourceType.BROKER_LOGGER:
                return self._share((resource_type, name), lambda: _logger_rows(broker, name))
            case ResourceType.TOPIC:
                _require_topic(broker, name)
            case ResourceType.CLIENT_METRICS | ResourceType.GROUP:
                _require_name(name)
            case _:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"there is no resource type {resource_type}; there are "
                    + ", ".join(f"{each.name} ({each.value})" for each in ResourceType),
                )
        kind = ResourceType(resource_type)
        own = broker.image.configs(kind, name)
        return self._share(
            (kind, tuple(own.items())),
            lambda: _ROWS_OF[kind](own, layers, broker.settings.at_start),
        )

    def take_cost(self) -> int:
        """Return how much work there was since this was last asked, in units of a slice."""
        cost, self._cost = self._cost, 0
        return cost

    def _share(self, key: object, make: Callable[[], list[Row]]) -> list[Row]:
        found = self._shared.get(key)
        if found is not None:
            return found
        rows = self._shared[key] = make()
        self._cost += _UNITS_PER_ROW * len(rows)
        for row in rows:
            if not self._has_synonyms:
                row.synonyms = []
            if not self._has_documentation:
                row.documentation = None
        return rows


_UNITS_PER_ROW: Final = 5


def require_this_node(broker: Broker, name: str) -> None:
    """INVALID_REQUEST unless `name` is the number of this node: others know their own configs."""
    if name != str(broker.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name!r} is not the id of this broker, which is {broker.node_id}: "
            "ask a broker for its own configs",
        )


def _require_topic(broker: Broker, name: str) -> None:
    check_name(name)
    if broker.image.topic(TopicName(name)) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _topic_rows(own: Mapping[str, str], layers: Layers, settings: Settings) -> list[Row]:
    effective = effective_topic_configs(own, *layers, settings)
    rows = []
    for key, setting in sorted(TOPIC_CONFIGS.items()):
        if setting.is_internal and key not in own:
            continue
        inherited = [
            candidate
            for synonym in SYNONYMS.get(key, ())[:1]
            for candidate in broker_candidates(synonym.name, *layers, settings)
        ]
        found = [Candidate(key, effective.get(key), ConfigSource.TOPIC)] if key in own else []
        rows.append(_row(setting, effective.get(key), [*found, *inherited]))
    return rows


def _broker_rows(
    broker: Broker,
    name: str,
    cluster_dynamic: Mapping[str, str],
    broker_dynamic: Mapping[str, str],
) -> list[Row]:
    if name == CLUSTER_DEFAULT:
        return [
            _broker_row(
                key,
                [
                    each
                    for each in broker_candidates(
                        key, cluster_dynamic, {}, broker.settings.at_start
                    )
                    if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
                ],
            )
            for key in sorted(cluster_dynamic)
        ]
    require_this_node(broker, name)
    dynamic = cluster_dynamic.keys() | broker_dynamic.keys()
    at_start = broker.settings.at_start
    return [
        _broker_row(key, broker_candidates(key, cluster_dynamic, broker_dynamic, at_start))
        for key in (sorted({*_SHOWN, *dynamic}) if dynamic else _SHOWN)
    ]


_SHOWN: Final = tuple(
    key
    for key, setting in sorted(broker_settings().items())
    if not setting.is_internal and key not in DYNAMIC_ONLY
)
"""The settings that are shown whether they are set or not, sorted."""


def _broker_row(name: str, candidates: Sequence[Candidate]) -> Row:
    setting = find_setting(name)
    value = candidates[0].text if candidates else None
    if setting is not None:
        row = _row(setting, value, candidates)
        row.read_only = not setting.is_dynamic or name not in broker_settings()
        return row
    # A plugin of another broker may know it, and it may be a secret.
    return Row(
        name=name,
        value=None,
        read_only=True,
        config_source=candidates[0].source,
        is_sensitive=True,
        synonyms=_synonyms(candidates),
        config_type=UNKNOWN_TYPE,
        documentation=None,
    )


def _logger_rows(broker: Broker, name: str) -> list[Row]:
    require_this_node(broker, name)
    return [
        Row(
            name=logger,
            value=level,
            config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            config_type=UNKNOWN_TYPE,
            documentation=None,
        )
        for logger, level in loggers.levels().items()
    ]


def _client_metrics_rows(own: Mapping[str, str], layers: Layers, settings: Settings) -> list[Row]:
    rows = []
    for key, setting in sorted(CLIENT_METRICS_CONFIGS.items()):
        found = []
        if key in own:
            found = [Candidate(key, setting.canonical(own[key]), ConfigSource.CLIENT_METRICS)]
        value = found[0].text if found else setting.default_text
        rows.append(_row(setting, value, found))
    return rows


def _group_rows(own: Mapping[str, str], layers: Layers, settings: Settings) -> list[Row]:
    rows = []
    for key, setting in sorted(GROUP_CONFIGS.items()):
        found = []
        if key in own:
            found.append(Candidate(key, setting.canonical(own[key]), ConfigSource.GROUP))
        if bounds := BROKER_RANGES.get(key):
            found += broker_candidates(bounds.synonym.name, *layers, settings)
        else:
            found.append(Candidate(key, setting.default_text, ConfigSource.DEFAULT))
        rows.append(_row(setting, found[0].text, found))
    return rows


def _row(setting: AnySetting, value: str | None, candidates: Sequence[Candidate]) -> Row:
    return Row(
        name=setting.name,
        value=None if setting.is_sensitive else value,
        config_source=candidates[0].source if candidates else ConfigSource.DEFAULT,
        is_sensitive=setting.is_sensitive,
        synonyms=_synonyms(candidates),
        config_type=setting.type,
        documentation=setting.meaning,
    )


def _synonyms(candidates: Iterable[Candidate]) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=each.name, value=each.text, source=each.source)
        for each in candidates
    ]


def _layers(broker: Broker) -> Layers:
    """Return the dynamic configs of all brokers, and of this one."""
    image = broker.image
    return (
        dict(image.configs(ResourceType.BROKER, CLUSTER_DEFAULT)),
        dict(image.configs(ResourceType.BROKER, str(broker.node_id))),
    )


def _require_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource has no name")


_ROWS_OF: Final[
    Mapping[ResourceType, Callable[[Mapping[str, str], Layers, Settings], list[Row]]]
] = {
    ResourceType.TOPIC: _topic_rows,
    ResourceType.CLIENT_METRICS: _client_metrics_rows,
    ResourceType.GROUP: _group_rows,
}
