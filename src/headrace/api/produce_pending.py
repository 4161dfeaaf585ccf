"""A pending produce: it waits for a coordinator, for replicas or for the disk."""

import asyncio
from typing import Final

from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.server.request import Request
from headrace.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse

NO_OFFSET: Final = -1


class PendingProduce:
    """A produce whose records are in the log, or are held back until a coordinator has spoken."""

    __slots__ = ("_held", "_is_late", "_request", "_response", "_timer", "_waits")

    def __init__(self, request: Request, response: ProduceResponse | None) -> None:
        """`response` is None for a client that wants none."""
        self._request = request
        self._response = response
        self._waits: dict[Wait, None] = {}
        self._held = 0
        self._is_late = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, wait: "Wait") -> None:
        self._waits[wait] = None
        if self._timer is not None:
            wait.begin(self)

    def hold(self, count: int) -> None:
        """Delay the response until as many partitions are released."""
        self._held += count

    def release(self, count: int) -> None:
        """Release partitions that have been appended to, or refused."""
        self._held -= count
        if not self._held:
            self._request.release()
        if self._is_late:
            self._time_out()
        else:
            self._finish_if_over()

    def start(self, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for wait in self._waits:
            wait.begin(self)

    def end(self, wait: "Wait") -> None:
        """Note that one of the waits is over."""
        self._waits.pop(wait, None)
        self._finish_if_over()

    def _time_out(self) -> None:
        self._is_late = True
        if self._held:
            return  # what is not in the log yet may still come there: the client is to know
        for wait in tuple(self._waits):
            wait.time_out()
        self._waits.clear()
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._waits or self._held:
            return
        assert self._timer is not None
        self._timer.cancel()
        self._request.answer(self._response)


class Wait:
    """One partition that a produce waits for: on disk, or in all replicas, below an offset."""

    __slots__ = (
        "_is_all",
        "_is_flush_awaited",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_pending",
        "_row",
    )

    def __init__(
        self,
        partition: Partition,
        offset: int,
        row: PartitionProduceResponse,
        *,
        is_flush_awaited: bool,
        is_all: bool,
    ) -> None:
        """`is_all` is acks=all, which waits for the replicas."""
        self._partition = partition
        self._offset = offset
        self._row = row
        self._is_flush_awaited = is_flush_awaited
        self._is_all = is_all
        self._leader_epoch = partition.leader_epoch
        self._pending: PendingProduce

    def begin(self, pending: PendingProduce) -> None:
        self._pending = pending
        partition = self._partition
        partition.produce_waiters[self] = None if self._is_flush_awaited else self._offset
        if self._is_flush_awaited:
            partition.flush_soon()

    def on_progress(self) -> None:
        if self._is_over():
            self._partition.produce_waiters.pop(self, None)
            self._pending.end(self)

    def time_out(self) -> None:
        self._partition.produce_waiters.pop(self, None)
        if not self._is_over():
            self._fail(
                KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the replicas did not follow in time")
            )

    def _is_over(self) -> bool:
        partition, log = self._partition, self._partition.log
        if not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            self._fail(
                KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has another leader now"
                )
            )
            return True
        if self._is_flush_awaited and log.recovery_point < self._offset:
            if log.failure is None:
                return False
            failed = f"{partition.name}: {log.failure}"
            self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, failed))
            return True
        if not self._is_all:
            return True
        if log.high_watermark < self._offset:
            return False
        if not partition.has_enough_replicas:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self._fail(partition.too_few_replicas(code))
        return True

    def _fail(self, error: KafkaError) -> None:
        row = self._row
        row.error_code = error.code
        row.base_offset = NO_OFFSET
        row.log_append_time_ms = row.log_start_offset = NO_OFFSET
        row.error_message = error.message
