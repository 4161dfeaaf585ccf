"""What a fetch asks one leader for."""

from headrace.client.cluster import Cluster
from headrace.client.offsets import CONSUMER_REPLICA_ID, READ_COMMITTED, READ_UNCOMMITTED
from headrace.client.readings import Group
from headrace.client.settings import ConsumerSettings
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic


def fetch_request(
    cluster: Cluster,
    group: Group,
    limits: ConsumerSettings,
    *,
    max_wait_ms: int,
    is_committed: bool,
) -> FetchRequest:
    """Ask one leader for everything in `group`."""
    topics: dict[str, list[FetchPartition]] = {}
    for partition, reading in group.items():
        leader = cluster.known_leader(*partition)
        topics.setdefault(partition.topic, []).append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=-1 if leader is None else leader.leader_epoch,
                fetch_offset=reading.asked_offset,
                partition_max_bytes=limits.partition_max_bytes,
            )
        )
    return FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        topics=[
            FetchTopic(topic=name, topic_id=cluster.view.topic_id(name), partitions=rows)
            for name, rows in topics.items()
        ],
    )
