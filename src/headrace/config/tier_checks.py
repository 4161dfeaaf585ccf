"""Checks of the settings of the tier against each other: Kafka's own, and what is not supported."""

from typing import Final

from headrace.config import broker, tier
from headrace.config.effective import effective_topic_configs
from headrace.config.setting import AnySetting, InvalidSetting
from headrace.config.settings import Settings
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


def _check_listener(settings: Settings) -> None:
    setting = tier.REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME
    if (name := settings[setting]) is None:
        return
    known = [each.partition("://")[0].upper() for each in settings[broker.LISTENERS]]
    if name.upper() not in known:
        raise InvalidSetting(
            f"{setting.name}={shorten(name)}: must be one of the listeners, {', '.join(known)}"
        )
