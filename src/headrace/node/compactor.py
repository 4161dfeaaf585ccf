"""Choice of the next log to compact, and one cancellable pass over it.

There is one pass at a time. A log whose pass fails because of damaged data or its disk is skipped
until the node restarts, as in Kafka: it would stay the dirtiest log and block the others. A log
without room on the disk waits for some.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from headrace import config
from headrace.log.cleanable import Cleanable, choose
from headrace.log.compaction import Compacted, CompactionAbandoned, compact, plan_log
from headrace.log.log import SPACE_MARGIN_BYTES, Log, is_out_of_space
from headrace.replication.partition import Partition
from headrace.server.broker import Broker

PLANS_A_TURN: Final = 20
"""How many logs are checked in one turn of the loop."""

logger = logging.getLogger(__name__)


class _Pass(NamedTuple):
    log: Log
    task: "asyncio.Task[Compacted]"


class Compactor:
    """Compacts the logs of a node one by one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left_alone: set[Log] = set()
        self._room_needed: dict[Log, int] = {}
        """How many bytes must be free before a log is retried."""
        self._pass: _Pass | None = None
        self._is_stopped = False

    async def choose(self) -> Partition | None:
        """Return the partition whose log needs compaction most, or None."""
        now_ms = self._broker.clock.now_ms()
        plans: dict[Partition, Cleanable] = {}
        partitions = tuple(self._broker.replicas)
        if self._left_alone or self._room_needed:
            here = {partition.log for partition in partitions}
            self._left_alone &= here
            for gone in self._room_needed.keys() - here:
                del self._room_needed[gone]
        for number, partition in enumerate(partitions, 1):
            log = partition.log
            if log.settings.is_compacted and self._may_compact(log):
                try:
                    _roll_if_late(log, now_ms)
                    plans[partition] = plan_log(log, now_ms)
                except OSError as error:
                    self._leave_alone(log, error)
            if number % PLANS_A_TURN == 0:
                await asyncio.sleep(0)
        chosen = choose(plans)
        if chosen is None or self._is_stopped:
            return None
        is_here = self._broker.replicas.find(chosen.topic, chosen.index) is chosen
        return chosen if is_here else None

    async def compact(self, partition: Partition) -> int:
        """Make one pass over a partition's log; return how many bytes it saved.

        Zero if the log was deleted or truncated in the meantime. Other errors of the disk or the
        data are raised.
        """
        log = partition.log
        map_bytes = self._broker.settings[config.LOG_CLEANER_DEDUPE_BUFFER_SIZE]
        now_ms = self._broker.clock.now_ms()
        task = asyncio.create_task(compact(log, now_ms, map_bytes=map_bytes))
        self._pass = _Pass(log, task)
        try:
            await asyncio.wait([task])
        finally:
            await self.abandon(log)
            self._pass = None
        if task.cancelled():
            return 0
        try:
            done = task.result()
        except CompactionAbandoned as error:
            logger.info("compaction was called off: %s", error)
            return 0
        except Exception as error:
            self._leave_alone(log, error)
            raise
        self._room_needed.pop(log, None)
        logger.info(
            "%s is compacted up to offset %d: %d records kept, %d dropped, %d bytes became %d",
            *(partition.name, done.first_dirty_offset, done.records_kept, done.records_dropped),
            *(done.bytes_read, done.bytes_written),
        )
        return max(done.bytes_read - done.bytes_written, 0)

    async def abandon(self, log: Log) -> None:
        """Cancel the pass over a log, if any; on return no thread works for it."""
        if self._pass is not None and self._pass.log is log and not self._pass.task.done():
            task = self._pass.task
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Start no more passes, and cancel the current one."""
        self._is_stopped = True
        if self._pass is not None:
            await self.abandon(self._pass.log)

    def _may_compact(self, log: Log) -> bool:
        if log in self._left_alone or not log.is_writable:
            return False
        needed_bytes = self._room_needed.get(log)
        return needed_bytes is None or log.disk.free_bytes() >= needed_bytes

    def _leave_alone(self, log: Log, error: Exception) -> None:
        if is_out_of_space(error) or log.is_out_of_space:
            # Twice as much as was not enough: not every small removed file is worth a retry.
            free_bytes = log.disk.free_bytes()
            self._room_needed[log] = max(2 * free_bytes, SPACE_MARGIN_BYTES)
            logger.warning("%s is not compacted before there is room: %s", log.folder, error)
            return
        self._left_alone.add(log)
        logger.warning("%s is not compacted before the next start: %s", log.folder, error)


def _roll_if_late(log: Log, now_ms: int) -> None:
    """Finish the active segment if max.compaction.lag.ms has passed since its first record.

    Compaction does not touch the active segment, so a record in it would wait forever if nothing
    else were appended.
    """
    lag_ms = max(log.settings.max_compaction_lag_ms, log.settings.min_compaction_lag_ms)
    active = log.segments[-1]
    if lag_ms >= config.MAX_COMPACTION_LAG_MS.default or active.size_bytes == 0:
        return
    active.load_timestamps()
    first_ms = active.first_timestamp
    if first_ms is not None and 0 <= first_ms < now_ms - lag_ms:
        log.roll(log.end_offset)
