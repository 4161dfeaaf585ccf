"""A quorum against one kind of trouble at a time, by seed: see `raft_scenarios`."""

import pytest

from tests.sim.raft_scenarios import SCENARIOS, Installs
from tests.sim.raft_world import World
from tests.sim.test_raft import part, play


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_quorum_keeps_its_promises(scenario: type[World], raft_seeds: range) -> None:
    leaders = entries = reads = installs = 0
    seeds = part(raft_seeds, 10)
    for seed in seeds:
        checks = play(seed, scenario).checks
        leaders += len(checks.leaders)
        entries += len(checks.committed)
        reads += checks.reads
        installs += checks.installs
    print(f"{len(seeds)} seeds: {leaders} leaders, {entries} entries, {reads} reads")
    print(f"{installs} snapshots of a leader stored")
    if len(seeds) >= 12:  # else luck may have it that little happens
        assert leaders > 2 * len(seeds)
        assert entries > 8 * len(seeds)
        assert reads > 2 * len(seeds)
        assert installs > len(seeds) * (1 if scenario is Installs else 1 / 10)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_same_seed_gives_the_same_trace(scenario: type[World]) -> None:
    assert play(1, scenario).trace == play(1, scenario).trace
