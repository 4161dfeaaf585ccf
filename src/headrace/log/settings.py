"""The settings of one log, from Kafka's topic configs; replaced when they change."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from headrace import config
from headrace.config import AnySettings, Setting, Settings
from headrace.records.compression import Compression
from headrace.records.header import TimestampType
from headrace.records.validation import TopicRules

T = TypeVar("T")

_NO_SETTINGS: Final = Settings()
OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
INHERITED: Final = -2
"""The value of local.retention.* that stands for retention.*."""


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a log rolls, flushes, keeps, tiers and compacts, and what it takes."""

    rules: TopicRules = TopicRules()
    segment_bytes: int = config.SEGMENT_BYTES.default
    segment_ms: int = config.SEGMENT_MS.default
    segment_jitter_ms: int = config.SEGMENT_JITTER_MS.default
    segment_index_bytes: int = config.SEGMENT_INDEX_BYTES.default
    index_interval_bytes: int = config.INDEX_INTERVAL_BYTES.default
    flush_messages: int = config.FLUSH_MESSAGES.default
    flush_ms: int = config.FLUSH_MS.default
    retention_ms: int = config.RETENTION_MS.default
    retention_bytes: int = config.RETENTION_BYTES.default
    file_delete_delay_ms: int = config.FILE_DELETE_DELAY_MS.default
    producer_id_expiration_ms: int = config.PRODUCER_ID_EXPIRATION_MS.default
    cold_read_attempts_max: int = config.COLD_READ_ATTEMPTS_MAX.default
    """How often a thread brings data into the page cache before the loop waits for the disk."""
    is_deleted_by_age: bool = True
    """Whether cleanup.policy has `delete`."""
    is_compacted: bool = False
    """Whether cleanup.policy has `compact`."""
    min_cleanable_dirty_ratio: float = config.MIN_CLEANABLE_DIRTY_RATIO.default
    min_compaction_lag_ms: int = config.MIN_COMPACTION_LAG_MS.default
    max_compaction_lag_ms: int = config.MAX_COMPACTION_LAG_MS.default
    delete_retention_ms: int = config.DELETE_RETENTION_MS.default
    is_tiered: bool = False
    """Whether old segments move to the tier: then retention.* covers both, local.retention.* what
    stays on the local disk."""
    is_copied: bool = False
    """Whether segments are copied to the tier; not if remote.log.copy.disable stops that."""
    local_retention_ms: int = config.RETENTION_MS.default
    """As local.retention.ms says, with retention.ms for -2; without a tier that one."""
    local_retention_bytes: int = config.RETENTION_BYTES.default
    remote_delete_on_disable: bool = False
    """Whether the data in the tier is deleted if the topic is not in the tier any more."""
    mirror_source: str | None = None
    """The topic of another cluster whose records, with their offsets, are all that is appended."""
    may_drop_uncopied: bool = False
    """Whether local retention may delete what a tiered log has not copied yet."""
    segment_age_ms_max: int = 0
    """With the jitter taken off; this and the following are computed from the settings above."""
    offset_entries_max: int = 0
    time_entries_max: int = 0

    def __post_init__(self) -> None:
        force = msgspec.structs.force_setattr
        # A jitter above the age, which Kafka allows, must not make every append start a file.
        jitter_ms = min(self.segment_jitter_ms, self.segment_ms - 1)
        force(self, "segment_age_ms_max", self.segment_ms - jitter_ms)
        force(self, "offset_entries_max", self.segment_index_bytes // OFFSET_ENTRY_BYTES)
        force(self, "time_entries_max", self.segment_index_bytes // TIME_ENTRY_BYTES)

    @classmethod
    def from_configs(
        cls,
        values: Mapping[str, str],
        node: AnySettings = _NO_SETTINGS,
        *,
        jitter: float = 0.0,
        may_be_tiered: bool = True,
    ) -> "LogSettings":
        """Return the settings of a log from its topic's effective configs, as text.

        A missing config has its default; others are ignored. `node` has the settings for all logs
        of a node. `jitter`, from 0 to 1, is the fraction of segment.jitter.ms that this log
        subtracts: a random number spreads logs that started together. Internal topics never are
        in the tier (`may_be_tiered`), whatever their configs say. Raise InvalidSetting for an
        invalid value.
        """

        def value(setting: Setting[T]) -> T:
            text = values.get(setting.name)
            return setting.default if text is None else setting.parse(text)

        policies = value(config.CLEANUP_POLICY)
        codec_name = value(config.COMPRESSION_TYPE)
        codec = _CODECS[codec_name]
        level = _LEVELS.get(codec_name)
        segment_ms = value(config.SEGMENT_MS)
        segment_bytes = value(config.INTERNAL_SEGMENT_BYTES)
        has_tier = node[config.REMOTE_LOG_STORAGE_SYSTEM_ENABLE] and may_be_tiered
        is_tiered = has_tier and value(config.REMOTE_STORAGE_ENABLE)
        local_ms = value(config.LOCAL_RETENTION_MS) if is_tiered else INHERITED
        local_bytes = value(config.LOCAL_RETENTION_BYTES) if is_tiered else INHERITED
        retention_ms, retention_bytes = value(config.RETENTION_MS), value(config.RETENTION_BYTES)
        return cls(
            rules=TopicRules(
                max_message_bytes=value(config.MAX_MESSAGE_BYTES),
                is_compacted="compact" in policies,
                compression=codec,
                compression_level=value(level) if level else None,
                timestamp_type=_TIMESTAMP_TYPES[value(config.MESSAGE_TIMESTAMP_TYPE)],
                timestamp_before_max_ms=value(config.MESSAGE_TIMESTAMP_BEFORE_MAX_MS),
                timestamp_after_max_ms=value(config.MESSAGE_TIMESTAMP_AFTER_MAX_MS),
                inflated_bytes_max=node[config.INFLATED_BATCH_MAX_BYTES],
                checks_records=node[config.PRODUCE_VALIDATION] == "records",
                record_errors_max=node[config.RECORD_ERRORS_MAX],
            ),
            segment_bytes=value(config.SEGMENT_BYTES) if segment_bytes is None else segment_bytes,
            segment_ms=segment_ms,
            segment_jitter_ms=int(jitter * min(value(config.SEGMENT_JITTER_MS), segment_ms)),
            segment_index_bytes=value(config.SEGMENT_INDEX_BYTES),
            index_interval_bytes=value(config.INDEX_INTERVAL_BYTES),
            flush_messages=value(config.FLUSH_MESSAGES),
            flush_ms=value(config.FLUSH_MS),
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            file_delete_delay_ms=value(config.FILE_DELETE_DELAY_MS),
            producer_id_expiration_ms=node[config.PRODUCER_ID_EXPIRATION_MS],
            cold_read_attempts_max=node[config.COLD_READ_ATTEMPTS_MAX],
            is_deleted_by_age="delete" in policies,
            is_compacted="compact" in policies,
            min_cleanable_dirty_ratio=value(config.MIN_CLEANABLE_DIRTY_RATIO),
            min_compaction_lag_ms=value(config.MIN_COMPACTION_LAG_MS),
            max_compaction_lag_ms=value(config.MAX_COMPACTION_LAG_MS),
            delete_retention_ms=value(config.DELETE_RETENTION_MS),
            is_tiered=is_tiered,
            is_copied=is_tiered and not value(config.REMOTE_LOG_COPY_DISABLE),
            local_retention_ms=retention_ms if local_ms == INHERITED else local_ms,
            local_retention_bytes=retention_bytes if local_bytes == INHERITED else local_bytes,
            remote_delete_on_disable=value(config.REMOTE_LOG_DELETE_ON_DISABLE),
            mirror_source=value(config.MIRROR_SOURCE),
            may_drop_uncopied=node[config.TIER_DROP_UNCOPIED],
        )


_CODECS: Final = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_LEVELS: Final = {
    "gzip": config.COMPRESSION_GZIP_LEVEL,
    "lz4": config.COMPRESSION_LZ4_LEVEL,
    "zstd": config.COMPRESSION_ZSTD_LEVEL,
}
_TIMESTAMP_TYPES: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
