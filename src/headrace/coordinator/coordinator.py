"""All shards of one internal topic on this node.

The node reports when it starts and stops leading a partition; requests look up the shard of a key.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

from headrace.coordinator.journal import Journal
from headrace.coordinator.machine import Machine
from headrace.coordinator.placement import partition_for
from headrace.coordinator.records import RecordTypes
from headrace.coordinator.shard import WRITE_TIMEOUT_MS, Shard
from headrace.coordinator.timer import Time
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import TopicName
from headrace.records.compression import Compression

M = TypeVar("M", bound=Machine)
logger = logging.getLogger(__name__)


class Coordinator(Generic[M]):
    """The shards of one internal topic that this node leads."""

    def __init__(
        self,
        topic: TopicName,
        types: RecordTypes,
        make: Callable[[int], M],
        clock: Time,
        partition_count: Callable[[], int | None],
        *,
        compression: Compression = Compression.NONE,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
    ) -> None:
        """`make` returns the empty machine of a partition. The count is None without the topic.

        A client whose records are not committed within the timeout gets an error.
        """
        self.topic = topic
        self._types = types
        self._make = make
        self._clock = clock
        self._partition_count = partition_count
        self._compression = compression
        self._write_timeout_ms = write_timeout_ms
        self._shards: dict[int, Shard[M]] = {}
        self._former_loads = 0
        self._loading: set[int] = set()
        self._loaded_partitions = self._loaded_records = 0
        """What was loaded since the last line in the node's log."""

    def __iter__(self) -> Iterator[Shard[M]]:
        return iter(self._shards.values())

    def lead(self, index: int, journal: Journal) -> None:
        """Load a partition that this node leads now."""
        self.resign(index)
        shard = Shard(
            journal,
            lambda: self._make(index),
            self._types,
            self._clock,
            compression=self._compression,
            write_timeout_ms=self._write_timeout_ms,
            on_load_ended=partial(self._on_load_ended, index),
        )
        self._shards[index] = shard
        self._loading.add(index)
        shard.start()

    def resign(self, index: int, journal: Journal | None = None) -> None:
        """Unload a partition that this node no longer leads.

        With a journal only if it is loaded from that one: a topic of the same name may have taken
        the place of a deleted one.
        """
        shard = self._shards.get(index)
        if shard is not None and (journal is None or journal is shard.journal):
            del self._shards[index]
            self._former_loads += shard.load_count
            shard.close()
            self._loading.discard(index)
            self._log_loaded()

    def _on_load_ended(self, index: int, record_count: int | None) -> None:
        self._loading.discard(index)
        if record_count is not None:
            self._loaded_partitions += 1
            self._loaded_records += record_count
        self._log_loaded()

    def _log_loaded(self) -> None:
        """Log one line once nothing is loading any more: there may be fifty partitions."""
        if self._loaded_partitions and not self._loading:
            logger.info(
                "%s: loaded %d partitions with %d records",
                *(self.topic, self._loaded_partitions, self._loaded_records),
            )
            self._loaded_partitions = self._loaded_records = 0

    @property
    def load_count(self) -> int:
        """The number of partition loads since the start."""
        return self._former_loads + sum(shard.load_count for shard in self)

    def close(self) -> None:
        for index in tuple(self._shards):
            self.resign(index)

    def rearm(self) -> None:
        """Set the timers again after the clock was moved."""
        for shard in self._shards.values():
            shard.rearm()

    def shard(self, key: str, *, is_served: bool = True) -> Shard[M]:
        """Return the shard that a group or transactional id belongs to.

        Raise KafkaError if it is not here, or if a record of that id could not be read. Deletion
        passes `is_served=False` to get the shard despite an unreadable record.
        """
        count = self._partition_count()
        if count is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {self.topic} does not exist yet"
            )
        found = self._shards.get(partition_for(key, count))
        if found is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"this node does not coordinate {key!r}")
        if found.set_aside and is_served:
            found.set_aside.check(key, found.journal.name)
        return found

    def shard_at(self, index: int) -> Shard[M] | None:
        return self._shards.get(index)
