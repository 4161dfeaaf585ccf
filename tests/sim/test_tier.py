"""Whole nodes with a tier, their clients and all that can happen to them, by seed.

See `tier_world` for what happens and what is promised, and `tier_checks` for what must hold.
"""

import logging
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.node_checks import Violation
from tests.sim.tier_world import SingleNode, World

SEEDS_MAX = 400
"""How many `make test-slow` plays; `make test` plays the first of them."""
CHECKSUM_PROGRAM = """
from tests.sim.test_tier import play
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
        test = "cluster" if scenario is World else "single"
        replay = f"pytest tests/sim/test_tier.py -k {test} --seed {seed}"
        raise Violation(f"seed {seed}: {error!r}\n{last}\nreplay: {replay}") from error
    finally:
        logging.disable(logging.NOTSET)
    return world


@pytest.mark.timeout(3600)
def test_a_cluster_with_a_tier_keeps_what_it_promised(tier_seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in tier_seeds:
        seen += play(seed).checks.seen
    print(f"{len(tier_seeds)} seeds: {dict(seen)}")
    if len(tier_seeds) >= 8:  # else luck may have it that little happens
        expect_much(seen, len(tier_seeds))
        assert min(seen["elections"], seen["moves"], seen["elections from the ELR"]) > 0


@pytest.mark.timeout(3600)
def test_a_single_node_with_a_tier_keeps_what_it_promised(tier_seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in tier_seeds:
        seen += play(seed, SingleNode).checks.seen
    print(f"{len(tier_seeds)} seeds: {dict(seen)}")
    if len(tier_seeds) >= 8:
        expect_much(seen, len(tier_seeds))


def expect_much(seen: Counter[str], count: int) -> None:
    """Expect that enough has happened to say something."""
    assert seen["acknowledged"] > 40 * count
    assert min(seen["segments audited"], seen["batches compared"]) > 8 * count
    assert min(seen["store faults"], seen["store outages"], seen["slow store"]) > 0
    assert seen["lost puts"] > 0
    assert min(seen["committed"], seen["aborted"], seen["deletions of records"]) > 0
    assert min(seen["fleeting records"], seen["kills"], seen["power losses"]) > 0


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("scenario", [World, SingleNode])
def test_many_storms_take_nothing_that_was_promised(
    scenario: type[World], tier_seeds: range
) -> None:
    for seed in range(len(tier_seeds), SEEDS_MAX):
        play(seed, scenario)


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
