"""Members against the world, by seed: see `test_swim_world`."""

import os
from functools import partial

import pytest

from headrace.cluster.swim.checks import BrokenInvariant
from headrace.cluster.swim.events import Event, Suspected, Unreachable
from tests.sim.test_swim_world import CHAOS_MS, LAST_DEATH_MS, Life, Violation, World


class Crowd(World):
    """Many members: what a node does must not grow with them."""

    name = "crowd"
    look_ms = 1000

    def __init__(self, seed: int) -> None:
        super().__init__(seed, (12, 20, 30, 50)[seed % 4])
        self.calm_ms = LAST_DEATH_MS - CHAOS_MS + self.checks.detect_ms(LAST_DEATH_MS) + 2000


class Halves(World):
    """The cluster is in two halves, which give each other up, and finds together again."""

    name = "halves"

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 6 + seed % 3)

    def start_chaos(self) -> None:
        self.at(4000, self.split)


class CutPair(World):
    """Two members do not reach each other, but others reach both: nobody is suspected."""

    name = "cut_pair"
    calm_ms = 0

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 4 + seed % 3)
        self.loss = 0.0
        self.is_calm = True  # nothing is doubled or late
        self.is_judged_when_calm = False

    def start_chaos(self) -> None:
        a, b = self.random.sample([peer.node for peer in self.peers], 2)
        ways = {(a, b), (b, a)} if self.random.random() < 0.7 else {(a, b)}
        self.at(4000, partial(self.cut.update, ways))

    def calm_down(self) -> None:
        """Leave it at that."""

    def judge(self, life: Life, event: Event) -> None:
        if self.cut and isinstance(event, Suspected | Unreachable):
            raise Violation(f"{life.node}: {event}, whom others reach")


class SlowNode(World):
    """A process is stopped again and again: it must not take others for dead.

    Above all when it has just heard of a suspicion, and is deaf to the refutation.
    """

    name = "slow_node"
    calm_ms = 15_000

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 4 + seed % 4)
        self.loss = 0.3  # so that there are suspicions, which are refuted
        self.is_calm = True
        self.is_judged_when_calm = False
        self.slow = self.peers[0].node

    def start_chaos(self) -> None:
        at_ms = 5000
        while at_ms < CHAOS_MS + self.calm_ms:
            for_ms = self.random.randrange(300, 6000)
            self.at(at_ms, partial(self.stop, self.slow, for_ms))
            at_ms += for_ms + self.random.randrange(5, 700)

    def calm_down(self) -> None:
        """Leave it at that."""

    def judge(self, life: Life, event: Event) -> None:
        if isinstance(event, Unreachable) and event.node != self.slow and event.boot_epoch:
            raise Violation(f"{life.node}: {event}, which is well")
        if isinstance(event, Suspected) and life.node == self.slow and event.boot_epoch:
            self.at(self.now_ms, partial(self.stop, self.slow, self.random.choice((3000, 13_000))))


@pytest.fixture
def swim_seeds(pytestconfig: pytest.Config) -> range:
    """The seeds to play: a few, or as many as `--seeds` says, or the one of `--seed`."""
    one: int | None = pytestconfig.getoption("--seed", default=None)
    if one is not None:
        return range(one, one + 1)
    count: int | None = pytestconfig.getoption("--seeds", default=None)
    return range(count or int(os.environ.get("HEADRACE_SIM_SEEDS", "6")))


def play(seed: int, scenario: type[World] = World) -> World:
    """Play a seed; what it breaks is raised with the command that plays it again."""
    world = scenario(seed)  # type: ignore[call-arg, unused-ignore]
    try:
        world.run()
    except (Violation, BrokenInvariant) as error:
        last = "\n".join(world.trace[-30:])
        replay = f"pytest tests/sim/test_swim.py -k {world.name} --seed {seed}"
        raise Violation(f"seed {seed}: {error}\n{last}\nreplay: {replay}") from error
    return world


@pytest.mark.timeout(3600)
def test_members_know_who_is_there(swim_seeds: range) -> None:
    heal_ms = detect_ms = deaths = 0
    load = 0.0
    events: dict[str, int] = {}
    for seed in swim_seeds:
        checks = play(seed).checks
        heal_ms = max(heal_ms, checks.heal_ms_seen)
        detect_ms = max(detect_ms, checks.detect_ms_seen)
        deaths += LAST_DEATH_MS in checks.gone_ms.values()
        load = max(load, checks.load_seen)
        for name, count in checks.events.items():
            events[name] = events.get(name, 0) + count
    print(f"{len(swim_seeds)} seeds: {events}")
    print(f"healed in {heal_ms} ms, deaths noticed in {detect_ms} ms, load {load:.1f}")
    if len(swim_seeds) >= 6:  # else luck may have it that little happens
        assert set(events) >= {"Joined", "Suspected", "Recovered", "Unreachable", "Forgotten"}
        assert deaths >= len(swim_seeds) / 3


@pytest.mark.timeout(3600)
def test_crowd_costs_a_member_no_more(swim_seeds: range) -> None:
    for seed in swim_seeds[: max(1, len(swim_seeds) // 100)]:
        world = play(seed, Crowd)
        print(f"{world.size} members: load {world.checks.load_seen:.1f}")


@pytest.mark.timeout(3600)
def test_halves_find_together(swim_seeds: range) -> None:
    for seed in swim_seeds[: max(1, len(swim_seeds) // 10)]:
        play(seed, Halves)


@pytest.mark.timeout(3600)
def test_cut_pair_suspects_nobody(swim_seeds: range) -> None:
    for seed in swim_seeds[: max(1, len(swim_seeds) // 5)]:
        play(seed, CutPair)


@pytest.mark.timeout(3600)
def test_slow_node_takes_nobody_down(swim_seeds: range) -> None:
    for seed in swim_seeds[: max(1, len(swim_seeds) // 5)]:
        play(seed, SlowNode)
