"""Rebalance storms by seed, in groups of every kind: see `groups_world` and `groups_checks`."""

import logging
from collections import Counter

import pytest

from tests.sim.groups_checks import Violation
from tests.sim.groups_world import KINDS, World

SEEDS = 10
"""How many are played if nobody says otherwise."""


@pytest.fixture
def storms(pytestconfig: pytest.Config, seeds: range) -> range:
    asked = (pytestconfig.getoption(name, default=None) for name in ("--seed", "--seeds"))
    return seeds if any(each is not None for each in asked) else seeds[:SEEDS]


def play(seed: int) -> World:
    """Play a seed; what it breaks is raised with the command that plays it again."""
    world = World(seed)
    logging.disable(logging.ERROR)  # every write that is refused, and every load
    try:
        world.run()
    except Exception as error:
        last = "\n".join(world.trace[-40:])
        replay = f"pytest tests/sim/test_groups.py -k storm --seed {seed}"
        raise Violation(
            f"seed {seed} ({world.kind}): {error!r}\n{last}\nreplay: {replay}"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    return world


@pytest.mark.timeout(3600)
def test_a_storm_neither_doubles_nor_loses_nor_takes_back_anything(storms: range) -> None:
    seen: Counter[str] = Counter()
    for seed in storms:
        checks = play(seed).checks
        seen["grants"] += len(checks.owners)
        for what in ("commits", "refusals", "fenced", "migrations"):
            seen[what] += getattr(checks, what)
    print(f"{len(storms)} seeds: {dict(seen)}")
    if len(storms) > 20:  # else luck may have it that little happens
        assert seen["grants"] > 300 * len(storms)
        assert seen["commits"] > 150 * len(storms)
        assert min(seen["refusals"], seen["fenced"]) > len(storms)
        assert seen["migrations"] > len(storms) / 2


@pytest.mark.parametrize("seed", range(1, 5), ids=KINDS[1:5])
def test_the_same_storm_comes_twice(seed: int) -> None:
    assert play(seed).trace == play(seed).trace
