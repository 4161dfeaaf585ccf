"""Bugs planted into the tier, each of which the simulation or a named test must notice.

Each takes one rule away that the tier rests on: the traps in which Kafka's and others' tiers lost
records, skipped them, or leaked objects. Where several rules stand behind each other, so that whole
nodes stay right without the one, a test of its part notices.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import ErrorCode, KafkaError
from headrace.log.epochs import LeaderEpochs
from headrace.remote.cache import SegmentCache
from headrace.remote.segments import RemoteSegment, SegmentState
from headrace.replication.remote_log import RemoteRecords
from headrace.testing.simulation import SimulationFailure
from headrace.tier import aborted, lineage
from headrace.tier.copying import Copier
from headrace.tier.deleted_topics import DeletedTopics
from headrace.tier.expiring import Expirer
from headrace.tier.life import Deletion, ExpiryPlan, Reason, Terms
from headrace.tier.metadata_partition import MetadataPartition
from headrace.tier.ports import NotReady
from headrace.tier.tier_log import TierLog
from headrace.tier.tiered_partition import TieredPartition
from headrace.tier.topic_manifests import TopicManifests
from tests.sim.node_checks import Violation
from tests.sim.test_tier import play
from tests.sim.tier_world import SingleNode, World
from tests.unit.tier import test_copying as copies
from tests.unit.tier import test_deleted_topics as deletions
from tests.unit.tier import test_expiring as expiries
from tests.unit.tier import test_life as lives
from tests.unit.tier import test_metadata_manager as managers
from tests.unit.tier import test_reading as reads
from tests.unit.tier import test_reading_faults as faults
from tests.unit.tier import test_tier as tiers

SEEDS_MAX = 8
Patch = pytest.MonkeyPatch
NOTICED = (
    Violation,
    SimulationFailure,
    AssertionError,
    TimeoutError,
    KafkaError,
    KeyError,
    pytest.fail.Exception,
)


# What is copied


def copy_undecided_records(patch: Patch) -> None:
    """Above the last stable offset."""

    def stable_offset(self: TieredPartition) -> int:
        log = self.partition.log
        return min(log.high_watermark, log.recovery_point)

    patch.setattr(TieredPartition, "stable_offset", property(stable_offset))


def copy_what_is_not_synced(patch: Patch) -> None:
    """Above the recovery point."""
    patch.setattr(
        TieredPartition,
        "stable_offset",
        property(lambda self: self.partition.log.last_stable_offset),
    )


def leave_copies_that_failed(patch: Patch) -> None:
    """A crash, or an error, after CopySegmentStarted."""
    real = ExpiryPlan.look_at

    def look_at(self: ExpiryPlan, segment: RemoteSegment) -> None:
        if segment.state is not SegmentState.COPY_STARTED:
            real(self, segment)

    async def give_up(self: Copier, segment: RemoteSegment) -> None:
        pass

    patch.setattr(ExpiryPlan, "look_at", look_at)
    patch.setattr(Copier, "_give_up", give_up)


def leave_copies_that_were_deleted(patch: Patch) -> None:
    """A deposed leader whose copy another one has deleted leaves the objects."""
    patch.setattr(Copier, "_take_away", _nothing)


# What leaves the disk


def free_the_disk_before_the_copy_is_finished(patch: Patch) -> None:
    real = TieredPartition.learn_remote_end

    def learn_remote_end(self: TieredPartition, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        log = self.partition.log
        log.remote_end_offset = max(log.remote_end_offset, log.segments[-1].base_offset)

    patch.setattr(TieredPartition, "learn_remote_end", learn_remote_end)


# What is read


def skip_to_the_disk(patch: Patch) -> None:
    """The worst of all: a silent skip over the records in the tier."""

    async def read(
        self: TierLog, partition: Any, offset: int, bytes_max: int, *, up_to: int, **named: bool
    ) -> RemoteRecords:
        return await self._read_local(partition.log, bytes_max, up_to, **named)

    patch.setattr(TierLog, "read", read)


def be_out_of_range_while_not_ready(patch: Patch) -> None:
    """At which a consumer with auto.offset.reset=latest loses everything."""

    def init(self: NotReady, what: str) -> None:
        KafkaError.__init__(self, ErrorCode.OFFSET_OUT_OF_RANGE, what)

    patch.setattr(NotReady, "__init__", init)


def read_the_aborted_transactions_of_one_segment(patch: Patch) -> None:
    patch.setattr(aborted, "_next_with_aborted", lambda *_: None)


def read_what_a_deposed_leader_copied(patch: Patch) -> None:
    """An unclean leader, whose log went on in another way."""

    def own_end(segment: RemoteSegment, epochs: LeaderEpochs, offset: int) -> int:
        return segment.next_offset

    patch.setattr(lineage, "own_end", own_end)


def answer_before_everything_is_read(patch: Patch) -> None:
    """A manager that is ready at once."""
    patch.setattr(MetadataPartition, "is_ready", property(lambda self: True))
    patch.setattr(MetadataPartition, "check_ready", lambda self: None)


# What is deleted


def take_no_timestamp_for_the_oldest(patch: Patch) -> None:
    real = ExpiryPlan._find_expired

    def find_expired(self: ExpiryPlan) -> tuple[list[Deletion], int | None]:
        unknown = [each for each in self._kept if each.max_timestamp_ms < 0]
        if unknown and self._terms.retention_ms >= 0:
            return [Deletion(each, Reason.TOO_OLD) for each in unknown], None
        return real(self)

    patch.setattr(ExpiryPlan, "_find_expired", find_expired)


def delete_before_the_start_moves(patch: Patch) -> None:
    def raise_start(self: Expirer, tiered: TieredPartition, offset: int) -> None:
        pass

    patch.setattr(Expirer, "_raise_start", raise_start)


def keep_what_nobody_reads(patch: Patch) -> None:
    """KAFKA-20932: of overlapping copies, or of another lineage."""
    patch.setattr(ExpiryPlan, "_is_read", lambda self, segment: True)


def delete_as_a_deposed_leader(patch: Patch) -> None:
    """Without a look at the leader epochs of what others have copied."""
    real = Expirer._terms

    def terms(self: Expirer, tiered: TieredPartition) -> Terms:
        return replace(real(self, tiered), leader_epoch=2**31 - 1)

    patch.setattr(Expirer, "_terms", terms)


def forget_deletions_that_failed(patch: Patch) -> None:
    """A delete cascade that a crash or an error ends."""
    real = ExpiryPlan.look_at

    def look_at(self: ExpiryPlan, segment: RemoteSegment) -> None:
        if segment.state is not SegmentState.DELETE_STARTED:
            real(self, segment)

    patch.setattr(ExpiryPlan, "look_at", look_at)


def sweep_without_a_barrier(patch: Patch) -> None:
    """A topic that the image has not heard of yet is taken for a deleted one."""
    real = DeletedTopics.__init__

    def init(self: DeletedTopics, *arguments: Any, **named: Any) -> None:
        async def read_image() -> Any:
            return named["image_of"]()

        real(self, *arguments, **{**named, "read_image": read_image})

    patch.setattr(DeletedTopics, "__init__", init)


def never_sweep(patch: Patch) -> None:
    patch.setattr(DeletedTopics, "sweep", _nothing)


def keep_the_descriptions_of_deleted_topics(patch: Patch) -> None:
    patch.setattr(TopicManifests, "delete", _nothing)


def do_not_check_what_was_described(patch: Patch) -> None:
    patch.setattr(TopicManifests, "check_written", _nothing)


# What is announced


def take_every_step(patch: Patch) -> None:
    """An invalid transition that is only logged."""
    patch.setattr(SegmentCache, "check", lambda self, event: None)
    patch.setattr(MetadataPartition, "refusal_of", lambda self, offset: None)


async def _nothing(*_: object) -> None:
    pass


BUGS: list[tuple[Callable[[Patch], None], Any]] = [
    (copy_undecided_records, copies.test_nothing_above_an_open_transaction_is_copied),
    (copy_what_is_not_synced, copies.test_nothing_that_a_power_loss_could_take_back_is_copied),
    (leave_copies_that_failed, (SingleNode, 1)),
    (leave_copies_that_were_deleted, copies.test_a_finish_that_is_refused_takes_the_objects_away),
    (free_the_disk_before_the_copy_is_finished, (SingleNode, 1)),
    (skip_to_the_disk, (SingleNode, 1)),
    (
        be_out_of_range_while_not_ready,
        faults.test_descriptions_that_were_not_read_yet_are_retriable,
    ),
    (read_the_aborted_transactions_of_one_segment, (SingleNode, 1)),
    (read_what_a_deposed_leader_copied, reads.test_records_of_a_deposed_leader_are_not_read),
    (
        answer_before_everything_is_read,
        managers.test_a_partition_is_ready_once_everything_is_read_that_was_there,
    ),
    (
        take_no_timestamp_for_the_oldest,
        lives.test_a_segment_without_a_timestamp_ages_from_its_last_event_and_holds_up_nothing,
    ),
    (delete_before_the_start_moves, (SingleNode, 3)),
    (keep_what_nobody_reads, lives.test_another_lineage_goes_and_one_that_shares_a_part_stays),
    (delete_as_a_deposed_leader, expiries.test_a_leader_that_was_deposed_deletes_nothing),
    (forget_deletions_that_failed, (SingleNode, 1)),
    (
        sweep_without_a_barrier,
        deletions.test_a_topic_that_the_image_has_not_heard_of_yet_is_no_deleted_one,
    ),
    (never_sweep, (SingleNode, 1)),
    (keep_the_descriptions_of_deleted_topics, (SingleNode, 1)),
    (
        do_not_check_what_was_described,
        tiers.test_a_description_that_was_written_after_its_topic_was_deleted_goes,
    ),
    (take_every_step, managers.test_a_transition_that_does_not_follow_is_refused_to_the_caller),
]
"""Each with the test that notices it, or with a world and a seed at which that was so."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("plant", "scene"),
    [
        pytest.param(
            plant,
            scene,
            id=plant.__name__,
            marks=[pytest.mark.exhaustive] if isinstance(scene, tuple) else [],
        )
        for plant, scene in BUGS
    ],
)
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


@pytest.mark.exhaustive
def test_without_a_bug_the_same_seeds_pass() -> None:
    worlds = {scene for _, scene in BUGS if isinstance(scene, tuple)}
    for scenario, seed in sorted(worlds, key=repr):
        play(seed, scenario)
