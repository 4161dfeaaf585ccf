"""Which replica a consumer reads from: one in its rack (KIP-392, RackAwareReplicaSelector)."""

from headrace.ids import BrokerId
from headrace.metadata.image import Image
from headrace.metadata.state import Broker
from headrace.replication.partition import Partition


def preferred_replica(
    partition: Partition, image: Image, rack: str, listener: str, offset: int
) -> BrokerId | None:
    """Return the follower that a consumer in a rack is to read from, None for the leader.

    It is in sync, has the offset, is up and has the consumer's listener. The leader serves its own
    rack. Of several the one with the longest log is chosen, then the one that caught up last.
    """
    in_sync = partition.in_sync
    leader = image.broker(partition.leader)
    if in_sync is None or (leader is not None and leader.rack == rack):
        return None
    found: tuple[int, int, BrokerId] | None = None
    for node in partition.isr:
        position = in_sync.position_of(node)
        if position is None or not position.start_offset <= offset <= position.end_offset:
            continue
        broker = image.broker(node)
        if broker is None or broker.rack != rack or not _is_reachable(broker, listener):
            continue
        rank = position.end_offset, in_sync.caught_up_ms(node) or 0, node
        found = rank if found is None else max(found, rank)
    return None if found is None else found[2]


def _is_reachable(broker: Broker, listener: str) -> bool:
    return not broker.is_fenced and any(each.listener == listener for each in broker.endpoints)
