"""A new controller, when the old one is gone."""

from headrace.testing.cluster import TestCluster

PATIENT = {
    "headrace.raft.election.timeout.ms": "600000",
    "headrace.raft.heartbeat.ms": "50",
}


def test_a_killed_controller_is_replaced_before_an_election_timeout_has_passed() -> None:
    """Its sockets tell: a timeout is for a machine or a network that is gone."""
    with TestCluster(nodes=3, settings=PATIENT) as cluster:
        for number in range(2):
            old = cluster.controller
            cluster.kill(old)
            cluster.create_topic(f"after-{number}")
            assert cluster.controller != old
            cluster.restart(old)
