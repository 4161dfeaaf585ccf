"""The effective value of a config: a topic's own, otherwise its broker's default for topics."""

from collections.abc import Mapping
from enum import IntEnum
from itertools import dropwhile
from typing import Final

import msgspec

from headrace.config.broker import DYNAMIC_ONLY
from headrace.config.registry import find_setting
from headrace.config.setting import InvalidSetting
from headrace.config.settings import Settings
from headrace.config.topic import SYNONYMS, TOPIC_CONFIGS, Synonym


class ConfigSource(IntEnum):
    """The source of a value, as DescribeConfigs numbers it."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Candidate(msgspec.Struct, frozen=True):
    """One possible value of a config: its name and its source."""

    name: str
    text: str | None
    source: ConfigSource


def effective_topic_configs(
    topic_overrides: Mapping[str, str],
    cluster_dynamic: Mapping[str, str],
    broker_dynamic: Mapping[str, str],
    static: Settings,
) -> dict[str, str]:
    """Return every config of a topic that has a value, by name, for `LogSettings.from_configs`.

    The topic's own value wins, then its broker's dynamic one, the cluster's dynamic default, the
    broker's value at startup, and Kafka's default. A value that cannot be parsed is skipped.
    """
    # Fast for a start with many topics: a config that is not set costs nothing.
    found = dict(_DEFAULTS)
    for layer in (static.given, cluster_dynamic, broker_dynamic):
        if not layer or _SYNONYM_NAMES.isdisjoint(layer):
            continue
        for name, synonyms in SYNONYMS.items():
            for synonym in reversed(synonyms):
                if (text := layer.get(synonym.name)) is not None:
                    _put(found, name, _translated(synonym, text))
    for name, text in topic_overrides.items():
        if name in TOPIC_CONFIGS:
            _put(found, name, text)
    return found


def topic_candidates(
    name: str,
    topic_overrides: Mapping[str, str],
    cluster_dynamic: Mapping[str, str],
    broker_dynamic: Mapping[str, str],
    static: Settings,
) -> list[Candidate]:
    """Return the possible values of a topic's config, the effective one first.

    A value that cannot be parsed is skipped: it was checked when it was set, perhaps by another
    version, and a log needs settings whatever the metadata contains.
    """
    definition = TOPIC_CONFIGS[name]
    found: list[Candidate] = []

    def add(known_as: str, text: str | None, source: ConfigSource) -> None:
        try:
            shown = None if text is None else definition.canonical(text)
        except InvalidSetting:
            return
        found.append(Candidate(known_as, shown, source))

    if name in topic_overrides:
        add(name, topic_overrides[name], ConfigSource.TOPIC)
    synonyms = SYNONYMS.get(name, ())
    layers = (
        (ConfigSource.DYNAMIC_BROKER, broker_dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, cluster_dynamic),
        (ConfigSource.STATIC_BROKER, static.given),
    )
    for source, layer in layers:
        for synonym in synonyms:
            if synonym.name in layer:
                add(synonym.name, _translated(synonym, layer[synonym.name]), source)
    if definition.default_text is not None:
        add(name, definition.default_text, ConfigSource.DEFAULT)
    return found


def broker_candidates(
    name: str,
    cluster_dynamic: Mapping[str, str],
    broker_dynamic: Mapping[str, str],
    static: Settings,
) -> list[Candidate]:
    """Return the possible values of a node's setting, the effective one first.

    Synonyms in other units, such as hours for milliseconds, are only listed behind a value of the
    setting itself, as in Kafka. The text of a secret is None. An unknown name has the value that
    was set.
    """
    names = _STAND_INS.get(name, (name,))
    layers = (
        (ConfigSource.DYNAMIC_BROKER, broker_dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, cluster_dynamic),
        (ConfigSource.STATIC_BROKER, static.given),
    )
    found = [
        Candidate(each, _shown(each, layer[each]), source)
        for source, layer in layers
        for each in names
        if each in layer
    ]
    for each in names:
        definition = find_setting(each)
        text = None if definition is None else definition.default_text
        if text is not None and each not in DYNAMIC_ONLY:
            found.append(Candidate(each, text, ConfigSource.DEFAULT))
    return list(dropwhile(lambda candidate: candidate.name != name, found))


def _put(found: dict[str, str], name: str, text: str) -> None:
    """Store a value unless it cannot be parsed."""
    try:
        shown = TOPIC_CONFIGS[name].canonical(text)
    except InvalidSetting:
        return
    if shown is not None:
        found[name] = shown


def _shown(name: str, text: str) -> str | None:
    definition = find_setting(name)
    if definition is None or definition.is_sensitive:
        return None
    try:
        return definition.canonical(text)
    except InvalidSetting:
        return text


def _translated(synonym: Synonym, text: str) -> str:
    try:
        return synonym.translate(text)
    except ValueError:
        return text


_DEFAULTS: Final[Mapping[str, str]] = {
    name: each.default_text for name, each in TOPIC_CONFIGS.items() if each.default_text is not None
}
_SYNONYM_NAMES: Final = frozenset(
    synonym.name for synonyms in SYNONYMS.values() for synonym in synonyms
)
_STAND_INS: Final[Mapping[str, tuple[str, ...]]] = {
    name: names
    for names in (
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    for name in names
} | {"log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")}
"""The settings of a node that mean the same in other units, by precedence."""
