"""A quorum of one, three or five against the world, by seed: see `raft_world` and `raft_checks`."""

import pytest

from headrace.raft.errors import BrokenInvariant, RaftError
from tests.sim.raft_checks import Violation
from tests.sim.raft_world import World


def play(
    seed: int,
    scenario: type[World] = World,
    *,
    voters: int | None = None,
    is_lying: bool = False,
    is_cramped: bool | None = None,
) -> World:
    """Play a seed; what it breaks is raised with the command that plays it again."""
    world = scenario(seed, voters, is_lying=is_lying, is_cramped=is_cramped)
    try:
        world.run()
    except (Violation, BrokenInvariant, RaftError) as error:
        last = "\n".join(world.trace[-30:])
        file = "test_raft.py" if scenario is World else "test_raft_scenarios.py"
        replay = f"pytest tests/sim/{file} -k {world.name} --seed {seed}"
        raise Violation(f"seed {seed}: {error}\n{last}\nreplay: {replay}") from error
    return world


def part(seeds: range, divisor: int) -> range:
    return seeds[: max(1, len(seeds) // divisor)]


@pytest.mark.timeout(3600)
def test_quorum_keeps_its_promises(raft_seeds: range) -> None:
    seeds = part(raft_seeds, 5)
    reads = leaders = entries = refusals = retries = 0
    for seed in seeds:
        world = play(seed)
        reads += world.checks.reads
        leaders += len(world.checks.leaders)
        entries += len(world.checks.committed)
        refusals += world.checks.refusals
        retries += world.checks.retries
    print(f"{len(seeds)} seeds: {leaders} leaders, {entries} entries, {reads} reads")
    print(f"full disks: {refusals} proposals refused, {retries} writes tried again")
    if len(seeds) >= 24:  # else luck may have it that little happens
        assert leaders > 3 * len(seeds)
        assert entries > 30 * len(seeds)
        assert reads > 10 * len(seeds)
        assert refusals > len(seeds) / 4
        assert retries > 3 * len(seeds)


@pytest.mark.timeout(3600)
def test_a_node_that_begins_alone_keeps_its_promises(raft_seeds: range) -> None:
    refusals = 0
    for seed in part(raft_seeds, 50):
        refusals += play(seed, voters=1).checks.refusals
    print(f"full disks: {refusals} proposals refused")
    if len(raft_seeds) > 500:
        assert refusals > len(raft_seeds) / 40


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    assert play(seed).trace == play(seed).trace


def test_disks_that_lose_syncs_are_caught() -> None:
    for seed in range(20):
        try:
            play(seed, is_lying=True)
        except Violation:
            return
    pytest.fail("20 seeds, and nobody noticed that nothing was synced")
