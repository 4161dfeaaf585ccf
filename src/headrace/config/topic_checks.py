"""Checks across a topic's configs, as in Kafka."""

from collections.abc import Mapping

from headrace.config import topic
from headrace.config.registry import unknown
from headrace.config.setting import InvalidSetting, Setting
from headrace.config.topic import TOPIC_CONFIGS


def check_topic_configs(
    own: Mapping[str, str], effective: Mapping[str, str], *, has_tier: bool = False
) -> None:
    """Raise InvalidSetting if a topic may not have the configs `own`.

    `effective` has the resulting values, including inherited ones. Without a tier at this broker
    (remote.log.storage.system.enable) a topic cannot move to it.
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
    if not topic.REMOTE_STORAGE_ENABLE.parse(values.get("remote.storage.enable", "false")):
        return
    if not has_tier:
        raise InvalidSetting(
            "remote.storage.enable=true: this broker has no tier; start it with "
            "remote.log.storage.system.enable=true"
        )
    _check_tiered(values)


def _check_tiered(values: Mapping[str, str]) -> None:
    if "compact" in topic.CLEANUP_POLICY.parse(values.get("cleanup.policy", "delete")):
        raise InvalidSetting(
            "cleanup.policy=compact: a topic in the tier may only have delete, or nothing"
        )
    is_copied = not topic.REMOTE_LOG_COPY_DISABLE.parse(
        values.get("remote.log.copy.disable", "false")
    )
    pairs = (
        (topic.LOCAL_RETENTION_MS, topic.RETENTION_MS),
        (topic.LOCAL_RETENTION_BYTES, topic.RETENTION_BYTES),
    )
    for local, whole in pairs:
        local_value, whole_value = _number(values, local), _number(values, whole)
        if local_value in (-2, whole_value):
            continue
        if not is_copied:
            raise InvalidSetting(
                f"{local.name}={local_value}: must be {whole.name}={whole_value}, as "
                "remote.log.copy.disable=true leaves nothing to move"
            )
        if whole_value != -1 and not 0 <= local_value <= whole_value:
            raise InvalidSetting(
                f"{local.name}={local_value}: must be at most {whole.name}={whole_value}"
            )


def _number(values: Mapping[str, str], setting: Setting[int]) -> int:
    text = values.get(setting.name)
    return setting.default if text is None else setting.parse(text)
