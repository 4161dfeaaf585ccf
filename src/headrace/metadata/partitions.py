"""One partition: what it may be, and how a change of it counts its epochs up.

A leader epoch begins with a leader, and when a replica leaves the set: its fetches must not count
any more. It does not begin when only the ISR shrinks or grows (KAFKA-15021).
"""

from collections.abc import Iterable

from msgspec.structs import replace

from headrace.errors import ErrorCode
from headrace.ids import LeaderEpoch, PartitionIndex, TopicName
from headrace.metadata.eligible import min_insync_replicas_of, with_eligible
from headrace.metadata.errors import refuse
from headrace.metadata.events import Event, LeaderChanged, ReplicasChanged
from headrace.metadata.image import Image
from headrace.metadata.state import NO_LEADER, Partition, Topic


def set_partition(
    image: Image, topic: Topic, index: PartitionIndex, **changes: object
) -> list[Event]:
    """Put changed fields into a partition and count its epochs up; refused if they contradict.

    The ELR follows from the change; one that is given has the only candidates for it. A leader that
    is given begins a leader epoch, even if it is the same. Nothing given: nothing changes.
    """
    if not changes:
        return []
    current = topic.partitions[index]
    changed = replace(current, **changes, partition_epoch=current.partition_epoch + 1)
    begins_epoch = "leader" in changes or not set(changed.replicas).issuperset(current.replicas)
    if begins_epoch:
        changed = replace(changed, leader_epoch=LeaderEpoch(current.leader_epoch + 1))
    check_partition(f"{topic.name}-{index}", changed)
    candidates = changed.elr if "elr" in changes else None
    changed = with_eligible(current, changed, min_insync_replicas_of(image, topic.name), candidates)
    image.put_partition(topic, index, changed)
    if begins_epoch:
        leader, epoch = changed.leader, changed.leader_epoch
        return [LeaderChanged(topic.name, topic.topic_id, index, leader, epoch)]
    return [ReplicasChanged(topic.name, topic.topic_id, index)]


def clear_eligible(image: Image, topics: Iterable[TopicName]) -> list[Event]:
    """Empty the ELRs of topics whose min.insync.replicas has changed.

    A replica that had all that is committed under one value need not under another.
    """
    return [
        event
        for name in topics
        for topic, index in image.partitions_with_elr(name)
        for event in set_partition(image, topic, index, elr=())
    ]


def check_partition(name: str, partition: Partition) -> None:
    """Refuse what no partition may be, so that it need not be thought of anywhere else."""
    replicas, isr = partition.replicas, partition.isr
    known = set(replicas)
    if not replicas or len(known) != len(replicas):
        reason = f"replicas {replicas}: at least one, and each once"
    elif not isr or len(set(isr)) != len(isr) or not known.issuperset(isr):
        reason = f"ISR {isr}: at least one, each once, and only replicas, which are {replicas}"
    elif partition.leader != NO_LEADER and partition.leader not in isr:
        reason = f"leader {partition.leader}: only one of the ISR {isr} leads"
    elif not known.issuperset(partition.adding + partition.removing):
        reason = (
            f"adding {partition.adding}, removing {partition.removing}: only replicas, which are "
            f"{replicas}"
        )
    elif len(set(partition.adding)) == len(replicas):
        reason = f"adding {partition.adding}: one replica at least must be there already"
    else:
        return
    raise refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {name}: {reason}")
