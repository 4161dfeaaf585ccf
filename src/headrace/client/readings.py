"""The partitions that a consumer reads, and what came of each. Pure.

Records of a partition come in order. Partitions take turns: one is read to the end of what came of
it, then it is the next one's turn.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from headrace.client.fetched import Chunk, ConsumedRecord
from headrace.client.topics import TopicPartition
from headrace.errors import HeadraceError
from headrace.ids import TopicId

_RECORDS_AT_ONCE: Final = 500
"""Batches are handed out together up to so many records."""


class Reading(msgspec.Struct):
    """One assigned partition."""

    position: int | None
    """The offset after what was read of `chunk`; None before it is looked up."""
    end: int | None = None
    start: int | None = None
    """Where to look the position up: a `Start` or a timestamp; None: where the reader left off."""
    topic_id: TopicId | None = None
    is_asked: bool = False
    """Whether a request for it is in flight."""
    asked_offset: int = -1
    """Where the last request began to read."""
    is_paused: bool = False
    leftover: list[ConsumedRecord] = []
    """What was read and put back."""
    chunk: Chunk | None = None
    """What came and was not read yet."""
    next_chunk: Chunk | None = None
    """What came while `chunk` was read."""
    known_end: int | None = None
    """Where the partition ended when it was last fetched."""

    @property
    def is_at_end(self) -> bool:
        return self.end is not None and self.position is not None and self.position >= self.end

    @property
    def has_records(self) -> bool:
        return bool(self.leftover) or self.chunk is not None

    @property
    def next_offset(self) -> int | None:
        """The offset of the next record to hand out."""
        return self.leftover[0].offset if self.leftover else self.position

    @property
    def fetch_offset(self) -> int:
        """The offset after all fetched records."""
        if self.chunk is not None:
            return self.chunk.end_offset
        assert self.position is not None, "a partition is placed before it is fetched"
        return self.position

    @property
    def has_more(self) -> bool:
        """Whether the broker is known to have more records."""
        return (
            self.known_end is not None
            and self.position is not None
            and self.fetch_offset < self.known_end
        )

    def is_hungry(self, *, is_prefetch: bool) -> bool:
        """Return whether to fetch more of it."""
        if self.is_asked or self.is_paused or self.is_at_end:
            return False
        if self.chunk is None:
            return True
        if not is_prefetch or self.next_chunk is not None or not self.has_more:
            return False
        return self.end is None or self.fetch_offset < self.end


Group: TypeAlias = dict[TopicPartition, Reading]
"""Partitions of one request."""


class Readings:
    """All of them, and whose turn it is."""

    def __init__(self) -> None:
        self._readings: Group = {}
        self._arrived: OrderedDict[TopicPartition, None] = OrderedDict()
        """Partitions with records that may be handed out, the next one first."""
        self._last_chunk: Chunk | None = None

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._readings)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._readings

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(partition for partition, row in self._readings.items() if row.is_paused)

    @property
    def are_at_end(self) -> bool:
        return all(row.is_at_end and not row.leftover for row in self._readings.values())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition whose position is known."""
        return {
            partition: reading.next_offset
            for partition, reading in self._readings.items()
            if reading.next_offset is not None
        }

    def known_ends(self) -> dict[TopicPartition, int]:
        """Return where partitions ended when they were last fetched."""
        return {
            partition: reading.known_end
            for partition, reading in self._readings.items()
            if reading.known_end is not None
        }

    def holds(self, partition: TopicPartition, reading: Reading) -> bool:
        """Return whether a reading is still current: not dropped, and without a seek since."""
        return self._readings.get(partition) is reading

    def hungry(self, *, is_prefetch: bool) -> Iterator[tuple[TopicPartition, Reading]]:
        """Yield the partitions of which more is wanted."""
        for partition, reading in self._readings.items():
            if reading.is_hungry(is_prefetch=is_prefetch):
                yield partition, reading

    # Which partitions, and where in them

    def assign(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Read these partitions too."""
        for partition, position in positions.items():
            self._replace(partition, Reading(position, ends.get(partition)))

    def add(self, partitions: Mapping[TopicPartition, TopicId | None]) -> None:
        """Read these too, from where the reader left off.

        A partition that comes with a topic id is not read from a topic that has only its name.
        """
        for partition, topic_id in partitions.items():
            self._replace(partition, Reading(None, topic_id=topic_id))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions and drop their fetched records."""
        for partition in partitions:
            if self._readings.pop(partition, None) is not None:
                self._end_turns(partition)

    def seek(self, partition: TopicPartition, offset: int | None, start: int | None = None) -> None:
        """Go on elsewhere: at an offset, or where `start` says; what came before is dropped."""
        old = self._readings[partition]
        self._replace(
            partition,
            Reading(offset, old.end, start=start, topic_id=old.topic_id, is_paused=old.is_paused),
        )

    def stop_at(self, ends: Mapping[TopicPartition, int]) -> None:
        for partition, end in ends.items():
            self._readings[partition].end = end

    def pause(self, partition: TopicPartition) -> None:
        self._readings[partition].is_paused = True
        self._end_turns(partition)

    def resume(self, partition: TopicPartition) -> None:
        reading = self._readings[partition]
        reading.is_paused = False
        if reading.has_records:
            self._queue(partition)

    # Records

    def keep(self, partition: TopicPartition, reading: Reading, chunk: Chunk) -> None:
        """Keep fetched records until it is their turn.

        Records fetched after an unreadable batch are not the next ones and are dropped.
        """
        if chunk.position != reading.fetch_offset:
            return
        if reading.chunk is None:
            reading.chunk = chunk
        else:
            reading.next_chunk = chunk
        if not reading.is_paused:
            self._queue(partition)

    def put_back(self, partition: TopicPartition, records: list[ConsumedRecord]) -> None:
        """Put back records that were not returned to the user: they come next."""
        reading = self._readings.get(partition)
        if reading is None or not records:
            return
        reading.leftover = records + reading.leftover
        if not reading.is_paused and partition not in self._arrived:
            self._arrived[partition] = None
            self._arrived.move_to_end(partition, last=False)

    def take(self) -> list[ConsumedRecord]:
        """Return the next records, all of one partition, or none.

        UnreadableBatch is raised each time until the reader seeks elsewhere.
        """
        while self._arrived:
            reading = self._readings[next(iter(self._arrived))]
            if reading.leftover:
                records, reading.leftover = reading.leftover, []
                if reading.chunk is None:
                    self._arrived.popitem(last=False)
                return records
            if reading.chunk is None or reading.is_at_end:
                self._end_chunk(reading)
                continue
            records = self._read_on(reading, reading.chunk)
            if records:
                return records
        return []

    def is_running_out(self) -> bool:
        """Return whether to prefetch: the last fetched batch was started. Once per chunk."""
        if len(self._arrived) > 1:
            return False
        chunk = self._readings[next(iter(self._arrived))].chunk if self._arrived else None
        is_new = chunk is None or chunk is not self._last_chunk
        self._last_chunk = chunk
        return is_new

    def _read_on(self, reading: Reading, chunk: Chunk) -> list[ConsumedRecord]:
        """Read batches until there are records enough; none at the end of the chunk."""
        records: list[ConsumedRecord] = []
        while len(records) < _RECORDS_AT_ONCE and not reading.is_at_end:
            try:
                batch = chunk.next_batch()
            except HeadraceError:
                # Fetched again next time: what is damaged is never passed over in silence.
                reading.chunk = reading.next_chunk = None
                self._arrived.popitem(last=False)
                if records:
                    return records
                raise
            if batch is None:
                self._end_chunk(reading)
                return records
            reading.position = chunk.position
            if reading.end is not None and chunk.position > reading.end:
                # The end may be moved: what is behind it is fetched again then.
                batch = [record for record in batch if record.offset < reading.end]
                reading.position = reading.end
                reading.chunk = reading.next_chunk = None
            if records:
                records.extend(batch)
            else:
                records = batch
        return records

    def _end_chunk(self, reading: Reading) -> None:
        """Go on with another partition; this one comes again after the others."""
        partition, _ = self._arrived.popitem(last=False)
        reading.chunk, reading.next_chunk = reading.next_chunk, None
        if reading.chunk is not None:
            self._queue(partition)

    def _replace(self, partition: TopicPartition, reading: Reading) -> None:
        self._readings[partition] = reading
        self._end_turns(partition)

    def _queue(self, partition: TopicPartition) -> None:
        self._arrived.setdefault(partition)

    def _end_turns(self, partition: TopicPartition) -> None:
        self._arrived.pop(partition, None)
