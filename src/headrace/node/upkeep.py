"""Background work: retention, compaction, flushes, checkpoints, removal.

Each kind of work is a method that a test may await, and a task that runs it periodically. Turns on
the loop are short: few partitions at a time, and threads remove, compact and sync files. A failure
is logged and counted; other work continues, and the failed work runs again next time. Ages are
measured by the node's clock, intervals between runs by the loop's.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, NamedTuple

from msgspec import Struct

from headrace import config
from headrace.errors import HeadraceError
from headrace.log.cutting import DELETED_AT_ONCE_MAX, apply_retention
from headrace.log.log import Log
from headrace.node.compactor import Compactor
from headrace.node.removal import Removal
from headrace.replication.partition import Partition
from headrace.server.broker import Broker
from headrace.server.traffic import Traffic

PARTITIONS_A_TURN: Final = 20
"""How many partitions are visited in one turn of the loop."""
FLUSH_CHECK_MS: Final = 1_000
QUOTA_CHECK_MS: Final = 60_000
REMOVAL_CHECK_MS: Final = 15_000
IDLE_CHECK_MS_MIN: Final = 20
IDLE_CHECK_MS_MAX: Final = 5_000
LAG_TICK_MS: Final = 250
WAIT_MS_MAX: Final = config.DAY_MS
"""The longest single wait: a loop cannot sleep for ages."""

logger = logging.getLogger(__name__)


class UpkeepCounters(Struct):
    """Counters of one kind of work since the node started."""

    runs: int = 0
    failures: int = 0
    freed: int = 0
    """What the work achieved, see `MEANING_OF_FREED`."""
    last_duration_ns: int = 0


MEANING_OF_FREED: Final = {
    "retention": "bytes of deleted segments",
    "compaction": "bytes saved",
    "producer_expiry": "producers expired",
    "flush": "logs synced",
    "checkpoint": "checkpoints written",
    "removal": "files and folders removed",
    "idle_connections": "connections closed",
    "quota_expiry": "meters of quotas forgotten",
}


class _Work(NamedTuple):
    """Periodic work, and the wait before each run."""

    run: Callable[[], Awaitable[object]]
    wait_ms: Callable[[], float]


class Upkeep:
    """The background work of a node."""

    def __init__(
        self,
        broker: Broker,
        traffic: Traffic | None = None,
        expire_quotas: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self._expire_quotas = expire_quotas
        self.counters: dict[str, UpkeepCounters] = {
            name: UpkeepCounters() for name in MEANING_OF_FREED
        }
        self._broker = broker
        self._traffic = traffic
        self._compactor = Compactor(broker)
        self._removal = Removal(broker)
        self._tasks: list[asyncio.Task[None]] = []
        self._steps: set[asyncio.Future[object]] = set()
        self._settings_changed = asyncio.Event()
        """Set when settings change; another one then takes its place."""

    def start(self) -> None:
        """Start; the first run of each kind comes after its interval."""
        self._broker.replicas.before_deletion.append(self._compactor.abandon)
        self._broker.settings.on_changed.append(self._on_settings_changed)
        self._tasks = [asyncio.create_task(self._repeat(work)) for work in self._works()]
        self._tasks.append(asyncio.create_task(self._watch_lag()))

    async def stop(self) -> None:
        """Stop; on return no thread works on a log any more.

        This waits for the current step, as threads cannot be cancelled; only compaction can.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._compactor.stop()
        if self._steps:
            await asyncio.wait(self._steps)

    # The kinds of work

    async def run_retention(self) -> None:
        """Delete segments of each log that are too old or over the size limit."""
        with self._counted("retention") as counted:
            now_ms = self._broker.clock.now_ms()
            async for partition in self._partitions():
                log = partition.log
                before_bytes, start_offset = log.size_bytes, log.start_offset
                with counted.failures_of(partition.name):
                    count = DELETED_AT_ONCE_MAX
                    while count >= DELETED_AT_ONCE_MAX and _may_delete(log):
                        count = apply_retention(log, now_ms)
                        if count:
                            await asyncio.sleep(0)  # files were renamed, which takes a while
                counted.freed(before_bytes - log.size_bytes)
                if log.start_offset > start_offset:
                    partition.on_start_moved()
            if counted.has_freed:
                await self._broker.folder.checkpoint()

    async def run_compaction(self) -> None:
        """Compact the logs that are due, the dirtiest first."""
        with self._counted("compaction") as counted:
            partition = await self._compactor.choose()
            while partition is not None:
                with counted.failures_of(partition.name):
                    counted.freed(await self._compactor.compact(partition))
                partition = await self._compactor.choose()
            if counted.has_freed:
                await self._broker.folder.checkpoint()

    async def run_producer_expiry(self) -> None:
        """Expire producers that were idle for too long."""
        with self._counted("producer_expiry") as counted:
            now_ms = self._broker.clock.now_ms()
            async for partition in self._partitions():
                log = partition.log
                idle_ms_max = log.settings.producer_id_expiration_ms
                for count in log.producers.expire_in_parts(now_ms, idle_ms_max):
                    counted.freed(count)
                    await asyncio.sleep(0)

    async def run_flushes(self) -> None:
        """Sync the logs that are due: a segment was finished, or flush.ms has passed."""
        with self._counted("flush") as counted:
            now_ms = self._broker.clock.now_ms()
            async for partition in self._partitions():
                log = partition.log
                if log.is_flush_due(now_ms) and log.is_writable:
                    with counted.failures_of(partition.name):
                        await log.flush()
                        partition.on_flushed()
                        counted.freed(1)

    async def run_checkpoint(self) -> None:
        """Write the checkpoints of all logs."""
        with self._counted("checkpoint") as counted:
            await self._broker.folder.checkpoint()
            counted.freed(1)

    async def run_removal(self) -> None:
        """Remove deleted files and folders whose delay has passed."""
        with self._counted("removal") as counted:
            async for partition in self._partitions():
                if not partition.log.has_deleted_files:
                    continue
                with counted.failures_of(partition.name):
                    counted.freed(await self._removal.remove_files(partition.log))
            with counted.failures_of("deleted folders"):
                counted.freed(await self._removal.remove_folders())

    async def run_idle_connections(self) -> None:
        """Close connections that were idle for connections.max.idle.ms."""
        idle_ms_max = self._broker.settings[config.CONNECTIONS_MAX_IDLE_MS]
        if self._traffic is None or idle_ms_max < 0:
            return
        with self._counted("idle_connections") as counted:
            now_ns = self._broker.counters.monotonic_ns()
            for connection in tuple(self._traffic.connections):
                idle_ms = (now_ns - connection.active_ns) // 1_000_000
                if idle_ms > idle_ms_max and not connection.has_unanswered:
                    connection.close(f"idle for {idle_ms} ms, more than connections.max.idle.ms")
                    self._broker.counters.connections_idle_closed += 1
                    counted.freed(1)

    async def run_quota_expiry(self) -> None:
        """Forget what clients that were idle for an hour used of their quotas."""
        if self._expire_quotas is not None:
            with self._counted("quota_expiry") as counted:
                counted.freed(await self._expire_quotas())

    # How it is done

    def _works(self) -> list[_Work]:
        settings = self._broker.settings
        idle_ms = settings[config.CONNECTIONS_MAX_IDLE_MS]
        idle_check_ms = min(max(idle_ms / 4, IDLE_CHECK_MS_MIN), IDLE_CHECK_MS_MAX)
        checkpoint_ms = min(
            settings[config.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS],
            settings[config.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS],
            settings[config.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
        )
        flush_ms = min(settings[config.LOG_FLUSH_SCHEDULER_INTERVAL_MS], FLUSH_CHECK_MS)
        works = [
            _Work(self.run_retention, lambda: settings[config.LOG_RETENTION_CHECK_INTERVAL_MS]),
            _Work(
                self.run_producer_expiry,
                lambda: settings[config.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS],
            ),
            _Work(self.run_flushes, lambda: flush_ms),
            _Work(self.run_checkpoint, lambda: checkpoint_ms),
            _Work(self.run_removal, lambda: REMOVAL_CHECK_MS),
            _Work(self.run_idle_connections, lambda: idle_check_ms),
            _Work(self.run_quota_expiry, lambda: QUOTA_CHECK_MS),
        ]
        if settings[config.LOG_CLEANER_ENABLE]:
            works.append(
                _Work(self.run_compaction, lambda: settings[config.LOG_CLEANER_BACKOFF_MS])
            )
        return works

    async def _repeat(self, work: _Work) -> None:
        while True:
            await self._rest(work)
            step = asyncio.ensure_future(work.run())
            self._steps.add(step)
            step.add_done_callback(self._steps.discard)
            await asyncio.shield(step)

    async def _rest(self, work: _Work) -> None:
        """Wait until a kind of work is due. How long that is may change meanwhile."""
        began = asyncio.get_running_loop().time()
        while True:
            wait_ms = min(max(work.wait_ms(), 1), WAIT_MS_MAX)
            try:
                async with asyncio.timeout_at(began + wait_ms / 1000):
                    await self._settings_changed.wait()
            except TimeoutError:
                return

    def _on_settings_changed(self) -> None:
        changed, self._settings_changed = self._settings_changed, asyncio.Event()
        changed.set()

    async def _watch_lag(self) -> None:
        """Measure how late the loop runs a tick: it is that far behind with everything."""
        loop, counters = asyncio.get_running_loop(), self._broker.counters
        while True:
            due = loop.time() + LAG_TICK_MS / 1000
            await asyncio.sleep(LAG_TICK_MS / 1000)
            counters.loop_lag_ns = max(int((loop.time() - due) * 1e9), 0)
            counters.loop_lag_ns_max = max(counters.loop_lag_ns_max, counters.loop_lag_ns)

    async def _partitions(self) -> AsyncIterator[Partition]:
        """Yield this node's partitions, with a turn of the loop in between."""
        replicas = self._broker.replicas
        for number, partition in enumerate(tuple(replicas), 1):
            if replicas.find(partition.topic, partition.index) is partition:
                yield partition
            if number % PARTITIONS_A_TURN == 0:
                await asyncio.sleep(0)

    def _counted(self, name: str) -> "_Counted":
        return _Counted(name, self.counters[name], self._broker.counters.monotonic_ns)


def _may_delete(log: Log) -> bool:
    """Return whether retention may work on a log now.

    It may on a full disk, which it can free; not on a failing one.
    """
    return not log.is_compacting and (log.failure is None or log.is_out_of_space)


class _Counted:
    """Counts one run, and contains the failures in it."""

    def __init__(
        self, name: str, counters: UpkeepCounters, monotonic_ns: Callable[[], int]
    ) -> None:
        self.has_freed = False
        self._name = name
        self._counters = counters
        self._monotonic_ns = monotonic_ns
        self._began_ns = monotonic_ns()

    def freed(self, count: int) -> None:
        if count > 0:
            self.has_freed = True
            self._counters.freed += count

    def failures_of(self, what: str) -> "_Failures":
        """Return a context in which a failure is recorded as one of `what` and then dropped."""
        return _Failures(f"{self._name} of {what}", self._counters)

    def __enter__(self) -> "_Counted":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._counters.runs += 1
        self._counters.last_duration_ns = self._monotonic_ns() - self._began_ns
        return _note(self._name, self._counters, error)


class _Failures:
    """Context that records a failure."""

    def __init__(self, name: str, counters: UpkeepCounters) -> None:
        self._name = name
        self._counters = counters

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return _note(self._name, self._counters, error)


def _note(name: str, counters: UpkeepCounters, error: BaseException | None) -> bool:
    """Count and log a failure; return whether it is handled. A cancellation propagates."""
    if not isinstance(error, Exception):
        return False
    counters.failures += 1
    is_expected = isinstance(error, OSError | HeadraceError)
    logger.error("%s failed: %s", name, error, exc_info=None if is_expected else error)
    return True
