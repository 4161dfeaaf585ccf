"""Checks across a topic's configs, as in Kafka."""

from collections.abc import Mapping
from typing import Final

from headrace.config import topic
from headrace.config.registry import unknown
from headrace.config.setting import InvalidSetting, Setting
from headrace.config.topic import TOPIC_CONFIGS

JOINED: Final = frozenset(
    setting.name
    for setting in (
        topic.CLEANUP_POLICY,
        topic.LOCAL_RETENTION_BYTES,
        topic.LOCAL_RETENTION_MS,
        topic.MAX_COMPACTION_LAG_MS,
        topic.MIN_COMPACTION_LAG_MS,
        topic.REMOTE_LOG_COPY_DISABLE,
        topic.REMOTE_LOG_DELETE_ON_DISABLE,
        topic.REMOTE_STORAGE_ENABLE,
        topic.RETENTION_BYTES,
        topic.RETENTION_MS,
    )
)
"""The configs that are checked with each other."""


def check_topic_configs(
    own: Mapping[str, str],
    effective: Mapping[str, str],
    *,
    has_tier: bool = False,
    was_tiered: bool = False,
) -> None:
    """Raise InvalidSetting if a topic may not have the configs `own`.

    `effective` has the resulting values, including inherited ones. Without a tier at this broker
    (remote.log.storage.system.enable) a topic cannot move to it. One that was in the tier may only
    leave it together with its data there.
    """
    for name, text in own.items():
        if name not in TOPIC_CONFIGS:
            raise unknown(name, TOPIC_CONFIGS, "config of topics")
        TOPIC_CONFIGS[name].parse(text)
    values = {**effective, **own}
    least_ms = _number(values, topic.MIN_COMPACTION_LAG_MS)
    most_ms = _number(values, topic.MAX_COMPACTION_LAG_MS)
    if least_ms > most_ms:
        raise InvalidSetting(
            f"min.compaction.lag.ms={least_ms}: must be at most max.compaction.lag.ms={most_ms}"
        )
    if not is_tiered(values):
        if was_tiered and not _is_true(values, topic.REMOTE_LOG_DELETE_ON_DISABLE):
            raise InvalidSetting(
                "remote.storage.enable=false: needs remote.log.delete.on.disable=true, which "
                "deletes the topic's data in the tier; to keep it and copy no more, leave "
                "remote.storage.enable=true and set remote.log.copy.disable=true"
            )
        return
    if not has_tier:
        raise InvalidSetting(
            "remote.storage.enable=true: this broker has no tier; start it with "
            "remote.log.storage.system.enable=true"
        )
    _check_tiered(values)


def is_tiered(configs: Mapping[str, str]) -> bool:
    """Return whether configs of a topic say that it is in the tier."""
    return _is_true(configs, topic.REMOTE_STORAGE_ENABLE)


def check_local_retention(values: Mapping[str, str]) -> None:
    """Raise InvalidSetting if more is to stay on the local disk than is kept at all."""
    for local, whole in _RETENTIONS:
        local_value, whole_value = _number(values, local), _number(values, whole)
        if local_value in (-2, whole_value) or whole_value == -1:
            continue
        if not 0 <= local_value <= whole_value:
            raise InvalidSetting(
                f"{local.name}={local_value}: must be at most {whole.name}={whole_value}"
            )


def _check_tiered(values: Mapping[str, str]) -> None:
    if "compact" in topic.CLEANUP_POLICY.parse(values.get("cleanup.policy", "delete")):
        raise InvalidSetting(
            "cleanup.policy=compact: a topic in the tier may only have delete, or nothing"
        )
    if _is_true(values, topic.REMOTE_LOG_COPY_DISABLE):
        for local, whole in _RETENTIONS:
            local_value, whole_value = _number(values, local), _number(values, whole)
            if local_value not in (-2, whole_value):
                raise InvalidSetting(
                    f"{local.name}={local_value}: must be {whole.name}={whole_value}, as "
                    "remote.log.copy.disable=true leaves nothing to move"
                )
    check_local_retention(values)


def _is_true(values: Mapping[str, str], setting: Setting[bool]) -> bool:
    text = values.get(setting.name)
    return setting.default if text is None else setting.parse(text)


def _number(values: Mapping[str, str], setting: Setting[int]) -> int:
    text = values.get(setting.name)
    return setting.default if text is None else setting.parse(text)


_RETENTIONS: Final = (
    (topic.LOCAL_RETENTION_MS, topic.RETENTION_MS),
    (topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES),
)
