"""A queue: every record is accepted by a worker, and the queue goes on."""

from collections.abc import Iterator

import pytest

from tests.chaos.faults import Fault
from tests.chaos.queue_load import SETTINGS, QueueLoad
from tests.chaos.roles import Role
from tests.chaos.scenarios import Arena, arena, matrix, play_recorded

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes_under_load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("queue_load"), QueueLoad, SETTINGS) as made:
        yield made


@pytest.mark.parametrize(("fault", "role"), matrix("pause-leader", "kill-target"))
def test_every_record_of_a_queue_is_accepted_and_the_queue_goes_on(
    nodes_under_load: Arena, fault: Fault, role: Role, request: pytest.FixtureRequest
) -> None:
    play_recorded(nodes_under_load, fault, role, request)
