"""Links against the world, by seed: see `test_transport_world`."""

import os

import pytest

from headrace.testing.simulation import SimulationFailure
from tests.sim.test_transport_world import Violation, World


@pytest.fixture
def transport_seeds(pytestconfig: pytest.Config) -> range:
    """The seeds to play: a few, or as many as `--seeds` says, or the one of `--seed`."""
    one: int | None = pytestconfig.getoption("--seed", default=None)
    if one is not None:
        return range(one, one + 1)
    count: int | None = pytestconfig.getoption("--seeds", default=None)
    return range(count or int(os.environ.get("HEADRACE_SIM_SEEDS", "2")))


def play(seed: int) -> World:
    """Play a seed; what it breaks is raised with the command that plays it again."""
    world = World(seed)
    try:
        world.run()
    except (Violation, SimulationFailure) as error:
        last = "\n".join(list(world.simulation.trace.lines)[-30:])
        replay = f"pytest tests/sim/test_transport.py --seed {seed}"
        raise Violation(f"seed {seed}: {error}\n{last}\nreplay: {replay}") from error
    return world


@pytest.mark.timeout(3600)
def test_links_come_back_and_never_mistake_a_sender(
    transport_seeds: range, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in transport_seeds:
        world = play(seed)
        print(f"seed {seed}: told {world.told}, delivered {world.delivered}")
        print(f"  {dict(world.outcomes)} {dict(world.events)}")
        assert not caplog.records, "a handler failed"
        assert world.outcomes["answered"] > 100
        assert world.delivered > 1000


def test_a_seed_plays_the_same_again() -> None:
    checksums = set()
    for _ in range(2):
        world = World(5, chaos_seconds=3.0)
        world.run()
        checksums.add(world.simulation.trace.checksum)
    assert len(checksums) == 1
