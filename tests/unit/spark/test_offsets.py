import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.topics import TopicPartition
from headrace.spark.offsets import (
    InvalidOffsets,
    StreamOffset,
    offsets_from_json,
    partitions_from_json,
)

TOPICS = st.text("abcxyz.-_", min_size=1, max_size=8)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 40))


@given(
    st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)),
    st.dictionaries(TOPICS, st.text("AZaz09", min_size=22, max_size=22)),
    TOPICS,
)
def test_what_spark_stores_comes_back(
    offsets: dict[TopicPartition, int], ids: dict[str, str], group: str
) -> None:
    offset = StreamOffset(offsets, ids, group)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


def test_equal_offsets_have_equal_texts_whatever_their_order() -> None:
    a, b = TopicPartition("t", 10), TopicPartition("t", 2)
    one = StreamOffset({a: 1, b: 2}, {"x": "1", "t": "2"})
    other = StreamOffset({b: 2, a: 1}, {"t": "2", "x": "1"})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_the_connectors_offsets_are_read() -> None:
    stored = json.loads('{"orders":{"1":345,"0":23},"events":{"0":-2}}')
    assert StreamOffset.from_json(stored) == StreamOffset(
        {
            TopicPartition("orders", 1): 345,
            TopicPartition("orders", 0): 23,
            TopicPartition("events", 0): -2,
        }
    )


def test_a_streams_offset_can_be_where_another_read_starts() -> None:
    here = TopicPartition("t", 0)
    stored = StreamOffset({here: 5}, {"t": "A" * 22}, "group").to_json()
    assert offsets_from_json(stored) == {here: 5}


@pytest.mark.parametrize("stored", [{"t": [1]}, {"t": {"x": 1}}, {"t": {"0": "1"}}])
def test_what_is_no_offset_is_named(stored: dict[str, object]) -> None:
    with pytest.raises(InvalidOffsets, match="'t' has"):
        offsets_from_json(stored)


def test_assigned_partitions_are_lists_of_numbers() -> None:
    assert partitions_from_json({"t": [1, 0, 1]}) == [("t", 0), ("t", 1)]
    with pytest.raises(InvalidOffsets, match="'t' has"):
        partitions_from_json({"t": ["0"]})
