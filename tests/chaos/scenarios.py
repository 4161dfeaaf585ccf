"""A scenario: something happens to the node that has a role, under load, and all is well after it.

The nodes and the load of a module live on from one scenario to the next. A scenario that failed
leaves them in a state that nobody knows: the next one has new ones.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.client.topics import TopicPartition
from tests.chaos.faults import FAULTS, FULL_DISK, GO_ON_COUNT, Fault
from tests.chaos.loads import Load
from tests.chaos.moves import Move, allow_throttles
from tests.chaos.nodes import Nodes, nodes_in_networks
from tests.chaos.roles import ROLES, Role
from tests.process_cluster import wait_for


def matrix(*sample: str) -> list[object]:
    """Return every fault with every role. `make test-slow` runs the sample, FAULT-ROLE each."""
    names = {f"{fault.name}-{role.name}": (fault, role) for fault, role in product(FAULTS, ROLES)}
    assert set(sample) <= set(names)
    return [
        pytest.param(
            *pair, id=name, marks=pytest.mark.exhaustive if name in sample else pytest.mark.chaos
        )
        for name, pair in names.items()
    ]


class Arena:
    """Nodes under load, made when they are first needed, and anew after a scenario that failed."""

    def __init__(
        self,
        folder: Path,
        make_load: Callable[[Nodes], Load],
        settings: dict[str, str],
        flaw: str,
    ) -> None:
        self._folder, self._make_load = folder, make_load
        self._settings, self._flaw = settings, flaw
        self._lives = 0
        self._stack = ExitStack()
        self._running: tuple[Nodes, Load] | None = None

    @contextmanager
    def use(self) -> Iterator[tuple[Nodes, Load]]:
        if self._running is None:
            self._running = self._start()
        running, self._running = self._running, None
        try:
            yield running
        except pytest.skip.Exception:
            self._running = running
            raise
        except BaseException:
            with suppress(Exception):
                running[1].close()
            self._stack.close()
            raise
        self._running = running

    def end(self) -> None:
        """Check everything from the beginning; the nodes stop as an operator stops them."""
        try:
            if self._running is not None:
                nodes, load = self._running
                try:
                    load.end()
                finally:
                    load.close()
                nodes.stop(load.topic)
        finally:
            self._stack.close()

    def _start(self) -> tuple[Nodes, Load]:
        self._lives += 1
        folder = self._folder / str(self._lives)
        folder.mkdir()
        nodes = self._stack.enter_context(nodes_in_networks(folder, self._settings, self._flaw))
        allow_throttles(nodes)
        load = self._make_load(nodes)
        try:
            load.wait_for_more(GO_ON_COUNT)
            nodes.wait_until_in_sync()
            load.settle()
        except BaseException:
            load.close()
            raise
        return nodes, load


@contextmanager
def arena(
    folder: Path,
    make_load: Callable[[Nodes], Load],
    settings: dict[str, str] | None = None,
    *,
    flaw: str = "",
) -> Iterator[Arena]:
    made = Arena(folder, make_load, settings or {}, flaw)
    try:
        yield made
    finally:
        made.end()


class Judged(NamedTuple):
    """How a scenario went that ended well."""

    victim: int
    is_missed: bool
    """Whether the other nodes noticed the fault."""
    seconds: float
    idle_seconds: float
    """How long after the fault the load did not go on everywhere."""
    per_second: float

    def __str__(self) -> str:
        noticed = "noticed" if self.is_missed else "not noticed"
        return (
            f"node {self.victim}, {noticed}, {self.seconds:.1f} s, "
            f"idle {self.idle_seconds:.1f} s, {self.per_second:.0f} per second"
        )


def play_recorded(arena: Arena, fault: Fault, role: Role, request: pytest.FixtureRequest) -> None:
    """Play a scenario for the table of `conftest`."""
    properties = request.node.user_properties
    load = request.module.__name__.rpartition("test_")[2].replace("_", " ")
    properties += [("fault", fault.name), ("role", role.name), ("load", load)]
    judged = play(arena, fault, role)
    properties += [("idle_seconds", judged.idle_seconds), ("judged", str(judged))]
    print(f" {judged}")


def play(arena: Arena, fault: Fault, role: Role) -> Judged:
    """Play a scenario."""
    with arena.use() as (nodes, load):
        if fault is FULL_DISK and len(nodes.disks) < len(nodes.places):
            pytest.skip("a file system cannot be mounted here")
        load.wait_for_more(GO_ON_COUNT)
        begun, before = time.monotonic(), load.count()
        move = begin_move(nodes, load) if role.is_of_a_move else None
        victim = role.find(nodes, load, move)
        is_missed = strike(nodes, load, fault, victim, move)
        healed = time.monotonic()
        load.wait_for_more(GO_ON_COUNT)
        went_on = time.monotonic()
        if move is not None:
            move.wait_until_over()
        nodes.wait_until_all_agree()
        nodes.wait_until_in_sync()
        load.settle()
        nodes.assert_all_are_alive()
        seconds = time.monotonic() - begun
        per_second = (load.count() - before) / seconds
        judged = Judged(victim, is_missed, seconds, went_on - healed, per_second)
        assert per_second >= load.rate_min, f"it proves nothing: {judged}"
        assert is_missed or not fault.is_always_missed, f"nobody noticed the fault: {judged}"
        return judged


def begin_move(nodes: Nodes, load: Load) -> Move:
    """Begin a move of the load's topic that is on its way until it is released."""
    moves: list[Move] = []

    def is_on_its_way() -> bool:
        moves.append(Move(nodes, TopicPartition(load.topic, 0)))
        moves[-1].begin()
        return moves[-1].is_on_its_way()

    wait_for(is_on_its_way, "a move that is on its way")
    return moves[-1]


def strike(nodes: Nodes, load: Load, fault: Fault, victim: int, move: Move | None) -> bool:
    """Let a fault begin, last and end; return whether the other nodes noticed."""
    fault.begin(nodes, victim)
    if move is not None:
        move.release(victim)
    fault.last(nodes, victim, load)
    is_missed = nodes.is_missed(victim)
    fault.end(nodes, victim)
    return is_missed
