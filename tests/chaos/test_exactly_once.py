"""A transactional copy from topic to topic: what is committed is the input, once each."""

from collections.abc import Iterator

import pytest

from tests.chaos.copy_load import CopyLoad
from tests.chaos.faults import Fault
from tests.chaos.roles import Role
from tests.chaos.scenarios import Arena, arena, matrix, play_recorded

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes_under_load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("copy_load"), CopyLoad) as made:
        yield made


@pytest.mark.parametrize(("fault", "role"), matrix("kill-coordinator", "cut-off-leader"))
def test_a_transactional_copy_is_its_source_once_each_and_in_order(
    nodes_under_load: Arena, fault: Fault, role: Role, request: pytest.FixtureRequest
) -> None:
    play_recorded(nodes_under_load, fault, role, request)
