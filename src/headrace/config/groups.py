"""Classic, consumer and streams groups, and the offsets that they commit."""

from typing import Final

from headrace.config.setting import INT32_MAX, Scope, choice, int16, int32, int64, internal, words

OFFSET_METADATA_MAX_BYTES: Final = int32(
    "offset.metadata.max.bytes",
    4096,
    "The longest metadata that a client may store with a committed offset.",
)
OFFSETS_COMMIT_TIMEOUT_MS: Final = int32(
    "offsets.commit.timeout.ms",
    5000,
    "How long a request to a group coordinator waits until its records are committed.",
    at_least=1,
)
OFFSETS_RETENTION_MINUTES: Final = int32(
    "offsets.retention.minutes",
    7 * 24 * 60,
    "How long offsets of a group without members are kept.",
    at_least=1,
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = int64(
    "offsets.retention.check.interval.ms",
    10 * 60 * 1000,
    "How often expired offsets are looked for.",
    at_least=1,
)
OFFSETS_TOPIC_COMPRESSION_CODEC: Final = int32(
    "offsets.topic.compression.codec",
    0,
    "The codec of the __consumer_offsets topic, by its number in a batch.",
    at_least=0,
    at_most=4,
)
OFFSETS_TOPIC_NUM_PARTITIONS: Final = int32(
    "offsets.topic.num.partitions", 50, "The partition count of __consumer_offsets.", at_least=1
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = int16(
    "offsets.topic.replication.factor", 3, "The replica count of __consumer_offsets.", at_least=1
)
OFFSETS_TOPIC_SEGMENT_BYTES: Final = int32(
    "offsets.topic.segment.bytes",
    100 * 1024 * 1024,
    "The segment size of the __consumer_offsets topic.",
    at_least=1,
)

GROUP_COORDINATOR_REBALANCE_PROTOCOLS: Final = words(
    "group.coordinator.rebalance.protocols",
    ("classic", "consumer", "streams"),
    "The enabled group protocols.",
    of=("consumer", "classic", "share", "streams"),
    may_be_empty=False,
)
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = int32(
    "group.initial.rebalance.delay.ms", 3000, "How long a new classic group waits for more members."
)
GROUP_MIN_SESSION_TIMEOUT_MS: Final = int32(
    "group.min.session.timeout.ms", 6000, "The shortest session of a member of a classic group."
)
GROUP_MAX_SESSION_TIMEOUT_MS: Final = int32(
    "group.max.session.timeout.ms",
    30 * 60 * 1000,
    "The longest session of a member of a classic group.",
)
GROUP_MAX_SIZE: Final = int32(
    "group.max.size", INT32_MAX, "How many members a classic group may have.", at_least=1
)

GROUP_CONSUMER_SESSION_TIMEOUT_MS: Final = int32(
    "group.consumer.session.timeout.ms",
    45_000,
    "The session timeout of members of a consumer group.",
    at_least=1,
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: Final = int32(
    "group.consumer.min.session.timeout.ms",
    45_000,
    "The shortest session timeout that may be set for a consumer group.",
    at_least=1,
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: Final = int32(
    "group.consumer.max.session.timeout.ms",
    60_000,
    "The longest session timeout that may be set for a consumer group.",
    at_least=1,
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.consumer.heartbeat.interval.ms",
    5000,
    "How often members of a consumer group send heartbeats.",
    at_least=1,
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.consumer.min.heartbeat.interval.ms",
    5000,
    "The shortest heartbeat interval that may be set for a consumer group.",
    at_least=1,
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.consumer.max.heartbeat.interval.ms",
    15_000,
    "The longest heartbeat interval that may be set for a consumer group.",
    at_least=1,
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.consumer.assignment.interval.ms",
    1000,
    "The least time between two assignments of a consumer group.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.consumer.min.assignment.interval.ms",
    0,
    "The shortest assignment interval that may be set for a consumer group.",
    at_least=0,
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.consumer.max.assignment.interval.ms",
    15_000,
    "The longest assignment interval that may be set for a consumer group.",
    at_least=0,
)
GROUP_CONSUMER_MAX_SIZE: Final = int32(
    "group.consumer.max.size", INT32_MAX, "How many members a consumer group may have.", at_least=1
)
GROUP_CONSUMER_ASSIGNORS: Final = words(
    "group.consumer.assignors",
    ("uniform", "range"),
    "The assignors of consumer groups; the first is used if a member names none.",
    may_be_empty=False,
)
GROUP_CONSUMER_MIGRATION_POLICY: Final = choice(
    "group.consumer.migration.policy",
    "bidirectional",
    "Whether a group may convert from classic to consumer, and back.",
    of=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    ignores_case=True,
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS: Final = internal(
    int32(
        "group.consumer.regex.refresh.interval.ms",
        10 * 60 * 1000,
        "How often the topics that a pattern matches are refreshed.",
        at_least=10_000,
    )
)

GROUP_STREAMS_SESSION_TIMEOUT_MS: Final = int32(
    "group.streams.session.timeout.ms",
    45_000,
    "The session timeout of members of a streams group.",
    at_least=1,
)
GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS: Final = int32(
    "group.streams.min.session.timeout.ms",
    45_000,
    "The shortest session timeout that may be set for a streams group.",
    at_least=1,
)
GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS: Final = int32(
    "group.streams.max.session.timeout.ms",
    60_000,
    "The longest session timeout that may be set for a streams group.",
    at_least=1,
)
GROUP_STREAMS_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.streams.heartbeat.interval.ms",
    5000,
    "How often members of a streams group send heartbeats.",
    at_least=1,
)
GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.streams.min.heartbeat.interval.ms",
    5000,
    "The shortest heartbeat interval that may be set for a streams group.",
    at_least=1,
)
GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS: Final = int32(
    "group.streams.max.heartbeat.interval.ms",
    15_000,
    "The longest heartbeat interval that may be set for a streams group.",
    at_least=1,
)
GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.streams.assignment.interval.ms",
    1000,
    "The least time between two assignments of a streams group.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.streams.min.assignment.interval.ms",
    0,
    "The shortest assignment interval that may be set for a streams group.",
    at_least=0,
)
GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS: Final = int32(
    "group.streams.max.assignment.interval.ms",
    15_000,
    "The longest assignment interval that may be set for a streams group.",
    at_least=0,
)
GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS: Final = int32(
    "group.streams.initial.rebalance.delay.ms",
    3000,
    "How long a new streams group waits for more members.",
    at_least=0,
)
GROUP_STREAMS_NUM_STANDBY_REPLICAS: Final = int32(
    "group.streams.num.standby.replicas",
    0,
    "How many standby tasks a task of a streams group has.",
    at_least=0,
)
GROUP_STREAMS_MAX_STANDBY_REPLICAS: Final = int32(
    "group.streams.max.standby.replicas",
    2,
    "The most standby tasks that may be set for a streams group.",
    at_least=0,
)
GROUP_STREAMS_MAX_SIZE: Final = int32(
    "group.streams.max.size", INT32_MAX, "How many members a streams group may have.", at_least=1
)
