"""Share group configs, as the leaders of share partitions use them."""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from headrace.config import AnySettings
from headrace.config.group_configs import (
    BROKER_RANGES,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_BREAKER_PAUSE_MS,
    SHARE_BREAKER_RECORDS_MIN,
    SHARE_BREAKER_REJECT_PERCENT,
    SHARE_BREAKER_WINDOW_MS,
    SHARE_DEAD_LETTER_COPY,
    SHARE_DEAD_LETTER_TOPIC,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION_MS,
    SHARE_RELEASE_BACKOFF_MAX_MS,
    SHARE_RELEASE_BACKOFF_MS,
    SHARE_RENEW_ACKNOWLEDGE_ENABLE,
)
from headrace.config.setting import Setting
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.share.breaker import BreakerLimits
from headrace.share.partition.types import Limits

T = TypeVar("T")

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"\+?P(?:\+?(\d+)D)?(?:T(?:\+?(\d+)H)?(?:\+?(\d+)M)?(?:\+?(\d+(?:[.,]\d*)?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS_MS: Final = (86_400_000, 3_600_000, 60_000, 1000)


class ShareGroupSettings(NamedTuple):
    """A share group's effective configs: its own, else the node's."""

    limits: Limits
    is_committed: bool
    """Whether records of open and aborted transactions are withheld (share.isolation.level)."""
    offset_reset: str
    """latest, earliest or by_duration: where an unread partition starts."""
    dead_letter_topic: str = ""
    """The dead-letter topic; empty for none."""
    is_dead_letter_copied: bool = True
    """Whether a letter copies its record or only refers to it."""
    breaker: BreakerLimits = BreakerLimits()


class ShareGroupConfigs:
    """The settings of one share group, recomputed only after a change."""

    __slots__ = ("_configs", "_group_id", "_image_of", "_settings", "known")

    def __init__(self, group_id: str, settings: AnySettings, image_of: Callable[[], Image]) -> None:
        self._group_id = group_id
        self._settings = settings
        self._image_of = image_of
        self._configs: Mapping[str, str] | None = None
        self.known: ShareGroupSettings
        """The last result of `now`, for callers that called it in this turn of the loop."""

    def now(self) -> ShareGroupSettings:
        # A change of a resource's configs replaces its mapping.
        configs = self._image_of().configs(ResourceType.GROUP, self._group_id)
        if configs is not self._configs:
            self._configs, self.known = configs, _read(configs, self._settings)
        return self.known

    def limits(self) -> Limits:
        return self.now().limits

    def breaker_limits(self) -> BreakerLimits:
        return self.now().breaker


def _read(configs: Mapping[str, str], node: AnySettings) -> ShareGroupSettings:
    dead_letter_topic = _value(configs, SHARE_DEAD_LETTER_TOPIC)
    limits = Limits(
        lock_duration_ms=_number(configs, SHARE_RECORD_LOCK_DURATION_MS, node),
        delivery_count_limit=_number(configs, SHARE_DELIVERY_COUNT_LIMIT, node),
        in_flight_max=_number(configs, SHARE_PARTITION_MAX_RECORD_LOCKS, node),
        is_renew_allowed=_value(configs, SHARE_RENEW_ACKNOWLEDGE_ENABLE),
        has_dead_letters=bool(dead_letter_topic),
        release_backoff_ms=_value(configs, SHARE_RELEASE_BACKOFF_MS),
        release_backoff_max_ms=_value(configs, SHARE_RELEASE_BACKOFF_MAX_MS),
    )
    return ShareGroupSettings(
        limits,
        _value(configs, SHARE_ISOLATION_LEVEL) == "read_committed",
        _value(configs, SHARE_AUTO_OFFSET_RESET),
        dead_letter_topic,
        _value(configs, SHARE_DEAD_LETTER_COPY),
        BreakerLimits(
            reject_percent=_value(configs, SHARE_BREAKER_REJECT_PERCENT),
            window_ms=_value(configs, SHARE_BREAKER_WINDOW_MS),
            records_min=_value(configs, SHARE_BREAKER_RECORDS_MIN),
            pause_ms=_value(configs, SHARE_BREAKER_PAUSE_MS),
        ),
    )


def _value(configs: Mapping[str, str], setting: Setting[T]) -> T:
    text = configs.get(setting.name)
    return setting.default if text is None else setting.parse(text)


def _number(configs: Mapping[str, str], setting: Setting[int], node: AnySettings) -> int:
    """Return the group's value, within the node's bounds, or the node's own."""
    bounds = BROKER_RANGES[setting.name]
    if setting.name not in configs:
        return node[bounds.synonym]
    value = _value(configs, setting)
    if bounds.least is not None:
        value = max(value, node[bounds.least])
    return value if bounds.most is None else min(value, node[bounds.most])


def duration_ms(offset_reset: str) -> int | None:
    """Return how far back `by_duration:` goes; None for other values."""
    if not offset_reset.startswith(_BY_DURATION):
        return None
    found = _DURATION.fullmatch(offset_reset.removeprefix(_BY_DURATION))
    assert found is not None, "checked when it was set"
    return int(
        sum(
            float(number.replace(",", ".")) * unit_ms
            for number, unit_ms in zip(found.groups(), _UNITS_MS, strict=True)
            if number is not None
        )
    )
