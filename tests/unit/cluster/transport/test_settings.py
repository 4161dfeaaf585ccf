"""Limits that fit each other."""

import pytest

from headrace.cluster.transport.settings import TransportSettings, transport_settings
from headrace.config import (
    RAFT_APPEND_BYTES_MAX,
    RAFT_ENTRY_BYTES_MAX,
    InvalidSetting,
    load_settings,
)


def test_the_defaults_carry_the_largest_message_of_raft() -> None:
    largest = RAFT_ENTRY_BYTES_MAX.default + RAFT_APPEND_BYTES_MAX.default
    assert TransportSettings().frame_bytes_max > largest


def test_limits_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match="queue_messages_max=0"):
        TransportSettings(queue_messages_max=0)
    with pytest.raises(InvalidSetting, match=r"frame_bytes_max=100: .*queue_bytes_max=50"):
        TransportSettings(frame_bytes_max=100, queue_bytes_max=50)


def test_a_larger_entry_makes_larger_frames() -> None:
    larger = {RAFT_ENTRY_BYTES_MAX.name: str(64 << 20)}
    settings = transport_settings(load_settings(environ={}, overrides=larger))
    assert settings.frame_bytes_max > 64 << 20
    assert transport_settings(load_settings(environ={})) == TransportSettings()
