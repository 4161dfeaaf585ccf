"""Where a broker keeps its logs, how often it maintains them, and the defaults for topics."""

from typing import Final

from headrace.config import topic
from headrace.config.setting import (
    DAY_MS,
    INT64_MAX,
    Scope,
    boolean,
    int32,
    int64,
    internal,
    optional,
    renamed,
    words,
)

LOG_DIR: Final = words(
    "log.dir",
    ("./headrace-data",),
    "The data folder if log.dirs is not set.",
    may_be_empty=False,
)
LOG_DIRS: Final = optional(words("log.dirs", (), "The data folder.", may_be_empty=False))
LOG_CLEANUP_POLICY: Final = renamed(topic.CLEANUP_POLICY, "log.cleanup.policy")
LOG_FLUSH_INTERVAL_MESSAGES: Final = renamed(topic.FLUSH_MESSAGES, "log.flush.interval.messages")
LOG_INDEX_INTERVAL_BYTES: Final = renamed(topic.INDEX_INTERVAL_BYTES, "log.index.interval.bytes")
LOG_INDEX_SIZE_MAX_BYTES: Final = renamed(topic.SEGMENT_INDEX_BYTES, "log.index.size.max.bytes")
LOG_LOCAL_RETENTION_BYTES: Final = renamed(topic.LOCAL_RETENTION_BYTES, "log.local.retention.bytes")
LOG_LOCAL_RETENTION_MS: Final = renamed(topic.LOCAL_RETENTION_MS, "log.local.retention.ms")
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = renamed(
    topic.MESSAGE_TIMESTAMP_AFTER_MAX_MS, "log.message.timestamp.after.max.ms"
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = renamed(
    topic.MESSAGE_TIMESTAMP_BEFORE_MAX_MS, "log.message.timestamp.before.max.ms"
)
LOG_MESSAGE_TIMESTAMP_TYPE: Final = renamed(
    topic.MESSAGE_TIMESTAMP_TYPE, "log.message.timestamp.type"
)
LOG_PREALLOCATE: Final = renamed(topic.PREALLOCATE, "log.preallocate")
LOG_RETENTION_BYTES: Final = renamed(topic.RETENTION_BYTES, "log.retention.bytes")
LOG_SEGMENT_BYTES: Final = renamed(topic.SEGMENT_BYTES, "log.segment.bytes")
LOG_SEGMENT_DELETE_DELAY_MS: Final = renamed(
    topic.FILE_DELETE_DELAY_MS, "log.segment.delete.delay.ms"
)
MESSAGE_MAX_BYTES: Final = renamed(topic.MAX_MESSAGE_BYTES, "message.max.bytes")

LOG_RETENTION_MS: Final = optional(
    int64(
        "log.retention.ms",
        0,
        "How long records are kept; -1 for no limit.",
        scope=Scope.CLUSTER_WIDE,
    )
)
LOG_RETENTION_MINUTES: Final = optional(
    int32("log.retention.minutes", 0, "log.retention.ms in minutes, if that is not set.")
)
LOG_RETENTION_HOURS: Final = int32(
    "log.retention.hours",
    168,
    "log.retention.ms in hours, if neither that nor minutes are set.",
)
LOG_ROLL_MS: Final = optional(
    int64("log.roll.ms", 0, "The age at which a log starts a new file.", scope=Scope.CLUSTER_WIDE)
)
LOG_ROLL_HOURS: Final = int32(
    "log.roll.hours", 168, "log.roll.ms in hours, if that is not set.", at_least=1
)
LOG_ROLL_JITTER_MS: Final = optional(
    int64(
        "log.roll.jitter.ms",
        0,
        "How much earlier a log may start a new file, so that not all do at once.",
        scope=Scope.CLUSTER_WIDE,
    )
)
LOG_ROLL_JITTER_HOURS: Final = int32(
    "log.roll.jitter.hours", 0, "log.roll.jitter.ms in hours, if that is not set.", at_least=0
)
LOG_FLUSH_INTERVAL_MS: Final = optional(
    int64(
        "log.flush.interval.ms",
        0,
        "After how long a log is synced to disk.",
        scope=Scope.CLUSTER_WIDE,
    )
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS: Final = int64(
    "log.flush.scheduler.interval.ms",
    INT64_MAX,
    "How often logs that are due for a sync are looked for.",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: Final = int32(
    "log.flush.offset.checkpoint.interval.ms",
    60_000,
    "How often recovery points are written to disk.",
    at_least=0,
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS: Final = int32(
    "log.flush.start.offset.checkpoint.interval.ms",
    60_000,
    "How often log start offsets are written to disk.",
    at_least=0,
)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = int64(
    "log.retention.check.interval.ms",
    5 * 60 * 1000,
    "How often files to delete are looked for.",
    at_least=1,
)

LOG_CLEANER_ENABLE: Final = boolean(
    "log.cleaner.enable", True, "Whether compacted topics are compacted."
)
LOG_CLEANER_BACKOFF_MS: Final = int64(
    "log.cleaner.backoff.ms",
    15_000,
    "How long compaction sleeps when there is nothing to do.",
    at_least=0,
    scope=Scope.CLUSTER_WIDE,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = int64(
    "log.cleaner.dedupe.buffer.size",
    128 * 1024 * 1024,
    "The memory for the keys of one compaction pass.",
    scope=Scope.CLUSTER_WIDE,
)
LOG_CLEANER_DELETE_RETENTION_MS: Final = renamed(
    topic.DELETE_RETENTION_MS, "log.cleaner.delete.retention.ms"
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS: Final = renamed(
    topic.MAX_COMPACTION_LAG_MS, "log.cleaner.max.compaction.lag.ms"
)
LOG_CLEANER_MIN_CLEANABLE_RATIO: Final = renamed(
    topic.MIN_CLEANABLE_DIRTY_RATIO, "log.cleaner.min.cleanable.ratio"
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS: Final = renamed(
    topic.MIN_COMPACTION_LAG_MS, "log.cleaner.min.compaction.lag.ms"
)

PRODUCER_ID_EXPIRATION_MS: Final = int32(
    "producer.id.expiration.ms",
    DAY_MS,
    "How long the state of an idle producer is kept.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS: Final = internal(
    int32(
        "producer.id.expiration.check.interval.ms",
        10 * 60 * 1000,
        "How often expired producers are looked for.",
        at_least=1,
    )
)
