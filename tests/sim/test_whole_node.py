"""A whole node, its clients and everything that can happen to them, by seed: see `node_world`."""

import logging
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.node_checks import Violation
from tests.sim.node_world import Retries, World

SEEDS = 6
"""How many are played if nobody says otherwise."""
CHECKSUM_PROGRAM = """
from tests.sim.test_whole_node import play
world = play(3)
print(world.simulation.trace.length, world.simulation.trace.checksum)
"""


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
        test = "storm" if scenario is World else "retries"
        replay = f"pytest tests/sim/test_whole_node.py -k {test} --seed {seed}"
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
    if len(storms) >= 20:  # else luck may have it that little happens
        assert seen["power losses"] > len(storms) / 2
        assert seen["kills"] > len(storms) / 4
        assert seen["acknowledged"] > 100 * len(storms)
        assert seen["read"] > 100 * len(storms)
        assert min(seen["commits"], seen["accepted"]) > 10 * len(storms)
        assert seen["probes"] > 10 * len(storms)


@pytest.mark.timeout(3600)
def test_retries_on_a_slow_disk_take_nothing_that_was_promised(storms: range) -> None:
    for seed in storms[: max(1, len(storms) // 5)]:
        play(seed, Retries)


def test_the_same_seed_plays_the_same_in_another_process() -> None:
    world = play(3)
    expected = f"{world.simulation.trace.length} {world.simulation.trace.checksum}"
    for hash_seed in ("1", "2"):
        played = subprocess.run(
            [sys.executable, "-c", CHECKSUM_PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert played.stdout.strip() == expected
