"""A cluster of whole nodes, its clients and all that can happen to them, by seed.

See `cluster_world` for what happens, and `cluster_checks` for what must hold.
"""

import logging
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.cluster_world import World
from tests.sim.node_checks import Violation

SEEDS_MAX = 1000
"""How many `make test-slow` plays; `make test` plays the first of them."""
CHECKSUM_PROGRAM = """
from tests.sim.test_cluster import play
world = play(5)
print(world.simulation.trace.length, world.simulation.trace.checksum)
"""


def play(seed: int, scenario: type[World] = World) -> World:
    """Play a seed; what it breaks is raised with the command that plays it again."""
    world = scenario(seed)
    logging.disable(logging.CRITICAL)
    try:
        world.run()
    except Exception as error:
        last = "\n".join(world.trace[-40:])
        file = "test_cluster.py" if scenario is World else "test_cluster_scenarios.py"
        replay = f"pytest tests/sim/{file} -k 'promise' --seed {seed}"
        raise Violation(f"seed {seed}: {error!r}\n{last}\nreplay: {replay}") from error
    finally:
        logging.disable(logging.NOTSET)
    return world


@pytest.mark.timeout(3600)
def test_a_storm_takes_nothing_that_was_promised(cluster_seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in cluster_seeds:
        seen += play(seed).checks.seen
    print(f"{len(cluster_seeds)} seeds: {dict(seen)}")
    if len(cluster_seeds) >= 24:  # else luck may have it that little happens
        assert seen["created"] > 5 * len(cluster_seeds)
        assert seen["records"] > 10 * len(cluster_seeds)
        assert min(seen["power losses"], seen["kills"], seen["cuts"]) > len(cluster_seeds) / 2
        assert min(seen["refused"], seen["restored"], seen["full disks"]) > 0


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_many_storms_take_nothing_that_was_promised(cluster_seeds: range) -> None:
    for seed in range(len(cluster_seeds), SEEDS_MAX):
        play(seed)


def test_the_same_seed_plays_the_same_in_another_process() -> None:
    world = play(5)
    expected = f"{world.simulation.trace.length} {world.simulation.trace.checksum}"
    played = subprocess.run(
        [sys.executable, "-c", CHECKSUM_PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert played.stdout.strip() == expected
