"""How far a move is, from what nodes say; and what a stuck one waits for."""

from typing import Any

import pytest

from headrace.cli.move_progress import Progress, gather, progress
from headrace.cluster.operator_words import MoveRow, Moves

SOURCE, STAYS, TARGET = 1, 2, 3


def row(**fields: Any) -> MoveRow:
    known: dict[str, Any] = {
        "migration_id": "an-id",
        "phase": "CatchUp",
        "topic": "orders",
        "partition": 0,
        "started_ms": 1,
        "since_ms": 1,
        "leader": SOURCE,
        "isr": (SOURCE, STAYS),
        "adding": (TARGET,),
        "removing": (SOURCE,),
        "unavailable": (),
        "own_bytes": -1,
        "own_end_offset": -1,
    }
    return MoveRow(**{**known, **fields})


def look(copied: int, lag: int = 10, **fields: Any) -> list[Moves]:
    """What the leader and the target say."""
    return [
        Moves(SOURCE, (row(own_bytes=1000, own_end_offset=100, **fields),), is_complete=True),
        Moves(STAYS, (row(**fields),), is_complete=True),
        Moves(
            TARGET, (row(own_bytes=copied, own_end_offset=100 - lag, **fields),), is_complete=True
        ),
    ]


def seen(now: list[Moves], before: list[Moves] | None = None) -> Progress:
    (found,) = progress(gather(before or now), gather(now), seconds=2.0)
    return found


def test_bytes_lag_rate_and_time_left_come_from_two_looks_at_two_copies() -> None:
    found = seen(look(600), look(400, lag=50))
    assert (found.copied_bytes, found.total_bytes, found.lag) == (600, 1000, 10)
    assert (found.bytes_per_second, found.seconds_left) == (100.0, 4.0)
    assert (found.source, found.target, found.state) == ((SOURCE,), TARGET, "copies")


def test_a_node_that_lags_does_not_put_a_move_back() -> None:
    late = Moves(STAYS, (row(phase="AddLearner", since_ms=0),), is_complete=True)
    newest = look(600)
    assert seen([late, *newest]).phase == seen([*newest, late]).phase == "CatchUp"
    assert seen([late, *newest]).copied_bytes == 600


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"unavailable": (TARGET,)}, "stuck: node 3 is down; start it, or abort the move"),
        (
            {"leader": -1, "unavailable": (SOURCE, STAYS)},
            "stuck: the partition has no leader; start node 1, node 2",
        ),
        ({"isr": (SOURCE, STAYS, TARGET)}, "in sync, finishes"),
        ({"phase": "LeadershipTransfer"}, "finishes"),
        ({"adding": ()}, "waits until the replicas that stay are in sync"),
    ],
)
def test_a_move_says_what_it_waits_for(fields: dict[str, Any], state: str) -> None:
    assert seen(look(600, **fields)).state == state


def test_a_copy_that_does_not_grow_says_so() -> None:
    assert "throttle" in seen(look(600)).state
    assert seen(look(1000, lag=0)).state == "has all records, waits to be in sync"


def test_each_node_that_comes_has_a_row() -> None:
    found = progress({}, gather(look(600, adding=(TARGET, 4), isr=(SOURCE, TARGET))), 1.0)
    assert [each.target for each in found] == [TARGET, 4]
    assert found[0].state == "in sync, waits for node 4"
    assert found[1].state == "copies; a node of it cannot be asked"
