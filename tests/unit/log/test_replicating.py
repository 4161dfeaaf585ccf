"""Batches of a leader: many per write, checked, applied as if they had come one by one."""

import errno
import random

import pytest

from headrace.log import replicating
from headrace.log.errors import LaterEpoch, ReadOnlyLog
from headrace.log.log import Log
from headrace.log.replicating import append_part
from headrace.log.settings import LogSettings
from headrace.records.builder import BatchBuilder
from headrace.records.errors import CorruptBatch, UnsupportedBatch
from headrace.records.header import assign_offset, read_headers
from headrace.testing.disk import SimulatedDisk
from tests.unit.log.logs import (
    FOLDER,
    NOW_MS,
    append,
    batch_of,
    end_transaction,
    open_simulated,
    records_of,
    values_of,
)

SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=150)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(seed=3)


def chunk_of(log: Log) -> memoryview:
    """Everything that a log has, segment after segment."""
    offset, parts = log.start_offset, []
    while offset < log.end_offset:
        part = log.read(offset, 1_000_000, up_to=log.end_offset, may_block=True)
        assert part
        parts.append(bytes(part))
        offset = [header.next_offset for _, header in read_headers(part)][-1]
    return memoryview(b"".join(parts))


def write_history(log: Log, seed: int) -> None:
    """Epochs, producers, transactions of both ends, timestamps that go forth and back."""
    luck = random.Random(seed)
    sequences = [0, 0, 0]
    for number in range(60):
        epoch = number // 17
        timestamp = NOW_MS + luck.randrange(-5000, 5000)
        values = [b"v" * luck.randrange(60) for _ in range(luck.randrange(1, 4))]
        which = luck.randrange(6)
        if which < 3:
            append(
                log,
                *values,
                leader_epoch=epoch,
                timestamp=timestamp,
                producer_id=which,
                producer_epoch=0,
                base_sequence=sequences[which],
                is_transactional=1,
            )
            sequences[which] += len(values)
            if luck.random() < 0.4:
                end_transaction(log, which, is_commit=luck.random() < 0.5)
        else:
            append(log, *values, leader_epoch=epoch, timestamp=timestamp)


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    return {name: disk.read(f"{FOLDER}/{name}") for name in disk.list(FOLDER)}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("settings", [SMALL, LogSettings(segment_ms=3000), LogSettings()])
def test_a_chunk_leaves_the_files_that_its_batches_leave_one_by_one(
    seed: int, settings: LogSettings
) -> None:
    leader = open_simulated(SimulatedDisk(seed), settings)
    write_history(leader, seed)
    chunk = chunk_of(leader)
    disk, plain_disk = SimulatedDisk(seed), SimulatedDisk(seed)
    follower, plain = open_simulated(disk, settings), open_simulated(plain_disk, settings)
    follower.append_replicated(chunk)
    for position, header in read_headers(chunk):
        plain.append_replicated(chunk[position : position + header.size_bytes])
    assert chunk_of(follower) == chunk
    assert follower.epochs.entries() == leader.epochs.entries()
    assert follower.aborted_transactions(0, leader.end_offset) == leader.aborted_transactions(
        0, leader.end_offset
    )
    follower.close()
    plain.close()
    assert files_of(disk) == files_of(plain_disk)


def test_batches_of_one_segment_are_written_at_once(disk: SimulatedDisk) -> None:
    leader, follower = open_simulated(SimulatedDisk(2)), open_simulated(disk)
    for number in range(100):
        append(leader, b"%d" % number)
    before = disk.counts["append"]
    follower.append_replicated(chunk_of(leader))
    assert disk.counts["append"] == before + 1
    assert values_of(follower) == values_of(leader)


def test_a_batch_of_a_later_epoch_is_refused_and_what_comes_before_is_kept(
    disk: SimulatedDisk,
) -> None:
    """KAFKA-18723: the leader lost the partition while it sent the response."""
    leader, follower = open_simulated(SimulatedDisk(2)), open_simulated(disk)
    for epoch in (3, 4, 5):
        append(leader, b"%d" % epoch, leader_epoch=epoch)
    chunk = chunk_of(leader)
    with pytest.raises(LaterEpoch):
        follower.append_replicated(chunk, epoch_max=4)
    assert values_of(follower) == [b"3", b"4"]
    assert follower.epochs.latest_epoch == 4


def test_damage_within_a_chunk_ends_it_there(disk: SimulatedDisk) -> None:
    leader, follower = open_simulated(SimulatedDisk(2)), open_simulated(disk)
    for number in range(4):
        append(leader, b"%d" % number)
    damaged = bytearray(chunk_of(leader))
    third = [position for position, _ in read_headers(damaged)][2]
    damaged[third + 65] ^= 1
    with pytest.raises(CorruptBatch, match="CRC32C"):
        follower.append_replicated(memoryview(damaged))
    assert values_of(follower) == [b"0", b"1"]
    damaged[third + 65] ^= 1
    damaged[third + 16] = 1
    with pytest.raises(UnsupportedBatch):
        follower.append_replicated(memoryview(damaged)[third:])
    assert follower.end_offset == 2


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_a_length_that_no_batch_has_is_damage(disk: SimulatedDisk, length: int) -> None:
    batch = bytearray(batch_of(b"a"))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    follower = open_simulated(disk)
    with pytest.raises(CorruptBatch, match="batch length"):
        follower.append_replicated(memoryview(batch))
    assert follower.end_offset == 0


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(disk: SimulatedDisk) -> None:
    leader, follower = open_simulated(SimulatedDisk(2)), open_simulated(disk)
    append(leader, b"a")
    append(leader, b"b")
    chunk = chunk_of(leader)
    for missing in (1, 60, 70):
        follower.append_replicated(chunk[: len(chunk) - missing])
        assert follower.end_offset == 1
        chunk = chunk_of(leader)
        chunk = chunk[len(chunk) // 2 :]
    assert follower.append_replicated(chunk) == 2


def test_a_full_disk_changes_nothing_and_is_tried_again(disk: SimulatedDisk) -> None:
    leader, follower = open_simulated(SimulatedDisk(2), SMALL), open_simulated(disk, SMALL)
    write_history(leader, 1)
    chunk = chunk_of(leader)
    disk.fail("append", error=errno.ENOSPC, times=1)
    with pytest.raises(ReadOnlyLog):
        follower.append_replicated(chunk)
    assert follower.is_out_of_space
    end = follower.end_offset
    assert end < leader.end_offset
    rest = leader.read(end, 1_000_000, up_to=leader.end_offset)
    assert rest
    follower.append_replicated(rest)
    assert follower.end_offset > end
    while follower.end_offset < leader.end_offset:
        rest = leader.read(follower.end_offset, 1_000_000, up_to=leader.end_offset)
        assert rest
        follower.append_replicated(rest)
    assert records_of(follower) == records_of(leader)


def test_a_turn_of_the_loop_takes_a_bounded_part(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = open_simulated(SimulatedDisk(2)), open_simulated(disk)
    for number in range(10):
        append(leader, b"%d" % number)
    chunk = chunk_of(leader)
    monkeypatch.setattr(replicating, "PART_BATCHES_MAX", 4)
    ends, position = [], 0
    while position < len(chunk):
        position = append_part(follower, chunk, position)
        ends.append(follower.end_offset)
    assert ends == [4, 8, 10]
    monkeypatch.setattr(replicating, "PART_BYTES_MAX", 1)
    again = open_simulated(SimulatedDisk(4))
    position = append_part(again, chunk, 0)
    assert again.end_offset == 1
    assert append_part(again, chunk[: position + 10], position) == position


def test_offsets_that_the_leader_compacted_are_missing_here_too(disk: SimulatedDisk) -> None:
    """A log that was never compacted itself must not count the gap as damage after a crash."""
    first, second = batch_of(b"a"), batch_of(b"b")
    assign_offset(second, 7, 0)
    log = open_simulated(disk)
    log.append_replicated(memoryview(bytes(first) + bytes(second)))
    assert log.end_offset == 8
    assert log.was_compacted


def test_an_offset_too_far_for_a_segment_is_refused(disk: SimulatedDisk) -> None:
    batch = batch_of(b"a")
    assign_offset(batch, 2**31 + 5, 0)
    log = open_simulated(disk)
    with pytest.raises(CorruptBatch, match="too far"):
        log.append_replicated(batch)
    assert log.size_bytes == 0


def test_a_marker_of_an_unknown_kind_changes_no_producer(disk: SimulatedDisk) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"\0\0\0\x09", b"")
    log = open_simulated(disk)
    log.append_replicated(
        memoryview(builder.build(producer_id=1, producer_epoch=0, is_control=True))
    )
    assert log.producers.get(1) is None


def test_flush_ms_counts_from_the_first_append_since_the_last_sync(disk: SimulatedDisk) -> None:
    log = open_simulated(disk, LogSettings(flush_ms=1000))
    append_part(log, batch_of(b"a"), 0, now_ms=NOW_MS)
    assert not log.is_flush_due(NOW_MS + 999)
    assert log.is_flush_due(NOW_MS + 1000)
