"""Records returned to the user, and which of them are finished.

Asking for more finishes the previous records. Records that are ready are of one partition.

Pure.
"""

from headrace.client.fetched import ConsumedRecord
from headrace.client.readings import Readings
from headrace.client.topics import TopicPartition


class Handout:
    """Records to be returned to the user."""

    def __init__(self, readings: Readings) -> None:
        self.ready: list[ConsumedRecord] = []
        self.given = 0
        """How many of them were handed out."""
        self.polled_from: int | None = None
        """Where the last poll began; None if they are handed out one by one."""
        self.rounds = 0
        self._readings = readings

    @property
    def progress(self) -> tuple[int, int]:
        """A value that changes with every poll of the user."""
        return self.rounds, self.given

    @property
    def is_empty(self) -> bool:
        """Whether all records were returned."""
        return self.given == len(self.ready)

    def start(self, records: list[ConsumedRecord]) -> None:
        """Hand these out next."""
        self.ready, self.given, self.polled_from = records, 0, None

    def finish(self) -> None:
        """Mark all returned records as finished."""
        self.rounds += 1
        self.put_back()
        self.ready, self.given, self.polled_from = [], 0, None

    def put_back(self) -> None:
        """Remove and return the records that were not returned to the user."""
        left = self.ready[self.given :]
        if left:
            del self.ready[self.given :]
            self._readings.put_back(TopicPartition(left[0].topic, left[0].partition), left)

    def forget(self, partition: TopicPartition) -> None:
        """Drop the records of a partition whose position changed."""
        if self.ready and self._partition == partition:
            self.ready, self.given, self.polled_from = [], 0, None

    def take(self, records_max: int | None) -> list[ConsumedRecord]:
        """Hand out several."""
        end = len(self.ready) if records_max is None else self.given + records_max
        records = self.ready[self.given : end]
        self.polled_from = self.given
        self.given += len(records)
        return records

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record to hand out, of each partition."""
        return self._positions(self.given)

    def done(self) -> dict[TopicPartition, int]:
        """Return the offset of the first record that the user is not done with."""
        in_hand = self.given - 1 if self.polled_from is None else self.polled_from
        return self._positions(max(0, in_hand))

    def _positions(self, place: int) -> dict[TopicPartition, int]:
        positions = self._readings.positions()
        if place < len(self.ready) and self._partition in positions:
            positions[self._partition] = self.ready[place].offset
        return positions

    @property
    def _partition(self) -> TopicPartition:
        return TopicPartition(self.ready[0].topic, self.ready[0].partition)
