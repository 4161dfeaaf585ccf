"""A simulation is not judged by nodes of other threads."""

from headrace.testing.broker import TestBroker
from headrace.testing.simulation import Simulation
from tests.sim.cluster_checks import ClusterChecks, watching


def test_a_broker_of_another_test_is_not_watched() -> None:
    simulation = Simulation(0)
    checks = ClusterChecks(simulation)
    with watching(simulation, checks), TestBroker() as broker:
        broker.create_topic("orders")
    assert not checks.leaders
    assert not checks.entries
