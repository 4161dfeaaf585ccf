"""A share group's position and lag in a partition (KIP-1226)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headrace.config.group_configs import SHARE_ISOLATION_LEVEL
from headrace.ids import UNKNOWN_OFFSET, SharePartitionKey, TopicId
from headrace.metadata.image import Image
from headrace.metadata.state import ResourceType
from headrace.replication.replicas import Replicas
from headrace.share.durable import UNKNOWN_COUNT, StateSummary
from headrace.share.led_partitions import SharePartitions

UNKNOWN_LAG: Final = -1


def begun_summary(
    share_partitions: SharePartitions, key: SharePartitionKey, summary: StateSummary
) -> StateSummary:
    """Return the stored summary, or where the group started if nothing is stored yet.

    The start offset of a group that starts at the beginning of the log is stored with its first
    acknowledgement.
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


def share_lag(
    replicas: Replicas,
    key: SharePartitionKey,
    summary: StateSummary,
    elsewhere: Mapping[tuple[tuple[TopicId, int], bool], int] = MappingProxyType({}),
) -> int:
    """Return how many readable records from the start on the group has not finished.

    It is unknown before a member has read, and if another node leads the partition and
    `elsewhere` does not have its end offset.
    """
    _, _, start_offset, complete_count = summary
    if start_offset == UNKNOWN_OFFSET or complete_count == UNKNOWN_COUNT:
        return UNKNOWN_LAG
    is_committed = reads_committed(replicas.image, key.group_id)
    partition = replicas.find_by_id(key.topic_id, key.partition)
    if partition is not None and partition.is_leader:
        log = partition.log
        end_offset = log.last_stable_offset if is_committed else log.high_watermark
    else:
        found = elsewhere.get(((key.topic_id, key.partition), is_committed))
        if found is None:
            return UNKNOWN_LAG
        end_offset = found
    return end_offset - start_offset - complete_count


def reads_committed(image: Image, group_id: str) -> bool:
    """Return whether a share group does not read records of open and aborted transactions."""
    configs = image.configs(ResourceType.GROUP, group_id)
    level = configs.get(SHARE_ISOLATION_LEVEL.name, SHARE_ISOLATION_LEVEL.default)
    return level == "read_committed"
