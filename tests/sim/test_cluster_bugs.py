"""Bugs planted into nodes of a cluster, each of which the simulation must notice.

Each takes one rule away that a cluster rests on. What rivven and nodedb got wrong is among them,
and what was wrong here once.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from headrace.cluster import forming, registrar, words
from headrace.cluster.address_book import AddressBook
from headrace.cluster.cluster import Cluster
from headrace.cluster.controller import Controller
from headrace.cluster.forwarding import Forwarding
from headrace.cluster.joining import CannotJoin, Joining
from headrace.cluster.looking import Looking
from headrace.cluster.presence import Presence
from headrace.cluster.registrar import Registrar
from headrace.cluster.sessions import Sessions
from headrace.cluster.swim import events as swim_events
from headrace.cluster.transport.hello import Identity
from headrace.cluster.transport.links import Links
from headrace.ids import BrokerId, TopicId
from headrace.metadata import applier as applier_module
from headrace.metadata import quorum as quorum_module
from headrace.metadata.applier import Applier, Outcome, OutcomeForgotten
from headrace.metadata.ddl import ChangeBroker, RegisterBroker
from headrace.metadata.image import Image
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.snapshot import load_snapshot
from headrace.metadata.state import NodeState
from headrace.node import node as node_module
from headrace.node.node import Node
from headrace.node.upkeep import Upkeep
from headrace.raft.driver import RaftDriver
from headrace.raft.errors import ForwardUncertain, MembershipRefused, NotLeader
from headrace.raft.storage import RaftStorage
from headrace.server.request import Request
from headrace.surroundings import new_uuid
from headrace.wire import ApiKey
from tests.sim.cluster_scenarios import Births, Killings, Lagging, Minority, Outage, Probes
from tests.sim.cluster_world import World
from tests.sim.node_checks import Violation
from tests.sim.test_cluster import play

SEEDS_MAX = 25
Patch = pytest.MonkeyPatch


# Proposals


def _know_nothing_of_outcomes(patch: Patch) -> None:
    """Take an entry whose outcome is not there for one that did as it was told."""
    real = Applier.outcome

    def outcome(self: Applier, index: int) -> Outcome:
        try:
            return real(self, index)
        except OutcomeForgotten:
            return Outcome(index)

    patch.setattr(Applier, "outcome", outcome)


def answer_before_it_is_applied_here(patch: Patch) -> None:
    async def wait_applied(self: MetadataQuorum, *arguments: Any) -> None:
        """Not at all."""

    _know_nothing_of_outcomes(patch)
    patch.setattr(MetadataQuorum, "_wait_applied", wait_applied)


def answer_before_it_is_committed(patch: Patch) -> None:
    async def propose(self: RaftDriver, data: bytes) -> int:
        self._check_takes_changes()
        proposed = self._raft.propose(data, self._host.now_ms())
        self._wake()
        await asyncio.sleep(0.001)
        return proposed.index

    _know_nothing_of_outcomes(patch)
    patch.setattr(RaftDriver, "propose", propose)


def propose_again_what_may_be_in_the_log(patch: Patch) -> None:
    real = Forwarding.__call__

    async def forward(
        self: Forwarding, leader: BrokerId, term: int, data: bytes, timeout_ms: int
    ) -> int:
        try:
            return await real(self, leader, term, data, timeout_ms)
        except ForwardUncertain:
            raise NotLeader(leader, None) from None

    patch.setattr(Forwarding, "__call__", forward)


def lose_responses(patch: Patch) -> None:
    real = Request.answer

    def answer(self: Request, body: Any, **options: Any) -> None:
        if self.api_key != ApiKey.INCREMENTAL_ALTER_CONFIGS or self.correlation_id % 2:
            real(self, body, **options)

    patch.setattr(Request, "answer", answer)


# The log and the image


def skip_the_sync_of_metadata(patch: Patch) -> None:
    def sync(self: RaftStorage) -> None:
        assert self._file is not None
        self._synced_bytes = self._file.size

    patch.setattr(RaftStorage, "sync", sync)


def skip_all_but_the_first_of_a_batch(patch: Patch) -> None:
    """Take the entries of a batch for repetitions, as they share an index (nodedb's)."""
    real = applier_module._steps
    patch.setattr(applier_module, "_steps", lambda entry: real(entry)[:1])


def apply_by_what_a_node_thinks(patch: Patch) -> None:
    """Put something of the node that applies into the image."""
    real = Image.put_broker

    def put_broker(self: Image, broker: Any) -> None:
        real(self, broker)
        self.state.next_broker_epoch += new_uuid().bytes[0] & 1

    patch.setattr(Image, "put_broker", put_broker)


def forget_something_in_snapshots(patch: Patch) -> None:
    """Leave a counter out of what a snapshot restores (nodedb's join tokens)."""
    real = load_snapshot

    def load(data: bytes) -> Image:
        image = real(data)
        image.state.next_broker_epoch = 1
        return image

    patch.setattr(quorum_module, "load_snapshot", load)


def serve_the_partitions_of_before_a_snapshot(patch: Patch) -> None:
    def on_restored(self: Node, image: Image) -> None:
        self._take_settings()
        self.cluster.note_image()

    patch.setattr(Node, "_on_restored", on_restored)


# Forming and joining


def _without(rule: forming.Rule) -> tuple[forming.Rule, ...]:
    return tuple(each for each in forming.RULES if each is not rule)


def form_a_cluster_whatever_the_id(patch: Patch) -> None:
    patch.setattr(forming, "RULES", _without(forming._is_this_node_the_lowest))


def form_a_cluster_with_those_who_answer(patch: Patch) -> None:
    patch.setattr(forming, "RULES", _without(forming._have_all_answered))


def forget_who_one_is(patch: Patch) -> None:
    """Begin every life with an identity that no file keeps."""

    def begin_life(disk: Any, node_id: BrokerId, now_ms: int) -> Identity:
        return Identity(node_id, TopicId(new_uuid().bytes), now_ms, "")

    patch.setattr(node_module, "begin_life", begin_life)


def take_a_node_with_any_folder(patch: Patch) -> None:
    """Keep no folder of a node, so that none can be another one."""
    real = registrar._read

    def read(wanted: words.Register, node: BrokerId, folder: bytes) -> RegisterBroker:
        return msgspec.structs.replace(real(wanted, node, folder), log_dirs=())

    patch.setattr(registrar, "_read", read)
    patch.setattr(Links, "judge_accepted", lambda self, peer, purpose: self.judge(peer))


def wait_for_a_cluster_that_refuses_one(patch: Patch) -> None:
    real = Joining._ask

    async def ask(self: Joining, seed: str) -> forming.Answer | None:
        try:
            return await real(self, seed)
        except CannotJoin:
            return None

    patch.setattr(Joining, "_ask", ask)


def know_no_addresses_before_the_log(patch: Patch) -> None:
    """Begin with no address at all: neither those of the last life, nor the seeds'."""
    real = AddressBook.__init__

    def init(self: AddressBook, disk: Any) -> None:
        real(self, disk)
        self._addresses = {}

    async def look_for_peers(self: Looking) -> None:
        """Not at all."""

    patch.setattr(AddressBook, "__init__", init)
    patch.setattr(Looking, "_ask_often", look_for_peers)


# The controller


def keep_the_sessions_of_the_last_term(patch: Patch) -> None:
    """Begin a term without the sessions of brokers that were registered before."""
    patch.setattr(Sessions, "begin", lambda self, brokers, now_ms: None)


def unfence_before_the_registration_is_known(patch: Patch) -> None:
    real = Registrar.register

    async def register(self: Registrar, node: BrokerId, *arguments: Any) -> Any:
        registered = await real(self, node, *arguments)
        broker = self._quorum.image.broker(node)
        if isinstance(registered, words.Registered) and broker is not None and broker.is_fenced:
            await self._quorum.propose(ChangeBroker(node, broker.broker_epoch, is_fenced=False))
        return registered

    patch.setattr(Registrar, "register", register)


def fence_whom_probes_do_not_reach(patch: Patch) -> None:
    """Take a probe that is lost for the end of a session (SWIM decides, as in rivven)."""
    real = Cluster._on_swim_event

    def on_swim_event(self: Cluster, event: swim_events.Event) -> None:
        real(self, event)
        if isinstance(event, swim_events.Unreachable) and self.controller is not None:
            self.controller.gone(event.node)

    patch.setattr(Cluster, "_on_swim_event", on_swim_event)


def give_everybody_a_vote(patch: Patch) -> None:
    def may_vote(self: Controller, node: BrokerId) -> bool:
        row, broker = self._quorum.image.node(node), self._quorum.image.broker(node)
        return (row is not None and row.state is NodeState.LEARNER) and (
            broker is not None and not broker.is_fenced
        )

    patch.setattr(Controller, "_may_vote", may_vote)


def change_members_once(patch: Patch) -> None:
    """Take a change of members that is refused for now for one that is done."""
    real = Controller._tend_member

    async def tend_member(self: Controller, node: BrokerId) -> None:
        if node not in _TENDED:
            _TENDED.add(node)
            with suppress(MembershipRefused):
                await real(self, node)

    _TENDED.clear()
    patch.setattr(Controller, "_tend_member", tend_member)


_TENDED: set[BrokerId] = set()


def ask_once_to_be_unfenced(patch: Patch) -> None:
    """Send a fenced node's heartbeat once, whether or not it is heard."""
    real = Presence._beat

    async def beat(self: Presence, broker: Any) -> Any:
        if broker.is_fenced and broker.broker_epoch in _ASKED:
            return None
        _ASKED.add(broker.broker_epoch)
        return await real(self, broker)

    _ASKED.clear()
    patch.setattr(Presence, "_beat", beat)


_ASKED: set[int] = set()


def leave_tasks_behind(patch: Patch) -> None:
    async def stop(self: Upkeep) -> None:
        await self._compactor.stop()

    patch.setattr(Upkeep, "stop", stop)


BUGS: list[tuple[Callable[[Patch], None], type[World], int]] = [
    (answer_before_it_is_applied_here, World, 1),
    (answer_before_it_is_committed, Minority, 0),
    (propose_again_what_may_be_in_the_log, Killings, 0),
    (lose_responses, World, 0),
    (skip_the_sync_of_metadata, World, 0),
    (skip_all_but_the_first_of_a_batch, World, 0),
    (apply_by_what_a_node_thinks, World, 0),
    (forget_something_in_snapshots, World, 0),
    (serve_the_partitions_of_before_a_snapshot, Lagging, 5),
    (form_a_cluster_whatever_the_id, Births, 2),
    (form_a_cluster_with_those_who_answer, World, 3),
    (forget_who_one_is, World, 0),
    (take_a_node_with_any_folder, World, 3),
    (wait_for_a_cluster_that_refuses_one, World, 3),
    (know_no_addresses_before_the_log, World, 0),
    (keep_the_sessions_of_the_last_term, Outage, 0),
    (unfence_before_the_registration_is_known, World, 1),
    (fence_whom_probes_do_not_reach, Probes, 1),
    (give_everybody_a_vote, World, 0),
    (change_members_once, World, 0),
    (ask_once_to_be_unfenced, World, 1),
    (leave_tasks_behind, World, 0),
]
"""Each with the scenario that notices it, and a seed at which that was so."""


@pytest.mark.parametrize(
    ("plant", "scenario", "first"), BUGS, ids=[plant.__name__ for plant, _, _ in BUGS]
)
def test_a_planted_bug_is_noticed(
    plant: Callable[[Patch], None], scenario: type[World], first: int, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + SEEDS_MAX):
        try:
            play(seed, scenario)
        except Violation:
            return
    pytest.fail(f"{SEEDS_MAX} seeds, and nobody noticed")


def test_without_a_bug_the_same_seeds_pass() -> None:
    for scenario, seed in sorted({(scenario, first) for _, scenario, first in BUGS}, key=repr):
        play(seed, scenario)
