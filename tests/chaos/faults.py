"""What happens to a node: how it begins, how long it lasts, and how it ends."""

import time
from collections.abc import Callable
from typing import NamedTuple

from tests.chaos.loads import Load
from tests.chaos.nodes import Nodes
from tests.crash.test_cluster_full_disk import fill
from tests.crash.test_replicated_cuts import CUT_SECONDS, FLAP_SECONDS

GO_ON_COUNT = 10
"""How much a load must get done without a node before that node comes back."""


class Fault(NamedTuple):
    name: str
    begin: Callable[[Nodes, int], None]
    last: Callable[[Nodes, int, Load], None]
    end: Callable[[Nodes, int], None]
    is_always_missed: bool = True
    """Whether the others must have noticed it before it ends."""


def until_the_load_goes_on(nodes: Nodes, victim: int, load: Load) -> None:
    load.wait_for_more(GO_ON_COUNT)


def for_a_while(nodes: Nodes, victim: int, load: Load) -> None:
    time.sleep(CUT_SECONDS)  # how long it lasts is what is tested


# Processes


def kill(nodes: Nodes, victim: int) -> None:
    nodes.kill(victim)


def kill_while_it_starts(nodes: Nodes, victim: int, load: Load) -> None:
    """Kill it again as soon as it serves."""
    nodes.start([victim])
    nodes.kill(victim)


def stop(nodes: Nodes, victim: int) -> None:
    status = nodes.nodes.pop(victim).stop()
    assert status == 0, f"node {victim} ended with {status}"


def start(nodes: Nodes, victim: int) -> None:
    nodes.start([victim])


def pause(nodes: Nodes, victim: int) -> None:
    nodes.nodes[victim].pause()


def resume(nodes: Nodes, victim: int) -> None:
    nodes.nodes[victim].resume()


# Networks


def lose_outgoing(nodes: Nodes, victim: int) -> None:
    for other in nodes.others(victim):
        nodes.network.cut(victim, other)


def lose_incoming(nodes: Nodes, victim: int) -> None:
    for other in nodes.others(victim):
        nodes.network.cut(other, victim)


def cut_off(nodes: Nodes, victim: int) -> None:
    lose_outgoing(nodes, victim)
    lose_incoming(nodes, victim)


def on_and_off(nodes: Nodes, victim: int, load: Load) -> None:
    for _ in range(int(CUT_SECONDS / (2 * FLAP_SECONDS))):
        time.sleep(FLAP_SECONDS)  # the rhythm is what is tested
        nodes.network.heal()
        time.sleep(FLAP_SECONDS)
        cut_off(nodes, victim)


def heal(nodes: Nodes, victim: int) -> None:
    nodes.network.heal()


# Disks


def fill_disk(nodes: Nodes, victim: int) -> None:
    fill(nodes.folder / str(victim) / "filler")


def free_disk(nodes: Nodes, victim: int) -> None:
    (nodes.folder / str(victim) / "filler").unlink()


FULL_DISK = Fault("full-disk", fill_disk, for_a_while, free_disk, is_always_missed=False)
FAULTS = (
    Fault("kill", kill, until_the_load_goes_on, start),
    Fault("kill-twice", kill, kill_while_it_starts, start, is_always_missed=False),
    Fault("stop", stop, until_the_load_goes_on, start),
    Fault("pause", pause, for_a_while, resume),
    Fault("cut-off", cut_off, for_a_while, heal),
    Fault("outgoing-lost", lose_outgoing, for_a_while, heal),
    Fault("incoming-lost", lose_incoming, for_a_while, heal),
    Fault("on-and-off", cut_off, on_and_off, heal, is_always_missed=False),
    FULL_DISK,
)
