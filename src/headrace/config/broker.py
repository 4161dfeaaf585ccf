"""A broker's own settings: its identity, listeners, limits, and defaults for topics."""

from typing import Final

from headrace.config.setting import (
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

NODE_ID: Final = int32("node.id", 1, "The number of this node in its cluster.", at_least=0)
BROKER_RACK: Final = optional(
    string(
        "broker.rack",
        "",
        "The rack or zone that this node stands in; replicas are spread over them.",
    )
)
LISTENERS: Final = words(
    "listeners",
    ("PLAINTEXT://127.0.0.1:9092",),
    "Where clients are served, as NAME://HOST:PORT; no host is every address, port 0 a free one.",
    may_be_empty=False,
)
ADVERTISED_LISTENERS: Final = optional(
    words(
        "advertised.listeners",
        (),
        "What clients are told to connect to, by listener; the listeners themselves if not given.",
        may_be_empty=False,
    )
)
LISTENER_SECURITY_PROTOCOL_MAP: Final = string(
    "listener.security.protocol.map",
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "Which security protocol each listener's name stands for, as NAME:PROTOCOL.",
)
INTER_BROKER_LISTENER_NAME: Final = optional(
    string("inter.broker.listener.name", "", "The listener that other nodes are told of first.")
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
    "The kernel's send buffer of a connection; -1 lets the kernel size it as it goes.",
)
SOCKET_RECEIVE_BUFFER_BYTES: Final = int32(
    "socket.receive.buffer.bytes",
    -1,
    "The kernel's receive buffer of a connection; -1 lets the kernel size it as it goes.",
)
QUEUED_MAX_REQUEST_BYTES: Final = int64(
    "queued.max.request.bytes",
    -1,
    "How many bytes of requests may be in work before no more are read; -1 for no limit.",
)
MAX_CONNECTIONS: Final = int32(
    "max.connections",
    2**31 - 1,
    "How many connections a node holds.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
MAX_CONNECTIONS_PER_IP: Final = int32(
    "max.connections.per.ip",
    2**31 - 1,
    "How many connections one address may have.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = string(
    "max.connections.per.ip.overrides",
    "",
    "Other limits for some addresses, as HOST:COUNT, parted by commas.",
    read=host_counts,
    allowed="a list of HOST:COUNT",
    scope=Scope.CLUSTER_WIDE,
)
CONNECTIONS_MAX_IDLE_MS: Final = int64(
    "connections.max.idle.ms",
    10 * 60 * 1000,
    "After how long a connection that says nothing is closed.",
)
REQUEST_TIMEOUT_MS: Final = int32(
    "request.timeout.ms", 30_000, "How long this node waits for another node's answer."
)
FETCH_MAX_BYTES: Final = int32(
    "fetch.max.bytes", 55 * 1024 * 1024, "The most that one answer to a fetch holds.", at_least=1024
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
    "How many partitions one answer to DescribeTopicPartitions holds.",
    at_least=1,
)

NUM_PARTITIONS: Final = int32(
    "num.partitions", 1, "How many partitions a topic gets that does not say.", at_least=1
)
DEFAULT_REPLICATION_FACTOR: Final = int32(
    "default.replication.factor", 1, "How many replicas a partition gets that does not say."
)
AUTO_CREATE_TOPICS_ENABLE: Final = boolean(
    "auto.create.topics.enable", True, "Whether a topic is created when a client asks for it."
)
DELETE_TOPIC_ENABLE: Final = boolean("delete.topic.enable", True, "Whether topics may be deleted.")
LEADER_REPLICATION_THROTTLED_RATE: Final = without_effect(
    int64(
        "leader.replication.throttled.rate",
        INT64_MAX,
        "How many bytes a second a leader sends of throttled replicas.",
        at_least=0,
        scope=Scope.CLUSTER_WIDE,
    )
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = without_effect(
    int64(
        "follower.replication.throttled.rate",
        INT64_MAX,
        "How many bytes a second a follower takes of throttled replicas.",
        at_least=0,
        scope=Scope.CLUSTER_WIDE,
    )
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Final = without_effect(
    int64(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        INT64_MAX,
        "How many bytes a second move between the folders of a node.",
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
"""What a broker may be told while it runs but not in its file; never shown unless set."""
