"""Three nodes with three copies of everything: leaders are killed, stand still, start again."""

import random
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from tests.crash.replicated_producers import Load, producers, values_by_partition
from tests.process_cluster import ProcessCluster, wait_for

TOPIC = "orders"
PARTITIONS = 3
REPLICATED = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
}


def leaders(cluster: ProcessCluster) -> dict[int, int]:
    """Return the leader of each partition, by the word of a node that runs."""
    for number in cluster.running():
        try:
            _, partitions = cluster.view(number)["topics"][TOPIC]
        except (HeadraceError, KeyError):
            continue
        return {index: leader for index, (leader, _, _) in partitions.items()}
    return {}


def trouble(cluster: ProcessCluster, load: Load, chance: random.Random) -> None:
    """Kill or stop the leader of some partition, go on without it, and let it come back."""
    wait_for(lambda: any(each in cluster.nodes for each in leaders(cluster).values()), "a leader")
    leader = chance.choice([each for each in leaders(cluster).values() if each in cluster.nodes])
    if chance.random() < 0.3:
        cluster.nodes[leader].pause()
        load.wait_for_more(10)
        cluster.nodes[leader].resume()
    else:
        cluster.kill(leader)
        load.wait_for_more(10)
        cluster.start([leader])
    cluster.wait_until_in_sync()


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(4, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        pytest.param(200, marks=[pytest.mark.exhaustive, pytest.mark.timeout(7200)]),
    ],
)
def test_no_acknowledged_record_is_lost_doubled_or_reordered_by_kills(
    tmp_path: Path, times: int
) -> None:
    chance = random.Random(times)
    with ProcessCluster(tmp_path, REPLICATED) as cluster:
        cluster.wait_until_all_agree()
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        with producers(cluster.bootstrap, TOPIC, PARTITIONS) as load:
            load.wait_for_more(50)
            for _ in range(times):
                trouble(cluster, load, chance)
            load.wait_for_more(50)
        promised = load.check(values_by_partition(cluster.bootstrap, TOPIC))
        assert promised >= 100 * len(load.senders)


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(300)]),
        pytest.param(17, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3600)]),
    ],
)
def test_a_rolling_restart_fails_no_produce(tmp_path: Path, rounds: int) -> None:
    """Each node in turn is stopped as an operator does it, and started again."""
    with ProcessCluster(tmp_path, REPLICATED) as cluster:
        cluster.wait_until_all_agree()
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3)
        with producers(cluster.bootstrap, TOPIC, PARTITIONS) as load:
            load.wait_for_more(50)
            for _ in range(rounds):
                for number in cluster.running():
                    assert cluster.nodes.pop(number).stop() == 0
                    load.wait_for_more(10)
                    cluster.start([number])
                    cluster.wait_until_in_sync()
            load.wait_for_more(50)
        assert not load.failures()
        load.check(values_by_partition(cluster.bootstrap, TOPIC))
