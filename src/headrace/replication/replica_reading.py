"""Reading partitions for a follower's fetch: its position is checked and noted, then served.

A follower reads up to the end of the log. Whatever it says about itself is checked before anything
is noted: a fetch that is refused or diverges changes nothing (KAFKA-13141, KAFKA-13837, KIP-903).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace.errors import ErrorCode
from headrace.ids import ZERO_TOPIC_ID, TopicId, TopicName
from headrace.log.errors import LogError
from headrace.log.fetch import ColdRead
from headrace.loop.turns import BYTES_SHIFT, TURN_COST_MAX
from headrace.replication.fetch_rows import (
    EMPTY,
    UNKNOWN,
    failed_row,
    find_divergence,
    has_whole_batch,
    log_row,
    missing_row,
    moved_row,
)
from headrace.replication.fetch_sessions import Key
from headrace.replication.partition import Partition
from headrace.replication.replica_sessions import FollowedPartition, ReplicaSession
from headrace.replication.replicas import Replicas
from headrace.replication.throttles import Throttle
from headrace.wire.messages.fetch_request import FetchPartition
from headrace.wire.messages.fetch_response import PartitionData

REVISIT_MS: Final = 500
"""How often a follower is considered for ISRs that it is not in, if nothing else happens."""

Asked = tuple[Key, FetchPartition]


class ColdFollowed(NamedTuple):
    """A partition whose records a thread has to read."""

    followed: FollowedPartition
    partition: Partition
    bytes_max: int
    is_first: bool
    work: ColdRead


class ReplicaReader:
    """Reads for one request of a follower, and keeps what it read."""

    __slots__ = (
        "_given",
        "_is_full",
        "_remaining_bytes",
        "_replicas",
        "_revisited",
        "_session",
        "_throttle",
        "_version",
        "byte_count",
        "cold",
        "cost",
        "is_urgent",
        "rows",
        "throttled_bytes",
    )

    def __init__(
        self,
        replicas: Replicas,
        session: ReplicaSession,
        version: int,
        *,
        bytes_max: int,
        is_full: bool,
        throttle: Throttle,
    ) -> None:
        """`is_full` is for a response with a row of every partition, whether it has news or not."""
        self._replicas = replicas
        self._session = session
        self._version = version
        self._is_full = is_full
        self._throttle = throttle
        self._remaining_bytes = bytes_max
        self._revisited: Iterator[FollowedPartition] = iter(())
        if session.used_ms - session.revisited_ms >= REVISIT_MS:
            session.revisited_ms = session.used_ms
            self._revisited = iter(tuple(session.outside))
        self._given: list[FollowedPartition] = []
        self.rows: dict[Key, PartitionData] = {}
        self.cold: list[ColdFollowed] = []
        """The partitions that threads have yet to read."""
        self.byte_count = 0
        self.throttled_bytes = 0
        """How many of these are bytes of throttled partitions."""
        self.is_urgent = False
        """Whether there is news that does not wait: an error, a truncation, a moved start."""
        self.cost: int
        """The cost of the last turn, in units of `Turns`."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the response has all the bytes that it may have."""
        return self._remaining_bytes <= 0 and self.byte_count > 0

    # Positions

    def take(self, asked: Iterator[Asked]) -> bool:
        """Check and note the positions of a request, as many as fit into one turn.

        Return whether that is all.
        """
        session, cost = self._session, 0
        for key, each in asked:
            followed = session.name(key, each)
            if self._check(followed):
                self._note(followed)
                session.mark(followed)
            cost += 1
            if cost >= TURN_COST_MAX:
                self.cost = cost
                return False
        for followed in self._revisited:
            is_known = followed.partition is not None and not followed.is_unchecked
            if is_known and not followed.has_diverged:
                self._note(followed)
            cost += 1
            if cost >= TURN_COST_MAX:
                self.cost = cost
                return False
        self.cost = cost
        return True

    def _note(self, followed: FollowedPartition) -> None:
        """Tell the leader the follower's position, which may commit records."""
        session, partition = self._session, followed.partition
        assert partition is not None
        node, broker_epoch = session.follower
        partition.on_fetched(node, broker_epoch, followed.fetch_offset, followed.log_start_offset)
        if node not in partition.isr:
            session.outside[followed] = None
        elif session.outside:
            session.outside.pop(followed, None)

    def _check(self, followed: FollowedPartition) -> bool:
        """Return whether a follower may fetch from its position; if not, there is a row."""
        (name, index), row = followed.key, None
        topic_id, topic = (name, "") if isinstance(name, bytes) else (ZERO_TOPIC_ID, name)
        partition = self._replicas.find_wanted(TopicId(topic_id), TopicName(topic), index)
        if partition is None:
            row = missing_row(
                self._replicas, TopicId(topic_id), TopicName(topic), index, self._version
            )
        else:
            code = self._refusal(partition, followed)
            if code != ErrorCode.NONE:
                row = moved_row(self._replicas, partition.topic, index, code, self._version)
        if partition is None or row is not None:
            assert row is not None
            self._fail(followed, row)
            return False
        followed.is_unchecked = False
        self._session.watch(followed, partition)
        return not followed.has_diverged

    def _refusal(self, partition: Partition, followed: FollowedPartition) -> ErrorCode:
        """Return why a follower may not fetch from a partition, or NONE; it may have diverged."""
        followed.has_diverged = False
        epoch = followed.current_leader_epoch
        code = partition.check_leader_epoch(epoch) if epoch >= 0 else ErrorCode.NONE
        if code == ErrorCode.NONE:
            code = partition.check_follower(*self._session.follower)
            if code == ErrorCode.UNKNOWN_LEADER_EPOCH and epoch < 0:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if code != ErrorCode.NONE:
            return code
        log, offset = partition.log, followed.fetch_offset
        try:
            if followed.last_fetched_epoch >= 0:
                diverging = find_divergence(log, offset, followed.last_fetched_epoch)
                if diverging is not None:
                    row = log_row(log, followed.key[1], EMPTY, log.last_stable_offset)
                    row.diverging_epoch = diverging
                    self.rows[followed.key] = row
                    self.is_urgent = followed.has_diverged = True
                    return ErrorCode.NONE
            log.check_local(offset)
        except LogError as error:
            return error.code
        return ErrorCode.NONE

    def _fail(self, followed: FollowedPartition, row: PartitionData) -> None:
        """Answer with an error; the follower names the partition again to retry."""
        self._session.forget(followed.key)
        self.rows[followed.key] = row
        self.is_urgent = True

    # Records

    def read(self) -> bool:
        """Read what is in the queue, as much as fits into one turn; return whether that is all.

        What does not fit into the response stays in the queue.
        """
        session, cost = self._session, 0
        for _ in range(len(session.due)):
            if self.is_exhausted and not self._is_full:
                break
            if cost >= TURN_COST_MAX:
                self.cost = cost
                return False
            followed = session.take_due()
            cost += 1
            if followed is not None and (not followed.is_unchecked or self._check(followed)):
                cost += self._read_one(followed)
        for followed in self._given:  # behind those that got nothing
            session.mark(followed)
        self._given.clear()
        self.cost = cost
        return True

    def _read_one(self, followed: FollowedPartition) -> int:
        """Read one partition; return the cost of its bytes."""
        partition = followed.partition
        assert partition is not None
        if followed.has_diverged:
            return 0
        log, offset, records = partition.log, followed.fetch_offset, EMPTY
        bytes_max = min(followed.max_bytes, self._remaining_bytes)
        if partition.is_leader_throttled and self._session.follower.node not in partition.isr:
            if self._throttle.is_exceeded():
                self._session.mark(followed)  # for the next look
                return self._take(followed, partition, EMPTY)
            # No more than those of a second: windows forget a larger response before its time.
            bytes_max = min(bytes_max, max(self._throttle.rate() - self.throttled_bytes, 0))
        is_first = self.byte_count == 0 and not self.cold
        end_offset = log.end_offset
        try:
            if offset < end_offset and (bytes_max > 0 or is_first):
                found = log.read(offset, bytes_max, up_to=end_offset, is_first_whole=is_first)
                if found is None:
                    work = log.cold_read(
                        offset, bytes_max, up_to=end_offset, is_first_whole=is_first
                    )
                    self._remaining_bytes -= work.bytes_max
                    cold = ColdFollowed(followed, partition, bytes_max, is_first, work)
                    self.cold.append(cold)
                    return 0
                if is_first or has_whole_batch(found):
                    records = found
            else:
                log.check_local(offset)
        except LogError as error:
            self._fail(followed, failed_row(followed.key[1], error.code))
            return 0
        # What is there is due until the follower has it: there may be more, or it is sent again.
        if records:
            self._given.append(followed)
        elif offset < end_offset:
            self._session.mark(followed)
        return self._take(followed, partition, records)

    def take_cold(self, each: ColdFollowed) -> bool:
        """Add what a thread has read; return whether there is nothing more to read now."""
        followed, partition, _, is_first, work = each
        self._remaining_bytes += work.bytes_max
        session = self._session
        if followed.partition is not partition or session.is_ended:
            return True
        session.mark(followed)
        if followed.is_unchecked:
            return False
        log = partition.log
        try:
            log.check_local(followed.fetch_offset)  # its segment may have been deleted
            records = work.result(log.cuts)
        except LogError as error:
            self._fail(followed, failed_row(followed.key[1], error.code))
            return True
        except OSError:
            self._fail(followed, failed_row(followed.key[1], ErrorCode.KAFKA_STORAGE_ERROR))
            return True
        if not records:
            return False  # the segment has nothing from there on, or the log was cut
        self.cost += self._take(
            followed, partition, records if is_first or has_whole_batch(records) else EMPTY
        )
        return True

    def _take(self, followed: FollowedPartition, partition: Partition, records: memoryview) -> int:
        """Keep a row if it has news; return the cost of its bytes."""
        log = partition.log
        has_moved = followed.told_start_offset != log.start_offset
        if has_moved and followed.told_start_offset != UNKNOWN:
            self.is_urgent = True
        if (
            records
            or has_moved
            or followed.told_high_watermark != log.high_watermark
            or self._is_full
        ):
            self.rows[followed.key] = log_row(log, followed.key[1], records, log.last_stable_offset)
        count = len(records)
        if partition.is_leader_throttled:
            self.throttled_bytes += count
        self.byte_count += count
        self._remaining_bytes -= count
        return count >> BYTES_SHIFT

    def give_back(self) -> None:
        """Put everything back into the queue, as there will be no response."""
        self._given.clear()
        for key in self.rows:
            followed = self._session.partitions.get(key)
            if followed is not None:
                self._session.mark(followed)

    def let_go(self) -> None:
        """Drop the records that were read, as the fetch waits for more."""
        for row in self.rows.values():
            row.records = EMPTY
        self._remaining_bytes += self.byte_count
        self.byte_count = self.throttled_bytes = 0
