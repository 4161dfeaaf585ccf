"""Truncations that are under way: one task for each log whose files a thread brings in line.

A truncation that began is always finished, whatever becomes of the partition meanwhile: until then
its log refuses appends (`log/truncating`). On a full disk it is tried again until there is room.
"""

import asyncio
import logging
from typing import Final

from headrace.errors import KafkaError
from headrace.log.folder import LogFolder
from headrace.log.log import Log
from headrace.log.truncating import Cut, begin_restart, begin_truncation
from headrace.replication.following import Restart, Truncate
from headrace.replication.partition import Partition

RETRY_SECONDS: Final = 1.0
"""How long to wait for room on a full disk before the next try."""

logger = logging.getLogger(__name__)


class Cuts:
    """The truncations of a node's logs."""

    def __init__(self, folder: LogFolder) -> None:
        self._folder = folder
        self._running: dict[Log, asyncio.Task[bool]] = {}
        self._abandoned: dict[Log, asyncio.Event] = {}

    def running(self, log: Log) -> "asyncio.Task[bool] | None":
        """Return the task that finishes the truncation of a log, if there is one."""
        return self._running.get(log)

    def start(self, partition: Partition, cut: Cut) -> "asyncio.Task[bool]":
        """Finish a truncation; the task says whether the log takes appends again."""
        log = cut.log
        self._abandoned[log] = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._finish(partition, cut))
        self._running[log] = task
        return task

    async def abandon(self, log: Log) -> None:
        """Return when no thread works on the files of a log: they are to be deleted."""
        task = self._running.get(log)
        if task is not None:
            self._abandoned[log].set()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Return when no thread works on files; what is not done is done after the next start."""
        for log in tuple(self._running):
            await self.abandon(log)

    async def _finish(self, partition: Partition, cut: Cut) -> bool:
        key, log = (partition.topic, partition.index), cut.log
        abandoned = self._abandoned[log]
        is_reported = False
        try:
            while not abandoned.is_set():
                try:
                    await self._folder.finish_cut(key, cut)
                except KafkaError as error:
                    log.failure = error.message
                    logger.error("%s cannot be cut: %s", partition.name, error.message)
                    return False
                except OSError as error:
                    if not is_reported:
                        logger.error("%s waits for room to be cut: %s", partition.name, error)
                    is_reported = True
                else:
                    return True
                await _wait(abandoned, RETRY_SECONDS)
            return False
        finally:
            del self._running[log], self._abandoned[log]


def begin_cut(partition: Partition, step: Truncate | Restart) -> Cut:
    """Cut a log as its follower decided; raise ReadOnlyLog if the disk fails."""
    log = partition.log
    if isinstance(step, Restart):
        logger.warning(
            "%s, offsets %d to %d, begins again at %d, where its leader's log is",
            *(partition.name, log.start_offset, log.end_offset, step.offset),
        )
        return begin_restart(log, step.offset)
    logger.log(
        logging.WARNING if step.offset < log.high_watermark else logging.INFO,
        "%s is cut at offset %d, as its leader lacks what follows up to %d; "
        "the high watermark is %d",
        *(partition.name, step.offset, log.end_offset, log.high_watermark),
    )
    cut = begin_truncation(log, step.offset)
    assert cut is not None, "a follower cuts off what is there"
    return cut


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
