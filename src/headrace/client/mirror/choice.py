"""What is mirrored: topics and groups by regular expressions, and which configs go along. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.client.configs import Config, ConfigSource
from headrace.client.errors import ClientError
from headrace.config import InvalidSetting
from headrace.config.topic import MIRROR_SOURCE, TOPIC_CONFIGS
from headrace.ids import ZERO_TOPIC_ID, TopicId, parse_topic_id, topic_id_text

NEVER: Final = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
"""Topics of a cluster about itself, marked as internal or not."""
PATTERN_LENGTH_MAX: Final = 1000
NOT_COPIED: Final = frozenset(
    {
        MIRROR_SOURCE.name,
        "follower.replication.throttled.replicas",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
"""Configs that are about the nodes and the tier of one cluster."""

TIERED: Final = ("remote.storage.enable", "confluent.tier.enable", "redpanda.remote.read")
"""Configs of topics whose records are in a tier, in Kafka and in brokers that are like it."""


class InvalidChoice(ClientError):
    """A regular expression that is none, or a topic that is no mirror."""


class Choice(msgspec.Struct, frozen=True):
    """Names by regular expressions, each of which must match a whole name."""

    wanted: tuple[str, ...] = (".*",)
    excluded: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidChoice if one is not a regular expression."""
        for pattern in (*self.wanted, *self.excluded):
            if len(pattern) > PATTERN_LENGTH_MAX:
                raise InvalidChoice(f"a regular expression of {len(pattern)} characters: too long")
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidChoice(f"{pattern!r} is no regular expression: {error}") from None

    def has(self, name: str) -> bool:
        """Return whether a name is chosen."""
        return any(re.fullmatch(each, name) for each in self.wanted) and not any(
            re.fullmatch(each, name) for each in self.excluded
        )


def source_name(cluster_id: str | None, topic_id: TopicId) -> str:
    """Return a topic of a cluster as the config headrace.mirror.source has it."""
    known = "" if topic_id == ZERO_TOPIC_ID else topic_id_text(topic_id)
    return f"{re.sub('[^A-Za-z0-9_.-]', '_', cluster_id or 'unknown')[:128]}/{known}"


def source_topic_id(source: str) -> TopicId:
    """Return the topic id in the config headrace.mirror.source, zeros if it has none."""
    text = source.rpartition("/")[2]
    try:
        return TopicId(parse_topic_id(text)) if text else ZERO_TOPIC_ID
    except ValueError:
        return ZERO_TOPIC_ID


def may_end_early(rows: Iterable[Config]) -> bool:
    """Return whether compaction may have removed the last records of a topic.

    Only if the topic has no tier: a broker whose tier is slow responds without records, too, and
    those are there.
    """
    values = {row.name: row.value or "" for row in rows}
    has_tier = any(values.get(name, "").lower() == "true" for name in TIERED)
    return "compact" in values.get("cleanup.policy", "") and not has_tier


class Configs(msgspec.Struct, frozen=True):
    """The configs of a topic at the source, as far as they concern its mirror."""

    copied: Mapping[str, str]
    left: Mapping[str, str]
    """Those that were set for the topic and are not copied."""


def choose_configs(rows: Iterable[Config]) -> Configs:
    """Return the configs to copy: those that are not what a topic of Headrace has by default.

    Whether a topic or a broker of the source has the value does not matter: the mirror behaves
    like the source.
    """
    copied: dict[str, str] = {}
    left: dict[str, str] = {}
    for row in rows:
        if row.value is None or row.is_sensitive:
            continue
        is_own = row.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        setting = TOPIC_CONFIGS.get(row.name)
        if setting is None or row.name in NOT_COPIED:
            if is_own:
                left[row.name] = row.value
            continue
        try:
            is_usual = setting.canonical(row.value) == setting.default_text
        except InvalidSetting:
            left[row.name] = row.value
            continue
        if not is_usual:
            copied[row.name] = row.value
    return Configs(copied, left)


class ConfigChanges(msgspec.Struct, frozen=True):
    """How the configs of a mirror have to change."""

    set: Mapping[str, str]
    unset: Sequence[str]


def plan_configs(current: Mapping[str, str], wanted: Mapping[str, str]) -> ConfigChanges:
    """Return the changes from a mirror's own configs to the wanted ones."""
    return ConfigChanges(
        {name: value for name, value in wanted.items() if current.get(name) != value},
        sorted(name for name in current if name not in wanted and name not in NOT_COPIED),
    )
