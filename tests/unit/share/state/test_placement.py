"""Where share partitions belong, and what they are called."""

import pytest

from headrace.ids import PartitionIndex, SharePartitionKey, TopicId, parse_share_partition
from headrace.share.state.placement import state_partition


@pytest.mark.parametrize(
    ("group", "topic_id", "partition", "expected"),
    [("g", b"\x05" * 16, 0, 2), ("share-g", b"\x00" * 15 + b"\xca", 7, 10)],
)
def test_share_partitions_are_where_kafka_has_them(
    group: str, topic_id: bytes, partition: int, expected: int
) -> None:
    key = SharePartitionKey(group, TopicId(topic_id), PartitionIndex(partition))
    assert state_partition(key, 50) == expected


def test_a_key_is_written_with_the_topic_id_of_kafkas_tools() -> None:
    key = SharePartitionKey("g", TopicId(b"\x05" * 16), PartitionIndex(3))
    assert key.text == "g:BQUFBQUFBQUFBQUFBQUFBQ:3"
    assert parse_share_partition(key.text) == key


def test_a_group_may_have_colons_in_it() -> None:
    key = SharePartitionKey("a:b:7", TopicId(b"\x05" * 16), PartitionIndex(3))
    assert parse_share_partition(key.text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "g:BQUFBQUFBQUFBQUFBQUFBQ",
        ":BQUFBQUFBQUFBQUFBQUFBQ:0",
        "g:x:0",
        "g:BQUFBQUFBQUFBQUFBQUFBQ:x",
        "g:05050505-0505-0505-0505-050505050505:0",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_share_partition(text)
