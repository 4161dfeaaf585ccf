"""Checks of the settings of the tier against each other: Kafka's own, and what is not supported."""

from typing import Final

from headrace.config import broker, storage, tier
from headrace.config.effective import effective_topic_configs
from headrace.config.setting import AnySetting, InvalidSetting, Setting
from headrace.config.settings import Settings, Source
from headrace.config.topic_checks import check_local_retention
from headrace.config.values import shorten

_ONLY: Final[tuple[tuple[AnySetting, str | None], ...]] = (
    (tier.REMOTE_LOG_METADATA_MANAGER_CLASS_NAME, tier.TOPIC_BASED),
    (tier.REMOTE_LOG_METADATA_MANAGER_CLASS_PATH, None),
    (tier.REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX, tier.RLMM_PREFIX),
    (tier.REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME, None),
    (tier.REMOTE_LOG_STORAGE_MANAGER_CLASS_PATH, None),
)
"""Settings that name classes which Kafka's JVM would load, and the one value that each may have."""

_OWN_PREFIX: Final = "headrace.tier."
_OF_TIER: Final[tuple[AnySetting, ...]] = (
    *(each for each in vars(tier).values() if isinstance(each, Setting)),
    *(storage.LOG_LOCAL_RETENTION_BYTES, storage.LOG_LOCAL_RETENTION_MS),
)


def check_tier(settings: Settings) -> None:
    """Raise InvalidSetting if a node has a tier that it cannot have; without one all is well."""
    if not settings[tier.REMOTE_LOG_STORAGE_SYSTEM_ENABLE]:
        return
    for setting, only in _ONLY:
        value = settings.given.get(setting.name, setting.default or "").strip() or None
        if value not in (None, only):
            way_out = f"must be {only}" if only else f"must be empty, use {tier.TIER_STORE.name}"
            raise InvalidSetting(
                f"{setting.name}={shorten(value)}: Kafka's classes cannot be loaded here; {way_out}"
            )
    if not settings[tier.TIER_STORE]:
        raise InvalidSetting(
            f"{tier.TIER_STORE.name}: must name a store, such as file:///var/tier or "
            f"s3://bucket/prefix, with {tier.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=true"
        )
    _check_listener(settings)
    check_local_retention(effective_topic_configs({}, {}, {}, settings))


def find_idle(settings: Settings) -> list[str]:
    """Return the names of Kafka's settings of a tier that were set on a node without one.

    Kafka takes them, so they are for a note. InvalidSetting names one of ours: whoever sets that
    believes to have a tier. This is for a start, as a default of the cluster may be for other
    nodes. The variable HEADRACE_TIER_STORE is for commands, too, and says nothing of a node.
    """
    switch = tier.REMOTE_LOG_STORAGE_SYSTEM_ENABLE
    if settings[switch]:
        return []
    idle = [
        each.name
        for each in _OF_TIER
        if each.name in settings.given and settings[each] != each.default
    ]
    if tier.TIER_STORE.name in idle and settings.source(tier.TIER_STORE.name) is Source.ENVIRONMENT:
        idle.remove(tier.TIER_STORE.name)
    for name in idle:
        if name.startswith(_OWN_PREFIX):
            raise InvalidSetting(f"{name}: has no effect without {switch.name}=true")
    return sorted(idle)


def _check_listener(settings: Settings) -> None:
    setting = tier.REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME
    if (name := settings[setting]) is None:
        return
    known = [each.partition("://")[0].upper() for each in settings[broker.LISTENERS]]
    if name.upper() not in known:
        raise InvalidSetting(
            f"{setting.name}={shorten(name)}: must be one of the listeners, {', '.join(known)}"
        )
