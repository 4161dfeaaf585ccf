"""A broker's own settings: its identity, listeners, limits, and defaults for topics."""

from typing import Final

from headrace.config.setting import (
    INT32_MAX,
    INT64_MAX,
    Scope,
    boolean,
    int32,
    int64,
    optional,
    string,
    without_effect,
    words,
)
from headrace.config.values import host_counts

NODE_ID: Final = int32(
    "node.id",
    1,
    "The number of this node in its cluster. The highest number, 2147483647, is reserved.",
    at_least=0,
    at_most=INT32_MAX - 1,
)
BROKER_RACK: Final = optional(
    string(
        "broker.rack",
        "",
        "The rack or zone of this node; replicas are spread over racks.",
    )
)
LISTENERS: Final = words(
    "listeners",
    ("PLAINTEXT://127.0.0.1:9092",),
    "The listeners, as NAME://HOST:PORT; no host means all addresses, port 0 any free port.",
    may_be_empty=False,
)
ADVERTISED_LISTENERS: Final = optional(
    words(
        "advertised.listeners",
        (),
        "The addresses that clients connect to, by listener; by default the listeners themselves.",
        may_be_empty=False,
    )
)
LISTENER_SECURITY_PROTOCOL_MAP: Final = string(
    "listener.security.protocol.map",
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "The security protocol of each listener name, as NAME:PROTOCOL.",
)
INTER_BROKER_LISTENER_NAME: Final = optional(
    string("inter.broker.listener.name", "", "The listener that other nodes use first.")
)
SOCKET_LISTEN_BACKLOG_SIZE: Final = int32(
    "socket.listen.backlog.size", 50, "How many connections may wait to be accepted.", at_least=1
)
SOCKET_REQUEST_MAX_BYTES: Final = int32(
    "socket.request.max.bytes",
    100 * 1024 * 1024,
    "The largest request that a connection may send.",
    at_least=1,
)
SOCKET_SEND_BUFFER_BYTES: Final = int32(
    "socket.send.buffer.bytes",
    -1,
    "The kernel's send buffer of a connection; with -1 the kernel chooses the size.",
)
SOCKET_RECEIVE_BUFFER_BYTES: Final = int32(
    "socket.receive.buffer.bytes",
    -1,
    "The kernel's receive buffer of a connection; with -1 the kernel chooses the size.",
)
QUEUED_MAX_REQUEST_BYTES: Final = int64(
    "queued.max.request.bytes",
    -1,
    "How many bytes of requests may be in progress before reading pauses; -1 for no limit.",
)
MAX_CONNECTIONS: Final = int32(
    "max.connections",
    2**31 - 1,
    "The maximum number of connections of a node.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
MAX_CONNECTIONS_PER_IP: Final = int32(
    "max.connections.per.ip",
    2**31 - 1,
    "The maximum number of connections per client address.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = string(
    "max.connections.per.ip.overrides",
    "",
    "Limits for individual addresses, as HOST:COUNT, separated by commas.",
    read=host_counts,
    allowed="a list of HOST:COUNT",
    scope=Scope.CLUSTER_WIDE,
)
CONNECTIONS_MAX_IDLE_MS: Final = int64(
    "connections.max.idle.ms",
    10 * 60 * 1000,
    "After how long an idle connection is closed.",
)
REQUEST_TIMEOUT_MS: Final = int32(
    "request.timeout.ms", 30_000, "How long this node waits for another node's response."
)
FETCH_MAX_BYTES: Final = int32(
    "fetch.max.bytes",
    55 * 1024 * 1024,
    "The most bytes that one fetch response holds.",
    at_least=1024,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = int32(
    "max.incremental.fetch.session.cache.slots",
    1000,
    "How many fetch sessions a node keeps.",
    at_least=0,
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: Final = int32(
    "max.request.partition.size.limit",
    2000,
    "The most partitions that one DescribeTopicPartitions response holds.",
    at_least=1,
)

NUM_PARTITIONS: Final = int32(
    "num.partitions", 1, "The number of partitions of a new topic by default.", at_least=1
)
DEFAULT_REPLICATION_FACTOR: Final = int32(
    "default.replication.factor", 1, "The replication factor of a new topic by default."
)
AUTO_CREATE_TOPICS_ENABLE: Final = boolean(
    "auto.create.topics.enable", True, "Whether a topic is created when a client requests it."
)
DELETE_TOPIC_ENABLE: Final = boolean("delete.topic.enable", True, "Whether topics may be deleted.")
LEADER_REPLICATION_THROTTLED_RATE: Final = int64(
    "leader.replication.throttled.rate",
    INT64_MAX,
    "How many bytes per second a leader sends for throttled replicas.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = int64(
    "follower.replication.throttled.rate",
    INT64_MAX,
    "How many bytes per second a follower fetches for throttled replicas.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Final = without_effect(
    int64(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        INT64_MAX,
        "How many bytes per second move between the folders of a node.",
        at_least=0,
        scope=Scope.CLUSTER_WIDE,
    )
)
TELEMETRY_MAX_BYTES: Final = int32(
    "telemetry.max.bytes",
    1024 * 1024,
    "The largest push of a client's metrics, compressed.",
    at_least=1,
)

DYNAMIC_ONLY: Final = frozenset(
    each.name
    for each in (
        LEADER_REPLICATION_THROTTLED_RATE,
        FOLLOWER_REPLICATION_THROTTLED_RATE,
        REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND,
    )
)
"""Settings that may only be set while a broker runs; never shown unless set."""
