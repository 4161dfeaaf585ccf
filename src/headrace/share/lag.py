"""A share group's position and lag in a partition (KIP-1226)."""

from typing import Final

from headrace.config.group_configs import SHARE_ISOLATION_LEVEL
from headrace.ids import UNKNOWN_OFFSET, SharePartitionKey
from headrace.metadata.state import ResourceType
from headrace.replication.replicas import Replicas
from headrace.share.durable import UNKNOWN_COUNT, StateSummary
from headrace.share.led_partitions import SharePartitions

UNKNOWN_LAG: Final = -1


def begun_summary(
    share_partitions: SharePartitions, key: SharePartitionKey, summary: StateSummary
) -> StateSummary:
    """Return the stored summary, or where the group started if nothing is stored yet.

    The start offset of a group is stored with its first acknowledgement.
    """
    if summary.start_offset != UNKNOWN_OFFSET:
        return summary
    led = share_partitions.find(key.group_id, (key.topic_id, key.partition))
    if led is None or not led.is_active:
        return summary
    return summary._replace(
        start_offset=led.machine.start_offset,
        delivery_complete_count=led.machine.delivery_complete_count,
    )


def share_lag(replicas: Replicas, key: SharePartitionKey, summary: StateSummary) -> int:
    """Return how many readable records from the start on the group has not finished.

    It is unknown before a member has read, and if another node leads the partition.
    """
    _, _, start_offset, complete_count = summary
    if start_offset == UNKNOWN_OFFSET or complete_count == UNKNOWN_COUNT:
        return UNKNOWN_LAG
    partition = replicas.find_by_id(key.topic_id, key.partition)
    if partition is None or not partition.is_leader:
        return UNKNOWN_LAG
    configs = replicas.image.configs(ResourceType.GROUP, key.group_id)
    level = configs.get(SHARE_ISOLATION_LEVEL.name, SHARE_ISOLATION_LEVEL.default)
    log = partition.log
    end_offset = log.last_stable_offset if level == "read_committed" else log.high_watermark
    return end_offset - start_offset - complete_count
