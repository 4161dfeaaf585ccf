"""Producers and transactions of a follower: from the leader's bytes it knows what the leader knows.

Else a new leader would take a retry for new records, or read_committed consumers would see records
of transactions that are open or were aborted.
"""

from random import Random

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.log.cutting import truncate
from headrace.log.log import Log
from headrace.log.producers import ProducerState
from headrace.log.settings import LogSettings
from headrace.records.control import build_end_transaction_marker
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import NOW_MS, append, batch_of, end_transaction, open_simulated

SETTINGS = LogSettings(segment_bytes=2000, index_interval_bytes=200)


def replicate(leader: Log, follower: Log, bytes_max: int = 1_000_000) -> None:
    """Copy everything from one log to the other, then the high watermark."""
    while follower.end_offset < leader.end_offset:
        chunk = leader.read(follower.end_offset, bytes_max, up_to=leader.end_offset, may_block=True)
        assert chunk
        follower.append_replicated(memoryview(bytearray(chunk)))
    follower.advance_high_watermark(min(leader.high_watermark, follower.end_offset))


def known(log: Log) -> tuple[object, ...]:
    """Return all that a log knows of its producers."""
    states: dict[int, ProducerState] = {each.producer_id: each for each in log.producers}
    producers = {
        producer_id: (
            each.epoch,
            each.coordinator_epoch,
            each.last_timestamp,
            each.transaction_first_offset,
            [*each.batches],
        )
        for producer_id, each in states.items()
    }
    return (
        producers,
        log.producers.first_unstable_offset,
        log.producers.first_open_offset,
        log.last_stable_offset,
        log.aborted_transactions(log.start_offset, log.end_offset),
    )


class Clients:
    """Producers that write to a log: idempotent ones, and some with transactions."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}

    def act(self, log: Log, leader_epoch: int = 0) -> None:
        producer_id = self.random.randrange(6)
        epoch = self.epochs.setdefault(producer_id, 0)
        is_transactional = producer_id >= 3
        if is_transactional and self.random.random() < 0.4:
            self.epochs[producer_id], self.sequences[producer_id] = epoch + 1, 0
            marker = build_end_transaction_marker(
                NOW_MS,
                is_commit=self.random.random() < 0.5,
                producer_id=producer_id,
                producer_epoch=epoch + 1,
                coordinator_epoch=0,
            )
            log.append_own(memoryview(marker), leader_epoch=leader_epoch, transaction_version=2)
            return
        count = self.random.randint(1, 4)
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        append(
            log,
            *[b"v" * self.random.randint(1, 200)] * count,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )


@pytest.mark.parametrize("seed", range(20))
def test_a_follower_knows_the_producers_that_the_leader_knows(seed: int) -> None:
    leader = open_simulated(SimulatedDisk(1), SETTINGS)
    follower = open_simulated(SimulatedDisk(2), SETTINGS)
    clients = Clients(seed)
    for _ in range(200):
        clients.act(leader)
        if clients.random.random() < 0.3:
            reached = clients.random.randint(leader.high_watermark, leader.end_offset)
            leader.advance_high_watermark(reached)
            replicate(leader, follower, clients.random.choice((100, 1000, 10_000)))
            assert known(follower) == known(leader)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_truncated_is_forgotten_and_the_new_leaders_is_known(seed: int) -> None:
    """A former leader has records that nobody else has; those of the new one replace them."""
    former, leader = (open_simulated(SimulatedDisk(number), SETTINGS) for number in (1, 2))
    clients = Clients(seed)
    for _ in range(60):
        clients.act(former)
    former.advance_high_watermark(former.end_offset)
    replicate(former, leader)
    common = former.end_offset
    for _ in range(20):
        clients.act(former)  # never replicated
    others = Clients(seed + 100)
    others.epochs = {each.producer_id: each.epoch + 1 for each in leader.producers}
    for _ in range(60):
        others.act(leader, leader_epoch=1)
    truncate(former, common)
    assert former.end_offset == common
    replicate(leader, former)
    former.advance_high_watermark(former.end_offset)
    leader.advance_high_watermark(leader.end_offset)
    assert known(former) == known(leader)


def new_leader() -> tuple[Log, Log]:
    leader, follower = (open_simulated(SimulatedDisk(number), SETTINGS) for number in (1, 2))
    return leader, follower


def test_a_new_leader_recognizes_a_retry() -> None:
    leader, follower = new_leader()
    fields = {"producer_id": 7, "producer_epoch": 0}
    first = append(leader, b"a", b"b", base_sequence=0, **fields)
    replicate(leader, follower)
    again = append(follower, b"a", b"b", leader_epoch=1, base_sequence=0, **fields)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    with pytest.raises(KafkaError) as refused:
        append(follower, b"d", leader_epoch=1, base_sequence=3, **fields)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not append(follower, b"c", leader_epoch=1, base_sequence=2, **fields).is_duplicate


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_ended_by_a_marker_to_the_new_leader(is_commit: bool) -> None:
    leader, follower = new_leader()
    append(leader, b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(leader, b"x")
    replicate(leader, follower)
    follower.advance_high_watermark(follower.end_offset)
    assert follower.last_stable_offset == 0
    end_transaction(follower, 7, is_commit=is_commit, producer_epoch=1, coordinator_epoch=3)
    assert follower.last_stable_offset == 0  # as long as the marker is not committed
    follower.advance_high_watermark(follower.end_offset)
    assert follower.last_stable_offset == follower.end_offset
    assert len(follower.aborted_transactions(0, follower.end_offset)) == (not is_commit)


def test_a_marker_that_was_replicated_may_come_again() -> None:
    """KAFKA-19999: the coordinator did not hear that it was written, and the leader moved."""
    leader, follower = new_leader()
    append(leader, b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(leader, 7, is_commit=True, producer_epoch=1, coordinator_epoch=3)
    replicate(leader, follower)
    before = known(follower)
    for coordinator_epoch in (3, 4):
        marker = build_end_transaction_marker(
            NOW_MS,
            is_commit=True,
            producer_id=7,
            producer_epoch=1,
            coordinator_epoch=coordinator_epoch,
        )
        follower.append_own(memoryview(marker), leader_epoch=1, transaction_version=2)
    assert known(follower)[1:3] == before[1:3]
    assert known(follower)[4] == before[4]
    with pytest.raises(KafkaError) as refused:
        end_transaction(follower, 7, is_commit=True, producer_epoch=1, coordinator_epoch=3)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    with pytest.raises(KafkaError) as refused:
        follower.append(
            batch_of(
                b"late",
                producer_id=7,
                producer_epoch=0,
                base_sequence=1,
                is_transactional=True,
            ),
            leader_epoch=1,
            now_ms=NOW_MS,
        )
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
