"""Moves of partitions between nodes: their journal, and how an aborted one is undone.

A partition that is reassigned has one migration, which names the first of the nodes that come and
the one that it replaces; all of `adding` and `removing` move with it. A row advances through the
phases one by one; a checkpoint of an earlier phase is refused. `Cutover` is refused while the
target is still being added, and from there on there is no way back. An abort is refused if undoing
would lose the only copy; a compensation that does not belong to its migration stops the node, as
half an abort is as bad as half a commit.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.ids import BrokerId
from headrace.metadata.entries import MigrationAbort, MigrationCheckpoint
from headrace.metadata.errors import CompensationFailed, refuse
from headrace.metadata.events import Event, MigrationAborted, MigrationAdvanced
from headrace.metadata.image import Image
from headrace.metadata.partitions import set_partition
from headrace.metadata.phases import (
    AddLearner,
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
    open_checkpoint,
)
from headrace.metadata.routing import require_slot
from headrace.metadata.state import NO_LEADER, GhostStub, MigrationRow, Partition

FINISHED_MAX: Final = 1000
"""How many migrations that ended are remembered. No setting: nodes that disagreed would differ."""


def checkpoint(image: Image, entry: MigrationCheckpoint) -> list[Event]:
    """Record that a migration reached a phase; a repeated checkpoint changes nothing."""
    step = open_checkpoint(entry.phase, entry.payload, entry.crc32c)
    row = image.migration(entry.migration_id)
    if row is None:
        return _begin(image, entry, step)
    if (entry.phase, entry.attempt) == (row.phase, row.attempt):
        return []
    is_retry = entry.phase is row.phase and entry.attempt > row.attempt
    if not is_retry and entry.phase.ordinal != row.phase.ordinal + 1:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"migration {entry.migration_id} is at {row.phase.value}, attempt {row.attempt}: it "
            f"cannot go to {entry.phase.value}, attempt {entry.attempt}",
        )
    _check_belongs(entry.migration_id, row, step)
    if isinstance(step, Cutover):
        _check_has_moved(image, entry.migration_id, row)
    if isinstance(step, Complete):
        return _complete(image, entry.migration_id, row, step)
    image.put_migration(
        entry.migration_id,
        replace(row, phase=entry.phase, attempt=entry.attempt, ts_ms=entry.ts_ms),
    )
    return [MigrationAdvanced(entry.migration_id, entry.phase, row.vshard)]


def compensations_for(
    row: MigrationRow,
    partition: Partition,
    may_lead: Callable[[BrokerId], bool] = lambda broker: True,
) -> tuple[Compensation, ...]:
    """Return what undoes a migration in its current phase; refused past the point of no return.

    All that are being added go, also in `CatchUp`: no orphan remains. Where one of them leads, or
    was about to, the former leader takes over again, or another one that `may_lead`.
    """
    group, target = row.group_id, BrokerId(row.target_node)
    if row.phase.ordinal >= Phase.CUTOVER.ordinal:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"a migration at {row.phase.value} cannot be aborted: it can only be completed",
        )
    peers = tuple(dict.fromkeys((target, *partition.adding)))
    is_learner = row.phase in (Phase.ADD_LEARNER, Phase.CATCH_UP)
    removal = RemoveLearner if is_learner else RemoveVoter
    removals: tuple[Compensation, ...] = tuple(removal(group, peer) for peer in peers)
    if row.phase is not Phase.LEADERSHIP_TRANSFER and partition.leader not in peers:
        return removals
    former = BrokerId(row.source_node if row.former_leader is None else row.former_leader)
    complete = [each for each in (former, *partition.replicas) if each in partition.isr]
    leaders = (each for each in complete if each not in peers and may_lead(each))
    leader = next(leaders, None)  # without one the partition waits for an election
    return removals if leader is None else (RestoreLeaderHint(group, leader), *removals)


def abort(image: Image, entry: MigrationAbort) -> list[Event]:
    """Undo and end a migration; raise CompensationFailed for a foreign compensation.

    What was never done is undone already. Without a member of the ISR to restore, a partition that
    loses its leader waits for an election.
    """
    row = image.migration(entry.migration_id)
    if row is None:
        end = image.state.finished_migrations.get(entry.migration_id)
        why = "there is no such migration" if end is None else f"it has ended: {end}"
        raise refuse(
            ErrorCode.INVALID_REQUEST, f"migration {entry.migration_id} cannot be aborted: {why}"
        )
    topic, index = require_slot(image, row.group_id)
    partition = topic.partitions[index]
    compensations_for(row, partition)
    is_settled = row.target_node in partition.replicas and row.target_node not in partition.adding
    if is_settled and row.source_node not in partition.replicas:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"migration {entry.migration_id} cannot be aborted: node {row.target_node} has taken "
            "its place",
        )
    hint = _check_compensations(row, partition, entry)
    changes = _undone(row, partition, entry, hint)
    if any(isinstance(each, RemoveGhostStub) for each in entry.compensations):
        image.state.ghosts.pop(row.vshard, None)
    events = set_partition(image, topic, index, **changes)
    return events + forget_migration(image, entry.migration_id, entry.reason)


def forget_migration(image: Image, migration_id: str, reason: str) -> list[Event]:
    """End a migration without more ado."""
    vshard = image.state.migrations[migration_id].vshard
    image.remove_migration(migration_id)
    _remember(image, migration_id, f"aborted: {reason}")
    return [MigrationAborted(migration_id, reason, vshard)]


def _begin(image: Image, entry: MigrationCheckpoint, step: Checkpoint) -> list[Event]:
    migration_id = entry.migration_id
    if (end := image.state.finished_migrations.get(migration_id)) is not None:
        raise refuse(ErrorCode.INVALID_REQUEST, f"migration {migration_id} has ended: {end}")
    if not isinstance(step, AddLearner):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"there is no migration {migration_id}: {entry.phase.value} cannot be its first phase",
        )
    slot = image.slot(step.vshard)
    if slot is None or image.group_id(step.vshard) != step.source_group:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"vshard {step.vshard} does not exist or is not served by group {step.source_group}",
        )
    if (other := image.migration_of_vshard(step.vshard)) is not None:
        raise refuse(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"vshard {step.vshard} is on the move already, in migration {other}",
        )
    partition = slot.topic.partitions[slot.partition]
    settled = [each for each in partition.replicas if each not in partition.adding]
    if step.source_node not in partition.replicas or step.target_node in settled:
        raise refuse(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"vshard {step.vshard} cannot go from node {step.source_node} to {step.target_node}: "
            f"its replicas are {partition.replicas}",
        )
    image.state.ghosts.pop(step.vshard, None)
    image.put_migration(
        migration_id,
        MigrationRow(
            phase=entry.phase,
            attempt=entry.attempt,
            ts_ms=entry.ts_ms,
            vshard=step.vshard,
            group_id=step.source_group,
            source_node=step.source_node,
            target_node=step.target_node,
            started_at=step.started_at_hlc,
            write_pause_budget_us=step.write_pause_budget_us,
            former_leader=None if partition.leader == NO_LEADER else partition.leader,
        ),
    )
    return [MigrationAdvanced(migration_id, entry.phase, step.vshard)]


def _check_belongs(migration_id: str, row: MigrationRow, step: Checkpoint) -> None:
    """A checkpoint must speak of the partition, group and target that the first one named.

    Who leads afterwards is up to the election: the target, or a replica that stays.
    """
    match step:
        case AddLearner() | PromoteLearner():
            target, group = step.target_node, step.source_group
        case TransferLeadership() | Cutover():
            target, group = row.target_node, step.source_group
        case _:
            target, group = row.target_node, row.group_id
    if (step.vshard, target, group) != (row.vshard, row.target_node, row.group_id):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"migration {migration_id} moves vshard {row.vshard} of group {row.group_id} to node "
            f"{row.target_node}, not vshard {step.vshard} of group {group} to node {target}",
        )


def _check_has_moved(image: Image, migration_id: str, row: MigrationRow) -> None:
    """Refuse a cut-over of a partition whose target is not one of its settled replicas."""
    topic, index = require_slot(image, row.group_id)
    if row.target_node in topic.partitions[index].adding:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"migration {migration_id} cannot go to {Phase.CUTOVER.value}: node {row.target_node} "
            f"is still being added to {topic.name}-{index}",
        )


def _check_compensations(
    row: MigrationRow, partition: Partition, entry: MigrationAbort
) -> BrokerId | None:
    """Return the leader to restore; raise CompensationFailed if one is not of this migration.

    An abort that was overtaken by a change of the partition is refused: its sender plans again.
    """
    hint: BrokerId | None = None
    for each in entry.compensations:
        if isinstance(each, RemoveGhostStub):
            if each.vshard != row.vshard:
                raise CompensationFailed(f"{each}: the migration moves vshard {row.vshard}")
            continue
        if each.group_id != row.group_id:
            raise CompensationFailed(f"{each}: the migration is one of group {row.group_id}")
        if isinstance(each, RestoreLeaderHint):
            if each.peer == row.target_node:
                raise refuse(ErrorCode.INVALID_REQUEST, f"{each}: the target is no former leader")
            hint = BrokerId(each.peer)
        elif each.peer in partition.replicas and each.peer not in (
            row.target_node,
            *partition.adding,
        ):
            raise refuse(
                ErrorCode.INVALID_REQUEST,
                f"{each}: the migration adds {sorted({row.target_node, *partition.adding})}",
            )
    return hint


def _undone(
    row: MigrationRow, partition: Partition, entry: MigrationAbort, hint: BrokerId | None
) -> dict[str, object]:
    """Return how an abort changes its partition; refused if it is too late or not complete."""
    migration_id, target = entry.migration_id, row.target_node
    removals = [
        each for each in entry.compensations if isinstance(each, RemoveLearner | RemoveVoter)
    ]
    peers = {each.peer for each in removals}.intersection(partition.replicas)
    left_behind = [
        each
        for each in partition.replicas
        if each not in peers and (each == target or (removals and each in partition.adding))
    ]
    if left_behind:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"the abort of migration {migration_id} would leave nodes {left_behind} behind",
        )
    is_voter = target in partition.replicas and target not in partition.adding
    if is_voter and any(isinstance(each, RemoveLearner) for each in removals):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {target} became a voter since the abort of migration {migration_id} was "
            "proposed: propose it again",
        )
    isr = tuple(each for each in partition.isr if each not in peers)
    if not isr:
        raise refuse(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"migration {migration_id} cannot be aborted: the nodes to which it goes, "
            f"{sorted(peers)}, have the only copies in sync",
        )
    changes: dict[str, object] = {}
    if peers:
        replicas = tuple(each for each in partition.replicas if each not in peers)
        changes = {"replicas": replicas, "isr": isr, "adding": (), "removing": ()}
    leader = partition.leader
    if hint is not None and hint in isr:
        leader = hint
    elif leader in peers:
        leader = NO_LEADER  # which makes room for an election
    if leader != partition.leader:
        changes["leader"] = leader
    return changes


def _complete(image: Image, migration_id: str, row: MigrationRow, step: Complete) -> list[Event]:
    image.remove_migration(migration_id)
    _remember(image, migration_id, "complete")
    if step.ghost_stub_installed:
        image.state.ghosts[row.vshard] = GhostStub(row.source_node, row.target_node)
    return [MigrationAdvanced(migration_id, Phase.COMPLETE, row.vshard)]


def _remember(image: Image, migration_id: str, end: str) -> None:
    finished = image.state.finished_migrations
    finished[migration_id] = end
    if len(finished) > FINISHED_MAX:
        del finished[next(iter(finished))]
