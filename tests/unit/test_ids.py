"""Topic ids as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import ZERO_TOPIC_ID, TopicId, parse_topic_id, topic_id_text


@given(st.binary(min_size=16, max_size=16))
def test_a_topic_id_comes_back_from_its_text(raw: bytes) -> None:
    text = topic_id_text(TopicId(raw))
    assert len(text) == 22
    assert parse_topic_id(text) == raw


def test_the_zero_id_is_written_as_kafka_writes_it() -> None:
    assert topic_id_text(ZERO_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    "text", ["", "AAAA", "A" * 23, "*" * 22, "AAAAAAAAAAAAAAAAAAAAA=", "é" * 22]
)
def test_what_is_no_topic_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a topic id"):
        parse_topic_id(text)
