"""Bugs planted into the links, each of which the simulation must notice within a few seeds."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.cluster.transport.connection import NodeConnection
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.outgoing import PeerLink
from headrace.cluster.transport.pending_calls import PendingCalls
from headrace.cluster.transport.queues import SendQueue
from tests.sim.test_transport import play
from tests.sim.test_transport_world import Violation

Patch = pytest.MonkeyPatch
SEEDS = range(6)


def never_tries_again(patch: Patch) -> None:
    patch.setattr(PeerLink, "_try_later", lambda self: None)


def calls_do_not_time_out(patch: Patch) -> None:
    patch.setattr(PendingCalls, "time_out", lambda self, correlation_id, timeout_ms: None)


def queue_has_no_bound(patch: Patch) -> None:
    patch.setattr(SendQueue, "_has_room", lambda self, queued: True)


def correlation_ids_repeat(patch: Patch) -> None:
    patch.setattr(PendingCalls, "new_id", lambda self: 1)


def sender_is_whoever_was_last(patch: Patch) -> None:
    """Keep who is at the other end per node instead of per connection."""
    establish = NodeConnection._establish
    last: dict[int, Identity] = {}

    def confused(self: NodeConnection, established: Any) -> None:
        node = established.peer.node
        peer = last.setdefault(node, established.peer)
        establish(self, established._replace(peer=peer))

    patch.setattr(NodeConnection, "_establish", confused)


BUGS = [
    never_tries_again,
    calls_do_not_time_out,
    queue_has_no_bound,
    correlation_ids_repeat,
    sender_is_whoever_was_last,
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    for seed in SEEDS:
        try:
            play(seed)
        except Violation as violation:
            print(str(violation).splitlines()[0])
            return
    pytest.fail("nothing was noticed")
