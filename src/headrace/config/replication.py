"""Copies of partitions: when a follower counts as in sync, how it fetches, who reads from it."""

from typing import Final

from headrace.config.setting import Scope, int32, int64, optional, string

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
NUM_REPLICA_FETCHERS: Final = int32(
    "num.replica.fetchers",
    1,
    "How many connections fetch from each leader that this node follows.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
REPLICA_FETCH_MIN_BYTES: Final = int32(
    "replica.fetch.min.bytes",
    1,
    "How many bytes a leader waits for, up to replica.fetch.wait.max.ms, before it responds.",
)
REPLICA_FETCH_MAX_BYTES: Final = int32(
    "replica.fetch.max.bytes",
    1_048_576,
    "How many bytes of one partition a follower fetches at once. A larger batch is fetched alone.",
    at_least=0,
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = int32(
    "replica.fetch.response.max.bytes",
    10_485_760,
    "How many bytes of all partitions a follower fetches at once. A larger batch is fetched alone.",
    at_least=0,
)
REPLICA_FETCH_WAIT_MAX_MS: Final = int32(
    "replica.fetch.wait.max.ms",
    500,
    "How long a leader lets a follower wait that has everything. At most replica.lag.time.max.ms, "
    "or followers of quiet partitions would leave the ISR.",
)
REPLICA_FETCH_BACKOFF_MS: Final = int32(
    "replica.fetch.backoff.ms",
    1000,
    "The longest pause of a follower after an error; the first pause is 20 ms, and it doubles.",
    at_least=0,
)
REPLICA_SOCKET_TIMEOUT_MS: Final = int32(
    "replica.socket.timeout.ms",
    30_000,
    "How long a follower waits for a response. At least replica.fetch.wait.max.ms.",
)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES: Final = int32(
    "replica.socket.receive.buffer.bytes",
    65_536,
    "The kernel's receive buffer of a follower's connection; with -1 the kernel chooses the size.",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = int64(
    "replica.high.watermark.checkpoint.interval.ms",
    5000,
    "How often high watermarks are written to disk.",
)
REPLICATION_QUOTA_WINDOW_NUM: Final = int32(
    "replication.quota.window.num",
    11,
    "Over how many windows the rate of throttled replicas is measured.",
    at_least=1,
)
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS: Final = int32(
    "replication.quota.window.size.seconds",
    1,
    "How long a window is over which the rate of throttled replicas is measured.",
    at_least=1,
)
