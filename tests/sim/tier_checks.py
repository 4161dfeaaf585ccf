"""What must hold for topics in the tier, beside all that holds for replicated partitions.

- A fetch at an offset that the log has returns the batch with that offset or a retriable error: it
  never skips, and never says OFFSET_OUT_OF_RANGE.
- Every batch that is read is the one that a leader appended at that offset in that epoch.
- In the end the audit is clean, and the store has nothing that belongs to no segment.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import TopicPartition
from headrace.errors import ErrorCode
from headrace.log.log import Appended, Log
from headrace.records.header import BatchHeader, read_headers
from headrace.wire.messages.fetch_response import PartitionData
from tests.sim.node_checks import Place, expect
from tests.sim.replication_checks import (
    Batch,
    Key,
    ReplicationChecks,
    as_batch,
    watching_replicas,
)
from tests.sim.this_thread import patch_here

if TYPE_CHECKING:
    from headrace.testing.simulation import Simulation


class TierChecks(ReplicationChecks):
    """What nodes did and what clients were told, of topics that move to the tier."""

    def __init__(self, simulation: "Simulation") -> None:
        super().__init__(simulation)
        self.appended: defaultdict[Key, dict[tuple[int, int], Batch]] = defaultdict(dict)
        """What leaders have appended, by epoch and offset."""
        self.deleting: set[str] = set()
        """Topics whose first records are deleted, by retention or by request."""
        self.by_id: defaultdict[bytes, dict[tuple[int, int], bytes]] = defaultdict(dict)
        """What was acknowledged of topics that come and go, by the topic's id."""
        self.starts: dict[TopicPartition, int] = {}
        """Where logs start in the end, of topics whose records are deleted."""
        self.find_starts: Callable[[], dict[TopicPartition, int]] = dict

    def note_appended(self, log: Log, data: memoryview) -> None:
        """Take note of what a leader has appended."""
        partition = self._owners.get(log)
        if partition is not None and log.settings.is_tiered:
            known = self.appended[partition.topic_id, partition.index]
            for _, header in read_headers(data):
                batch = as_batch(header)
                known[batch.leader_epoch, batch.base_offset] = batch

    def note_fetched(self, partition: TopicPartition, offset: int, row: PartitionData) -> None:
        super().note_fetched(partition, offset, row)
        where, is_deleting = f"{partition} at {offset}", partition.topic in self.deleting
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            expect(is_deleting or offset > 0, f"{where} is said to be out of range: {row}")
        elif row.error_code == ErrorCode.NONE and row.records:
            start = row.log_start_offset if is_deleting else 0
            _, first = next(iter(read_headers(memoryview(row.records))))
            expect(
                first.base_offset <= max(offset, start) <= first.last_offset,
                f"{where} was asked for, and {first.base_offset} came",
            )

    def check_batches(self, key: Key, partition: TopicPartition, start: int, data: bytes) -> int:
        """Compare batches from an offset on with what leaders have appended; return their end."""
        for _, header in read_headers(memoryview(data)):
            batch = as_batch(header)
            known = self.appended[key].get((batch.leader_epoch, batch.base_offset))
            expect(known == batch, f"{known} was appended to {partition}, {batch} is read")
            expect(
                batch.base_offset <= start <= batch.last_offset,
                f"{partition} has {start}, and {batch} is read",
            )
            start = batch.last_offset + 1
            self.seen["batches compared"] += 1
        return start

    def check_records(self, records: dict[Place, bytes], topics: set[str]) -> None:
        """Look for what was promised; records before a log's start may be gone."""
        self.starts = self.find_starts()
        for place in [each for each in self.acknowledged if self._may_be_gone(each)]:
            del self.acknowledged[place]
        for seen in [each for each in self.seen_at if self._may_be_gone(each)]:
            del self.seen_at[seen]
        self.acknowledged_values = {
            pair for pair in self.acknowledged_values if pair[0] not in self.deleting
        }
        super().check_records(records, topics)

    def _may_be_gone(self, place: tuple[object, ...]) -> bool:
        if len(place) == 3:
            topic, index, offset = place
            partition = TopicPartition(topic, index)  # type: ignore[arg-type]
        else:
            partition, offset = place  # type: ignore[assignment]
        return offset < self.starts.get(partition, 0)  # type: ignore[operator]


@contextmanager
def watching_tier(simulation: "Simulation", checks: TierChecks) -> Iterator[None]:
    """Watch what leaders append, and all that `watching_replicas` does."""
    real_append, real_append_own = Log.append_validated, Log.append_own

    def append_validated(
        self: Log, header: BatchHeader, batch: memoryview, **named: Any
    ) -> Appended:
        appended = real_append(self, header, batch, **named)
        checks.note_appended(self, batch)
        return appended

    def append_own(self: Log, batch: memoryview, **named: Any) -> Appended:
        appended = real_append_own(self, batch, **named)
        checks.note_appended(self, batch)
        return appended

    with watching_replicas(simulation, checks), pytest.MonkeyPatch.context() as patch:
        patch_here(patch, Log, "append_validated", append_validated)
        patch_here(patch, Log, "append_own", append_own)
        yield
