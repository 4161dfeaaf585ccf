"""Dead letters that cannot be sent yet: their topic is not there, and nobody may create it."""

import pytest

from headrace.ids import TopicId
from tests.unit.harness import Harness
from tests.unit.share.dead_letter_topics import (
    LETTERS,
    begin,
    crash,
    letters,
    name_topic,
    wait_until,
    wait_until_finished,
)
from tests.unit.share.share_client import (
    ACCEPT,
    REJECT,
    RELEASE,
    Member,
    finished_up_to,
)

NO_CREATION = {
    "share.coordinator.state.topic.num.partitions": "1",
    "errors.deadletterqueue.auto.create.topics.enable": "false",
}

pytestmark = pytest.mark.parametrize("harness", [NO_CREATION], indirect=True, ids=[""])


@pytest.fixture
def topic_id(harness: Harness) -> TopicId:
    created: TopicId = harness.create_topic("orders")
    return created


# What a letter that cannot be sent does not hold up


def test_letters_wait_for_their_topic_and_hold_nobody_up(
    harness: Harness, topic_id: TopicId, caplog: pytest.LogCaptureFixture
) -> None:
    name_topic(harness)
    member = begin(harness, topic_id, b"a", b"b", b"c")
    assert member.acknowledge(0, (0, 0, REJECT)) == "NONE"
    dead_letters = harness.broker.share_partitions.dead_letters
    wait_until(harness, lambda: dead_letters.failed_attempts >= 2)
    assert "there is no topic dlq.orders" in caplog.text
    assert caplog.text.count("dead letters wait") == 1
    assert member.acknowledge(0, (1, 2, [ACCEPT, RELEASE])) == "NONE"
    assert member.fetch()[0].acquired == [(2, 2, 2)]
    assert member.acknowledge(0, (2, 2, REJECT)) == "NONE"
    wait_until(harness, lambda: dead_letters.waiting_records == 2)
    harness.create_topic(LETTERS)
    assert {each.value for each in letters(harness, 2)} == {b"a", b"c"}
    wait_until_finished(harness, topic_id, 3)
    assert dead_letters.waiting_records == 0


def test_letters_that_wait_are_archived_when_the_group_wants_none_any_more(
    harness: Harness, topic_id: TopicId
) -> None:
    name_topic(harness)
    member = begin(harness, topic_id, b"a")
    member.acknowledge(0, (0, 0, REJECT))
    assert finished_up_to(harness, topic_id) == 0
    name_topic(harness, "")
    wait_until_finished(harness, topic_id, 1)


# What they outlive


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_letters_that_wait_outlive_the_node(harness: Harness, topic_id: TopicId, end: str) -> None:
    name_topic(harness)
    member = begin(harness, topic_id, b"a", b"b", b"c")
    assert member.acknowledge(0, (0, 1, [ACCEPT, REJECT])) == "NONE"
    if end == "crash":
        crash(harness)
    else:
        harness.restart()
    harness.create_topic(LETTERS)
    again = Member(harness, topic_id)
    assert again.fetch(0, max_wait_ms=9000)[0].values == [b"c"]
    (letter,) = letters(harness, 1)
    assert letter.value == b"b"
    assert letter.headers["__dlq.errors.reason"] == b"rejected"
    again.acknowledge(0, (2, 2, ACCEPT))
    wait_until_finished(harness, topic_id, 3)
