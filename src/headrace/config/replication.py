"""Copies of partitions: when a follower counts as in sync, and who reads from followers."""

from typing import Final

from headrace.config.setting import int64, optional, string

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _selector(text: str) -> str:
    if text != RACK_AWARE_SELECTOR:
        raise ValueError(f"must be {RACK_AWARE_SELECTOR}")
    return text


REPLICA_LAG_TIME_MAX_MS: Final = int64(
    "replica.lag.time.max.ms",
    30_000,
    "How long a follower may be behind its leader before it leaves the ISR.",
)
REPLICA_SELECTOR_CLASS: Final = optional(
    string(
        "replica.selector.class",
        "",
        "How a consumer finds the replica that it reads from. With Kafka's rack-aware selector, a "
        "consumer that has a client.rack reads from an in-sync replica of that rack, if there is "
        "one; else consumers read from leaders.",
        read=_selector,
        allowed=RACK_AWARE_SELECTOR,
    )
)
