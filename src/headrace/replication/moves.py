"""Moves of partitions: how a reassignment begins, when it is complete, what completes it (KIP-455).

    begun = towards(name, image, row, target)
    done = finished(image, row)
    change = change_to(slot, begun)

A reassignment begins with the old replicas and the new ones together: `adding` copy, `removing`
stay in service meanwhile. It is complete when every replica that is to remain is in the ISR. Then
the others leave, which begins a leader epoch; a leader among them is replaced by one that stays.
What the controller does between the two is in `move_journal`.
"""

from msgspec.structs import replace

from headrace.errors import ErrorCode, KafkaError
from headrace.ids import BrokerId
from headrace.metadata.ddl import ChangePartition
from headrace.metadata.image import Image, Slot
from headrace.metadata.state import Partition
from headrace.replication.elections import choose_leader, is_active


def target_of(row: Partition) -> tuple[BrokerId, ...]:
    """Return the replicas that a partition has when its reassignment is complete."""
    return tuple(each for each in row.replicas if each not in row.removing)


def is_moving(row: Partition) -> bool:
    """Return whether a reassignment is in progress."""
    return bool(row.adding or row.removing)


def towards(name: str, image: Image, row: Partition, target: tuple[BrokerId, ...]) -> Partition:
    """Return a partition that begins to move to other replicas; KafkaError if none has its records.

    What a former reassignment was adding and this one does not name leaves at once.
    """
    settled = before_move(row)
    adding = tuple(each for each in target if each not in settled)
    removing = tuple(each for each in settled if each not in target)
    replicas = target + removing
    isr = tuple(each for each in row.isr if each in replicas)
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name} would have no replica in sync: {list(row.isr)} have all of its records",
        )
    begun = replace(row, replicas=replicas, isr=isr, elr=(), adding=adding, removing=removing)
    if row.leader in isr:
        return begun
    return replace(begun, leader=choose_leader(image, begun, lambda each: is_active(image, each)))


def before_move(row: Partition) -> tuple[BrokerId, ...]:
    """Return the replicas that a partition has if its reassignment is called off."""
    return tuple(each for each in row.replicas if each not in row.adding)


def finished(image: Image, row: Partition) -> Partition | None:
    """Return a partition whose reassignment is complete, None if it is not or there is none."""
    target = target_of(row)
    isr = tuple(each for each in row.isr if each in target)
    if not is_moving(row) or not target or not set(isr).issuperset(target):
        return None
    settled = replace(row, replicas=target, isr=isr, elr=(), adding=(), removing=())
    return replace(
        settled, leader=choose_leader(image, settled, lambda each: is_active(image, each))
    )


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
