"""Idempotence and transactions of one partition. `tests/jvm/test_log_files.py` asks Kafka."""

from __future__ import annotations

import struct
import sys
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.log.producers import Origin, ProducerStates, RecordedBatch
from headrace.records.aborted import AbortedTransaction
from headrace.records.control import ControlRecord, ControlType
from headrace.records.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader

INT32_MAX = 2**31 - 1
NEW = "new"
DUPLICATE = "duplicate"
STALE = "INVALID_PRODUCER_EPOCH"
DISORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
OUTSIDE = "INVALID_TXN_STATE"
FENCED = "TRANSACTION_COORDINATOR_FENCED"


@dataclass(frozen=True)
class Step:
    """A batch or a marker on its way to a partition."""

    epoch: int
    sequence: int = -1
    count: int = 1
    attributes: int = 0
    producer_id: int = 1
    timestamp: int = 0
    origin: Origin = Origin.CLIENT
    control: ControlRecord | None = None
    transaction_version: int = 1

    def header(self, base_offset: int) -> BatchHeader:
        return BatchHeader(
            *(base_offset, 100, 0, 2, 0, self.attributes, self.count - 1),
            *(self.timestamp, self.timestamp, self.producer_id, self.epoch),
            *(self.sequence, self.count),
        )


def data(
    epoch: int, sequence: int, count: int = 1, *, producer_id: int = 1, timestamp: int = 0
) -> Step:
    return Step(epoch, sequence, count, producer_id=producer_id, timestamp=timestamp)


def in_transaction(
    epoch: int, sequence: int, count: int = 1, *, producer_id: int = 1, timestamp: int = 0
) -> Step:
    batch = data(epoch, sequence, count, producer_id=producer_id, timestamp=timestamp)
    return replace(batch, attributes=TRANSACTIONAL_BIT)


def offsets_commit(epoch: int, count: int = 1) -> Step:
    return replace(in_transaction(epoch, -1, count), origin=Origin.COORDINATOR)


def copied(step: Step) -> Step:
    return replace(step, origin=Origin.REPLICATION)


def end(control_type: ControlType, epoch: int, coordinator_epoch: int, version: int) -> Step:
    return Step(
        epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        origin=Origin.COORDINATOR,
        control=ControlRecord(control_type, struct.pack(">hi", 0, coordinator_epoch)),
        transaction_version=version,
    )


def commit(epoch: int, coordinator_epoch: int = 0, *, producer_id: int = 1) -> Step:
    marker = end(ControlType.COMMIT, epoch, coordinator_epoch, 1)
    return replace(marker, producer_id=producer_id)


def abort(
    epoch: int, coordinator_epoch: int = 0, *, version: int = 1, producer_id: int = 1
) -> Step:
    marker = end(ControlType.ABORT, epoch, coordinator_epoch, version)
    return replace(marker, producer_id=producer_id)


class Partition:
    """Producers, and the end of the log that they write to."""

    def __init__(self, *steps: Step) -> None:
        self.producers = ProducerStates()
        self.end_offset = 0
        self.aborted: list[AbortedTransaction] = []
        for step in steps:
            self.take(step)

    def take(self, step: Step) -> str:
        """Check, and if it is new, write; give the verdict."""
        header = step.header(self.end_offset)
        try:
            if step.control is not None:
                if step.origin is not Origin.REPLICATION:
                    self.producers.check_marker(header, step.control, step.transaction_version)
            elif self.producers.check(header, step.origin) is not None:
                return DUPLICATE
        except KafkaError as error:
            return error.code.name
        self.end_offset = header.next_offset
        if step.control is None:
            self.producers.apply(header)
        elif aborted := self.producers.apply_marker(header, step.control):
            self.aborted.append(aborted)
        return NEW


CASES = {
    "an unknown producer begins with any sequence": ([], data(0, 7), NEW),
    "the next sequence is new": ([data(0, 0, 3)], data(0, 3), NEW),
    "a gap is out of order": ([data(0, 0, 3)], data(0, 4), DISORDER),
    "the last batch again is a duplicate": ([data(0, 0, 3)], data(0, 0, 3), DUPLICATE),
    "the fifth last batch again is a duplicate": (
        [data(0, sequence) for sequence in range(6)],
        data(0, 1),
        DUPLICATE,
    ),
    "the sixth last batch again is out of order": (
        [data(0, sequence) for sequence in range(6)],
        data(0, 0),
        DISORDER,
    ),
    "a part of a batch is out of order": ([data(0, 0, 3)], data(0, 0, 2), DISORDER),
    "sequences wrap between batches": ([data(0, INT32_MAX)], data(0, 0), NEW),
    "sequences wrap within a batch": ([data(0, INT32_MAX - 1, 4)], data(0, 2), NEW),
    "a wrapped batch again is a duplicate": (
        [data(0, INT32_MAX - 1, 4)],
        data(0, INT32_MAX - 1, 4),
        DUPLICATE,
    ),
    "after the largest sequence comes 0, not 1": ([data(0, INT32_MAX)], data(0, 1), DISORDER),
    "a new epoch begins with 0": ([data(0, 0)], data(1, 0), NEW),
    "a new epoch does not go on": ([data(0, 0)], data(1, 1), DISORDER),
    "a new epoch forgets what the old one sent": ([data(0, 5), data(1, 0)], data(1, 5), DISORDER),
    "without an epoch, sequences are not checked": ([data(-1, 0)], data(-1, 7), NEW),
    "an old epoch is refused": ([data(1, 0)], data(0, 1), STALE),
    "a duplicate of an old epoch is refused": ([data(0, 0), data(1, 0)], data(0, 0), STALE),
    "a producer known by a marker only begins with 0": ([commit(0)], data(0, 5), DISORDER),
    "a marker of a new epoch resets sequences": (
        [in_transaction(0, 0, 2), abort(1)],
        data(1, 2),
        DISORDER,
    ),
    "sequences go on after a marker": ([in_transaction(0, 0, 2), abort(0)], data(0, 2), NEW),
    "records outside of the open transaction are refused": (
        [in_transaction(0, 0)],
        data(0, 1),
        OUTSIDE,
    ),
    "so are replicated ones": ([in_transaction(0, 0)], copied(data(0, 1)), OUTSIDE),
    "a new epoch may go on with the transaction": (
        [in_transaction(0, 0)],
        in_transaction(1, 0),
        NEW,
    ),
    "coordinators write without sequences": ([offsets_commit(0, 3)], offsets_commit(0, 3), NEW),
    "coordinators must have the epoch": ([data(1, 0)], offsets_commit(0), STALE),
    "a replica takes what its leader took": ([data(5, 0)], copied(data(3, 9)), NEW),
    "a replica takes markers as they come": ([commit(5, 7)], copied(commit(3, 2)), NEW),
    "an unknown producer's marker is written": ([], commit(0), NEW),
    "a marker of an old epoch is refused": ([in_transaction(1, 0)], abort(0), STALE),
    "a marker of an old coordinator is fenced": (
        [in_transaction(1, 0), abort(1, 5)],
        abort(1, 4),
        FENCED,
    ),
    "of an old epoch and an old coordinator, the epoch counts": (
        [abort(1, 5)],
        abort(0, 4),
        STALE,
    ),
    "a marker again is written again": (
        [in_transaction(1, 0), abort(1, 5)],
        abort(1, 5),
        NEW,
    ),
    "version 2 ends a transaction with a new epoch": (
        [in_transaction(1, 0)],
        abort(2, version=2),
        NEW,
    ),
    "version 2 does not end a transaction of the same epoch": (
        [in_transaction(1, 0)],
        abort(1, version=2),
        STALE,
    ),
    "a version 2 marker again is written again": (
        [in_transaction(1, 0), abort(2, version=2)],
        abort(2, version=2),
        NEW,
    ),
    "a version 2 marker again does not end the next transaction": (
        [in_transaction(1, 0), abort(2, version=2), in_transaction(2, 0)],
        abort(2, version=2),
        STALE,
    ),
}


@pytest.mark.parametrize(("before", "step", "verdict"), CASES.values(), ids=CASES)
def test_verdict_where(before: list[Step], step: Step, verdict: str) -> None:
    assert Partition(*before).take(step) == verdict


def test_check_changes_nothing() -> None:
    partition = Partition(data(0, 0))
    header = data(0, 1).header(1)
    assert partition.producers.check(header, Origin.CLIENT) is None
    assert partition.producers.check(header, Origin.CLIENT) is None
    assert [state.last_sequence for state in partition.producers] == [0]


def test_duplicate_is_answered_with_the_place_of_the_first() -> None:
    partition = Partition(data(0, 0, 3, timestamp=5), data(0, 3, timestamp=6))
    found = partition.producers.check(data(0, 0, 3, timestamp=9).header(4), Origin.CLIENT)
    assert found == RecordedBatch(last_sequence=2, last_offset=2, offset_delta=2, timestamp=5)
    assert found.base_offset == 0


def test_refusal_names_the_producer_and_what_is_next() -> None:
    partition = Partition(data(0, 0, 3, producer_id=77))
    with pytest.raises(
        KafkaError, match=r"producer 77, epoch 0: sequence 9 .* 3 is next"
    ) as caught:
        partition.producers.check(data(0, 9, producer_id=77).header(3), Origin.CLIENT)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    partition = Partition(in_transaction(0, 0, 2))
    producers = partition.producers
    assert producers.first_unstable_offset == producers.first_open_offset == 0
    partition.take(commit(0))
    assert producers.first_open_offset is None
    producers.on_high_watermark_updated(2)
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark_updated(3)
    assert producers.first_unstable_offset is None


def test_first_unstable_is_the_oldest_of_all_producers() -> None:
    partition = Partition(
        in_transaction(0, 0, 2),  # 0 and 1
        in_transaction(0, 0, producer_id=2),  # 2
        commit(0, producer_id=2),  # 3
        in_transaction(0, 1, producer_id=2),  # 4
    )
    producers = partition.producers
    producers.on_high_watermark_updated(5)
    assert producers.first_unstable_offset == 0
    partition.take(commit(0))  # 5
    assert (producers.first_unstable_offset, producers.first_open_offset) == (0, 4)
    producers.on_high_watermark_updated(6)
    assert producers.first_unstable_offset == 4


def test_abort_gives_the_range_and_how_far_the_log_was_stable() -> None:
    partition = Partition(
        in_transaction(0, 0, 2),  # 0 and 1
        in_transaction(0, 0, producer_id=2),  # 2
        abort(0),  # 3
        abort(0, producer_id=2),  # 4
    )
    assert partition.aborted == [AbortedTransaction(1, 0, 3, 2), AbortedTransaction(2, 2, 4, 5)]


def test_commit_and_an_abort_of_nothing_leave_no_entry() -> None:
    assert Partition(in_transaction(0, 0), commit(0), abort(0)).aborted == []


def test_what_was_captured_stays_as_it_was() -> None:
    """A thread writes it while the partition goes on."""
    steps = [
        data(0, 0),
        in_transaction(0, 0, producer_id=2),
        replace(commit(0), producer_id=2),
        data(1, 0),
        data(0, 0, producer_id=3),
    ]
    partition = Partition()
    captured, expected = [], []
    for step in [*steps, *(data(1, 1 + number) for number in range(7))]:
        assert partition.take(step) == NEW
        captured.append(partition.producers.capture())
        expected.append(deepcopy(captured[-1]))
    partition.producers.expire(now_ms=10**6, expiration_ms=1)
    assert captured == expected
    assert len(captured[-1]) == 3


def test_idle_producers_expire_unless_in_a_transaction() -> None:
    partition = Partition(
        data(0, 0, timestamp=100),
        data(0, 0, timestamp=101, producer_id=2),
        in_transaction(0, 0, timestamp=1, producer_id=3),
    )
    assert partition.producers.expire(now_ms=1099, expiration_ms=1000) == 0
    assert partition.producers.expire(now_ms=1100, expiration_ms=1000) == 1
    assert {state.producer_id for state in partition.producers} == {2, 3}
    assert partition.take(data(0, 55)) == NEW


def test_restored_states_have_their_transactions_open() -> None:
    first = Partition(
        in_transaction(0, 0),
        in_transaction(0, 0, producer_id=2),
        commit(0),
        in_transaction(0, 1),
    )
    second = ProducerStates()
    second.restore(first.producers)
    assert second.first_unstable_offset == 1
    assert len(second) == 2
    second.restore([])
    assert second.first_unstable_offset is None


def test_states_of_an_idle_partition_are_small() -> None:
    producers = ProducerStates()
    size = sys.getsizeof(producers)
    size += sum(sys.getsizeof(getattr(producers, name)) for name in ProducerStates.__slots__)
    assert size < 400


STEPS = st.builds(
    lambda epoch, sequence, count, producer_id: data(
        epoch, sequence & INT32_MAX, count, producer_id=producer_id
    ),
    epoch=st.integers(0, 2),
    sequence=st.integers(-3, 8),
    count=st.integers(1, 3),
    producer_id=st.integers(1, 2),
)


@given(st.lists(STEPS, max_size=40))
def test_records_reach_the_log_once_and_in_order(steps: list[Step]) -> None:
    """Against a model that keeps every accepted batch of a producer."""
    partition = Partition()
    accepted: dict[int, list[Step]] = {}
    for step in steps:
        history = accepted.setdefault(step.producer_id, [])
        verdict = partition.take(step)
        assert verdict == model_verdict(history, step)
        if verdict == NEW:
            history.append(step)


def model_verdict(history: list[Step], step: Step) -> str:
    if not history:
        return NEW
    epoch = history[-1].epoch
    if step.epoch < epoch:
        return STALE
    if step.epoch > epoch:
        return NEW if step.sequence == 0 else DISORDER
    recent = [old for old in history if old.epoch == epoch][-5:]
    if any((old.sequence, old.count) == (step.sequence, step.count) for old in recent):
        return DUPLICATE
    return NEW if step.sequence == (recent[-1].sequence + recent[-1].count) % 2**31 else DISORDER
