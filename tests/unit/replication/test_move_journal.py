"""The journal of moves: each phase, each crash, and what is proposed twice."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import BrokerId, PartitionIndex
from headrace.metadata.applier import Outcome
from headrace.metadata.ddl import ChangeBroker, ChangePartition, Ddl
from headrace.metadata.entries import Batch, Entry, MigrationAbort
from headrace.metadata.errors import Refused
from headrace.metadata.events import MigrationAdvanced
from headrace.metadata.features import HEADRACE_VERSION
from headrace.metadata.image import Slot
from headrace.metadata.phases import Phase
from headrace.metadata.snapshot import load_snapshot, take_snapshot
from headrace.metadata.state import MigrationRow
from headrace.replication.move_journal import REPLACED, plan_abort, plan_journal
from tests.unit.metadata.clusters import NOW_MS, ORDERS, ORDERS_ID, Cluster, as_entry, assign
from tests.unit.replication.test_elections import cluster_of
from tests.unit.replication.test_moves import brokers, change, move

FIRST = PartitionIndex(0)
ROUNDS_MAX = 20
ACTIONS = ("plan", "plan", "plan", "late", "isr", "move", "abort")


def slot_of(cluster: Cluster) -> Slot:
    topic = cluster.image.topic(ORDERS)
    assert topic is not None
    return Slot(topic, FIRST)


def plan(cluster: Cluster) -> list[Entry | Ddl]:
    found = plan_journal(cluster.image, [slot_of(cluster)], NOW_MS)
    return [each for each in found if each is not None]


def commit(cluster: Cluster, entries: Iterable[Entry | Ddl]) -> Outcome:
    """Propose as a controller does: in one batch, each of which may be refused."""
    try:
        return cluster.propose(Batch(tuple(map(as_entry, entries))))
    except Refused:
        return cluster.applier.outcome(cluster.image.applied_index)


def step(cluster: Cluster) -> list[Phase]:
    """Let the controller plan once; return the phases that were reached."""
    events = commit(cluster, plan(cluster)).events
    return [each.phase for each in events if isinstance(each, MigrationAdvanced)]


def journal(cluster: Cluster) -> MigrationRow | None:
    migration_id = cluster.image.migration_of_vshard(cluster.partition().vshard_id)
    return None if migration_id is None else cluster.image.migration(migration_id)


def catch_up(cluster: Cluster) -> None:
    """Let all replicas be in sync, as their leader would propose."""
    row = cluster.partition()
    change(cluster, isr=tuple(dict.fromkeys((*row.isr, *row.replicas))))


def finish(cluster: Cluster) -> list[Phase]:
    reached: list[Phase] = []
    for _ in range(ROUNDS_MAX):
        entries = plan(cluster)
        if not entries:
            return reached
        reached += step(cluster)
    raise AssertionError("the plan does not end")


def at(phase: Phase) -> Cluster:
    """A move of orders-0 from nodes 1, 2 to 3, 2, led by 1, that has reached a phase."""
    cluster = cluster_of(assign(1, 2))
    move(cluster, (3, 2))
    for _ in range(ROUNDS_MAX):
        if phase in step(cluster):
            return cluster
        if (row := journal(cluster)) is not None and row.phase is Phase.CATCH_UP:
            catch_up(cluster)
    raise AssertionError(f"{phase} was not reached")


def test_a_move_has_no_journal_before_every_node_applies_it_alike() -> None:
    cluster = cluster_of(assign(1, 2))
    del cluster.image.state.features[HEADRACE_VERSION]  # nodes of the release before may be there
    move(cluster, (3, 2))
    assert plan(cluster) == []
    catch_up(cluster)
    assert finish(cluster) == []
    assert (cluster.partition().replicas, cluster.partition().adding) == ((3, 2), ())
    assert not cluster.image.state.migrations
    assert not cluster.image.state.finished_migrations


def test_a_move_that_is_under_way_when_the_level_rises_gets_its_journal() -> None:
    cluster = cluster_of(assign(1, 2))
    features = cluster.image.state.features
    level = features.pop(HEADRACE_VERSION)
    move(cluster, (3, 2))
    assert plan(cluster) == []
    features[HEADRACE_VERSION] = level
    assert step(cluster) == [Phase.ADD_LEARNER]
    catch_up(cluster)
    assert finish(cluster)[-1] is Phase.COMPLETE
    assert (cluster.partition().replicas, cluster.partition().adding) == ((3, 2), ())


def test_a_move_goes_through_every_phase_and_hands_over_before_the_source_leaves() -> None:
    cluster = cluster_of(assign(1, 2))
    move(cluster, (3, 2))
    assert step(cluster) == [Phase.ADD_LEARNER]
    row = journal(cluster)
    assert row is not None
    assert (row.source_node, row.target_node, row.former_leader) == (1, 3, 1)
    assert step(cluster) == [Phase.CATCH_UP]
    assert plan(cluster) == []
    catch_up(cluster)
    assert step(cluster) == [Phase.PROMOTE_LEARNER]
    assert step(cluster) == [Phase.LEADERSHIP_TRANSFER]
    assert step(cluster) == []
    moved = cluster.partition()
    assert (moved.leader, moved.replicas, moved.removing) == (3, (3, 2, 1), (1,))
    assert step(cluster) == [Phase.CUTOVER]
    moved = cluster.partition()
    assert (moved.leader, moved.replicas, set(moved.isr)) == (3, (3, 2), {2, 3})
    assert (moved.adding, moved.removing) == ((), ())
    assert step(cluster) == [Phase.COMPLETE]
    assert plan(cluster) == []
    assert list(cluster.image.state.finished_migrations.values()) == ["complete"]


def test_a_leader_that_stays_goes_on_leading() -> None:
    cluster = cluster_of(assign(1, 2))
    move(cluster, (1, 3))
    finish(cluster)
    catch_up(cluster)
    assert finish(cluster)[-1] is Phase.COMPLETE
    assert (cluster.partition().leader, cluster.partition().replicas) == (1, (1, 3))


def test_more_replicas_are_journaled_with_the_leader_as_their_source() -> None:
    cluster = cluster_of(assign(1, 2))
    move(cluster, (1, 2, 3))
    step(cluster)
    row = journal(cluster)
    assert row is not None
    assert (row.source_node, row.target_node) == (1, 3)
    catch_up(cluster)
    assert finish(cluster)[-1] is Phase.COMPLETE
    assert cluster.partition().replicas == (1, 2, 3)


def test_fewer_replicas_have_no_journal() -> None:
    cluster = cluster_of(assign(1, 2, 3, isr=(1,)))
    move(cluster, (1, 2))
    assert plan(cluster) == []
    change(cluster, isr=(1, 2))
    assert finish(cluster) == []
    assert cluster.partition().replicas == (1, 2)
    assert cluster.image.state.finished_migrations == {}


@pytest.mark.parametrize("phase", [Phase.PROMOTE_LEARNER, Phase.LEADERSHIP_TRANSFER])
def test_a_move_whose_target_falls_behind_waits_and_keeps_the_source(phase: Phase) -> None:
    cluster = at(phase)
    change(cluster, isr=(1, 2))
    assert plan(cluster) == []
    assert set(cluster.partition().replicas) == {1, 2, 3}
    catch_up(cluster)
    assert finish(cluster)[-1] is Phase.COMPLETE


def test_nobody_takes_over_who_is_down() -> None:
    cluster = at(Phase.LEADERSHIP_TRANSFER)
    for node in (2, 3):
        broker = cluster.image.broker(BrokerId(node))
        assert broker is not None
        cluster.propose(ChangeBroker(node, broker.broker_epoch, is_fenced=True))
    assert plan(cluster) == []
    cluster.propose(ChangeBroker(2, 0, is_fenced=False))
    finish(cluster)
    assert cluster.partition().leader == 2


@pytest.mark.parametrize("phase", [*Phase])
def test_another_controller_goes_on_where_the_journal_is(phase: Phase) -> None:
    cluster = at(phase)
    resumed = Cluster(load_snapshot(take_snapshot(cluster.applier)))
    if phase.ordinal <= Phase.CATCH_UP.ordinal:
        finish(resumed)
        catch_up(resumed)
    finish(resumed)
    assert resumed.partition().replicas == (3, 2)
    assert list(resumed.image.state.finished_migrations.values()) == ["complete"]


@pytest.mark.parametrize("phase", [*Phase][:4])
def test_an_abort_in_any_phase_puts_everything_back(phase: Phase) -> None:
    cluster = at(phase)
    step(cluster)
    abort = plan_abort(cluster.image, slot_of(cluster), "enough")
    assert abort is not None
    cluster.propose(abort)
    row = cluster.partition()
    assert (set(row.replicas), set(row.isr), row.leader) == ({1, 2}, {1, 2}, 1)
    assert (row.adding, row.removing) == ((), ())
    assert plan(cluster) == []


def test_an_abort_past_the_cut_over_is_too_late() -> None:
    cluster = at(Phase.CUTOVER)
    with pytest.raises(Refused, match="can only be completed"):
        plan_abort(cluster.image, slot_of(cluster), "enough")
    finish(cluster)
    assert plan_abort(cluster.image, slot_of(cluster), "enough") is None


def test_a_reassignment_to_other_nodes_ends_the_journal_of_the_first() -> None:
    cluster = at(Phase.CATCH_UP)
    reassign(cluster, (4, 2))
    entries = plan(cluster)
    assert [each.reason for each in entries if isinstance(each, MigrationAbort)] == [REPLACED]
    finish(cluster)
    catch_up(cluster)
    finish(cluster)
    assert cluster.partition().replicas == (4, 2)
    ends = cluster.image.state.finished_migrations.values()
    assert sorted(ends) == [f"aborted: {REPLACED}", "complete"]


def test_a_reassignment_that_keeps_the_target_keeps_the_journal() -> None:
    cluster = at(Phase.PROMOTE_LEARNER)
    reassign(cluster, (3, 4))
    assert plan(cluster) == []
    catch_up(cluster)
    finish(cluster)
    assert cluster.partition().replicas == (3, 4)
    assert list(cluster.image.state.finished_migrations.values()) == ["complete"]


def test_a_partition_that_was_moved_by_other_means_is_journaled_to_the_end() -> None:
    cluster = at(Phase.CATCH_UP)
    catch_up(cluster)
    row = cluster.partition()
    cluster.propose(
        ChangePartition(
            ORDERS_ID,
            FIRST,
            expected_partition_epoch=row.partition_epoch,
            replicas=brokers((3, 2)),
            isr=brokers((2, 3)),
            leader=3,
            adding=(),
            removing=(),
        )
    )
    assert finish(cluster) == [*Phase][2:]


def test_a_move_that_just_ended_does_not_hold_up_the_next_one() -> None:
    cluster = at(Phase.CUTOVER)
    reassign(cluster, (1, 2))
    finish(cluster)
    catch_up(cluster)
    finish(cluster)
    assert cluster.partition().replicas == (1, 2)
    assert list(cluster.image.state.finished_migrations.values()) == ["complete"] * 2


@given(st.data())
def test_entries_of_any_controller_may_come_late_and_twice(data: st.DataObject) -> None:
    """Moves, ISRs, aborts and plans in any order: what is settled is kept, and every move ends."""
    cluster = cluster_of(assign(*range(1, data.draw(st.integers(1, 3)) + 1)))
    late: list[list[Entry | Ddl]] = []
    numbers = st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True)
    for _ in range(data.draw(st.integers(1, 25))):
        row = cluster.partition()
        settled = {each for each in row.isr if each not in row.adding + row.removing}
        action = data.draw(st.sampled_from(ACTIONS))
        if action == "plan":
            late.append(plan(cluster))
            commit(cluster, late[-1])
        elif action == "late" and late:
            commit(cluster, data.draw(st.sampled_from(late)))
        elif action == "isr" and row.leader in row.isr:
            others = data.draw(st.lists(st.sampled_from(row.replicas), unique=True))
            change(cluster, isr=tuple(dict.fromkeys((row.leader, *others))))
            continue
        elif action == "move" and not row.removing:
            wanted = data.draw(numbers)
            reassign(cluster, tuple(wanted))
            continue
        elif action == "abort":
            row_of_journal = journal(cluster)
            if row_of_journal is None or row_of_journal.phase is not Phase.CUTOVER:
                abort = plan_abort(cluster.image, slot_of(cluster), "enough")
                commit(cluster, [] if abort is None else [abort])
        after = cluster.partition()
        assert settled <= set(after.isr), "a plan never takes one that stays out of the ISR"
    for _ in range(4):
        catch_up(cluster)
        finish(cluster)
    row = cluster.partition()
    assert (row.adding, row.removing) == ((), ())
    assert cluster.image.state.migrations == {}
    assert row.leader in row.isr


def reassign(cluster: Cluster, wanted: tuple[int, ...]) -> None:
    """Begin another reassignment, as AlterPartitionReassignments does; not one that loses all."""
    row = cluster.partition()
    settled = [each for each in row.replicas if each not in row.adding]
    removing = tuple(each for each in settled if each not in wanted)
    replicas = brokers(wanted) + removing
    isr = tuple(each for each in row.isr if each in replicas)
    if not isr:
        return
    cluster.propose(
        ChangePartition(
            ORDERS_ID,
            FIRST,
            replicas=replicas,
            isr=isr,
            leader=None if row.leader in isr else isr[0],
            adding=brokers(each for each in wanted if each not in settled),
            removing=removing,
        )
    )
