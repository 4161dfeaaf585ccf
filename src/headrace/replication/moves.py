"""Moves of partitions: when a reassignment is complete, and what completes it (KIP-455).

    changes = plan_moves(image, slots)

A reassignment begins with the old replicas and the new ones together: `adding` copy, `removing`
stay in service meanwhile. It is complete when every replica that is to remain is in the ISR. Then
the others leave, which begins a leader epoch; a leader among them is replaced by one that stays.

Like every plan (see `elections`) these are lazy and conditional, and plan nothing once applied.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image, Slot
from headrace.metadata.state import Partition
from headrace.replication.elections import Changes, choose_leader, is_active


def plan_moves(image: Image, slots: Iterable[Slot] | None = None) -> Changes:
    """Plan the end of reassignments whose new replicas are in sync: of all, or of some."""
    for slot in image.moving() if slots is None else slots:
        yield _finish(image, slot)


def target_of(row: Partition) -> tuple[BrokerId, ...]:
    """Return the replicas that a partition has when its reassignment is complete."""
    return tuple(each for each in row.replicas if each not in row.removing)


def is_moving(row: Partition) -> bool:
    """Return whether a reassignment is in progress."""
    return bool(row.adding or row.removing)


def finished(image: Image, row: Partition) -> Partition | None:
    """Return a partition whose reassignment is complete, None if it is not or there is none."""
    target = target_of(row)
    isr = tuple(each for each in row.isr if each in target)
    if not is_moving(row) or not target or not set(isr).issuperset(target):
        return None
    settled = replace(row, replicas=target, isr=isr, elr=(), adding=(), removing=())
    return replace(settled, leader=choose_leader(settled, lambda each: is_active(image, each)))


def change_to(slot: Slot, wanted: Partition) -> ChangePartition | None:
    """Return the change that gives a partition other replicas, ISR or leader; None if it has."""
    row = slot.topic.partitions[slot.partition]
    fields = ("leader", "isr", "replicas", "adding", "removing")
    changed = {
        name: value for name in fields if (value := getattr(wanted, name)) != getattr(row, name)
    }
    if not changed:
        return None
    return ChangePartition(
        slot.topic.topic_id,
        slot.partition,
        expected_partition_epoch=row.partition_epoch,
        **changed,
    )


def _finish(image: Image, slot: Slot) -> ChangePartition | None:
    wanted = finished(image, slot.topic.partitions[slot.partition])
    return None if wanted is None else change_to(slot, wanted)
