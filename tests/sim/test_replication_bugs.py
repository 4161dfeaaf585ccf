"""Bugs planted into replication, each of which the simulation must notice.

Each takes one rule away that replicated partitions rest on: the traps in which Kafka and others lost
records, or stood still. The names of Kafka's issues are with them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.api.produce_pending import Wait
from headrace.cluster import registrar
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.applier import Outcome
from headrace.replication import elections, isr_changes
from headrace.replication.in_sync import BrokerEpochs, InSync, IsrChange
from headrace.replication.partition import Partition
from headrace.replication.replica_reading import ReplicaReader
from headrace.replication.replica_sessions import FollowedPartition, ReplicaSession
from headrace.testing.simulation import SimulationFailure
from tests.sim import test_replication_scenarios as scenes
from tests.sim.node_checks import Violation
from tests.sim.replication_world import World
from tests.sim.test_replication import play

SEEDS_MAX = 25
PLANNERS = (registrar,)
Patch = pytest.MonkeyPatch
NOTICED = (Violation, SimulationFailure, AssertionError, pytest.fail.Exception)


# What followers say (traps 2 and 11)


def note_a_position_that_diverges(patch: Patch) -> None:
    """KAFKA-13141."""
    real = ReplicaReader._check

    def check(self: ReplicaReader, followed: FollowedPartition) -> bool:
        is_well = real(self, followed)
        if followed.has_diverged:
            self._note(followed)
        return is_well

    patch.setattr(ReplicaReader, "_check", check)


def take_the_fetch_of_a_former_life(patch: Patch) -> None:
    """KAFKA-15221."""
    real = Partition.check_follower

    def check_follower(self: Partition, node: BrokerId, broker_epoch: int) -> ErrorCode:
        return real(self, node, 2**40)

    patch.setattr(Partition, "check_follower", check_follower)


def take_the_fetch_of_no_replica(patch: Patch) -> None:
    """KAFKA-13837."""

    def check_follower(self: Partition, node: BrokerId, broker_epoch: int) -> ErrorCode:
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    patch.setattr(Partition, "check_follower", check_follower)


def acknowledge_one_record_early(patch: Patch) -> None:
    """What rivven does."""
    real = Wait.__init__

    def init(self: Wait, partition: Partition, offset: int, *rest: Any, **named: Any) -> None:
        real(self, partition, offset - 1, *rest, **named)

    patch.setattr(Wait, "__init__", init)


def answer_followers_for_every_high_watermark(patch: Patch) -> None:
    """KAFKA-9952."""
    real = ReplicaSession.on_high_watermark

    def on_high_watermark(self: ReplicaSession, partition: Partition) -> None:
        real(self, partition)
        if self.fetch is not None:
            self.fetch._is_last_look = True  # type: ignore[attr-defined]
            self.fetch.on_change()

    patch.setattr(ReplicaSession, "on_high_watermark", on_high_watermark)


def read_every_partition_at_each_fetch(patch: Patch) -> None:
    """What sessions of consumers did once."""
    real = ReplicaReader.take

    def take(self: ReplicaReader, asked: Iterator[Any]) -> bool:
        for followed in tuple(self._session.partitions.values()):
            self._session.mark(followed)
        return real(self, asked)

    patch.setattr(ReplicaReader, "take", take)


# Changes of ISRs (traps 3, 4 and 6)


def count_only_the_isr_that_is_committed(patch: Patch) -> None:
    def high_watermark(
        self: InSync, end_offset: int, now_ms: int, lag_ms_max: int, epoch_of: BrokerEpochs
    ) -> int:
        ends = [
            self._followers[node].position.end_offset for node in self.isr if node != self._node
        ]
        return min(end_offset, *ends, end_offset)

    patch.setattr(InSync, "high_watermark", high_watermark)


def give_up_a_change_that_is_not_decided(patch: Patch) -> None:
    """KAFKA-14010."""
    real = isr_changes.IsrChanges._propose_all

    async def propose_all(self: isr_changes.IsrChanges) -> None:
        real_propose = self._quorum.propose_for_outcome

        async def propose(change: Any) -> Outcome:
            try:
                return await real_propose(change)
            except KafkaError:
                self._wanted.clear()
                raise

        self._quorum = _Quorum(propose)
        await real(self)

    patch.setattr(isr_changes.IsrChanges, "_propose_all", propose_all)


class _Quorum:
    def __init__(self, propose: Callable[[Any], Any]) -> None:
        self.propose_for_outcome = propose


def leave_the_high_watermark_after_a_shrink(patch: Patch) -> None:
    """KAFKA-13091."""
    real = Partition.become

    def become(self: Partition, row: Any, node_id: BrokerId) -> None:
        is_same = (row.leader, row.leader_epoch) == (self.leader, self.leader_epoch)
        if is_same and self.in_sync is not None:
            patch_advance(lambda: real(self, row, node_id))
        else:
            real(self, row, node_id)

    def patch_advance(work: Callable[[], None]) -> None:
        advance = Partition._advance
        Partition._advance = lambda self: None  # type: ignore[method-assign]
        try:
            work()
        finally:
            Partition._advance = advance  # type: ignore[method-assign]

    patch.setattr(Partition, "become", become)
    patch.setattr(Partition, "drop_lagging", _only_ask_for_a_smaller_isr)


def _only_ask_for_a_smaller_isr(self: Partition) -> None:
    in_sync, around = self.in_sync, self._around
    if in_sync is not None and len(in_sync.isr) > 1:
        change = in_sync.plan_shrink(
            self.log.end_offset, around.now_ms(), around.lag_ms_max, around.epoch_of
        )
        if change is not None:
            around.propose(self, change)


def advance_below_the_min_isr(patch: Patch) -> None:
    """KAFKA-15583."""
    real = Partition._advance

    def advance(self: Partition) -> None:
        least, self.min_insync_replicas = self.min_insync_replicas, 1
        real(self)
        self.min_insync_replicas = least

    patch.setattr(Partition, "_advance", advance)


def begin_an_epoch_with_every_isr(patch: Patch) -> None:
    """KAFKA-15021, its other half."""
    real = InSync._plan

    def plan(self: InSync, *arguments: Any) -> IsrChange | None:
        change = real(self, *arguments)
        return None if change is None else change._replace(leader=self._node)

    patch.setattr(InSync, "_plan", plan)


def wait_for_who_may_not_join(patch: Patch) -> None:
    """KAFKA-15021."""
    real = InSync.high_watermark

    def high_watermark(
        self: InSync, end_offset: int, now_ms: int, lag_ms_max: int, epoch_of: BrokerEpochs
    ) -> int:
        def any_epoch(node: BrokerId) -> int:
            return self._followers[node].position.broker_epoch

        return real(self, end_offset, now_ms, lag_ms_max, any_epoch)

    patch.setattr(InSync, "high_watermark", high_watermark)


# Elections (trap 5)


def trust_who_did_not_stop_cleanly(patch: Patch) -> None:
    """KAFKA-15586, 18106 and 18635."""
    real = elections.plan_registration

    def plan_registration(image: Any, broker: BrokerId, **named: Any) -> Any:
        return real(image, broker, **{**named, "was_clean": True})

    for module in PLANNERS:
        patch.setattr(module, "plan_registration", plan_registration)


BUGS: list[tuple[Callable[[Patch], None], Callable[[], object] | tuple[type[World], int]]] = [
    (
        note_a_position_that_diverges,
        scenes.test_a_follower_that_lies_about_its_offset_commits_nothing,
    ),
    (take_the_fetch_of_a_former_life, scenes.test_a_fetch_of_a_former_life_commits_nothing),
    (
        take_the_fetch_of_no_replica,
        scenes.test_a_node_without_a_replica_gets_an_error_as_a_follower,
    ),
    (
        acknowledge_one_record_early,
        scenes.test_a_shrink_that_is_committed_lets_a_waiting_produce_go_on,
    ),
    (
        count_only_the_isr_that_is_committed,
        scenes.test_a_follower_that_may_be_in_the_isr_already_counts,
    ),
    (
        give_up_a_change_that_is_not_decided,
        scenes.test_a_change_of_the_isr_that_failed_is_tried_again,
    ),
    (
        leave_the_high_watermark_after_a_shrink,
        scenes.test_a_shrink_that_is_committed_lets_a_waiting_produce_go_on,
    ),
    (
        advance_below_the_min_isr,
        scenes.test_records_that_came_before_a_shrink_are_refused_after_the_append,
    ),
    (
        begin_an_epoch_with_every_isr,
        scenes.test_records_that_came_before_a_shrink_are_refused_after_the_append,
    ),
    (
        wait_for_who_may_not_join,
        scenes.test_a_dead_follower_does_not_hold_up_others_once_it_is_fenced,
    ),
    (
        trust_who_did_not_stop_cleanly,
        scenes.test_a_machine_without_its_last_writes_waits_for_who_stopped_cleanly,
    ),
]
"""Each with the scene that notices it, or with a world and a seed at which that was so."""


@pytest.mark.parametrize(("plant", "scene"), BUGS, ids=[plant.__name__ for plant, _ in BUGS])
def test_a_planted_bug_is_noticed(
    plant: Callable[[Patch], None],
    scene: Callable[[], object] | tuple[type[World], int],
    monkeypatch: Patch,
) -> None:
    plant(monkeypatch)
    if not isinstance(scene, tuple):
        with pytest.raises(NOTICED):
            scene()
        return
    scenario, first = scene
    for seed in range(first, first + SEEDS_MAX):
        try:
            play(seed, scenario)
        except Violation:
            return
    pytest.fail(f"{SEEDS_MAX} seeds, and nobody noticed")


def test_without_a_bug_the_same_seeds_pass() -> None:
    worlds = {scene for _, scene in BUGS if isinstance(scene, tuple)}
    for scenario, seed in sorted(worlds, key=repr):
        play(seed, scenario)
