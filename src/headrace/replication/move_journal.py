"""The journal of moves: which entry of the metadata log comes next for each partition on the move.

    entries = plan_journal(image, slots, now_ms)
    change = plan_cancellation(image, slot, "not needed")

A partition with replicas to add has one migration (see `metadata.migrations`), however it came to
be reassigned. It goes through the phases as the image allows: `AddLearner` and `CatchUp` at once,
`PromoteLearner` when all that are to stay are in the ISR, `LeadershipTransfer` before one of them
takes over from a leader that leaves, `Cutover` with the change by which the others leave, and
`Complete`. Where the ISR shrinks meanwhile, the move waits in its phase. A reassignment that only
removes replicas copies nothing and has no journal. Neither has one that is over before the cluster
is at the level of journals (`metadata.levels`).

Everything is decided by the image, so it does not matter who planned what came before: another
controller goes on where the journal is. Like every plan (see `elections`) these are lazy, an entry
that is proposed twice is refused or changes nothing, and nothing is planned once a move is over.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias
from uuid import UUID, uuid5

from msgspec.structs import replace

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangePartition, Ddl
from headrace.metadata.descriptors import Hlc
from headrace.metadata.entries import Entry, MigrationAbort, MigrationCheckpoint
from headrace.metadata.image import Image, Slot
from headrace.metadata.levels import may_journal
from headrace.metadata.migrations import compensations_for
from headrace.metadata.phases import (
    AddLearner,
    CatchUp,
    Checkpoint,
    Complete,
    Cutover,
    Phase,
    PromoteLearner,
    TransferLeadership,
    seal_checkpoint,
)
from headrace.metadata.state import NO_LEADER, MigrationRow, Partition
from headrace.replication.elections import choose_leader, is_active
from headrace.replication.moves import (
    before_move,
    change_to,
    finished,
    is_moving,
    target_of,
    towards,
)

Steps: TypeAlias = Iterator[Entry | Ddl | None]
"""A plan: entries to propose, None for each partition that has to wait."""

Change: TypeAlias = ChangePartition | MigrationAbort
"""What begins or ends a reassignment."""

NO_PAUSE_US: Final = 0
"""Writes do not pause: clients are sent to the next leader, and retry."""
REPLACED: Final = "the partition is reassigned to other nodes"


def plan_journal(image: Image, slots: Iterable[Slot], now_ms: int) -> Steps:
    """Plan the next entries of partitions that are on the move, or were."""
    for slot in slots:
        steps = list(_next_steps(image, slot, now_ms))
        yield from steps or (None,)


def plan_abort(image: Image, slot: Slot, reason: str) -> MigrationAbort | None:
    """Return the entry that undoes the move of a partition; None if it has no journal.

    Refused if it is too late.
    """
    row = _row(slot)
    migration_id = image.migration_of_vshard(row.vshard_id)
    journal = None if migration_id is None else image.migration(migration_id)
    if migration_id is None or journal is None:
        return None
    compensations = compensations_for(journal, row, lambda each: is_active(image, each))
    return MigrationAbort(migration_id, reason, compensations)


def plan_cancellation(image: Image, slot: Slot, reason: str) -> Change | None:
    """Return the change that calls a reassignment off; KafkaError if it cannot be any more.

    It is an abort of the journal, where there is one.
    """
    name, row = f"{slot.topic.name}-{slot.partition}", _row(slot)
    if not is_moving(row):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, _explain_too_late(image, name, row))
    begun = towards(name, image, row, before_move(row))
    return plan_abort(image, slot, reason) or change_to(slot, begun)


def migration_id_of(slot: Slot) -> str:
    """Return the id of the migration that begins with a partition as it is now.

    No two have the same, as a partition epoch comes once. So a checkpoint that was proposed twice
    does not begin a migration again.
    """
    row = _row(slot)
    return str(uuid5(UUID(bytes=slot.topic.topic_id), f"{slot.partition}/{row.partition_epoch}"))


def _next_steps(image: Image, slot: Slot, now_ms: int) -> Steps:
    row = _row(slot)
    migration_id = image.migration_of_vshard(row.vshard_id)
    journal = None if migration_id is None else image.migration(migration_id)
    if migration_id is None or journal is None:
        if row.adding and may_journal(image):
            yield _sealed(migration_id_of(slot), _first_step(image, row, now_ms), now_ms)
        elif is_moving(row) and (wanted := finished(image, row)) is not None:
            yield change_to(slot, wanted)
        return
    if journal.target_node not in row.replicas:
        if journal.phase is not Phase.CUTOVER:
            yield MigrationAbort(migration_id, REPLACED, ())
            return
    elif journal.target_node in row.adding and journal.phase is not Phase.CUTOVER:
        yield from _towards_cutover(image, slot, migration_id, journal, now_ms)
        return
    # It has moved: what is left is to say so, also if another way than the journal led there.
    for phase in tuple(Phase)[journal.phase.ordinal + 1 :]:
        yield _sealed(migration_id, _step(phase, image, row, journal), now_ms)


def _towards_cutover(
    image: Image, slot: Slot, migration_id: str, journal: MigrationRow, now_ms: int
) -> Steps:
    """Yield what brings a move further whose target is being added."""
    row = _row(slot)
    phase = tuple(Phase)[journal.phase.ordinal + 1]
    if journal.phase is Phase.ADD_LEARNER:
        yield _sealed(migration_id, _step(phase, image, row, journal), now_ms)
        return
    wanted = finished(image, row)
    if wanted is None:
        return
    if journal.phase is not Phase.LEADERSHIP_TRANSFER:
        yield _sealed(migration_id, _step(phase, image, row, journal), now_ms)
    elif row.leader in row.removing:
        leader = _next_leader(image, row)
        if leader != NO_LEADER:
            yield change_to(slot, replace(row, leader=leader))
    else:
        yield change_to(slot, wanted)
        yield _sealed(migration_id, _step(phase, image, wanted, journal), now_ms)


def _first_step(image: Image, row: Partition, now_ms: int) -> AddLearner:
    """Name the first node that comes, and the one that it replaces: the leader if that leaves.

    If no node leaves, it is the one that the target copies from.
    """
    settled = [each for each in row.replicas if each not in row.adding]
    sources = [each for each in row.removing if each in settled] or settled
    return AddLearner(
        vshard=row.vshard_id,
        source_node=row.leader if row.leader in sources else sources[0],
        target_node=row.adding[0],
        source_group=image.group_id(row.vshard_id),
        write_pause_budget_us=NO_PAUSE_US,
        started_at_hlc=Hlc.of_ms(now_ms),
    )


def _step(phase: Phase, image: Image, row: Partition, journal: MigrationRow) -> Checkpoint:
    """Return the checkpoint of a phase after the first."""
    vshard, group = journal.vshard, journal.group_id
    match phase:
        case Phase.CATCH_UP:
            return CatchUp(vshard, image.applied_index)
        case Phase.PROMOTE_LEARNER:
            return PromoteLearner(vshard, journal.target_node, group)
        case Phase.LEADERSHIP_TRANSFER:
            leader = _named(_next_leader(image, row), journal)
            is_voter = journal.target_node in row.isr
            return TransferLeadership(vshard, is_voter, leader, group)
        case Phase.CUTOVER:
            return Cutover(vshard, _named(row.leader, journal), group)
        case _:
            # Every node knows from the image where the partition is: no stub has to forward.
            return Complete(vshard, NO_PAUSE_US, ghost_stub_installed=False)


def _next_leader(image: Image, row: Partition) -> BrokerId:
    """Return who leads when those that are removed are gone: the present leader if it stays."""
    target = target_of(row)
    isr = tuple(each for each in row.isr if each in target)
    settled = replace(row, replicas=target, isr=isr, elr=())
    return choose_leader(image, settled, lambda each: is_active(image, each))


def _named(leader: BrokerId, journal: MigrationRow) -> int:
    return journal.target_node if leader == NO_LEADER else leader


def _explain_too_late(image: Image, name: str, row: Partition) -> str:
    migration_id = image.migration_of_vshard(row.vshard_id)
    journal = None if migration_id is None else image.migration(migration_id)
    if journal is None:
        return f"no reassignment of {name} is in progress"
    return (
        f"the reassignment of {name} to {list(row.replicas)} is at {journal.phase.value}: node "
        f"{journal.source_node} has left; to undo it, reassign it again"
    )


def _sealed(migration_id: str, step: Checkpoint, now_ms: int) -> MigrationCheckpoint:
    phase, payload, checksum = seal_checkpoint(step)
    return MigrationCheckpoint(migration_id, phase, 0, payload, checksum, now_ms)


def _row(slot: Slot) -> Partition:
    return slot.topic.partitions[slot.partition]
