"""Appending what a mirror copied from another cluster, on the leader: batches at given offsets.

    copying = Copying(partition, front, batches)
    while not copying.is_done:
        copying.append_some(now_ms)                         # a turn of the loop each

The log decides what is new: batches that it has are skipped, and nothing is appended behind
records that it lacks. So a request may be sent again, and two mirrors of the same topic only do
the work twice. Followers copy the batches from here like any others.
"""

from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.log.errors import ReadOnlyLog
from headrace.log.replicating import PART_BATCHES_MAX, PART_BYTES_MAX, append_part
from headrace.log.truncating import Cut, begin_restart
from headrace.records.errors import CorruptBatch
from headrace.records.header import HEADER_BYTES, assign_offset, read_header
from headrace.replication.partition import Partition
from headrace.wire.mirror_records import Front

OFFSET_MAX: Final = 2**62
"""The largest offset of a mirror's record; a log that ended at the largest integer is stuck."""


def check_front(partition: Partition, front: Front) -> None:
    """Raise KafkaError unless the partition is the mirror that the sender takes it for."""
    source = partition.log.settings.mirror_source
    if source is None:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {partition.topic} is not a mirror, or not any more: only its producers write "
            "to it",
        )
    if source != front.source:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"topic {partition.topic} is a mirror of {source}, not of {front.source}: delete it "
            "to mirror another topic",
        )
    if not partition.has_enough_replicas:
        raise partition.too_few_replicas()


def begin_elsewhere(partition: Partition, front: Front) -> Cut | None:
    """Start a log without records where the source's starts; None if it should not.

    The caller has the cut finished before it appends. Raise ReadOnlyLog if the disk fails.
    """
    log = partition.log
    if front.start_offset <= log.end_offset or log.start_offset != log.end_offset:
        return None
    _check_offset(partition, front.start_offset)
    return begin_restart(log, front.start_offset, start_offset=front.start_offset)


class Copying:
    """Batches for one partition, appended a part in each turn of the loop."""

    __slots__ = ("_batches", "_partition", "_position", "has_markers")

    def __init__(self, partition: Partition, front: Front, batches: memoryview) -> None:
        """Raise KafkaError if records before these batches are missing."""
        log = partition.log
        expected_end = max(front.expected_end, front.start_offset)
        if expected_end > log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{partition.name} ends at {log.end_offset}, and the mirror has records from "
                f"{expected_end} on: those between are missing",
            )
        self._partition = partition
        self._batches = batches
        self._position = 0
        self.has_markers = False
        """Whether a transaction ended, which readers of committed records wait for."""

    @property
    def is_done(self) -> bool:
        return self._position == len(self._batches)

    def append_some(self, now_ms: int) -> None:
        """Append batches that the log lacks, for one turn of the loop.

        Raise KafkaError if a batch is refused or the disk fails; those before it are appended.
        """
        part = self._next_part()
        log, partition = self._partition.log, self._partition
        before = log.end_offset
        try:
            if part:
                append_part(log, part, 0, now_ms=now_ms)
        except ReadOnlyLog:
            partition.give_up()
            raise
        finally:
            if log.end_offset > before:
                partition.counters.bytes_in += len(part)
                partition.counters.messages_in += log.end_offset - before
                partition.on_appended(len(part))

    def _next_part(self) -> memoryview:
        """Return the next batches, without those that the log has; they get its leader epoch."""
        partition, batches = self._partition, self._batches
        end_offset, leader_epoch = partition.log.end_offset, partition.leader_epoch
        begin = position = self._position
        for _ in range(PART_BATCHES_MAX):
            if len(batches) - position < HEADER_BYTES:
                break
            header = read_header(batches, position)
            following = position + header.size_bytes
            if following > len(batches) or (
                following - begin > PART_BYTES_MAX and position > begin
            ):
                break
            if header.last_offset < end_offset:
                begin = position = following  # another request was faster, or this one came before
                continue
            if header.base_offset < end_offset:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"{partition.name} ends at {end_offset}, inside of the batch with offsets "
                    f"{header.base_offset} to {header.last_offset}: it has other records than the "
                    "source",
                )
            _check_offset(partition, header.last_offset)
            self.has_markers |= header.is_control
            assign_offset(batches[position:following], header.base_offset, leader_epoch)
            position = following
        if position == self._position:
            raise CorruptBatch(f"{partition.name}: the last batch is cut off")
        self._position = position
        return batches[begin:position]


def _check_offset(partition: Partition, offset: int) -> None:
    """Raise KafkaError for an offset behind which a log could not go on."""
    if offset > OFFSET_MAX:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{partition.name}: offset {offset} is above {OFFSET_MAX}, the largest of a mirror",
        )
