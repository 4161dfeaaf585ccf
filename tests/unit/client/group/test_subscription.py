"""What a member may want."""

import re

import pytest

from headrace.client.group.subscription import Subscription
from headrace.client.metadata import Topic
from headrace.ids import ZERO_TOPIC_ID


def topic(name: str, *, is_internal: bool = False) -> Topic:
    return Topic(name, ZERO_TOPIC_ID, is_internal, ())


def test_names_are_sorted_and_each_counts_once() -> None:
    assert Subscription.of(["b", "a", "b"], None).topics == ("a", "b")
    assert Subscription.of("orders", None).topics == ("orders",)


def test_a_pattern_matches_whole_names_of_topics_that_are_not_internal() -> None:
    found = Subscription.of(None, re.compile("orders-.*")).matching(
        [topic("orders-1"), topic("my-orders-1"), topic("orders-x", is_internal=True), topic("o")]
    )
    assert found == ("orders-1",)


@pytest.mark.parametrize(
    ("topics", "pattern", "hint"),
    [
        (None, None, "name at least one topic"),
        ([], None, "name at least one topic"),
        (["a"], "b", "not both"),
        (None, "", "name at least one topic"),
        ([""], None, "empty name"),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    topics: list[str] | None, pattern: str | None, hint: str
) -> None:
    with pytest.raises(ValueError, match=hint):
        Subscription.of(topics, pattern)
