"""What a partition knows of its producers (KIP-98): the idempotent dedup window, open transactions.

    duplicate = producers.check(header, Origin.CLIENT)      # before the write; changes nothing
    producers.apply(header)                                 # after it, and when a log is replayed

A batch without a producer id (-1) is not to be brought here. Nothing here reads a clock or a file;
`producer_snapshots` has the file form. Whether a transaction's coordinator knows of a partition
(the verification of KIP-890) is not asked here: that belongs to the transaction coordinator.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from headrace.config import INT32_MAX
from headrace.errors import ErrorCode, KafkaError
from headrace.records.aborted import AbortedTransaction
from headrace.records.builder import NO_PRODUCER_EPOCH, NO_SEQUENCE
from headrace.records.control import ControlRecord, ControlType, coordinator_epoch
from headrace.records.header import BatchHeader

BATCHES_KEPT: Final = 5
"""The most batches that a producer has in flight, so that every retry can be recognized."""
NO_COORDINATOR_EPOCH: Final = -1
EXPIRED_AT_ONCE_MAX: Final = 5_000
"""How many producers are checked in one turn of the loop."""
BUMPING_TRANSACTIONS: Final = 2
"""The transaction version (KIP-890) from which on each transaction has its own epoch."""


class Origin(Enum):
    """The origin of a batch, which determines the checks."""

    CLIENT = "client"
    """Everything: a producer that may repeat, lose or overtake itself."""
    COORDINATOR = "coordinator"
    """The epoch; group coordinators write offsets in transactions, without sequences."""
    REPLICATION = "replication"
    """Next to nothing: the leader checked, and its log is right."""


class RecordedBatch(Struct, frozen=True, gc=False):
    """A batch in the log, as a producer numbered it and as the log did."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerState(Struct):
    """What is known of one producer."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """The epoch of the coordinator that wrote the last marker."""
    last_timestamp: int = -1
    transaction_first_offset: int | None = None
    """Where the open transaction begins; None if there is none."""
    batches: list[RecordedBatch] = []
    """The last ones of this epoch, oldest first, `BATCHES_KEPT` at most."""
    captures: int = 0
    """How many captures there were when this was made: one of a later capture is shared with it."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> RecordedBatch | None:
        """Return the recorded batch that this one repeats, or None."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = last_sequence_of(header)
        for batch in self.batches:
            if (
                batch.last_sequence == last_sequence
                and batch.offset_delta == header.last_offset_delta
            ):
                return batch
        return None


class ProducerStates:
    """The producers of one partition and their transactions that are not stable yet.

    A transaction is unstable from its first offset on until its marker is below the high
    watermark: a new leader may not have the marker, and readers must not have seen past it.
    """

    __slots__ = ("_captures", "_ended", "_states", "_unstable")

    def __init__(self) -> None:
        self._captures = 0
        self._states: dict[int, ProducerState] = {}
        # First offset to marker's offset, or None while open; in order of the first offset, as
        # transactions begin at the end of the log.
        self._unstable: dict[int, int | None] = {}
        # Marker's offset to first offset of those that ended; in order of the marker.
        self._ended: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest unstable transaction begins, perhaps below the log's start.

        The last stable offset is the high watermark, or this one if it is smaller.
        """
        return next(iter(self._unstable), None)

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest undecided transaction."""
        return next((first for first, end in self._unstable.items() if end is None), None)

    def check(self, header: BatchHeader, origin: Origin) -> RecordedBatch | None:
        """None if a batch of records is to be written, else the one in the log that it repeats.

        KafkaError if it must not be written: INVALID_PRODUCER_EPOCH from a producer that another
        has replaced, OUT_OF_ORDER_SEQUENCE_NUMBER if one before it is missing or it is too old to
        be known, INVALID_TXN_STATE if it is not in the transaction that its producer has open.

        A producer that is not known may start with any sequence: its state may have expired.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        if origin is Origin.CLIENT and (duplicate := state.duplicate_of(header)) is not None:
            return duplicate
        if origin is not Origin.REPLICATION:
            _check_epoch(state, header)
        if origin is Origin.CLIENT:
            _check_sequence(state, header)
        if state.transaction_first_offset is not None and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open since offset "
                f"{state.transaction_first_offset}; it must end before records outside of one",
            )
        return None

    def check_marker(
        self, header: BatchHeader, control: ControlRecord, transaction_version: int
    ) -> None:
        """KafkaError if a leader must not write the end of a transaction.

        INVALID_PRODUCER_EPOCH for one of a producer that another has replaced, or that would end
        a later transaction than it was meant for; TRANSACTION_COORDINATOR_FENCED for one of a
        coordinator that another has replaced.

        From version 2 on a marker has a higher epoch than the records before it. One that comes
        again finds no open transaction and is written once more, which changes nothing.
        """
        state = self._states.get(header.producer_id)
        if state is None:
            return
        _check_epoch(state, header)
        if (
            transaction_version >= BUMPING_TRANSACTIONS
            and header.producer_epoch == state.epoch
            and state.transaction_first_offset is not None
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the marker of producer {header.producer_id} has epoch {header.producer_epoch}, "
                "as has the open transaction; one that ends it has a higher epoch",
            )
        epoch = coordinator_epoch(control)
        if epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker of producer {header.producer_id} is of coordinator epoch {epoch}; "
                f"epoch {state.coordinator_epoch} has taken over",
            )

    def apply(self, header: BatchHeader) -> None:
        """Apply a batch of records that is in the log at its offsets."""
        state = self._state(header)
        batches = state.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(
            RecordedBatch(
                last_sequence_of(header),
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        state.last_timestamp = header.max_timestamp
        if header.is_transactional and state.transaction_first_offset is None:
            state.transaction_first_offset = header.base_offset
            self._unstable[header.base_offset] = None

    def apply_marker(
        self, header: BatchHeader, control: ControlRecord
    ) -> AbortedTransaction | None:
        """Apply a marker in the log; return what it aborted, for the transaction index.

        Do not pass a control batch that compaction has emptied.
        """
        state = self._state(header)
        state.coordinator_epoch = coordinator_epoch(control)
        state.last_timestamp = header.max_timestamp
        first_offset = state.transaction_first_offset
        if first_offset is None:
            return None
        state.transaction_first_offset = None
        marker_offset = header.last_offset
        self._unstable[first_offset] = marker_offset
        self._ended[marker_offset] = first_offset
        if control.control_type != ControlType.ABORT:
            return None
        open_offset = self.first_open_offset
        return AbortedTransaction(
            header.producer_id,
            first_offset,
            marker_offset,
            marker_offset + 1 if open_offset is None else open_offset,
        )

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark are stable."""
        while self._ended:
            marker_offset = next(iter(self._ended))
            if marker_offset >= high_watermark:
                return
            del self._unstable[self._ended.pop(marker_offset)]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget the producers that were idle for so long; return their number.

        Idle is counted from the timestamp of a producer's last batch. One that has a transaction
        open is kept.
        """
        return sum(self.expire_in_parts(now_ms, expiration_ms))

    def expire_in_parts(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Do as `expire` does, some producers at a time, and yield the number after each part.

        Between two parts anything may happen to the producers.
        """
        producer_ids = list(self._states)
        for begin in range(0, len(producer_ids), EXPIRED_AT_ONCE_MAX):
            count = 0
            for producer_id in producer_ids[begin : begin + EXPIRED_AT_ONCE_MAX]:
                state = self._states.get(producer_id)
                if (
                    state is not None
                    and state.transaction_first_offset is None
                    and now_ms - state.last_timestamp >= expiration_ms
                ):
                    del self._states[producer_id]
                    count += 1
            yield count

    def restore(self, states: Iterable[ProducerState]) -> None:
        """Start over with the states of a snapshot, or none.

        Afterwards drop expired producers, apply the batches after the snapshot and set the high
        watermark. Opening and truncating a log both do this: markers may be gone, and with them
        the ends of transactions. As in Kafka, a transaction that ended before the snapshot is
        stable.
        """
        self._states = {state.producer_id: state for state in states}
        self._ended = {}
        self._unstable = dict.fromkeys(
            sorted(
                state.transaction_first_offset
                for state in self
                if state.transaction_first_offset is not None
            )
        )

    def take_over(self, other: "ProducerStates") -> None:
        """Start over with what another one has, which is not used any more."""
        self._states, self._ended, self._unstable = other._states, other._ended, other._unstable

    def capture(self) -> list[ProducerState]:
        """Return the producers as they are now, whatever becomes of them; a thread may read it.

        It costs little: what is shared with a capture is copied before it changes, producer by
        producer.
        """
        self._captures += 1
        return list(self._states.values())

    def _state(self, header: BatchHeader) -> ProducerState:
        """Return the producer's state in the epoch of a batch; a new epoch restarts sequences."""
        state = self._states.get(header.producer_id)
        if state is None:
            state = ProducerState(header.producer_id, captures=self._captures)
            self._states[header.producer_id] = state
        elif state.captures != self._captures:
            state = replace(state, batches=state.batches.copy(), captures=self._captures)
            self._states[header.producer_id] = state
        if state.epoch != header.producer_epoch:
            state.epoch = header.producer_epoch
            state.batches.clear()
        return state


def last_sequence_of(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record, -1 if its records have none."""
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return sequence_after(header.base_sequence, header.last_offset_delta)


def sequence_after(sequence: int, count: int) -> int:
    """Go on by `count` from a sequence; after the largest int32 comes 0."""
    return (sequence + count) & INT32_MAX


def _check_epoch(state: ProducerState, header: BatchHeader) -> None:
    if header.producer_epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} has epoch {header.producer_epoch}; "
            f"one with epoch {state.epoch} has taken over",
        )


def _check_sequence(state: ProducerState, header: BatchHeader) -> None:
    """Check a sequence: a new epoch starts with 0, an old one continues without a gap."""
    if state.epoch == NO_PRODUCER_EPOCH:
        return
    expected = 0
    if header.producer_epoch == state.epoch and state.batches:
        expected = sequence_after(state.last_sequence, 1)
    if header.base_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}, epoch {header.producer_epoch}: "
            f"sequence {header.base_sequence} came where {expected} is next",
        )
