"""What must hold in a cluster, whatever happens to its nodes.

What nodes do is watched where they do it: a term has one leader, terms and commits do not go back
in a life, an index has one entry and one image on all nodes, and all of them are of one cluster.
What clients were told is kept as histories, which must be linearizable, and as facts, which the
entries that were applied must bear out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

from headrace.loop.tasks import Tasks
from headrace.metadata.events import BrokerChanged, BrokerRegistered, Event, TopicCreated
from headrace.metadata.quorum import _ImageMachine
from headrace.metadata.snapshot import load_snapshot
from headrace.raft.driver import RaftDriver
from headrace.raft.state import Role
from tests.sim.linearizability import Operation, is_linearizable, register_model, topic_model
from tests.sim.node_checks import Violation, expect
from tests.sim.this_thread import patch_here

if TYPE_CHECKING:
    import asyncio

    from headrace.testing.simulation import Simulation

IMAGE_EVERY = 16
"""How many indexes are between two at which images are compared while nodes run."""


class ClusterChecks:
    """What nodes did and what clients were told."""

    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self.leaders: dict[int, int] = {}
        self.entries: dict[int, bytes] = {}
        self.images: dict[int, int] = {}
        self.cluster_ids: set[str] = set()
        self.created_at: dict[bytes, int] = {}
        """The index at which a topic came to be, by topic id."""
        self.lives: dict[RaftDriver, tuple[int, int]] = {}
        """The term and the commit index that a life of a node was seen at."""
        self.topics: defaultdict[str, list[Operation]] = defaultdict(list)
        self.registers: defaultdict[str, list[Operation]] = defaultdict(list)
        self.created: dict[bytes, tuple[str, float, float]] = {}
        """Acknowledged topics by id: name, call and response."""
        self.producer_ids: set[int] = set()
        self.acknowledged: dict[tuple[str, int, int], bytes] = {}
        """Records by topic, partition and offset."""
        self.sent: set[bytes] = set()
        self.seen: Counter[str] = Counter()
        self.registered_at: dict[int, int] = {}
        """The index of the last registration of each broker."""
        self.applied_by: Callable[[int, bytes], int | None] = lambda node, life: None
        """Returns how far a life of a node has applied, None for one that is over."""

    # What nodes do

    def note_state(self, driver: RaftDriver) -> None:
        state = driver.state
        if state.role is Role.LEADER:
            first = self.leaders.setdefault(state.term, state.node)
            expect(first == state.node, f"{first} and {state.node} both lead term {state.term}")
        term, commit = self.lives.get(driver, (0, 0))
        expect(state.term >= term, f"node {state.node} went back from term {term} to {state.term}")
        expect(state.log.commit >= commit, f"node {state.node} forgot what is committed")
        self.lives[driver] = state.term, state.log.commit

    def note_applied(self, machine: _ImageMachine, index: int, data: bytes) -> None:
        former = self.entries.get(index)
        if former is None:
            self.entries[index] = data
            for event in machine.applier.outcome(index).events:
                self._note_event(machine, index, event)
        else:
            expect(former == data, f"two nodes applied different entries at {index}")
        if index % IMAGE_EVERY == 0:
            machine.snapshot()  # which is watched
        if cluster_id := machine.image.state.cluster_id:
            self.cluster_ids.add(cluster_id)
            expect(len(self.cluster_ids) == 1, f"two clusters: {self.cluster_ids}")

    def _note_event(self, machine: _ImageMachine, index: int, event: Event) -> None:
        """Look at what an entry did, when the first node applies it."""
        match event:
            case TopicCreated():
                expect(event.topic_id not in self.created_at, f"{event.name} was created twice")
                self.created_at[event.topic_id] = index
            case BrokerRegistered():
                self.registered_at[event.broker_id] = index
            case BrokerChanged():
                broker = machine.image.broker(event.broker_id)
                if broker is not None and not broker.is_fenced:
                    self._check_unfenced(event.broker_id, broker.incarnation_id)

    def _check_unfenced(self, node: int, life: bytes) -> None:
        """A node that may lead knows that it is registered, and so what it is to lead."""
        applied, registered = self.applied_by(node, life), self.registered_at.get(node, 0)
        expect(
            applied is None or applied >= registered,
            f"node {node} is unfenced at {applied}, before its registration at {registered}",
        )

    def note_image(self, index: int, snapshot: bytes) -> None:
        checksum = crc32(snapshot)
        former = self.images.setdefault(index, checksum)
        expect(former == checksum, f"two nodes have different images at {index}")

    # What clients are told

    def note_created(self, topic_id: bytes, name: str, called: float, returned: float) -> None:
        self.created[topic_id] = name, called, returned
        self.seen["created"] += 1

    def note_producer_id(self, producer_id: int) -> None:
        expect(producer_id not in self.producer_ids, f"producer id {producer_id} was given twice")
        self.producer_ids.add(producer_id)
        self.seen["producer ids"] += 1

    def note_record(self, place: tuple[str, int, int], value: bytes) -> None:
        before = self.acknowledged.setdefault(place, value)
        expect(before == value, f"{place} was acknowledged for {before!r} and {value!r}")
        self.seen["records"] += 1

    # In the end

    def check_histories(self) -> None:
        for name, history in self.topics.items():
            told = "\n".join(map(str, sorted(history, key=lambda each: each.called)))
            expect(is_linearizable(history, topic_model, initial=False), f"topic {name}:\n{told}")
        for name, history in self.registers.items():
            told = "\n".join(map(str, sorted(history, key=lambda each: each.called)))
            expect(is_linearizable(history, register_model, initial=None), f"{name}:\n{told}")
        self._check_order()

    def _check_order(self) -> None:
        """Look for topics whose entries are in another order than the requests for them."""
        rows = []
        for topic_id, (name, called, returned) in self.created.items():
            index = self.created_at.get(topic_id)
            expect(index is not None, f"{name} was acknowledged, but no entry creates it")
            rows.append((index, called, returned, name))
        rows.sort()
        latest_call, latest = 0.0, ""
        for _, called, returned, name in rows:
            expect(returned >= latest_call, f"{latest} was created before {name}, asked for later")
            if called > latest_call:
                latest_call, latest = called, name


@contextmanager
def watching(simulation: "Simulation", checks: ClusterChecks) -> Iterator[None]:
    """Watch all nodes of a simulation, which runs in this thread; the first violation ends it."""

    def watch(note: Any, *arguments: Any) -> None:
        try:
            note(*arguments)
        except Violation as error:
            simulation.fail(error)

    real_leadership, real_apply = RaftDriver._note_leadership, _ImageMachine.apply
    real_snapshot, real_restore = _ImageMachine.snapshot, _ImageMachine.restore
    real_ended = Tasks._ended

    def note_leadership(self: RaftDriver) -> None:
        watch(checks.note_state, self)
        real_leadership(self)

    def apply(self: _ImageMachine, index: int, data: bytes) -> None:
        real_apply(self, index, data)
        watch(checks.note_applied, self, index, data)

    def snapshot(self: _ImageMachine) -> bytes:
        data = real_snapshot(self)
        watch(checks.note_image, self.image.applied_index, data)
        return data

    def restore(self: _ImageMachine, index: int, data: bytes) -> None:
        real_restore(self, index, data)
        checks.seen["restored"] += 1
        watch(checks.note_image, load_snapshot(data).applied_index, data)

    def ended(self: Tasks, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            simulation.fail(error)
        real_ended(self, task)

    with pytest.MonkeyPatch.context() as patch:
        patch_here(patch, RaftDriver, "_note_leadership", note_leadership)
        patch_here(patch, _ImageMachine, "apply", apply)
        patch_here(patch, _ImageMachine, "snapshot", snapshot)
        patch_here(patch, _ImageMachine, "restore", restore)
        patch_here(patch, Tasks, "_ended", ended)
        yield
