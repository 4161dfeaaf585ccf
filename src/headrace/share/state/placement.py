"""The partition of `__share_group_state` of a share partition."""

from functools import lru_cache
from typing import Final

from headrace.coordinator.placement import partition_for
from headrace.ids import SharePartitionKey

REMEMBERED_MAX: Final = 10_000
"""How many results are cached: the hash is of text, and every write needs it."""


@lru_cache(maxsize=REMEMBERED_MAX)
def state_partition(key: SharePartitionKey, partition_count: int) -> int:
    """Return Kafka's partition: Java's hash of `group:topic id:partition`."""
    return partition_for(key.text, partition_count)
