"""Nodes with a flaw: each is noticed, or the scenarios that nothing fails would prove nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.copy_load import CopyLoad
from tests.chaos.faults import FAULTS
from tests.chaos.flawed_node import (
    FLAWS,
    acknowledge_alone,
    begin_a_queue_at_its_end,
    show_what_was_aborted,
)
from tests.chaos.loads import Load
from tests.chaos.nodes import Nodes
from tests.chaos.queue_load import SETTINGS, QueueLoad
from tests.chaos.record_load import RecordLoad
from tests.chaos.roles import ROLES
from tests.chaos.scenarios import arena, play

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SCENARIOS_MAX = 5
NOTICED = [
    (acknowledge_alone, RecordLoad, "cut-off-leader", "records are lost|never truncated|lost its"),
    (show_what_was_aborted, CopyLoad, "pause-coordinator", "of the sink"),
    (begin_a_queue_at_its_end, QueueLoad, "kill-leader", "are not accepted"),
]


@pytest.mark.parametrize(("flaw", "make_load", "scenario", "how"), NOTICED)
def test_a_flaw_is_noticed(
    tmp_path: Path,
    flaw: Callable[[], None],
    make_load: Callable[[Nodes], Load],
    scenario: str,
    how: str,
) -> None:
    fault, role = next(
        (fault, role)
        for fault in FAULTS
        for role in ROLES
        if f"{fault.name}-{role.name}" == scenario
    )
    with arena(tmp_path, make_load, SETTINGS, flaw=flaw.__name__) as made:

        def play_some() -> None:
            for _ in range(SCENARIOS_MAX):
                play(made, fault, role)

        with pytest.raises(AssertionError, match=how):
            play_some()


def test_every_flaw_has_a_scenario() -> None:
    assert {row[0].__name__ for row in NOTICED} == set(FLAWS)
