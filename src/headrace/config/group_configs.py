"""Group configs, by Kafka's names, and the broker settings that are their defaults and bounds."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.config import groups, share
from headrace.config.registry import unknown
from headrace.config.setting import (
    AnySetting,
    InvalidSetting,
    Setting,
    boolean,
    choice,
    int32,
    string,
)
from headrace.config.settings import Settings

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"\+?P(?=.)(?:\+?\d+D)?(?:T(?=.)(?:\+?\d+H)?(?:\+?\d+M)?(?:\+?\d+(?:[.,]\d{0,9})?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def offset_reset(text: str) -> str:
    """Return `latest`, `earliest`, or `by_duration:` and an ISO 8601 duration."""
    if text in ("latest", "earliest"):
        return text
    duration = text.removeprefix(_BY_DURATION)
    if duration == text or not _DURATION.fullmatch(duration):
        raise ValueError("must be latest, earliest or by_duration:PnDTnHnMn.nS")
    return text


CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "consumer.assignment.interval.ms", 1000, "The least time between two assignments.", at_least=0
)
CONSUMER_HEARTBEAT_INTERVAL_MS: Final = int32(
    "consumer.heartbeat.interval.ms",
    5000,
    "How often members of a consumer group send heartbeats.",
    at_least=1,
)
CONSUMER_SESSION_TIMEOUT_MS: Final = int32(
    "consumer.session.timeout.ms",
    45_000,
    "The session timeout of members of a consumer group.",
    at_least=1,
)
SHARE_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "share.assignment.interval.ms", 1000, "The least time between two assignments.", at_least=0
)
SHARE_AUTO_OFFSET_RESET: Final = string(
    "share.auto.offset.reset",
    "latest",
    "Where a share group starts in a partition that it has not read.",
    read=offset_reset,
    allowed="latest, earliest or by_duration:PnDTnHnMn.nS",
)
SHARE_DELIVERY_COUNT_LIMIT: Final = int32(
    "share.delivery.count.limit",
    5,
    "How often a record is delivered before it is archived.",
    at_least=2,
)
SHARE_HEARTBEAT_INTERVAL_MS: Final = int32(
    "share.heartbeat.interval.ms",
    5000,
    "How often members of a share group send heartbeats.",
    at_least=1,
)
SHARE_ISOLATION_LEVEL: Final = choice(
    "share.isolation.level",
    "read_uncommitted",
    "Whether a share group receives records of aborted and open transactions.",
    of=("read_committed", "read_uncommitted"),
)
SHARE_PARTITION_MAX_RECORD_LOCKS: Final = int32(
    "share.partition.max.record.locks",
    2000,
    "The maximum number of locked records per partition.",
    at_least=100,
)
SHARE_RECORD_LOCK_DURATION_MS: Final = int32(
    "share.record.lock.duration.ms",
    30_000,
    "How long a record stays locked for a member.",
    at_least=1000,
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE: Final = boolean(
    "share.renew.acknowledge.enable", True, "Whether members may renew the lock of a record."
)
SHARE_SESSION_TIMEOUT_MS: Final = int32(
    "share.session.timeout.ms",
    45_000,
    "The session timeout of members of a share group.",
    at_least=1,
)
SHARE_DEAD_LETTER_TOPIC: Final = string(
    "errors.deadletterqueue.topic.name",
    "",
    "The topic for records that a share group archives; none if empty (KIP-1191).",
)
SHARE_DEAD_LETTER_COPY: Final = boolean(
    "errors.deadletterqueue.copy.record.enable",
    True,
    "Whether a dead letter has its record's key, value and headers, or only its position.",
)
SHARE_RELEASE_BACKOFF_MS: Final = int32(
    "headrace.share.release.backoff.ms",
    0,
    "The delay before a released record is delivered again, doubled each time; 0 for none.",
    at_least=0,
    at_most=3_600_000,
)
SHARE_RELEASE_BACKOFF_MAX_MS: Final = int32(
    "headrace.share.release.backoff.max.ms",
    60_000,
    "The longest delay of a released record.",
    at_least=0,
    at_most=3_600_000,
)
SHARE_BREAKER_REJECT_PERCENT: Final = int32(
    "headrace.share.breaker.reject.percent",
    0,
    "The fraction of rejected records that pauses delivery; 0 turns this off.",
    at_least=0,
    at_most=100,
)
SHARE_BREAKER_WINDOW_MS: Final = int32(
    "headrace.share.breaker.window.ms",
    10_000,
    "How far back rejected records are counted.",
    at_least=100,
    at_most=3_600_000,
)
SHARE_BREAKER_RECORDS_MIN: Final = int32(
    "headrace.share.breaker.records.min",
    20,
    "How many records must have an outcome within the window before delivery is paused.",
    at_least=1,
)
SHARE_BREAKER_PAUSE_MS: Final = int32(
    "headrace.share.breaker.pause.ms",
    10_000,
    "How long delivery is paused.",
    at_least=100,
    at_most=3_600_000,
)
STREAMS_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "streams.assignment.interval.ms", 1000, "The least time between two assignments.", at_least=0
)
STREAMS_HEARTBEAT_INTERVAL_MS: Final = int32(
    "streams.heartbeat.interval.ms",
    5000,
    "How often members of a streams group send heartbeats.",
    at_least=1,
)
STREAMS_INITIAL_REBALANCE_DELAY_MS: Final = int32(
    "streams.initial.rebalance.delay.ms",
    3000,
    "How long a new streams group waits for more members.",
    at_least=0,
)
STREAMS_NUM_STANDBY_REPLICAS: Final = int32(
    "streams.num.standby.replicas", 0, "How many standby tasks a task has.", at_least=0
)
STREAMS_SESSION_TIMEOUT_MS: Final = int32(
    "streams.session.timeout.ms",
    45_000,
    "The session timeout of members of a streams group.",
    at_least=1,
)

GROUP_CONFIGS: Final[Mapping[str, AnySetting]] = {
    each.name: each for each in list(globals().values()) if isinstance(each, Setting)
}


class Range(NamedTuple):
    """The broker settings that are the default and the bounds of a group config."""

    synonym: Setting[int]
    least: Setting[int] | None = None
    most: Setting[int] | None = None


BROKER_RANGES: Final[Mapping[str, Range]] = {
    "consumer.assignment.interval.ms": Range(
        groups.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
        groups.GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        groups.GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    "consumer.heartbeat.interval.ms": Range(
        groups.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        groups.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        groups.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    "consumer.session.timeout.ms": Range(
        groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        groups.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        groups.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    ),
    "share.assignment.interval.ms": Range(
        share.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
        share.GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
        share.GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    "share.delivery.count.limit": Range(
        share.GROUP_SHARE_DELIVERY_COUNT_LIMIT,
        share.GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
        share.GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    ),
    "share.heartbeat.interval.ms": Range(
        share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
        share.GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
        share.GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    "share.partition.max.record.locks": Range(
        share.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        share.GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        share.GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
    "share.record.lock.duration.ms": Range(
        share.GROUP_SHARE_RECORD_LOCK_DURATION_MS,
        share.GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        share.GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    "share.session.timeout.ms": Range(
        share.GROUP_SHARE_SESSION_TIMEOUT_MS,
        share.GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
        share.GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    ),
    "streams.assignment.interval.ms": Range(
        groups.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS,
        groups.GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS,
        groups.GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    "streams.heartbeat.interval.ms": Range(
        groups.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
        groups.GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
        groups.GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    "streams.initial.rebalance.delay.ms": Range(groups.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS),
    "streams.num.standby.replicas": Range(
        groups.GROUP_STREAMS_NUM_STANDBY_REPLICAS,
        most=groups.GROUP_STREAMS_MAX_STANDBY_REPLICAS,
    ),
    "streams.session.timeout.ms": Range(
        groups.GROUP_STREAMS_SESSION_TIMEOUT_MS,
        groups.GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
        groups.GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
    ),
}


def check_group_configs(values: Mapping[str, str], broker: Settings) -> None:
    """Raise InvalidSetting if a broker with these settings does not allow a group's configs."""
    for name, text in values.items():
        if name not in GROUP_CONFIGS:
            raise unknown(name, GROUP_CONFIGS, "config of groups")
        value = GROUP_CONFIGS[name].parse(text)
        if name == SHARE_DEAD_LETTER_TOPIC.name and value:
            prefix = broker[share.DEAD_LETTER_TOPIC_PREFIX]
            if not value.startswith(prefix):
                raise InvalidSetting(
                    f"{name}={value}: must begin with {prefix} "
                    f"({share.DEAD_LETTER_TOPIC_PREFIX.name})"
                )
        bounds = BROKER_RANGES.get(name)
        if bounds and bounds.least and value < broker[bounds.least]:
            raise InvalidSetting(
                f"{name}={value}: must be at least {bounds.least.name}={broker[bounds.least]}"
            )
        if bounds and bounds.most and value > broker[bounds.most]:
            raise InvalidSetting(
                f"{name}={value}: must be at most {bounds.most.name}={broker[bounds.most]}"
            )
