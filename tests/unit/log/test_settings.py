"""A log's settings by its topic's configs."""

import pytest

from headrace.config import InvalidSetting, Settings, effective_topic_configs
from headrace.log.settings import LogSettings
from headrace.records.compression import Compression
from headrace.records.header import TimestampType


def test_the_defaults_of_a_topic_are_those_of_a_log() -> None:
    effective = effective_topic_configs({}, {}, {}, Settings())
    assert LogSettings.from_configs(effective) == LogSettings() == LogSettings.from_configs({})


def test_configs_become_settings_and_rules() -> None:
    settings = LogSettings.from_configs(
        {
            "cleanup.policy": "compact",
            "compression.type": "gzip",
            "compression.gzip.level": "3",
            "message.timestamp.type": "LogAppendTime",
            "segment.bytes": "2000000",
            "max.message.bytes": "5000",
            "min.cleanable.dirty.ratio": "0.1",
        }
    )
    assert settings.is_compacted
    assert not settings.is_deleted_by_age
    assert settings.segment_bytes == 2_000_000
    assert settings.min_cleanable_dirty_ratio == 0.1
    assert settings.rules.is_compacted
    assert settings.rules.compression is Compression.GZIP
    assert settings.rules.compression_level == 3
    assert settings.rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert settings.rules.max_message_bytes == 5000


def test_the_internal_segment_size_has_no_lower_bound() -> None:
    assert LogSettings.from_configs({"internal.segment.bytes": "400"}).segment_bytes == 400


def test_uncompressed_is_a_codec_and_producer_is_none() -> None:
    rules = LogSettings.from_configs({"compression.type": "uncompressed"}).rules
    assert rules.compression is Compression.NONE
    assert LogSettings.from_configs({}).rules.compression is None


def test_jitter_makes_files_end_earlier_but_takes_no_more_than_their_age() -> None:
    configs = {"segment.ms": "1000", "segment.jitter.ms": "400"}
    assert LogSettings.from_configs(configs).segment_age_ms_max == 1000
    assert LogSettings.from_configs(configs, jitter=0.5).segment_age_ms_max == 800
    huge = {"segment.ms": "1000", "segment.jitter.ms": "1000000"}
    assert LogSettings.from_configs(huge, jitter=0.9).segment_age_ms_max == 100


def test_a_value_that_cannot_be_is_an_error() -> None:
    with pytest.raises(InvalidSetting, match=r"segment\.bytes=5: must be between 1048576"):
        LogSettings.from_configs({"segment.bytes": "5"})
