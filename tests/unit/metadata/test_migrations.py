import pytest
from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata import migrations
from headrace.metadata.ddl import ChangePartition, DeleteTopic
from headrace.metadata.descriptors import Hlc
from headrace.metadata.entries import MigrationAbort, RemoveMember, RoutingChange
from headrace.metadata.errors import MetadataStopped, Refused
from headrace.metadata.migrations import compensations_for
from headrace.metadata.phases import (
    AddLearner,
    CatchUp,
    Checkpoint,
    Compensation,
    Complete,
    Cutover,
    Phase,
    PromoteLearner,
    RemoveGhostStub,
    RemoveLearner,
    RemoveVoter,
    RestoreLeaderHint,
    TransferLeadership,
)
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.metadata.state import NO_LEADER, GhostStub, MigrationRow
from tests.unit.metadata.clusters import (
    MIGRATION,
    NOW_MS,
    ORDERS_ID,
    Cluster,
    assign,
    checkpoint,
    with_orders,
)

OTHER = "99999999-2222-3333-4444-555555555555"
BEGIN = AddLearner(0, 1, 3, 1, 10_000, Hlc(5))
STEPS: tuple[Checkpoint, ...] = (
    BEGIN,
    CatchUp(0, 17),
    PromoteLearner(0, 3, 1),
    TransferLeadership(0, True, 3, 1),
    Cutover(0, 3, 1),
    Complete(0, 900, True),
)


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def change(**fields: object) -> ChangePartition:
    return ChangePartition(ORDERS_ID, PartitionIndex(0), **fields)  # type: ignore[arg-type]


def at(phase: Phase) -> Cluster:
    """Partition 0 of orders, on its way from node 1 to node 3, each step taken as it would be."""
    cluster = with_orders(assign(1, 2))
    taken = {
        Phase.CATCH_UP: change(replicas=brokers(1, 2, 3), adding=brokers(3)),
        Phase.PROMOTE_LEARNER: change(adding=(), isr=brokers(1, 2, 3)),
        Phase.CUTOVER: change(leader=3),
    }
    for step, reached in zip(STEPS, Phase, strict=True):
        if reached in taken:
            cluster.propose(taken[reached])
        cluster.propose(checkpoint(step))
        if reached is phase:
            break
    return cluster


def row(cluster: Cluster) -> MigrationRow:
    found = cluster.image.migration(MIGRATION)
    assert found is not None
    return found


def undo(cluster: Cluster) -> tuple[Compensation, ...]:
    return compensations_for(row(cluster), cluster.partition())


def test_a_migration_goes_through_its_phases_and_ends() -> None:
    cluster = at(Phase.CUTOVER)
    assert row(cluster).phase is Phase.CUTOVER
    assert cluster.image.migration_of_vshard(0) == MIGRATION
    cluster.propose(checkpoint(STEPS[-1]))
    assert cluster.image.migration(MIGRATION) is None
    assert cluster.image.migration_of_vshard(0) is None
    assert cluster.image.state.ghosts == {0: GhostStub(1, 3)}


@pytest.mark.parametrize("reached", [*Phase][1:-1])
def test_an_old_checkpoint_never_moves_a_row_back(reached: Phase) -> None:
    """Facts 4: the seed overwrites the row with whatever comes."""
    cluster = at(reached)
    for step in STEPS[: reached.ordinal]:
        cluster.refuses_with(ErrorCode.INVALID_REQUEST, checkpoint(step, attempt=9))
    assert row(cluster).phase is reached


def test_a_late_checkpoint_does_not_begin_a_finished_migration_anew() -> None:
    cluster = at(Phase.COMPLETE)
    cluster.propose(RoutingChange(RemoveMember(1, 1)))
    error = cluster.refuses(checkpoint(AddLearner(0, 2, 1, 1, 0, Hlc(1))))
    assert "has ended: complete" in error.message


def test_phases_are_not_skipped() -> None:
    cluster = at(Phase.ADD_LEARNER)
    for step in STEPS[2:]:
        cluster.refuses_with(ErrorCode.INVALID_REQUEST, checkpoint(step))
    with_orders().refuses_with(ErrorCode.INVALID_REQUEST, checkpoint(STEPS[1]))


def test_the_same_checkpoint_changes_nothing_and_another_attempt_counts() -> None:
    cluster = at(Phase.CATCH_UP)
    assert cluster.propose(checkpoint(STEPS[1], ts_ms=NOW_MS + 9)).events == ()
    assert row(cluster).ts_ms == NOW_MS
    cluster.propose(checkpoint(STEPS[1], attempt=1, ts_ms=NOW_MS + 9))
    assert (row(cluster).attempt, row(cluster).ts_ms) == (1, NOW_MS + 9)
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, checkpoint(STEPS[1], attempt=0))


def test_each_migration_has_a_row_of_its_own() -> None:
    """Facts 1.5: in the seed bad ids become nil, and migrations share a row."""
    cluster = with_orders(assign(1, 2), assign(1, 2))
    cluster.propose(checkpoint(BEGIN), checkpoint(AddLearner(1, 2, 3, 2, 0, Hlc(1)), 0, OTHER))
    assert cluster.image.migration_of_vshard(0) == MIGRATION
    assert cluster.image.migration_of_vshard(1) == OTHER
    assert row(cluster).source_node == 1


@pytest.mark.parametrize(
    ("step", "code"),
    [
        (AddLearner(9, 1, 3, 10, 0, Hlc(1)), ErrorCode.INVALID_REQUEST),  # no such vshard
        (AddLearner(0, 1, 3, 2, 0, Hlc(1)), ErrorCode.INVALID_REQUEST),  # not its group
        (AddLearner(0, 7, 3, 1, 0, Hlc(1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # no source
        (AddLearner(0, 1, 2, 1, 0, Hlc(1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # there already
    ],
)
def test_what_cannot_move_does_not_begin(step: Checkpoint, code: ErrorCode) -> None:
    with_orders(assign(1, 2)).refuses_with(code, checkpoint(step))


def test_a_vshard_moves_once_at_a_time() -> None:
    cluster = at(Phase.CATCH_UP)
    cluster.refuses_with(
        ErrorCode.REASSIGNMENT_IN_PROGRESS, checkpoint(AddLearner(0, 1, 4, 1, 0, Hlc(1)), 0, OTHER)
    )


@pytest.mark.parametrize(
    "step",
    [PromoteLearner(1, 3, 1), PromoteLearner(0, 4, 1), PromoteLearner(0, 3, 2)],
)
def test_a_checkpoint_speaks_of_what_its_migration_began_with(step: Checkpoint) -> None:
    at(Phase.CATCH_UP).refuses_with(ErrorCode.INVALID_REQUEST, checkpoint(step))


@pytest.mark.parametrize("reached", [*Phase][:4])
def test_compensations_really_undo_every_phase(reached: Phase) -> None:
    """Facts 4: after `CatchUp` the seed leaves an orphan learner, and a transfer's leader stays."""
    cluster = at(reached)
    if reached is Phase.LEADERSHIP_TRANSFER:
        cluster.propose(change(leader=3))
    compensations = undo(cluster)
    cluster.propose(MigrationAbort(MIGRATION, "target lost", compensations))
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.adding) == ((1, 2), (1, 2), ())
    assert partition.leader == 1
    assert cluster.image.migration(MIGRATION) is None
    assert cluster.image.state.finished_migrations == {MIGRATION: "aborted: target lost"}


def test_from_cutover_on_there_is_only_forward() -> None:
    """Facts 4: the seed's age rule deletes the row of a migration that was cut over."""
    cluster = at(Phase.CUTOVER)
    with pytest.raises(Refused, match="can only be completed"):
        undo(cluster)
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, MigrationAbort(MIGRATION, "too old", ()))


def test_an_abort_that_would_leave_the_target_behind_is_refused() -> None:
    at(Phase.CATCH_UP).refuses_with(ErrorCode.INVALID_REQUEST, MigrationAbort(MIGRATION, "", ()))


def test_an_abort_that_was_overtaken_by_the_promotion_is_refused() -> None:
    cluster = at(Phase.PROMOTE_LEARNER)
    stale = MigrationAbort(MIGRATION, "", (RemoveLearner(1, 3),))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, stale)


def test_an_abort_never_drops_the_only_copy() -> None:
    cluster = at(Phase.PROMOTE_LEARNER)
    cluster.propose(change(isr=brokers(3), leader=3))
    abort = MigrationAbort(MIGRATION, "", (RemoveVoter(1, 3),))
    cluster.refuses_with(ErrorCode.NOT_ENOUGH_REPLICAS, abort)


def test_a_migration_is_aborted_once() -> None:
    cluster = at(Phase.CATCH_UP)
    abort = MigrationAbort(MIGRATION, "", undo(cluster))
    cluster.propose(abort)
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, abort)


def test_a_former_leader_that_cannot_lead_is_replaced_by_another_in_sync() -> None:
    cluster = at(Phase.LEADERSHIP_TRANSFER)
    cluster.propose(change(leader=3), change(isr=brokers(2, 3)))
    cluster.propose(MigrationAbort(MIGRATION, "", undo(cluster)))
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_a_leader_that_left_the_isr_before_the_abort_leaves_it_to_an_election() -> None:
    cluster = at(Phase.LEADERSHIP_TRANSFER)
    cluster.propose(change(leader=3))
    stale = MigrationAbort(MIGRATION, "", undo(cluster))
    cluster.propose(change(isr=brokers(2, 3)), stale)
    assert cluster.partition().leader == NO_LEADER
    assert cluster.partition().isr == (2,)


def test_an_abort_undoes_the_whole_reassignment_at_once() -> None:
    """Both nodes that come go, nobody leaves, and the epochs count one change."""
    cluster = with_orders(assign(1, 2))
    cluster.propose(
        change(replicas=brokers(3, 4, 1, 2), adding=brokers(3, 4), removing=brokers(1, 2)),
        checkpoint(BEGIN),
        checkpoint(STEPS[1]),
        change(isr=brokers(1, 2, 3), leader=3),
    )
    before = cluster.partition()
    cluster.propose(MigrationAbort(MIGRATION, "", undo(cluster)))
    after = cluster.partition()
    assert (after.replicas, after.isr, after.leader) == ((1, 2), (1, 2), 1)
    assert (after.adding, after.removing) == ((), ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_an_abort_that_forgets_one_of_the_nodes_that_come_is_refused() -> None:
    cluster = with_orders(assign(1, 2))
    cluster.propose(
        change(replicas=brokers(3, 4, 1, 2), adding=brokers(3, 4), removing=brokers(1, 2)),
        checkpoint(BEGIN),
    )
    abort = MigrationAbort(MIGRATION, "", (RemoveLearner(1, 3),))
    assert "nodes [4] behind" in cluster.refuses(abort).message


def test_a_move_whose_target_is_still_added_is_not_cut_over() -> None:
    cluster = with_orders(assign(1, 2))
    cluster.propose(change(replicas=brokers(1, 2, 3), adding=brokers(3)))
    cluster.propose(*map(checkpoint, STEPS[:4]))
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, checkpoint(STEPS[4]))


def test_a_replaced_move_is_forgotten_and_leaves_the_next_one_alone() -> None:
    cluster = with_orders(assign(1, 2))
    cluster.propose(change(replicas=brokers(1, 2, 3), adding=brokers(3)), checkpoint(BEGIN))
    cluster.propose(change(replicas=brokers(1, 2, 4), adding=brokers(4)))
    before = cluster.partition()
    cluster.propose(MigrationAbort(MIGRATION, "replaced", ()))
    assert cluster.partition() == before
    assert cluster.image.migration(MIGRATION) is None


@pytest.mark.parametrize(
    "compensations",
    [
        (RemoveLearner(2, 3),),
        (RestoreLeaderHint(9, 1), RemoveLearner(1, 3)),
        (RemoveLearner(1, 3), RemoveGhostStub(4)),
    ],
)
def test_a_compensation_of_something_else_stops_the_node(
    compensations: tuple[Compensation, ...],
) -> None:
    cluster = at(Phase.CATCH_UP)
    with pytest.raises(MetadataStopped, match="entry 5"):
        cluster.propose(MigrationAbort(MIGRATION, "", compensations))


@pytest.mark.parametrize(
    "compensations",
    [
        (RemoveLearner(1, 2),),
        (RemoveVoter(1, 1),),
        (RestoreLeaderHint(1, 3), RemoveLearner(1, 3)),
    ],
)
def test_an_abort_that_a_change_of_the_partition_overtook_is_refused(
    compensations: tuple[Compensation, ...],
) -> None:
    cluster = at(Phase.CATCH_UP)
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, MigrationAbort(MIGRATION, "", compensations))


def test_an_abort_names_no_leader_where_nobody_can_lead() -> None:
    """The target itself may be the former leader, of a reassignment that this one replaced."""
    cluster = at(Phase.LEADERSHIP_TRANSFER)
    cluster.propose(change(leader=3))
    row = cluster.image.migration(MIGRATION)
    assert row is not None
    found = compensations_for(replace(row, former_leader=3), cluster.partition(), lambda _: False)
    assert found == (RemoveVoter(1, 3),)


def test_an_abort_after_the_target_took_its_place_is_refused() -> None:
    cluster = at(Phase.LEADERSHIP_TRANSFER)
    abort = MigrationAbort(MIGRATION, "", undo(cluster))
    cluster.propose(
        change(replicas=brokers(3, 2), isr=brokers(3, 2), adding=(), removing=(), leader=3)
    )
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, abort)
    assert cluster.partition().replicas == (3, 2)


def test_a_ghost_is_removed_by_its_compensation_and_by_the_next_migration() -> None:
    """Facts 4: in the seed `RemoveGhostStub` does nothing."""
    for ending in ("compensation", "migration"):
        cluster = at(Phase.COMPLETE)
        cluster.propose(change(replicas=brokers(2, 3), isr=brokers(2, 3)))
        cluster.propose(checkpoint(AddLearner(0, 3, 1, 1, 0, Hlc(1)), 0, OTHER))
        if ending == "compensation":
            cluster.image.state.ghosts[0] = GhostStub(1, 3)
            cluster.propose(MigrationAbort(OTHER, "", (RemoveGhostStub(0),)))
        assert cluster.image.state.ghosts == {}


def test_deleting_a_topic_ends_its_migrations_so_that_their_abort_stops_nobody() -> None:
    cluster = at(Phase.CATCH_UP)
    abort = MigrationAbort(MIGRATION, "", undo(cluster))
    cluster.propose(DeleteTopic(ORDERS_ID, NOW_MS))
    assert cluster.image.migration(MIGRATION) is None
    cluster.refuses_with(ErrorCode.INVALID_REQUEST, abort)


def test_finished_migrations_are_forgotten_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "FINISHED_MAX", 1)
    cluster = at(Phase.COMPLETE)
    cluster.propose(checkpoint(AddLearner(0, 1, 4, 1, 0, Hlc(1)), 0, OTHER))
    cluster.propose(MigrationAbort(OTHER, "no", (RemoveLearner(1, 4),)))
    assert cluster.image.state.finished_migrations == {OTHER: "aborted: no"}


@pytest.mark.parametrize("reached", [*Phase])
def test_a_crash_at_any_step_loses_no_row(reached: Phase) -> None:
    cluster = at(reached)
    image = load_snapshot(take_snapshot(cluster.applier))
    assert image == cluster.image
    resumed = Cluster(image)
    if resumed.partition().adding:
        resumed.propose(change(adding=(), isr=brokers(1, 2, 3)))
    for step in STEPS[reached.ordinal + 1 :]:
        resumed.propose(checkpoint(step))
    assert resumed.image.state.finished_migrations == {MIGRATION: "complete"}
