"""Topic configs, by Kafka's names, and the broker settings that are their defaults.

A topic's own value takes precedence, then one of `SYNONYMS` in the order listed here. Checks that
involve two of them are in `topic_checks`.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.config.setting import (
    DAY_MS,
    INT64_MAX,
    AnySetting,
    Scope,
    Setting,
    boolean,
    choice,
    double,
    int32,
    int64,
    internal,
    optional,
    string,
    without_effect,
    words,
)
from headrace.config.values import split

_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_MIRRORED: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}/[A-Za-z0-9_-]{0,22}")


def throttled_replicas(text: str) -> tuple[str, ...]:
    """`*`, or a list of PARTITION:BROKER."""
    found = split(text)
    if found != ("*",) and not all(_REPLICA.fullmatch(each) for each in found):
        raise ValueError("must be * or a list of PARTITION:BROKER")
    return found


def mirrored_topic(text: str) -> str:
    """A topic of another cluster: CLUSTER_ID/TOPIC_ID."""
    if not _MIRRORED.fullmatch(text):
        raise ValueError("must be CLUSTER_ID/TOPIC_ID, as `headrace mirror` sets it")
    return text


CLEANUP_POLICY: Final = words(
    "cleanup.policy",
    ("delete",),
    "Whether old records are deleted, or only those with a newer record of their key.",
    of=("compact", "delete"),
)
COMPRESSION_TYPE: Final = choice(
    "compression.type",
    "producer",
    "The codec that a topic's batches are kept in; `producer` keeps the client's.",
    of=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    scope=Scope.CLUSTER_WIDE,
)
COMPRESSION_GZIP_LEVEL: Final = int32(
    "compression.gzip.level",
    -1,
    "The level for compression.type=gzip.",
    at_least=1,
    at_most=9,
    or_else=-1,
    scope=Scope.CLUSTER_WIDE,
)
COMPRESSION_LZ4_LEVEL: Final = int32(
    "compression.lz4.level",
    9,
    "The level for compression.type=lz4.",
    at_least=1,
    at_most=17,
    scope=Scope.CLUSTER_WIDE,
)
COMPRESSION_ZSTD_LEVEL: Final = int32(
    "compression.zstd.level",
    3,
    "The level for compression.type=zstd.",
    at_least=-131072,
    at_most=22,
    scope=Scope.CLUSTER_WIDE,
)
DELETE_RETENTION_MS: Final = int64(
    "delete.retention.ms", DAY_MS, "How long compaction keeps a tombstone.", at_least=0
)
FILE_DELETE_DELAY_MS: Final = int64(
    "file.delete.delay.ms",
    60_000,
    "How long a deleted file stays on disk under another name.",
    at_least=0,
)
FLUSH_MESSAGES: Final = int64(
    "flush.messages", INT64_MAX, "After how many records a log is synced to disk.", at_least=1
)
FLUSH_MS: Final = int64(
    "flush.ms", INT64_MAX, "After how long a log is synced to disk.", at_least=0
)
FOLLOWER_THROTTLED_REPLICAS: Final = words(
    "follower.replication.throttled.replicas",
    (),
    "Which replicas fetch at follower.replication.throttled.rate while they catch up: * or a list "
    "of PARTITION:BROKER.",
    read=throttled_replicas,
)
INDEX_INTERVAL_BYTES: Final = int32(
    "index.interval.bytes",
    4096,
    "How many bytes of log there are between two index entries.",
    at_least=0,
)
INTERNAL_SEGMENT_BYTES: Final = optional(
    internal(
        int32(
            "internal.segment.bytes",
            0,
            "Replaces segment.bytes, without its lower bound; for tests.",
        )
    )
)
LEADER_THROTTLED_REPLICAS: Final = words(
    "leader.replication.throttled.replicas",
    (),
    "Which replicas send at leader.replication.throttled.rate while others catch up: * or a list "
    "of PARTITION:BROKER.",
    read=throttled_replicas,
)
LOCAL_RETENTION_BYTES: Final = int64(
    "local.retention.bytes",
    -2,
    "How many bytes of a tiered log stay on the local disk; -2 for retention.bytes.",
    at_least=-2,
)
LOCAL_RETENTION_MS: Final = int64(
    "local.retention.ms",
    -2,
    "How long records of a tiered log stay on the local disk; -2 for retention.ms.",
    at_least=-2,
)
MAX_COMPACTION_LAG_MS: Final = int64(
    "max.compaction.lag.ms",
    INT64_MAX,
    "The longest time before a record is compacted.",
    at_least=1,
)
MAX_MESSAGE_BYTES: Final = int32(
    "max.message.bytes",
    1024 * 1024 + 12,
    "The largest record batch that a topic accepts, as it is sent (compressed).",
    at_least=0,
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = int64(
    "message.timestamp.after.max.ms",
    60 * 60 * 1000,
    "How far a producer's timestamp may be ahead of the broker's clock.",
    at_least=0,
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = int64(
    "message.timestamp.before.max.ms",
    INT64_MAX,
    "How far a producer's timestamp may be behind the broker's clock.",
    at_least=0,
)
MESSAGE_TIMESTAMP_TYPE: Final = choice(
    "message.timestamp.type",
    "CreateTime",
    "Whether a record has the producer's timestamp or the time of its append.",
    of=("CreateTime", "LogAppendTime"),
)
MIRROR_SOURCE: Final = optional(
    internal(
        string(
            "headrace.mirror.source",
            "",
            "The topic of another cluster that a topic is a mirror of, as CLUSTER_ID/TOPIC_ID: "
            "only `headrace mirror` writes to it then. Set at creation; without it the topic is "
            "its own.",
            read=mirrored_topic,
            allowed="CLUSTER_ID/TOPIC_ID",
        )
    )
)
MIN_CLEANABLE_DIRTY_RATIO: Final = double(
    "min.cleanable.dirty.ratio",
    0.5,
    "The fraction of a log that must be uncompacted before it is compacted again.",
    at_least=0,
    at_most=1,
)
MIN_COMPACTION_LAG_MS: Final = int64(
    "min.compaction.lag.ms",
    0,
    "How long a record is kept before compaction may drop it.",
    at_least=0,
)
MIN_INSYNC_REPLICAS: Final = int32(
    "min.insync.replicas",
    1,
    "How many replicas must have a record before acks=all succeeds.",
    at_least=1,
    scope=Scope.CLUSTER_WIDE,
)
PREALLOCATE: Final = without_effect(
    boolean("preallocate", False, "Whether a new file reserves its disk space at once.")
)
REMOTE_LOG_COPY_DISABLE: Final = boolean(
    "remote.log.copy.disable", False, "Whether a tiered topic stops copying to the tier."
)
REMOTE_LOG_DELETE_ON_DISABLE: Final = boolean(
    "remote.log.delete.on.disable",
    False,
    "Whether a topic's data in the tier is deleted when the topic leaves it.",
)
REMOTE_STORAGE_ENABLE: Final = boolean(
    "remote.storage.enable", False, "Whether a topic's old segments move to the tier."
)
RETENTION_BYTES: Final = int64(
    "retention.bytes", -1, "How many bytes of a log are kept; -1 for all."
)
RETENTION_MS: Final = int64(
    "retention.ms", 7 * DAY_MS, "How long records are kept; -1 for no limit.", at_least=-1
)
SEGMENT_BYTES: Final = int32(
    "segment.bytes",
    1024 * 1024 * 1024,
    "The size at which a log starts a new file.",
    at_least=1024 * 1024,
)
SEGMENT_INDEX_BYTES: Final = int32(
    "segment.index.bytes",
    10 * 1024 * 1024,
    "The size of an index at which a log starts a new file.",
    at_least=4,
)
SEGMENT_JITTER_MS: Final = int64(
    "segment.jitter.ms",
    0,
    "How much earlier a log may start a new file, so that not all do at once.",
    at_least=0,
)
SEGMENT_MS: Final = int64(
    "segment.ms", 7 * DAY_MS, "The age at which a log starts a new file.", at_least=1
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = boolean(
    "unclean.leader.election.enable",
    False,
    "Whether an out-of-sync replica may become leader when no other is left: records are lost.",
    scope=Scope.CLUSTER_WIDE,
)

TOPIC_CONFIGS: Final[Mapping[str, AnySetting]] = {
    each.name: each for each in list(globals().values()) if isinstance(each, Setting)
}


class Synonym(msgspec.Struct, frozen=True):
    """A broker setting that is a topic's default; its value counts `unit` of the topic's."""

    name: str
    unit: int = 1
    least: int | None = None
    """What every value below it stands for: a broker's retention may be any negative number."""

    def translate(self, text: str) -> str:
        """The broker's value as the topic's; ValueError if it has to be a number and is none."""
        if self.unit == 1 and self.least is None:
            return text
        value = int(text) * self.unit
        return str(value if self.least is None else max(value, self.least))


_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS

SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "local.retention.bytes": (Synonym("log.local.retention.bytes"),),
    "local.retention.ms": (Synonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms", least=-1),
        Synonym("log.retention.minutes", _MINUTE_MS, least=-1),
        Synonym("log.retention.hours", _HOUR_MS, least=-1),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    ),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}
