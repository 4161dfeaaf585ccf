"""How `headrace share inspect` prints what a node says."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from headrace.cli import share_inspection
from headrace.cli.program import headrace
from headrace.client.node_pages import Pages
from headrace.client.share.inspection import (
    ArchivedRun,
    InFlightRun,
    InspectedBreaker,
    InspectedPartition,
    Inspection,
    LettersInspected,
    NotInspected,
)

HELD = InFlightRun(
    first_offset=12,
    last_offset=14,
    state="acquired",
    delivery_count=2,
    member_id="m-1",
    client_id="worker",
    client_host="/10.0.0.7",
    lock_left_ms=1500,
)
QUEUE = Inspection(
    group="billing",
    topic="orders",
    topic_id="AAAAAAAAAAAAAAAAAAAAAQ",
    node=1,
    partitions=(
        InspectedPartition(
            partition=0,
            leader=1,
            is_loaded=True,
            start_offset=12,
            end_offset=15,
            high_watermark=20,
            state_epoch=3,
            in_flight=(HELD, InFlightRun(15, 15, "available", 1, resting_ms=400)),
            archived=(ArchivedRun(9, 9, 5, "delivery count exceeded"),),
            dead_letters=LettersInspected(2, 3, "dlq.orders has no leader now"),
        ),
        InspectedPartition(partition=1, leader=1, start_offset=4, state_epoch=1),
        InspectedPartition(partition=2, leader=7),
        InspectedPartition(partition=3, leader=1),
    ),
    breaker=InspectedBreaker("open", 8, 10, pause_left_ms=900, openings=1),
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """What a node was asked, which answers with QUEUE."""
    asked: list[tuple[str, str, str]] = []

    def answer(pages: Pages, group: str, topic: str) -> Inspection:
        asked.append((str(pages), group, topic))
        if group == "nobody":
            raise NotInspected("127.0.0.1:9094: there is no share group 'nobody'")
        return QUEUE

    monkeypatch.setattr(share_inspection, "inspect_queue", answer)
    return asked


def inspect(*words: str) -> str:
    done = CliRunner().invoke(headrace, ["share", "inspect", "--http", "node:1", *words])
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_each_run_is_a_line_with_holder_attempts_and_time_left(
    asked: list[tuple[str, str, str]],
) -> None:
    lines = [line.split() for line in inspect("billing", "orders").splitlines()]
    assert lines[0][:5] == ["orders-0", "start", "12", "end", "20"]
    assert lines[2] == ["12-14", "acquired", "2", "1500", "-", "worker", "10.0.0.7", "m-1", "-"]
    assert lines[3] == ["15", "available", "1", "-", "400", "-", "-", "-", "-"]
    assert asked == [("node:1", "billing", "orders")]


@pytest.mark.usefixtures("asked")
def test_what_was_given_up_has_its_cause_and_an_open_breaker_its_time() -> None:
    text = inspect("billing", "orders")
    after = text.partition("given up")[2].splitlines()
    assert after[2].split() == ["9", "5", "delivery", "count", "exceeded"]
    assert "2 dead letters are to be sent, 3 failed: dlq.orders has no leader now" in text
    assert text.endswith("circuit breaker open for 900 ms more: 8 of 10 records rejected\n")


@pytest.mark.usefixtures("asked")
def test_of_a_partition_that_is_not_loaded_it_is_said_why() -> None:
    text = inspect("billing", "orders")
    assert "orders-1  start 4  not being read\n" in text
    assert "orders-2  is led by node 7: ask its HTTP port\n" in text
    assert "orders-3  not read yet\n" in text


def test_json_is_what_the_node_said(asked: list[tuple[str, str, str]]) -> None:
    text = inspect("billing", "orders", "--json")
    assert msgspec.convert(json.loads(text), Inspection) == QUEUE
    assert asked[0][0] == "node:1"


@pytest.mark.usefixtures("asked")
def test_a_queue_that_the_node_does_not_know_is_refused_with_its_words() -> None:
    done = CliRunner().invoke(
        headrace, ["share", "inspect", "nobody", "orders", "--http", "node:1"]
    )
    assert done.exit_code == 1
    assert done.stderr == "headrace: 127.0.0.1:9094: there is no share group 'nobody'\n"
