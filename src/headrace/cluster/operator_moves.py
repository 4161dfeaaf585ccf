"""Moves of partitions in the eyes of an operator: what a node knows of each, and their abort.

A list is a node's own view, and has the figures of its own copies only: a command asks all nodes,
and puts the copy of the leader beside those of the nodes that come.
"""

from itertools import islice
from typing import Final
from uuid import UUID

from headrace.cluster import operator_words as words
from headrace.cluster.plans import ENTRY_CHANGES_MAX, ddl_entry
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import PartitionIndex, TopicName
from headrace.metadata.ddl import Ddl
from headrace.metadata.entries import Batch, Entry
from headrace.metadata.image import Image, Slot
from headrace.metadata.quorum import MetadataQuorum
from headrace.metadata.state import MigrationRow
from headrace.replication.elections import is_active
from headrace.replication.move_journal import plan_cancellation
from headrace.replication.moves import is_moving
from headrace.replication.replicas import Replicas

MOVES_MAX: Final = 1000
"""The most moves that a response has; a list says whether there are more."""
OPERATOR_REASON: Final = "an operator aborted it"


def list_moves(node: int, image: Image, replicas: Replicas | None) -> words.Moves:
    """Return the moves in the image with the figures of a node's own copies."""
    slots = _on_the_move(image)
    rows = tuple(_view(image, slot, replicas) for slot in slots[:MOVES_MAX])
    return words.Moves(node, rows, is_complete=len(slots) <= MOVES_MAX)


async def abort_moves(
    quorum: MetadataQuorum, image: Image, asked: words.AbortMoves
) -> words.Aborted:
    """Undo moves and return what became of each; KafkaError if there is none.

    At most `ABORTED_AT_ONCE` of them: whoever asked asks again until a response has fewer. Moves
    that cannot be undone count only where there is room: they would come first again.
    """
    rows: list[words.AbortedRow] = []
    planned: list[tuple[Slot, Entry]] = []
    for slot in _asked(image, asked):
        if len(planned) == words.ABORTED_AT_ONCE:
            break
        try:
            change = plan_cancellation(image, slot, OPERATOR_REASON)
        except KafkaError as error:
            rows.append(_row(slot, error.message))
            continue
        if change is not None:
            planned.append((slot, ddl_entry(change) if isinstance(change, Ddl) else change))
    for start in range(0, len(planned), ENTRY_CHANGES_MAX):
        some = planned[start : start + ENTRY_CHANGES_MAX]
        outcome = await quorum.propose_for_outcome(Batch(tuple(entry for _, entry in some)))
        refused = {each.position: each.error.message for each in outcome.refusals}
        rows += [_row(slot, refused.get(at, "")) for at, (slot, _) in enumerate(some)]
    return words.Aborted(tuple(_with_done_first(rows)[: words.ABORTED_AT_ONCE]))


def _with_done_first(rows: list[words.AbortedRow]) -> list[words.AbortedRow]:
    return sorted(rows, key=lambda row: bool(row.refusal))


def _asked(image: Image, asked: words.AbortMoves) -> list[Slot]:
    if asked.migration_id:
        return [_find(image, asked.migration_id)]
    topic = image.topic(TopicName(asked.topic))
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.topic[:249]!r}"
        )
    if asked.partition != words.EVERY_PARTITION:
        if not 0 <= asked.partition < len(topic.partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name} has {len(topic.partitions)} partitions, no {asked.partition}",
            )
        return [Slot(topic, PartitionIndex(asked.partition))]
    moving = [slot for slot in image.moving() if slot.topic is topic]
    if not moving:
        raise KafkaError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"no partition of {topic.name} is on the move"
        )
    return moving


def _find(image: Image, migration_id: str) -> Slot:
    """Return the partition that a migration moves; KafkaError if it has ended or is unknown."""
    try:
        key = str(UUID(migration_id))
    except ValueError:
        key = migration_id
    row = image.migration(key)
    slot = None if row is None else image.slot(row.vshard)
    if slot is not None:
        return slot
    end = image.state.finished_migrations.get(key)
    why = f"has ended: {end}" if end is not None else "is not known: list moves to see which are"
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    raise KafkaError(code, f"move {migration_id[:64]} {why}")


def _on_the_move(image: Image) -> list[Slot]:
    """Return the partitions that are reassigned, and those whose journal is still open."""
    slots = list(islice(image.moving(), MOVES_MAX + 1))
    for row in image.state.migrations.values():
        if len(slots) > MOVES_MAX:
            break
        slot = image.slot(row.vshard)
        if slot is not None and not is_moving(slot.topic.partitions[slot.partition]):
            slots.append(slot)
    return slots


def _view(image: Image, slot: Slot, replicas: Replicas | None) -> words.MoveRow:
    row = slot.topic.partitions[slot.partition]
    migration_id = image.migration_of_vshard(row.vshard_id)
    journal: MigrationRow | None = None
    if migration_id is not None:
        journal = image.migration(migration_id)
    own = None if replicas is None else replicas.find(slot.topic.name, slot.partition)
    return words.MoveRow(
        migration_id=migration_id or "",
        phase="" if journal is None else journal.phase.value,
        topic=slot.topic.name,
        partition=slot.partition,
        started_ms=0 if journal is None else journal.started_at.wall_ns // 1_000_000,
        since_ms=0 if journal is None else journal.ts_ms,
        leader=row.leader,
        isr=row.isr,
        adding=row.adding,
        removing=row.removing,
        unavailable=tuple(each for each in row.replicas if not is_active(image, each)),
        own_bytes=words.UNKNOWN_BYTES if own is None else own.log.size_bytes,
        own_end_offset=words.UNKNOWN_BYTES if own is None else own.log.end_offset,
    )


def _row(slot: Slot, refusal: str) -> words.AbortedRow:
    return words.AbortedRow(slot.topic.name, slot.partition, refusal)
