"""Copies of partitions: when a follower counts as in sync."""

from typing import Final

from headrace.config.setting import int64

REPLICA_LAG_TIME_MAX_MS: Final = int64(
    "replica.lag.time.max.ms",
    30_000,
    "How long a follower may be behind its leader before it leaves the ISR.",
)
