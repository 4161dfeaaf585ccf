"""What is mirrored: names, configs, positions of groups."""

import pytest

from headrace.client.configs import Config, ConfigSource, ConfigType
from headrace.client.groups import CommittedOffset
from headrace.client.mirror.choice import (
    Choice,
    InvalidChoice,
    choose_configs,
    may_end_early,
    plan_configs,
    source_name,
    source_topic_id,
)
from headrace.client.mirror.group_positions import plan_moves
from headrace.client.topics import TopicPartition
from headrace.config.topic import MIRROR_SOURCE
from headrace.ids import ZERO_TOPIC_ID, TopicId


def config(name: str, value: str, source: ConfigSource) -> Config:
    return Config(name, value, source, False, False, ConfigType.STRING)


def test_names_match_as_a_whole() -> None:
    choice = Choice(("orders.*", "payments"), (r".*\.tmp",))
    assert [
        each for each in ("orders", "orders.eu", "orders.tmp", "payments2") if choice.has(each)
    ] == [
        "orders",
        "orders.eu",
    ]
    with pytest.raises(InvalidChoice, match="no regular expression"):
        Choice(("(",)).check()


def test_configs_that_differ_from_the_defaults_are_copied_wherever_they_are_set() -> None:
    own, broker = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
    found = choose_configs(
        [
            config("retention.ms", "604800000", broker),
            config("retention.bytes", "5000", broker),
            config("cleanup.policy", "compact", own),
            config("segment.bytes", "1073741824", own),
            config("confluent.tier.enable", "true", own),
            config("confluent.other", "1", ConfigSource.DEFAULT_CONFIG),
            config("remote.storage.enable", "true", own),
            config("leader.replication.throttled.replicas", "", broker),
            config(MIRROR_SOURCE.name, "a/b", own),
        ]
    )
    assert found.copied == {"retention.bytes": "5000", "cleanup.policy": "compact"}
    assert found.left == {
        "confluent.tier.enable": "true",
        "remote.storage.enable": "true",
        MIRROR_SOURCE.name: "a/b",
    }


def test_only_configs_that_differ_are_changed() -> None:
    current = {"retention.ms": "1", "segment.ms": "5", MIRROR_SOURCE.name: "a/b"}
    changes = plan_configs(current, {"retention.ms": "2", MIRROR_SOURCE.name: "a/b"})
    assert (dict(changes.set), list(changes.unset)) == ({"retention.ms": "2"}, ["segment.ms"])


def test_the_name_of_a_source_is_one_that_the_config_takes() -> None:
    for topic_id in (ZERO_TOPIC_ID, TopicId(b"\xff" * 16)):
        for cluster_id in ("MkU3OEVBNTcwNTJENDM2Qk", None, "odd id/with ü"):
            text = source_name(cluster_id, topic_id)
            assert MIRROR_SOURCE.parse(text) == text


@pytest.mark.parametrize("topic_id", [ZERO_TOPIC_ID, TopicId(bytes(range(16)))])
def test_the_name_of_a_source_has_its_topic_id(topic_id: TopicId) -> None:
    assert source_topic_id(source_name("a/b", topic_id)) == topic_id
    assert source_topic_id("cluster/topic") == ZERO_TOPIC_ID, "set by hand"


@pytest.mark.parametrize(
    ("values", "may"),
    [
        ({"cleanup.policy": "delete"}, False),
        ({"cleanup.policy": "compact"}, True),
        ({"cleanup.policy": "compact,delete", "remote.storage.enable": "false"}, True),
        ({"cleanup.policy": "compact", "remote.storage.enable": "true"}, False),
        ({"cleanup.policy": "compact", "confluent.tier.enable": "true"}, False),
        ({}, False),
    ],
)
def test_only_a_compacted_topic_without_a_tier_may_end_early(
    values: dict[str, str], *, may: bool
) -> None:
    rows = [
        config(name, value, ConfigSource.STATIC_BROKER_CONFIG) for name, value in values.items()
    ]
    assert may_end_early(rows) is may


def test_positions_move_forward_and_never_beyond_what_is_mirrored() -> None:
    places = [TopicPartition("t", index) for index in range(5)]
    source = {
        each: CommittedOffset(offset, 4, "note")
        for each, offset in zip(places, (50, 5, 7, 9, 1), strict=True)
    }
    target = {places[1]: CommittedOffset(8), places[2]: CommittedOffset(6)}
    ends = {places[0]: 30, places[1]: 30, places[2]: 30, places[3]: 30}
    moves = plan_moves(source, target, ends, goes_back=False)
    assert moves == {
        places[0]: CommittedOffset(30, -1, "note"),
        places[2]: CommittedOffset(7, -1, "note"),
        places[3]: CommittedOffset(9, -1, "note"),
    }
    back = plan_moves(source, target, ends, goes_back=True)
    assert back[places[1]] == CommittedOffset(5, -1, "note")
