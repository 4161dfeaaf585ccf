"""Share groups and their internal topic."""

from typing import Final

from headrace.config.setting import Scope, boolean, int16, int32, internal, string, words

GROUP_SHARE_SESSION_TIMEOUT_MS: Final = int32(
    "group.share.session.timeout.ms",
    45_000,
    "The session timeout of members of a share group.",
    at_least=1,
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS: Final = int32(
    "group.share.min.session.timeout.ms",
    45_000,
    "The shortest session timeout that may be set for a share group.",
    at_least=1,
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS: Final = int32(
    "group.share.max.session.timeout.ms",
    60_000,
    "The longest session timeout that may be set for a share group.",
    at_least=1,
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.share.heartbeat.interval.ms",
    5000,
    "How often members of a share group send heartbeats.",
    at_least=1,
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.share.min.heartbeat.interval.ms",
    5000,
    "The shortest heartbeat interval that may be set for a share group.",
    at_least=1,
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.share.max.heartbeat.interval.ms",
    15_000,
    "The longest heartbeat interval that may be set for a share group.",
    at_least=1,
)
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.share.assignment.interval.ms",
    1000,
    "The least time between two assignments of a share group.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.share.min.assignment.interval.ms",
    0,
    "The shortest assignment interval that may be set for a share group.",
    at_least=0,
)
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.share.max.assignment.interval.ms",
    15_000,
    "The longest assignment interval that may be set for a share group.",
    at_least=0,
)
GROUP_SHARE_ASSIGNORS: Final = words(
    "group.share.assignors", ("simple",), "The assignor of share groups.", may_be_empty=False
)
GROUP_SHARE_MAX_SIZE: Final = int32(
    "group.share.max.size",
    200,
    "How many members a share group may have.",
    at_least=1,
    at_most=1000,
)
GROUP_SHARE_MAX_SHARE_SESSIONS: Final = int32(
    "group.share.max.share.sessions", 2000, "How many share sessions a node keeps.", at_least=1
)
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS: Final = internal(
    int32(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "After how long the initialization of a share partition is retried.",
        at_least=1,
    )
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT: Final = int32(
    "group.share.delivery.count.limit",
    5,
    "How often a record is delivered before it is archived.",
    at_least=2,
    at_most=10,
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT: Final = int32(
    "group.share.min.delivery.count.limit",
    2,
    "The lowest delivery count limit that may be set for a share group.",
    at_least=2,
    at_most=5,
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT: Final = int32(
    "group.share.max.delivery.count.limit",
    10,
    "The highest delivery count limit that may be set for a share group.",
    at_least=5,
    at_most=25,
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS: Final = int32(
    "group.share.record.lock.duration.ms",
    30_000,
    "How long a record stays locked for a member.",
    at_least=1000,
    at_most=3_600_000,
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS: Final = int32(
    "group.share.min.record.lock.duration.ms",
    15_000,
    "The shortest lock duration that may be set for a share group.",
    at_least=1000,
    at_most=30_000,
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS: Final = int32(
    "group.share.max.record.lock.duration.ms",
    60_000,
    "The longest lock duration that may be set for a share group.",
    at_least=30_000,
    at_most=3_600_000,
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS: Final = int32(
    "group.share.partition.max.record.locks",
    2000,
    "The maximum number of locked records per partition.",
    at_least=100,
    at_most=10_000,
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS: Final = int32(
    "group.share.min.partition.max.record.locks",
    100,
    "The lowest limit of locked records that may be set for a share group.",
    at_least=100,
    at_most=2000,
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS: Final = int32(
    "group.share.max.partition.max.record.locks",
    4000,
    "The highest limit of locked records that may be set for a share group.",
    at_least=2000,
    at_most=10_000,
)
DEAD_LETTER_TOPIC_PREFIX: Final = string(
    "errors.deadletterqueue.topic.name.prefix",
    "dlq.",
    "The name prefix of dead-letter topics, which limits where a group may write (KIP-1191).",
)
DEAD_LETTER_AUTO_CREATE: Final = boolean(
    "errors.deadletterqueue.auto.create.topics.enable",
    True,
    "Whether a dead-letter topic is created with its first record.",
)

SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS: Final = internal(
    int32(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "How often a snapshot of an idle share partition's state is written.",
        at_least=1,
    )
)
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT: Final = int32(
    "share.coordinator.snapshot.update.records.per.snapshot",
    500,
    "How many updates of a state are written between two snapshots.",
    at_least=0,
    at_most=500,
)
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC: Final = int32(
    "share.coordinator.state.topic.compression.codec",
    0,
    "The codec of the __share_group_state topic, by its number in a batch.",
    at_least=0,
    at_most=4,
)
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR: Final = int16(
    "share.coordinator.state.topic.min.isr",
    2,
    "The min.insync.replicas of the __share_group_state topic.",
    at_least=1,
)
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS: Final = int32(
    "share.coordinator.state.topic.num.partitions",
    50,
    "The partition count of the __share_group_state topic.",
    at_least=1,
)
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS: Final = internal(
    int32(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often redundant records of share states are deleted.",
        at_least=1,
    )
)
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR: Final = int16(
    "share.coordinator.state.topic.replication.factor",
    3,
    "The replica count of the __share_group_state topic.",
    at_least=1,
)
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES: Final = int32(
    "share.coordinator.state.topic.segment.bytes",
    100 * 1024 * 1024,
    "The segment size of the __share_group_state topic.",
    at_least=1,
)
SHARE_COORDINATOR_WRITE_TIMEOUT_MS: Final = int32(
    "share.coordinator.write.timeout.ms",
    5000,
    "How long a request to a share coordinator waits until its records are committed.",
    at_least=1,
)
