"""Checks across a node's settings: Kafka's own, and what Headrace does not support."""

from typing import Final

from headrace.config import broker, cluster, groups, quotas, replication, share, storage
from headrace.config.group_configs import BROKER_RANGES
from headrace.config.registry import LISTENER_PREFIX
from headrace.config.security_checks import check_security
from headrace.config.setting import InvalidSetting, Setting
from headrace.config.settings import Settings
from headrace.config.tier_checks import check_tier

DEDUPE_BUFFER_FLOOR_BYTES: Final = 1024 * 1024
JOINED: Final = frozenset(
    (broker.MAX_CONNECTIONS_PER_IP.name, broker.MAX_CONNECTIONS_PER_IP_OVERRIDES.name)
)
"""The settings that are checked with each other and can change while a node runs."""
_HEARTBEATS: Final = (
    (groups.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    (groups.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS, groups.GROUP_STREAMS_SESSION_TIMEOUT_MS),
    (share.GROUP_SHARE_HEARTBEAT_INTERVAL_MS, share.GROUP_SHARE_SESSION_TIMEOUT_MS),
)
_ASSIGNORS: Final = (
    (groups.GROUP_CONSUMER_ASSIGNORS, ("uniform", "range")),
    (share.GROUP_SHARE_ASSIGNORS, ("simple",)),
)
"""Settings that name classes which Kafka's JVM would load; there are none here."""


def check_broker(settings: Settings) -> None:
    """Raise InvalidSetting if settings conflict, or need what a node does not have."""
    folders = settings[storage.LOG_DIRS] or settings[storage.LOG_DIR]
    if len(folders) != 1:
        raise InvalidSetting(
            f"log.dirs={','.join(folders)}: must be one folder; run a node for each disk"
        )
    _check_times(settings)
    _check_connections(settings)
    _check_groups(settings)
    _check_cluster(settings)
    _check_followers(settings)
    check_tier(settings)
    check_security(settings)
    buffer_bytes = settings[storage.LOG_CLEANER_DEDUPE_BUFFER_SIZE]
    if buffer_bytes <= DEDUPE_BUFFER_FLOOR_BYTES:
        raise InvalidSetting(
            f"log.cleaner.dedupe.buffer.size={buffer_bytes}: must be more than a mebibyte"
        )


def _check_groups(settings: Settings) -> None:
    if "classic" not in settings[groups.GROUP_COORDINATOR_REBALANCE_PROTOCOLS]:
        raise InvalidSetting("group.coordinator.rebalance.protocols: must have classic")
    for setting, known in _ASSIGNORS:
        if unknown := [each for each in settings[setting] if each not in known]:
            raise InvalidSetting(
                f"{setting.name}: there is no assignor {unknown[0]}, only {', '.join(known)}"
            )
    for synonym, least, most in BROKER_RANGES.values():
        if least:
            _require_order(settings, least, synonym)
        if most:
            _require_order(settings, synonym, most)
    for heartbeat, session in _HEARTBEATS:
        if settings[heartbeat] >= settings[session]:
            raise InvalidSetting(
                f"{heartbeat.name}={settings[heartbeat]}: must be less than "
                f"{session.name}={settings[session]}"
            )


def _check_cluster(settings: Settings) -> None:
    seeds, alias = cluster.SEEDS, cluster.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS
    if settings[seeds] and settings[alias] and settings[seeds] != settings[alias]:
        raise InvalidSetting(f"{alias.name}: must be the same as {seeds.name}, or left out")
    interval, timeout = cluster.BROKER_HEARTBEAT_INTERVAL_MS, cluster.BROKER_SESSION_TIMEOUT_MS
    if settings[interval] < 1:
        raise InvalidSetting(f"{interval.name}={settings[interval]}: must be at least 1")
    if settings[interval] * 2 > settings[timeout]:
        raise InvalidSetting(
            f"{interval.name}={settings[interval]}: must be at most half of "
            f"{timeout.name}={settings[timeout]}"
        )


def _check_followers(settings: Settings) -> None:
    wait = replication.REPLICA_FETCH_WAIT_MAX_MS
    for limit in (replication.REPLICA_SOCKET_TIMEOUT_MS, replication.REPLICA_LAG_TIME_MAX_MS):
        if settings[wait] > settings[limit]:
            raise InvalidSetting(
                f"{wait.name}={settings[wait]}: must be at most {limit.name}={settings[limit]}"
            )


def _check_times(settings: Settings) -> None:
    by_unit = (
        (storage.LOG_RETENTION_MS.name, settings[storage.LOG_RETENTION_MS]),
        (storage.LOG_RETENTION_MINUTES.name, settings[storage.LOG_RETENTION_MINUTES]),
        (storage.LOG_RETENTION_HOURS.name, settings[storage.LOG_RETENTION_HOURS]),
    )
    name, retention = next(pair for pair in by_unit if pair[1] is not None)
    if retention == 0:
        raise InvalidSetting(f"{name}=0: must be at least 1, or -1 for no limit")
    roll_ms, jitter_ms = settings[storage.LOG_ROLL_MS], settings[storage.LOG_ROLL_JITTER_MS]
    if roll_ms is not None and roll_ms < 1:
        raise InvalidSetting(f"log.roll.ms={roll_ms}: must be at least 1")
    if jitter_ms is not None and jitter_ms < 0:
        raise InvalidSetting(f"log.roll.jitter.ms={jitter_ms}: must be at least 0")


def _check_connections(settings: Settings) -> None:
    queued = settings[broker.QUEUED_MAX_REQUEST_BYTES]
    largest = settings[broker.SOCKET_REQUEST_MAX_BYTES]
    if 0 < queued < largest:
        raise InvalidSetting(
            f"queued.max.request.bytes={queued}: must be at least "
            f"socket.request.max.bytes={largest}, or -1 for no limit"
        )
    overrides = settings[broker.MAX_CONNECTIONS_PER_IP_OVERRIDES]
    if settings[broker.MAX_CONNECTIONS_PER_IP] == 0 and not overrides:
        raise InvalidSetting(
            "max.connections.per.ip=0: no client could connect; list the allowed addresses in "
            "max.connections.per.ip.overrides"
        )
    listeners = {text.partition("://")[0].strip().lower() for text in settings[broker.LISTENERS]}
    for name in settings.given:
        of, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
        if rest in quotas.PACE_OF_LISTENERS and of not in listeners:
            raise InvalidSetting(f"{name}: there is no listener {of.upper()}")


def _require_order(settings: Settings, lower: Setting[int], upper: Setting[int]) -> None:
    if settings[lower] > settings[upper]:
        raise InvalidSetting(
            f"{lower.name}={settings[lower]}: must be at most {upper.name}={settings[upper]}"
        )
