"""Moves of partitions between nodes: their journal, and how an aborted one is undone.

A row advances through the phases one by one; a checkpoint of an earlier phase is refused. From
`Cutover` on there is no way back. An abort is refused if undoing would lose the only copy; a
compensation that does not belong to its migration stops the node, as half an abort is as bad as
half a commit.
"""

from typing import Final

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.metadata.entries import MigrationAbort, MigrationCheckpoint
from headrace.metadata.errors import CompensationFailed, Refused, refuse
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
from headrace.metadata.routing import (
    is_last_copy,
    remove_member,
    require_slot,
    transfer_leadership,
)
from headrace.metadata.state import NO_LEADER, GhostStub, MigrationRow

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
    if isinstance(step, Complete):
        return _complete(image, entry.migration_id, row, step)
    image.put_migration(
        entry.migration_id,
        replace(row, phase=entry.phase, attempt=entry.attempt, ts_ms=entry.ts_ms),
    )
    return [MigrationAdvanced(entry.migration_id, entry.phase)]


def compensations_for(row: MigrationRow) -> tuple[Compensation, ...]:
    """Return what undoes a migration in its current phase; refused past the point of no return.

    Before a learner has caught up only the learner must be undone, also in `CatchUp`: no orphan
    remains.
    """
    group, target = row.group_id, row.target_node
    match row.phase:
        case Phase.ADD_LEARNER | Phase.CATCH_UP:
            return (RemoveLearner(group, target),)
        case Phase.PROMOTE_LEARNER:
            return (RemoveVoter(group, target),)
        case Phase.LEADERSHIP_TRANSFER:
            leader = row.source_node if row.former_leader is None else row.former_leader
            return (RestoreLeaderHint(group, leader), RemoveVoter(group, target))
        case _:
            raise refuse(
                ErrorCode.INVALID_REQUEST,
                f"a migration at {row.phase.value} cannot be aborted: it can only be completed",
            )


def abort(image: Image, entry: MigrationAbort) -> list[Event]:
    """Undo and end a migration; raise CompensationFailed for a foreign compensation."""
    row = image.migration(entry.migration_id)
    if row is None:
        raise refuse(
            ErrorCode.INVALID_REQUEST, f"there is no migration {entry.migration_id} to abort"
        )
    compensations_for(row)
    _check_can_undo(image, row, entry)
    events: list[Event] = []
    for compensation in entry.compensations:
        try:
            events += _undo(image, row, compensation)
        except Refused as error:
            raise CompensationFailed(f"{compensation}: {error.message}") from error
    return events + forget_migration(image, entry.migration_id, entry.reason)


def forget_migration(image: Image, migration_id: str, reason: str) -> list[Event]:
    """End a migration without more ado."""
    image.remove_migration(migration_id)
    _remember(image, migration_id, f"aborted: {reason}")
    return [MigrationAborted(migration_id, reason)]


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
    if step.source_node not in partition.replicas or step.target_node in partition.replicas:
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
    return [MigrationAdvanced(migration_id, entry.phase)]


def _check_belongs(migration_id: str, row: MigrationRow, step: Checkpoint) -> None:
    """A checkpoint must speak of the partition, group and target that the first one named."""
    match step:
        case AddLearner():
            target, group = step.target_node, step.source_group
        case PromoteLearner():
            target, group = step.target_node, step.source_group
        case TransferLeadership() | Cutover():
            target, group = step.new_leader, step.source_group
        case _:
            target, group = row.target_node, row.group_id
    if (step.vshard, target, group) != (row.vshard, row.target_node, row.group_id):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"migration {migration_id} moves vshard {row.vshard} of group {row.group_id} to node "
            f"{row.target_node}, not vshard {step.vshard} of group {group} to node {target}",
        )


def _check_can_undo(image: Image, row: MigrationRow, entry: MigrationAbort) -> None:
    """Refuse an abort that is too late, or that would leave the target behind."""
    topic, index = require_slot(image, row.group_id)
    partition = topic.partitions[index]
    target = row.target_node
    if is_last_copy(image, row.group_id, target):
        raise refuse(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"migration {entry.migration_id} cannot be aborted: node {target}, to which it goes, "
            "has the only copy in sync",
        )
    removals = [
        each for each in entry.compensations if isinstance(each, RemoveLearner | RemoveVoter)
    ]
    if target in partition.replicas and not removals:
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"the abort of migration {entry.migration_id} would leave node {target} behind",
        )
    is_voter = target in partition.replicas and target not in partition.adding
    if is_voter and any(isinstance(each, RemoveLearner) for each in removals):
        raise refuse(
            ErrorCode.INVALID_REQUEST,
            f"node {target} became a voter since the abort of migration {entry.migration_id} was "
            "proposed: propose it again",
        )


def _complete(image: Image, migration_id: str, row: MigrationRow, step: Complete) -> list[Event]:
    image.remove_migration(migration_id)
    _remember(image, migration_id, "complete")
    if step.ghost_stub_installed:
        image.state.ghosts[row.vshard] = GhostStub(row.source_node, row.target_node)
    return [MigrationAdvanced(migration_id, Phase.COMPLETE)]


def _undo(image: Image, row: MigrationRow, compensation: Compensation) -> list[Event]:
    """Undo one step; what was never done is undone already."""
    if isinstance(compensation, RemoveGhostStub):
        if compensation.vshard != row.vshard:
            raise CompensationFailed(f"{compensation}: the migration moves vshard {row.vshard}")
        image.state.ghosts.pop(compensation.vshard, None)
        return []
    topic, index = require_slot(image, row.group_id)
    partition = topic.partitions[index]
    if compensation.group_id != row.group_id:
        raise CompensationFailed(f"{compensation}: the migration is one of group {row.group_id}")
    peer = compensation.peer
    if isinstance(compensation, RestoreLeaderHint):
        if peer == row.target_node:
            raise CompensationFailed(f"{compensation}: the target is no former leader")
        if peer in partition.isr:
            return transfer_leadership(image, row.group_id, peer)
        # It cannot lead any more. That the target does not either makes room for an election.
        is_led_by_target = partition.leader == row.target_node
        return set_partition(image, topic, index, leader=NO_LEADER) if is_led_by_target else []
    if peer != row.target_node:
        raise CompensationFailed(f"{compensation}: the migration adds node {row.target_node}")
    return remove_member(image, row.group_id, peer)


def _remember(image: Image, migration_id: str, end: str) -> None:
    finished = image.state.finished_migrations
    finished[migration_id] = end
    if len(finished) > FINISHED_MAX:
        del finished[next(iter(finished))]
