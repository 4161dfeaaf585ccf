"""Where each leader's records begin: the history of a partition's leader epochs (KIP-101).

A follower asks its leader where an epoch ended and cuts off what it has beyond, so the history
decides which records survive a change of leaders. `checkpoints` has its file form.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record; both -1 if unknown."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochs:
    """Epochs and their start offsets, both in strictly increasing order.

    The methods that change the history say whether they did: then it must be written to disk.
    """

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        """Take the result of `entries`; entries that contradict later ones are dropped."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    def __len__(self) -> int:
        return len(self._epochs)

    def entries(self) -> list[EpochStart]:
        return [EpochStart(*entry) for entry in zip(self._epochs, self._starts, strict=True)]

    @property
    def latest_epoch(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that an epoch begins at an offset; ValueError if one of them is negative.

        An epoch that is known keeps its start unless this one is earlier. What contradicts the new
        entry, an epoch as high or a start as far, is forgotten: the newest word counts.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}: neither is negative")
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        kept = bisect_left(self._starts, start_offset)
        if kept and self._epochs[kept - 1] == epoch:
            del self._epochs[kept:], self._starts[kept:]
            return True
        kept = min(kept, bisect_left(self._epochs, epoch))
        self._epochs[kept:] = [epoch]
        self._starts[kept:] = [start_offset]
        return True

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch in which the record at `offset` was written, or None if unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Answer OffsetsForLeaderEpoch: the largest known epoch up to `epoch`, and where it ended.

        The latest one ends with the log. An epoch before all that are known comes back as it is,
        with the start of the first: nothing of it is here. One that is still to come is undefined.
        """
        index = bisect_right(self._epochs, epoch)
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_END
        if index == len(self._epochs):
            return EpochEnd(epoch, log_end_offset) if epoch == self._epochs[-1] else UNDEFINED_END
        return EpochEnd(self._epochs[index - 1] if index > 0 else epoch, self._starts[index])

    def last_epoch(self, log_end_offset: int) -> int:
        """Return the epoch of the last record of a log with that end, -1 if there is none.

        Not always the latest: a leader begins its epoch without a record.
        """
        epoch = self.epoch_for_offset(log_end_offset - 1)
        return UNDEFINED_EPOCH if epoch is None else epoch

    def truncation_offset(self, leaders: EpochEnd, log_end_offset: int) -> int:
        """Return where a log must be cut that diverges from its leader's.

        `leaders` is the leader's largest epoch up to this log's last one, and where it ended. If
        that epoch is here too, both logs are the same up to the smaller end (KIP-101). If it is
        not, nothing of the later epochs here is the leader's: they go, and the leader is asked
        again with what is left (KIP-279, KAFKA-6361).
        """
        if leaders.end_offset == UNDEFINED_OFFSET:
            return log_end_offset
        own = self.end_offset_for(leaders.epoch, log_end_offset)
        if own.end_offset == UNDEFINED_OFFSET:
            return min(leaders.end_offset, log_end_offset)
        if own.epoch != leaders.epoch:
            return min(own.end_offset, log_end_offset)
        return min(own.end_offset, leaders.end_offset, log_end_offset)

    def previous_epoch(self, epoch: int) -> int | None:
        """Return the largest known epoch below `epoch`."""
        index = bisect_left(self._epochs, epoch) - 1
        return self._epochs[index] if index >= 0 else None

    def next_epoch(self, epoch: int) -> int | None:
        """Return the smallest known epoch above `epoch`."""
        index = bisect_right(self._epochs, epoch)
        return self._epochs[index] if index < len(self._epochs) else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget the epochs that begin at `end_offset` or beyond: the log ends there now."""
        kept = bisect_left(self._starts, end_offset)
        if kept == len(self._starts):
            return False
        del self._epochs[kept:], self._starts[kept:]
        return True

    def clear(self) -> bool:
        """Forget every epoch: the log has no record of any of them."""
        had_any = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        return had_any

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget the epochs that ended before `start_offset`: the log begins there now.

        The epoch that the log begins in stays known, as beginning there.
        """
        first = bisect_right(self._starts, start_offset) - 1
        if first < 0 or (first == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:first], self._starts[:first]
        self._starts[0] = start_offset
        return True
