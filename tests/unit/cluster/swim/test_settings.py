"""Settings that fit each other, and the formulas in them."""

import pytest

from headrace.cluster.swim.settings import SwimSettings
from headrace.config import InvalidSetting


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("probe_interval_ms", 0, "headrace.swim.probe.interval.ms=0: must be at least 1"),
        ("probe_timeout_ms", 251, "at most half of headrace.swim.probe.interval.ms=500"),
        ("datagram_bytes_max", 100, "headrace.swim.datagram.bytes.max=100: must be from"),
        ("datagram_bytes_max", 70_000, "to 65507"),
        ("piggyback_bytes_max", 1150, "does not fit into headrace.swim.datagram.bytes.max=1200"),
        ("indirect_probes", -1, "headrace.swim.indirect.probes=-1: must be at least 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(name: str, value: int, reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        SwimSettings(**{name: value})


def test_each_confirmation_shortens_a_suspicion_down_to_the_least() -> None:
    settings = SwimSettings()
    lasts = [settings.suspicion_ms(10, 3, confirmations) for confirmations in range(5)]
    assert lasts == [12_000, 7000, 4075, 2000, 2000]


def test_a_suspicion_that_nobody_could_confirm_is_as_short_as_it_can_be() -> None:
    assert SwimSettings().suspicion_ms(2, 0, 0) == 2000


def test_suspicions_and_gossip_grow_with_the_logarithm_of_the_size() -> None:
    settings = SwimSettings()
    assert [settings.suspicion_ms(size, 0, 0) for size in (1, 10, 100, 1000)] == [
        2000,
        2000,
        4000,
        6000,
    ]
    assert [settings.gossip_limit(size) for size in (1, 3, 50, 1000)] == [3, 6, 16, 28]
