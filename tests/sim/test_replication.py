"""Replicated partitions on whole nodes, their clients and all that can happen to them, by seed.

See `replication_world` for what happens and what is promised, and `replication_checks` for what
must hold.
"""

import logging
import os
import subprocess
import sys
from collections import Counter

import pytest

from headrace.metadata.phases import Phase
from tests.sim.node_checks import Violation
from tests.sim.replication_moves import Moves
from tests.sim.replication_scenarios import Coordinators, Leaders
from tests.sim.replication_world import World

SEEDS_MAX = 1000
"""How many `make test-slow` plays; `make test` plays the first of them."""
CHECKSUM_PROGRAM = """
from tests.sim.test_replication import play
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
        names = {World: "storm", Moves: "moves"}
        test = names.get(scenario, scenario.__name__)
        replay = f"pytest tests/sim/test_replication.py -k {test} --seed {seed}"
        raise Violation(f"seed {seed}: {error!r}\n{last}\nreplay: {replay}") from error
    finally:
        logging.disable(logging.NOTSET)
    return world


@pytest.mark.timeout(3600)
def test_a_storm_takes_nothing_that_was_promised(replication_seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in replication_seeds:
        seen += play(seed).checks.seen
    print(f"{len(replication_seeds)} seeds: {dict(seen)}")
    count = len(replication_seeds)
    if count >= 50:  # else luck may have it that little happens
        assert seen["acknowledged"] > 10 * count
        assert min(seen["read"], seen["commits of batches"]) > 10 * count
        assert min(seen["elections"], seen["ISR shrinks"], seen["ISR expansions"]) > 3 * count
        assert min(seen["power losses"], seen["kills"], seen["stops"]) > count / 5
        assert min(seen["elections from the ELR"], seen["refused"], seen["full disks"]) > 0
        assert min(seen["committed"], seen["aborted"], seen["copied"], seen["accepted"]) > 0


@pytest.mark.parametrize("scenario", [Coordinators, Leaders])
@pytest.mark.timeout(3600)
def test_a_cluster_keeps_its_promises(scenario: type[World], replication_seeds: range) -> None:
    for seed in replication_seeds[: max(1, len(replication_seeds) // 10)]:
        play(seed, scenario)


@pytest.mark.timeout(3600)
def test_moves_cost_no_replica_in_sync_and_end(replication_seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in replication_seeds[: max(1, len(replication_seeds) // 20)]:
        seen += play(seed, Moves).checks.seen
    print(f"{len(replication_seeds)} seeds: {dict(seen)}")
    if len(replication_seeds) >= 100:
        for phase in Phase:
            assert seen[f"move: {phase.value}"] > 0
        assert seen["move: aborted"] > 0


@pytest.mark.exhaustive
@pytest.mark.timeout(7200)
def test_many_storms_take_nothing_that_was_promised(replication_seeds: range) -> None:
    for seed in range(len(replication_seeds), SEEDS_MAX):
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
