"""Bugs planted into replication, each of which the simulation must notice.

Each takes one rule away that replicated partitions rest on: the traps in which Kafka and others
lost records, or stood still. The names of Kafka's issues are with them. Where several rules stand
behind each other, so that whole nodes stay right without the one, a test of its part notices.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from headrace.api.produce_pending import Wait
from headrace.cluster import registrar
from headrace.coordinator import loading, shard
from headrace.coordinator.journal import Leadership
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.log import replicating
from headrace.log.epochs import LeaderEpochs
from headrace.log.folder import TopicPartition
from headrace.log.producers import ProducerStates
from headrace.log.truncating import begin_truncation
from headrace.metadata import migrations
from headrace.metadata.applier import Outcome
from headrace.metadata.image import Image
from headrace.metadata.state import MigrationRow
from headrace.metadata.state import Partition as PartitionRow
from headrace.replication import elections, fetcher, isr_changes, move_journal
from headrace.replication.fetchers import Fetchers
from headrace.replication.following import AskLatest, Follower, Pause, Restart
from headrace.replication.in_sync import BrokerEpochs, InSync, IsrChange
from headrace.replication.moves import target_of
from headrace.replication.partition import Partition
from headrace.replication.replica_reading import ReplicaReader
from headrace.replication.replica_sessions import FollowedPartition, ReplicaSession
from headrace.replication.replicas import Replicas
from headrace.testing.simulation import SimulationFailure
from headrace.txn import ending
from headrace.txn.marker_sending import MarkerSender
from tests.sim import test_replication_scenarios as scenes
from tests.sim.node_checks import Violation
from tests.sim.replication_moves import Moves
from tests.sim.replication_scenarios import Coordinators
from tests.sim.replication_world import World
from tests.sim.test_replication import play
from tests.unit.coordinator import test_shard_leadership as shards
from tests.unit.log import test_replicated_producers as producers
from tests.unit.replication import test_fetchers as fetchers
from tests.unit.txn import test_ending as endings

SEEDS_MAX = 25
PLANNERS = (registrar,)
Patch = pytest.MonkeyPatch
Failed = pytest.fail.Exception
NOTICED = (
    Violation,
    SimulationFailure,
    AssertionError,
    TimeoutError,
    KafkaError,
    pytest.fail.Exception,
)


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


# Followers (traps 1, 7 and 8)


def truncate_to_the_high_watermark(patch: Patch) -> None:
    """KIP-101."""

    def begin_cut(self: Fetchers, partition: Partition) -> Any:
        log = partition.log
        cut = begin_truncation(log, max(log.high_watermark, log.start_offset))
        return None if cut is None else self._cuts.start(partition, cut)

    patch.setattr(Fetchers, "_begin_cut", begin_cut)


def take_batches_of_later_epochs(patch: Patch) -> None:
    """KAFKA-18723."""
    real = replicating.append_part

    def append_part(log: Any, chunk: memoryview, begin: int, **named: Any) -> int:
        return real(log, chunk, begin, **{**named, "epoch_max": 2**31 - 1})

    patch.setattr(fetcher, "append_part", append_part)


def keep_epochs_beyond_the_end(patch: Patch) -> None:
    """KAFKA-10706."""
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda self, end_offset: False)


def forget_the_epoch_after_an_empty_answer(patch: Patch) -> None:
    """KAFKA-15510."""
    real = Follower.ask

    def ask(self: Follower, log: Any) -> Any:
        self.asked = real(self, log)._replace(last_epoch=-1)
        return self.asked

    patch.setattr(Follower, "ask", ask)


def append_only_at_the_start_of_a_batch(patch: Patch) -> None:
    """KAFKA-6975."""
    patch.setattr(fetcher, "begin_for", lambda log, chunk: None)


def give_up_out_of_range(patch: Patch) -> None:
    """KAFKA-7414."""
    _on_out_of_range(patch, lambda log: Pause(ErrorCode.OFFSET_OUT_OF_RANGE, "it is out of range"))


def empty_the_log_without_asking(patch: Patch) -> None:
    """KAFKA-2143."""
    _on_out_of_range(patch, lambda log: Restart(0))


def _on_out_of_range(patch: Patch, decide: Callable[[Any], Any]) -> None:
    real = Follower.on_row

    def on_row(self: Follower, row: Any, log: Any) -> Any:
        step = real(self, row, log)
        return decide(log) if isinstance(step, AskLatest) else step

    patch.setattr(Follower, "on_row", on_row)


# Coordinators (traps 9 and 10)


def answer_by_the_high_watermark_of_others(patch: Patch) -> None:
    """KAFKA-20634."""
    patch.setattr(Leadership, "__call__", lambda self: True)


def load_on_without_leading(patch: Patch) -> None:
    """KAFKA-16030."""
    real = loading.replay_log

    async def replay_log(log: Any, machine: Any, types: Any, is_leading: Any) -> Any:
        return await real(log, machine, types)

    patch.setattr(shard, "replay_log", replay_log)


def complete_whatever_came_meanwhile(patch: Patch) -> None:
    """KAFKA-16352."""
    patch.setattr(ending, "is_to_complete", lambda transaction, completion: True)


def look_leaders_up_once(patch: Patch) -> None:
    """Bring markers to who led when the first one was sent."""
    real = MarkerSender._leader
    known: dict[Any, Any] = {}

    def leader(self: MarkerSender, place: Any) -> Any:
        found = known.get((self._node_id, place))
        if found is None:
            found = real(self, place)
            if not isinstance(found, KafkaError):
                known[self._node_id, place] = found
        return found

    patch.setattr(MarkerSender, "_leader", leader)


def refuse_a_marker_that_comes_again(patch: Patch) -> None:
    """KAFKA-19999."""
    real = ProducerStates.check_marker

    def check_marker(self: ProducerStates, header: Any, control: Any, version: int) -> None:
        real(self, header, control, version)
        state = self._states.get(header.producer_id)
        if state is not None and header.producer_epoch == state.epoch and version >= 2:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "it was there before")

    patch.setattr(ProducerStates, "check_marker", check_marker)


# Moves


def end_a_move_before_its_replicas_are_in_sync(patch: Patch) -> None:
    def finished(image: Image, row: PartitionRow) -> PartitionRow | None:
        target = target_of(row)
        isr = tuple(each for each in row.isr if each in target)
        if not isr:
            return None
        settled = structs.replace(row, replicas=target, isr=isr, adding=(), removing=())
        leader = elections.choose_leader(
            image, settled, lambda each: elections.is_active(image, each)
        )
        return structs.replace(settled, leader=leader)

    patch.setattr(move_journal, "finished", finished)


def remove_the_sources_of_an_aborted_move(patch: Patch) -> None:
    real = migrations._undone

    def undone(row: MigrationRow, partition: PartitionRow, *rest: Any) -> dict[str, object]:
        changes = real(row, partition, *rest)
        changes.pop("removing", None)
        return changes

    patch.setattr(migrations, "_undone", undone)


def keep_the_files_of_a_replica_that_moved_away(patch: Patch) -> None:
    async def delete_logs(self: Replicas, keys: list[TopicPartition]) -> None:
        known = [key for key in keys if self.image.partition(*key) is None]
        await real(self, known)

    real = Replicas._delete_logs
    patch.setattr(Replicas, "_delete_logs", delete_logs)


BUGS: list[tuple[Callable[[Patch], None], Callable[[], object] | tuple[type[World], int]]] = [
    (
        truncate_to_the_high_watermark,
        scenes.test_a_follower_that_hears_of_another_leader_keeps_what_is_committed,
    ),
    (
        keep_epochs_beyond_the_end,
        fetchers.test_an_epoch_that_this_node_began_without_a_record_goes_when_it_follows,
    ),
    (take_batches_of_later_epochs, fetchers.test_a_batch_of_a_later_epoch_is_not_taken),
    (
        forget_the_epoch_after_an_empty_answer,
        scenes.test_an_empty_answer_does_not_make_a_follower_forget_its_epoch,
    ),
    (
        append_only_at_the_start_of_a_batch,
        scenes.test_a_follower_whose_records_were_deleted_meanwhile_begins_anew,
    ),
    (
        give_up_out_of_range,
        scenes.test_a_follower_whose_records_were_deleted_meanwhile_begins_anew,
    ),
    (
        empty_the_log_without_asking,
        fetchers.test_out_of_range_asks_for_both_ends_before_the_log_is_emptied,
    ),
    (
        answer_followers_for_every_high_watermark,
        scenes.test_followers_fetch_once_for_each_record_not_for_its_high_watermark,
    ),
    (
        read_every_partition_at_each_fetch,
        scenes.test_partitions_to_which_nothing_happens_are_not_read,
    ),
    (
        answer_by_the_high_watermark_of_others,
        partial(shards.test_a_watermark_of_another_epoch_does_not_answer, leads_again=True),
    ),
    (load_on_without_leading, shards.test_a_load_stops_when_the_leadership_goes),
    (
        complete_whatever_came_meanwhile,
        endings.test_a_completion_that_comes_twice_changes_nothing,
    ),
    (look_leaders_up_once, (Coordinators, 1)),
    (refuse_a_marker_that_comes_again, producers.test_a_marker_that_was_replicated_may_come_again),
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
    (end_a_move_before_its_replicas_are_in_sync, (Moves, 0)),
    (remove_the_sources_of_an_aborted_move, (Moves, 3)),
    (keep_the_files_of_a_replica_that_moved_away, (Moves, 0)),
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
