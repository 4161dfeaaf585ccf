"""Raising the replication factor of internal topics when there are brokers for it.

    wanted = {TopicName("__transaction_state"): Wanted(replicas=3, min_isr=2)}
    changes = plan_replicas(image, wanted)
    changes = plan_min_isr(image, wanted)

An internal topic is made with as many replicas as brokers were up, so that a single node has
coordinators. When more brokers are up, its partitions get more replicas, up to the configured
factor: behind the present ones, so that leaders stay, and on the hosts and racks that have the
fewest of the partition. The topic's min.insync.replicas follows when its ISRs are large enough:
sooner, nothing could be written.

Like every plan (see `elections`) these are lazy and conditional, and plan nothing once applied.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.ids import BrokerId, PartitionIndex, TopicName
from headrace.metadata.ddl import ChangePartition, Ddl, SetConfigs
from headrace.metadata.eligible import MIN_INSYNC_REPLICAS, min_insync_replicas_of
from headrace.metadata.image import Image
from headrace.metadata.state import Broker, Partition, ResourceType
from headrace.replication.elections import Changes, is_active
from headrace.replication.moves import is_moving


class Wanted(NamedTuple):
    """What an internal topic is configured to have."""

    replicas: int
    min_isr: int | None = None
    """None if it follows the cluster."""


def plan_replicas(image: Image, wanted: Mapping[TopicName, Wanted]) -> Changes:
    """Plan more replicas for partitions of topics that have fewer than they are to have."""
    up = [
        each
        for each in image.brokers()
        if is_active(image, each.broker_id) and not image.is_leaving(each.broker_id)
    ]
    loads = {each.broker_id: image.replica_count(each.broker_id) for each in up}
    for name, (factor, _) in wanted.items():
        topic = image.topic(name)
        if topic is None:
            continue
        for index, row in enumerate(tuple(topic.partitions)):
            replicas = row.replicas
            if not is_moving(row):
                replicas = _extended(image, row, factor, up, loads)
            if replicas == row.replicas:
                yield None
                continue
            yield ChangePartition(
                topic.topic_id,
                PartitionIndex(index),
                expected_partition_epoch=row.partition_epoch,
                replicas=replicas,
            )


def plan_min_isr(image: Image, wanted: Mapping[TopicName, Wanted]) -> Iterator[Ddl | None]:
    """Plan a larger min.insync.replicas of topics whose replicas and ISRs allow it."""
    for name, (_, wanted_min) in wanted.items():
        topic = image.topic(name)
        if topic is None or wanted_min is None:
            continue
        min_isr = min(wanted_min, *(len(row.replicas) for row in topic.partitions))
        is_raised = min_isr > min_insync_replicas_of(image, name)
        if is_raised and all(len(row.isr) >= min_isr for row in topic.partitions):
            yield SetConfigs(ResourceType.TOPIC, name, {MIN_INSYNC_REPLICAS: str(min_isr)})
        else:
            yield None


def _extended(
    image: Image, row: Partition, factor: int, up: list[Broker], loads: dict[BrokerId, int]
) -> tuple[BrokerId, ...]:
    """Return a partition's replicas and as many more as are wanted and can be had."""
    replicas = row.replicas
    if len(replicas) >= factor:
        return replicas
    present = [found for each in replicas if (found := image.broker(each)) is not None]
    hosts = Counter(image.host(each.broker_id) for each in present)
    racks = Counter(each.rack for each in present)
    candidates = [each for each in up if each.broker_id not in replicas]
    while candidates and len(replicas) < factor:
        chosen = min(
            candidates,
            key=lambda each: (
                hosts[image.host(each.broker_id)],
                racks[each.rack],
                loads[each.broker_id],
                each.broker_id,
            ),
        )
        candidates.remove(chosen)
        replicas += (chosen.broker_id,)
        hosts[image.host(chosen.broker_id)] += 1
        racks[chosen.rack] += 1
        loads[chosen.broker_id] += 1
    return replicas
