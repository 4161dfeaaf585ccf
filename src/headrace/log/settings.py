"""The settings of one log, by Kafka's topic configs; made anew when they change."""

from typing import Final

import msgspec

from headrace import config
from headrace.records.validation import TopicRules

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a log rolls, flushes, keeps and compacts, and what it takes."""

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
    is_deleted_by_age: bool = True
    """Whether cleanup.policy has `delete`."""
    is_compacted: bool = False
    """Whether cleanup.policy has `compact`."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = config.MIN_COMPACTION_LAG_MS.default
    max_compaction_lag_ms: int = config.MAX_COMPACTION_LAG_MS.default
    delete_retention_ms: int = config.DELETE_RETENTION_MS.default
    segment_age_ms_max: int = 0
    """With the jitter taken off; this and the following are computed from the settings above."""
    offset_entries_max: int = 0
    time_entries_max: int = 0

    def __post_init__(self) -> None:
        force = msgspec.structs.force_setattr
        force(self, "segment_age_ms_max", self.segment_ms - self.segment_jitter_ms)
        force(self, "offset_entries_max", self.segment_index_bytes // OFFSET_ENTRY_BYTES)
        force(self, "time_entries_max", self.segment_index_bytes // TIME_ENTRY_BYTES)
