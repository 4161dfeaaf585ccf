"""Answers that are put together from those of several shards."""

import weakref
from functools import partial
from typing import Any

import pytest

from headrace.coordinator.machine import told
from headrace.coordinator.replies import tell
from headrace.errors import ErrorCode, KafkaError
from headrace.server import gathering
from headrace.server.gathering import TURN_NS_MAX, Gathering
from headrace.surroundings import Clocks


def test_answers_come_together_in_the_order_in_which_they_were_asked_for() -> None:
    responses: list[Any] = []
    gathered = Gathering(2, responses.append)
    gathered.take(1, "b")
    assert not responses
    gathered.take(0, "a")
    assert responses == [["a", "b"]]


def test_a_response_that_cannot_be_sent_fails_for_all_that_it_is_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    responses: list[Any] = []

    def respond(answers: list[Any]) -> None:
        if not all(isinstance(each, KafkaError) for each in answers):
            raise ValueError("too long a text")
        responses.append([each.code for each in answers])

    gathered = Gathering(2, respond)
    for position in range(2):
        tell(told(partial(gathered.take, position), "x"))
    assert responses == [[ErrorCode.UNKNOWN_SERVER_ERROR] * 2]
    assert "too long a text" in caplog.text


def test_an_error_holds_nothing_of_what_was_done_for_its_name() -> None:
    """A hundred thousand tracebacks took the garbage collector longer with each."""

    class Held:
        pass

    def fail() -> None:
        held.append(Held())
        local = held[0]
        assert local is not None
        try:
            raise KeyError(1)
        except KeyError:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "there is none")  # noqa: B904

    held: list[Held] = []
    responses: list[Any] = []
    gathered = Gathering(2, responses.append)
    try:
        fail()
    except KafkaError as error:
        gathered.take(0, error)
    gone = weakref.ref(held.pop())
    assert gone() is None
    gathered.take(1, "b")
    assert [type(each) for each in responses[0]] == [KafkaError, str]


def test_what_takes_long_is_looked_up_in_more_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may have thousands of members, and a request may name as many groups."""
    now_ns = 0

    def ask(name: int, reply: Any) -> None:
        nonlocal now_ns
        now_ns += TURN_NS_MAX // 2
        reply(name)

    clock = Clocks(monotonic_ns=lambda: now_ns)
    monkeypatch.setattr(gathering, "clocks", lambda: clock)
    answered: list[list[Any]] = []
    turns = list(gathering._asking(range(20), ask, Gathering(20, answered.append), 50))
    assert answered == [list(range(20))]
    assert len(turns) == 9
