"""A pending produce: it waits for a coordinator, for replicas or for the disk."""

import asyncio
from typing import Final

from headrace.errors import ErrorCode
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
        self._waits: list[Wait] = []
        self._held = 0
        self._is_late = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self, wait: "Wait") -> None:
        self._waits.append(wait)
        if self._timer is not None:
            self._begin(wait)

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
            self.on_progress()

    def start(self, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._time_out)
        for wait in self._waits:
            self._begin(wait)

    def _begin(self, wait: "Wait") -> None:
        wait.partition.produce_waiters[self] = None
        if wait.is_flush_awaited:
            wait.partition.flush_soon()

    def on_progress(self) -> None:
        if not self._held and all(wait.is_over() for wait in self._waits):
            self._finish()

    def _time_out(self) -> None:
        self._is_late = True
        if self._held:
            return  # what is not in the log yet may still come there: the client is to know
        for wait in self._waits:
            if not wait.is_over():
                wait.fail(ErrorCode.REQUEST_TIMED_OUT, "the replicas did not follow in time")
        self._finish()

    def _finish(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for wait in self._waits:
            wait.partition.produce_waiters.pop(self, None)
        self._request.answer(self._response)


class Wait:
    """One partition that a produce waits for: on disk, or in all replicas, below an offset."""

    __slots__ = ("is_flush_awaited", "leader_epoch", "offset", "partition", "row")

    def __init__(
        self, partition: Partition, offset: int, row: PartitionProduceResponse, is_flushed: bool
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.row = row
        self.is_flush_awaited = is_flushed
        self.leader_epoch = partition.leader_epoch

    def is_over(self) -> bool:
        partition, log = self.partition, self.partition.log
        if self.row.error_code:
            return True
        if not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            self.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} has another leader now")
            return True
        if self.is_flush_awaited and log.recovery_point < self.offset:
            if log.failure is None:
                return False
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name}: {log.failure}")
            return True
        return log.high_watermark >= self.offset

    def fail(self, code: ErrorCode, message: str) -> None:
        self.row.error_code = code
        self.row.base_offset = NO_OFFSET
        self.row.log_append_time_ms = self.row.log_start_offset = NO_OFFSET
        self.row.error_message = message
