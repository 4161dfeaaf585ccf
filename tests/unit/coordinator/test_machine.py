"""Replies and their answers: mypy has them agree."""

from headrace.coordinator.machine import OnError, Outcome, Reply, told
from headrace.coordinator.replies import tell
from headrace.errors import ErrorCode, KafkaError

REFUSED = KafkaError(ErrorCode.NOT_COORDINATOR, "another node does")


def test_a_reply_is_told_its_answer_or_why_there_is_none() -> None:
    answers: list[int | KafkaError] = []
    reply: Reply[int] = answers.append
    for each in Outcome(replies=(told(reply, 1), told(reply, REFUSED))).replies:
        tell(each)
    assert answers == [1, REFUSED]


def test_an_answer_of_another_type_is_a_type_error() -> None:
    """Nothing happens at run time: mypy complains of an `ignore` that is not needed."""
    answers: list[int | KafkaError] = []
    reply: Reply[int] = answers.append
    told(reply, "one")  # type: ignore[arg-type]
    told(reply, None)  # type: ignore[misc]
    Outcome(replies=((reply, 1),))  # type: ignore[arg-type]


def test_every_reply_can_be_told_of_an_error() -> None:
    answers: list[int | KafkaError] = []
    reply: Reply[int] = answers.append
    on_error: OnError = reply
    tell(told(on_error, REFUSED))
    assert answers == [REFUSED]
