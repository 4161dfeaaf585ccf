"""Which partition a record goes to: by its key as Kafka's clients do, else to one for a while.

Records with a key go where every other Kafka client's default puts them. Records without one stick
to a partition until a batch's worth of bytes went there (KIP-794), so that batches get large.
"""

import sys
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Final

from headrace.records.murmur2 import murmur2
from headrace.surroundings import new_random

STICKY_BYTES: Final = 16 * 1024
_CACHED_KEYS_MAX: Final = 16 * 1024

_POSITIVE: Final = 0x7FFFFFFF


@lru_cache(_CACHED_KEYS_MAX)
def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key: murmur2, its sign bit cleared, modulo the count."""
    return (murmur2(key) & _POSITIVE) % partition_count


class StickyPartitions:
    """Where records without a key go, topic by topic."""

    def __init__(self, random: Random | None = None, sticky_bytes: int = STICKY_BYTES) -> None:
        self._random = random or new_random()
        self._sticky_bytes = sticky_bytes
        self._current: dict[str, tuple[int, int]] = {}

    def stay(self, topic: str, record_bytes: int) -> int | None:
        """Return the partition of the previous record until it has its share; then None."""
        partition, used_bytes = self._current.get(topic, _NOWHERE)
        if used_bytes >= self._sticky_bytes:
            return None
        self._current[topic] = partition, used_bytes + record_bytes
        return partition

    def move(self, topic: str, usable: Sequence[int], record_bytes: int) -> int:
        """Return one of the usable partitions, a different one than before if possible."""
        before, _ = self._current.get(topic, _NOWHERE)
        others = [index for index in usable if index != before] or list(usable)
        partition = self._random.choice(others)
        self._current[topic] = partition, record_bytes
        return partition


_NOWHERE: Final = -1, sys.maxsize
