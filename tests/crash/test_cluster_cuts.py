"""Three nodes between which the network is cut, both ways or one way: one leader, one history."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from tests.crash.namespaces import CannotBuild, Networks, networks
from tests.process_cluster import Place, ProcessCluster, leader_by, try_to_create, wait_for

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]


@pytest.fixture
def network() -> Iterator[Networks]:
    try:
        with networks(3) as made:
            yield made
    except CannotBuild as error:
        pytest.skip(str(error))


@pytest.fixture
def cluster(network: Networks, tmp_path: Path) -> Iterator[ProcessCluster]:
    secret = tmp_path / "secret"
    secret.write_text("of three nodes, as long as it must be\n")
    places = {
        number: Place(network.address(number), 9092, 9093, network.within(number))
        for number in (1, 2, 3)
    }
    settings = {"headrace.cluster.secret.file": str(secret)}
    with ProcessCluster(tmp_path, settings, places=places) as cluster:
        cluster.wait_until_all_agree()
        yield cluster


WAYS = ("both ways", "from the controller", "to the controller")


@pytest.mark.parametrize("way", WAYS)
def test_a_controller_that_is_cut_off_is_replaced_and_follows_when_it_is_healed(
    network: Networks, cluster: ProcessCluster, way: str
) -> None:
    acknowledged = []
    for turn in range(3):
        old = cluster.controller()
        others = [number for number in cluster.running() if number != old]
        for other in others:
            if way != "to the controller":
                network.cut(old, other)
            if way != "from the controller":
                network.cut(other, old)
        wait_for(
            lambda others=others: leader_by(cluster, others[0]) in others,  # type: ignore[misc]
            f"another controller than {old}",
        )
        for other in others:
            acknowledged.append(f"{turn}-through-{other}")
            cluster.create_topic(acknowledged[-1], through=other)
        lonely = f"{turn}-through-the-one-cut-off"
        if try_to_create(cluster, old, lonely, 1, 1) is ErrorCode.NONE:
            acknowledged.append(lonely)  # one way, it may have got through
        network.heal()
        cluster.wait_until_all_agree(acknowledged)


@pytest.mark.parametrize("way", WAYS[:2])
def test_a_controller_that_lost_one_follower_leads_on_or_is_replaced_but_changes_go_on(
    network: Networks, cluster: ProcessCluster, way: str
) -> None:
    acknowledged = []
    for turn in range(3):
        old = cluster.controller()
        lost, other = (number for number in cluster.running() if number != old)
        network.cut(old, lost)
        if way == "both ways":
            network.cut(lost, old)
        for number in range(5):
            acknowledged.append(f"{turn}-{number}")
            cluster.create_topic(acknowledged[-1], through=other)
        network.heal()
        cluster.wait_until_all_agree(acknowledged)
