"""Transaction markers: the ends of transactions in the logs of partitions, one control batch each.

A partition of `__consumer_offsets` gets its marker through the coordinator of groups, which has to
know that offsets count from then on.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import Reply
from headrace.errors import ErrorCode, KafkaError
from headrace.ids import GROUPS_TOPIC, TopicName
from headrace.log.log import Appended
from headrace.loop.clock import Clock
from headrace.records.control import build_end_transaction_marker
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.txn.state import Place


class Marker(NamedTuple):
    """How the transaction of a producer ended."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerWriter:
    """Writes markers to the partitions that this node leads."""

    def __init__(self, replicas: Replicas, groups: Coordinator[Any], clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock
        self.listeners: list[Callable[[Place, int], None]] = []
        """Called with the partition and the producer id of each marker that is written."""

    def write(
        self,
        place: Place,
        marker: Marker,
        on_written: Reply[None],
        *,
        timeout_seconds: float | None = None,
    ) -> None:
        """Append a marker; `on_written` is called once it is committed, or with its error.

        UNKNOWN_TOPIC_OR_PARTITION if there is no such partition, NOT_LEADER_OR_FOLLOWER if this
        node does not lead it, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the
        producer or its coordinator was replaced. REQUEST_TIMED_OUT if it is in the log and not
        committed within the timeout: it may still be.
        """
        topic, index = TopicName(place[0]), place[1]
        partition = self._replicas.find(topic, index)
        try:
            if partition is None or not partition.is_leader:
                raise self._replicas.explain_missing(topic, index)
            if partition.log.settings.mirror_source is not None:
                # The records of the transaction were not taken, so there is nothing to end.
                state = partition.log.producers.get(marker.producer_id)
                if state is not None and state.transaction_first_offset is not None:
                    raise partition.is_mirror()
                on_written(None)
                return
            appended = self._append(partition, marker)
        except KafkaError as error:
            on_written(error)
            return
        for on_marker in self.listeners:
            on_marker(place, marker.producer_id)
        if partition.log.high_watermark > appended.last_offset:
            on_written(None)
        else:
            waiter = _Uncommitted(partition, appended, on_written)
            # A sync that fails is told to those who are told of everything.
            offset = None if partition.is_flush_awaited else appended.last_offset + 1
            partition.produce_waiters[waiter] = offset
            if timeout_seconds is not None:
                waiter.expire_in(timeout_seconds)

    def _append(self, partition: Partition, marker: Marker) -> Appended:
        batch = memoryview(
            build_end_transaction_marker(
                self._clock.now_ms(),
                is_commit=marker.is_commit,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
            )
        )
        version = marker.transaction_version
        if partition.topic != GROUPS_TOPIC:
            return partition.append_own(batch, transaction_version=version)
        shard = self._groups.shard_at(partition.index)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"this node does not coordinate {partition.name}"
            )
        return shard.end_transaction(batch, transaction_version=version)


class _Uncommitted:
    """A marker that waits for the high watermark."""

    __slots__ = ("_leader_epoch", "_offset", "_on_written", "_partition", "_timer")

    def __init__(self, partition: Partition, appended: Appended, on_written: Reply[None]) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._offset = appended.last_offset
        self._on_written = on_written
        self._timer: asyncio.TimerHandle | None = None

    def expire_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def on_progress(self) -> None:
        partition = self._partition
        name = partition.name
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            self._end(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} has another leader now")
        elif partition.log.high_watermark > self._offset:
            self._end()
        elif (failure := partition.log.failure) is not None:
            self._end(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}: {failure}")

    def _expire(self) -> None:
        message = f"the replicas of {self._partition.name} did not follow in time"
        self._end(ErrorCode.REQUEST_TIMED_OUT, message)

    def _end(self, code: ErrorCode = ErrorCode.NONE, message: str = "") -> None:
        self._partition.produce_waiters.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._on_written(KafkaError(code, message) if code else None)
