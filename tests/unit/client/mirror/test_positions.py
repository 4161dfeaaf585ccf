"""Where copies go on."""

import pytest

from headrace.client.mirror.pace import Pace
from headrace.client.mirror.positions import BeginAt, Discard, Extent, GoOn, Halt, Step, decide


@pytest.mark.parametrize(
    ("source", "target", "step"),
    [
        ((0, 10), (0, 0), GoOn(0)),
        ((0, 10), (0, 4), GoOn(4)),
        ((4, 10), (0, 4), GoOn(4)),
        ((3, 10), (0, 0), BeginAt(3)),
        ((10, 10), (0, 0), BeginAt(10)),
        ((10, 10), (5, 10), GoOn(10)),
        ((7, 10), (4, 4), BeginAt(7)),
    ],
)
def test_a_copy_goes_on_where_the_target_ends(
    source: tuple[int, int], target: tuple[int, int], step: Step
) -> None:
    assert decide(Extent(*source), Extent(*target), skips_lost=False) == step


def test_deleted_records_that_were_not_copied_are_skipped_only_if_asked_for() -> None:
    source, target = Extent(8, 10), Extent(0, 5)
    step = decide(source, target, skips_lost=False)
    assert isinstance(step, Halt)
    assert "offsets 5 to 7" in step.reason
    assert "--skip-lost" in step.reason
    assert decide(source, target, skips_lost=True) == GoOn(5)
    assert decide(Extent(8, 8), target, skips_lost=True) == Discard(5, 8)


def test_a_source_that_lost_records_halts_the_copy() -> None:
    step = decide(Extent(0, 5), Extent(0, 8), skips_lost=True)
    assert isinstance(step, Halt)
    assert "lost records" in step.reason


def test_bytes_come_at_the_given_rate() -> None:
    pace = Pace(1000, 0.0)
    assert pace.wait_seconds(500, 0.0) == 0.5
    assert pace.wait_seconds(500, 0.5) == 0.5
    assert pace.wait_seconds(100, 9.0) == pytest.approx(0.1)
    assert Pace(None, 0.0).wait_seconds(10**9, 0.0) == 0
