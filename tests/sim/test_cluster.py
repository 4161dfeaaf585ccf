"""A cluster of whole nodes, its clients and all that can happen to them, by seed.

See `cluster_world` for what happens, and `cluster_checks` for what must hold.
"""

import logging
from collections import Counter

import pytest

from tests.sim.cluster_world import World
from tests.sim.node_checks import Violation

SEEDS = 40
"""How many are played if nobody says otherwise."""


@pytest.fixture
def storms(pytestconfig: pytest.Config, seeds: range) -> range:
    asked = (pytestconfig.getoption(name, default=None) for name in ("--seed", "--seeds"))
    return seeds if any(each is not None for each in asked) else seeds[:SEEDS]


def play(seed: int, scenario: type[World] = World) -> World:
    """Play a seed; what it breaks is raised with the command that plays it again."""
    world = scenario(seed)
    logging.disable(logging.CRITICAL)
    try:
        world.run()
    except Exception as error:
        last = "\n".join(world.trace[-40:])
        replay = f"pytest tests/sim/test_cluster.py --seed {seed}"
        raise Violation(f"seed {seed}: {error!r}\n{last}\nreplay: {replay}") from error
    finally:
        logging.disable(logging.NOTSET)
    return world


@pytest.mark.timeout(3600)
def test_a_storm_takes_nothing_that_was_promised(storms: range) -> None:
    seen: Counter[str] = Counter()
    for seed in storms:
        seen += play(seed).checks.seen
    print(f"{len(storms)} seeds: {dict(seen)}")
