"""Share groups and the topic that keeps their state."""

from typing import Final

from headrace.config.setting import Scope, boolean, int16, int32, internal, string, words

GROUP_SHARE_SESSION_TIMEOUT_MS: Final = int32(
    "group.share.session.timeout.ms",
    45_000,
    "How long a member of a share group may be silent.",
    at_least=1,
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS: Final = int32(
    "group.share.min.session.timeout.ms",
    45_000,
    "The shortest session that a share group may be given.",
    at_least=1,
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS: Final = int32(
    "group.share.max.session.timeout.ms",
    60_000,
    "The longest session that a share group may be given.",
    at_least=1,
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.share.heartbeat.interval.ms",
    5000,
    "How often members of a share group report.",
    at_least=1,
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.share.min.heartbeat.interval.ms",
    5000,
    "The shortest heartbeat interval that a share group may be given.",
    at_least=1,
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.share.max.heartbeat.interval.ms",
    15_000,
    "The longest heartbeat interval that a share group may be given.",
    at_least=1,
)
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.share.assignment.interval.ms",
    1000,
    "How long lies between two assignments of a share group.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.share.min.assignment.interval.ms",
    0,
    "The shortest assignment interval that a share group may be given.",
    at_least=0,
)
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.share.max.assignment.interval.ms",
    15_000,
    "The longest assignment interval that a share group may be given.",
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
        "When a share partition whose state did not begin is tried again.",
        at_least=1,
    )
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT: Final = int32(
    "group.share.delivery.count.limit",
    5,
    "How often a record is delivered before it is given up.",
    at_least=2,
    at_most=10,
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT: Final = int32(
    "group.share.min.delivery.count.limit",
    2,
    "The lowest delivery count that a share group may be given.",
    at_least=2,
    at_most=5,
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT: Final = int32(
    "group.share.max.delivery.count.limit",
    10,
    "The highest delivery count that a share group may be given.",
    at_least=5,
    at_most=25,
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS: Final = int32(
    "group.share.record.lock.duration.ms",
    30_000,
    "How long a member has a record to itself.",
    at_least=1000,
    at_most=3_600_000,
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS: Final = int32(
    "group.share.min.record.lock.duration.ms",
    15_000,
    "The shortest lock that a share group may be given.",
    at_least=1000,
    at_most=30_000,
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS: Final = int32(
    "group.share.max.record.lock.duration.ms",
    60_000,
    "The longest lock that a share group may be given.",
    at_least=30_000,
    at_most=3_600_000,
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS: Final = int32(
    "group.share.partition.max.record.locks",
    2000,
    "How many records of a partition are locked at once.",
    at_least=100,
    at_most=10_000,
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS: Final = int32(
    "group.share.min.partition.max.record.locks",
    100,
    "The fewest locks a partition that a share group may be given.",
    at_least=100,
    at_most=2000,
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS: Final = int32(
    "group.share.max.partition.max.record.locks",
    4000,
    "The most locks a partition that a share group may be given.",
    at_least=2000,
    at_most=10_000,
)
DEAD_LETTER_TOPIC_PREFIX: Final = string(
    "errors.deadletterqueue.topic.name.prefix",
    "dlq.",
    "How the names of dead-letter topics begin, so that a group cannot write anywhere (KIP-1191).",
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
        "How often the state of a share partition without traffic is written in full.",
        at_least=1,
    )
)
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT: Final = int32(
    "share.coordinator.snapshot.update.records.per.snapshot",
    500,
    "How many changes of a state are written before it is written in full.",
    at_least=0,
    at_most=500,
)
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC: Final = int32(
    "share.coordinator.state.topic.compression.codec",
    0,
    "The codec of the topic of share states, by its number in a batch.",
    at_least=0,
    at_most=4,
)
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR: Final = int16(
    "share.coordinator.state.topic.min.isr",
    2,
    "How many replicas of the topic of share states must have a record.",
    at_least=1,
)
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS: Final = int32(
    "share.coordinator.state.topic.num.partitions",
    50,
    "How many partitions the topic of share states has.",
    at_least=1,
)
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS: Final = internal(
    int32(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often records that no state needs are deleted.",
        at_least=1,
    )
)
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR: Final = int16(
    "share.coordinator.state.topic.replication.factor",
    3,
    "How many replicas the topic of share states has.",
    at_least=1,
)
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES: Final = int32(
    "share.coordinator.state.topic.segment.bytes",
    100 * 1024 * 1024,
    "The size of files of the topic of share states.",
    at_least=1,
)
