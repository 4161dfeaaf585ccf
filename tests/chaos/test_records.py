"""Records of idempotent producers and a consumer group: nothing is lost, doubled, reordered."""

from collections.abc import Iterator

import pytest

from tests.chaos.faults import Fault
from tests.chaos.record_load import RecordLoad
from tests.chaos.roles import Role
from tests.chaos.scenarios import Arena, arena, matrix, play_recorded

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes_under_load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("record_load"), RecordLoad) as made:
        yield made


@pytest.mark.parametrize(("fault", "role"), matrix("kill-leader", "outgoing-lost-source"))
def test_nothing_acknowledged_is_lost_doubled_or_reordered(
    nodes_under_load: Arena, fault: Fault, role: Role, request: pytest.FixtureRequest
) -> None:
    play_recorded(nodes_under_load, fault, role, request)
