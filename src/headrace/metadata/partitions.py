"""One partition: what it may be, and how a change of it counts its epochs up."""

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.ids import LeaderEpoch, PartitionIndex
from headrace.metadata.errors import refuse
from headrace.metadata.events import Event, LeaderChanged, ReplicasChanged
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition, Topic


def set_partition(
    image: Image, topic: Topic, index: PartitionIndex, **changes: object
) -> list[Event]:
    """Put changed fields into a partition and count its epochs up; refused if they contradict.

    A leader that is given begins a leader epoch. Nothing given: nothing changes.
    """
    if not changes:
        return []
    current = topic.partitions[index]
    changed = replace(current, **changes, partition_epoch=current.partition_epoch + 1)
    if "leader" in changes:
        changed = replace(changed, leader_epoch=LeaderEpoch(current.leader_epoch + 1))
    check_partition(f"{topic.name}-{index}", changed)
    image.put_partition(topic, index, changed)
    if "leader" in changes:
        leader, epoch = changed.leader, changed.leader_epoch
        return [LeaderChanged(topic.name, topic.topic_id, index, leader, epoch)]
    return [ReplicasChanged(topic.name, topic.topic_id, index)]


def check_partition(name: str, partition: Partition) -> None:
    """Refuse what no partition may be, so that it need not be thought of anywhere else."""
    replicas, isr = partition.replicas, partition.isr
    known = set(replicas)
    if not replicas or len(known) != len(replicas):
        reason = f"replicas {replicas}: at least one, and each once"
    elif len(set(isr)) != len(isr) or not known.issuperset(isr):
        reason = f"ISR {isr}: each once, and only replicas, which are {replicas}"
    elif partition.leader != NO_LEADER and partition.leader not in isr:
        reason = f"leader {partition.leader}: only one of the ISR {isr} leads"
    elif not known.issuperset(partition.adding + partition.removing + partition.elr):
        reason = (
            f"adding {partition.adding}, removing {partition.removing}, ELR {partition.elr}: only "
            f"replicas, which are {replicas}"
        )
    elif len(set(partition.adding)) == len(replicas):
        reason = f"adding {partition.adding}: one replica at least must be there already"
    else:
        return
    raise refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {name}: {reason}")
